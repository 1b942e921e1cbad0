"""Definitions and calls inside one file, for the rules about shapes.

Nothing here follows calls or solves paths: that is the flow analysis' work. A question
that a function's text does not settle is answered with "no" or None, so that a rule
stays silent.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from amplint.code.arguments import parameters, passed
from amplint.code.classes import ancestry_in_file, subclasses_in
from amplint.code.expressions import binder_of, path_text
from amplint.code.layout import SCOPES, layout_of
from amplint.code.module import Class, Function, Module, enclosing_class, walk
from amplint.code.tree import LEAVES, MARKS


@dataclass(frozen=True, slots=True, eq=False)
class Binding:
    """One place that gives a name or an attribute a value.

    Args:
        statement: the statement or expression that binds.
        value: what is bound; None where that is not one expression (loop targets,
            unpacking, imports, `+=`, `del`).
        function: where that happens.
    """

    statement: ast.AST
    value: ast.expr | None
    function: Function

    @property
    def source(self) -> ast.expr | None:
        """What is bound or what it is taken from: an iterable, what is unpacked, added, entered."""
        if self.value is not None:
            return self.value
        for name in _SOURCES:
            found = getattr(self.statement, name, None)
            if isinstance(found, ast.expr):
                return found
        return None


#: Fields of statements that hold what their targets get.
_SOURCES = ("value", "iter", "context_expr")


def bindings_of(function: Function) -> dict[str, list[Binding]]:
    """Every binding of the function by `path_text` of its target; parameters excluded."""
    return function.once(_find_bindings)


def _find_bindings(function: Function) -> dict[str, list[Binding]]:
    found: dict[str, list[Binding]] = {}
    for node in function.nodes:
        if type(node) not in _BINDING:  # of most nodes this is the only question
            continue
        for target, value in _targets(node):
            path = path_text(target)
            if path is not None:
                found.setdefault(path, []).append(Binding(node, value, function))
        for name in _bound_names(node):
            found.setdefault(name, []).append(Binding(node, None, function))
    return found


def rebinders(scope: Function) -> Mapping[str, Sequence[Function]]:
    """The functions that bind names of a scope by `nonlocal` or `global`, by name.

    They may run whenever somebody calls them: what the scope itself binds says little then.
    """
    return scope.module.once(_find_rebinders).get(scope, _NOBODY)


_NOBODY: Mapping[str, Sequence[Function]] = {}
#: Statements that say that a name lives in another scope.
ELSEWHERE = (ast.Global, ast.Nonlocal)


def _find_rebinders(module: Module) -> dict[Function, dict[str, list[Function]]]:
    found: dict[Function, dict[str, list[Function]]] = {}
    for function in module.functions:
        for node in function.nodes:
            if type(node) in ELSEWHERE:
                for name in dict.fromkeys(node.names):  # type: ignore[attr-defined]
                    owner = _home(name, function, isinstance(node, ast.Global))
                    if owner is not None and rebindings(function, name):
                        found.setdefault(owner, {}).setdefault(name, []).append(function)
    return found


def _home(name: str, function: Function, is_global: bool) -> Function | None:
    """The scope that holds a name that a function declares to be another's."""
    scope = function.module.body if is_global else function.parent
    while scope is not None and not is_global and not _holds(scope, name):
        scope = scope.parent
    return None if scope is function else scope


def _holds(scope: Function, name: str) -> bool:
    found = bindings_of(scope).get(name, ())
    return name in parameters(scope) or (
        bool(found) and all(type(item.statement) not in ELSEWHERE for item in found)
    )


def rebindings(function: Function, name: str) -> list[Binding]:
    """What a function binds a name to that it declares to be another scope's."""
    found = bindings_of(function).get(name, ())
    return [item for item in found if type(item.statement) not in ELSEWHERE]


@dataclass(frozen=True, slots=True, eq=False)
class Fill:
    """One place that puts something into a container.

    Args:
        value: the element, or a container whose elements are put in.
        is_element: which of both.
    """

    value: ast.expr
    is_element: bool


#: Methods that put their last argument, or the elements of it, into a container.
_FILLERS = {
    **dict.fromkeys(("append", "add", "appendleft", "insert", "setdefault"), True),
    **dict.fromkeys(("extend", "update"), False),
}


def fills_of(function: Function) -> dict[str, list[Fill]]:
    """What a function puts into containers, by `path_text` of the container."""
    return function.once(_find_fills)


def _find_fills(function: Function) -> dict[str, list[Fill]]:
    found: dict[str, list[Fill]] = {}
    for node in function.nodes:
        for container, fill in _fills(node):
            path = path_text(container)
            if path is not None:
                found.setdefault(path, []).append(fill)
    return found


def _fills(node: ast.AST) -> Iterator[tuple[ast.expr, Fill]]:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        is_element = _FILLERS.get(node.func.attr)
        if is_element is not None and node.args and not node.keywords:
            yield node.func.value, Fill(node.args[-1], is_element)
    elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        yield node.target, Fill(node.value, False)
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Subscript):
                yield target.value, Fill(node.value, True)


def outside_stores(module: Module) -> dict[str, list[tuple[ast.expr, Binding]]]:
    """By attribute, what it is stored on in a file, `self` excluded, and how."""
    found: dict[str, list[tuple[ast.expr, Binding]]] = {}
    for function in module.functions:
        for node in function.nodes:
            if type(node) not in _BINDING:
                continue
            for target, value in _targets(node):
                if isinstance(target, ast.Attribute) and path_text(target.value) != "self":
                    stored = (target.value, Binding(node, value, function))
                    found.setdefault(target.attr, []).append(stored)
    return found


def changed_elsewhere(function: Function) -> Mapping[str, bool]:
    """Places of a function that other code of the file binds or fills.

    Names, and attributes of `self` that methods change which somebody is given, to call them
    whenever he likes: hooks, callbacks.

    Returns:
        The places, and whether such code changes them; if not, only a call in sight does.
    """
    return function.once(_find_changes)


def _find_changes(function: Function) -> dict[str, bool]:
    module = function.module
    found: dict[str, bool] = {}
    for name, others in _rebound(function):
        found[name] = found.get(name, False) or any(map(_is_handed, others))
    for inner, own in _inside(function, frozenset()):
        for path in {**bindings_of(inner), **fills_of(inner)}:
            root = root_of(path)
            if root not in own and (path != root or path in fills_of(inner)):
                found[root] = found.get(root, False) or _is_handed(inner)
    for node in function.nodes:
        if isinstance(node, ast.Lambda):
            filled = (path_text(place) for part in walk(node.body) for place, _ in _fills(part))
            found.update({root_of(path): True for path in filled if path is not None})
    owner = enclosing_class(function)
    if owner is not None:
        fields = module.once(_fields_changed)
        for item in (*ancestry_in_file(owner), *subclasses_in(module, owner)):
            changed = fields.get(item, {}).items()
            found.update((field, True) for field, changing in changed if changing - {function})
    found.pop("self", None)
    return found


def _rebound(function: Function) -> Iterator[tuple[str, Sequence[Function]]]:
    """Names that a function binds, here or further out, and who else does."""
    yield from rebinders(function).items()
    for name, found in bindings_of(function).items():
        for item in found:
            if isinstance(item.statement, ELSEWHERE):
                home = _home(name, function, isinstance(item.statement, ast.Global))
                others = rebinders(home).get(name, ()) if home is not None else ()
                others = [other for other in others if other is not function]
                if others:
                    yield name, others


def _inside(function: Function, own: frozenset[str]) -> Iterator[tuple[Function, frozenset[str]]]:
    """The functions inside one, each with the names that are its own or of one in between."""
    for inner in function.nested.values():
        names = own | parameters(inner).keys() | {*filter(str.isidentifier, bindings_of(inner))}
        yield inner, names
        yield from _inside(inner, names)


def _fields_changed(module: Module) -> dict[Class, dict[str, set[Function]]]:
    """By class, the attributes of `self` that functions change which are handed around."""
    found: dict[Class, dict[str, set[Function]]] = {}
    for function in module.functions:
        owner = enclosing_class(function)
        if owner is None or not _is_handed(function):
            continue
        for path in (*bindings_of(function), *fills_of(function)):
            if path.startswith("self."):
                field = ".".join(re.split(r"[.\[]", path)[:2])
                found.setdefault(owner, {}).setdefault(field, set()).add(function)
    return found


def _is_handed(function: Function) -> bool:
    """Whether a function is used as a value: whoever gets it may call it at any time."""
    return function.name in function.module.once(values_handed)


def root_of(path: str) -> str:
    """The name that a path begins with: "kept" of "kept['output'].loss"."""
    return path.partition(".")[0].partition("[")[0]


def values_read(module: Module) -> frozenset[str]:
    """Names that a file reads as values: not to call them, to annotate, or to derive from them."""
    direct, renamed = module.once(_read_as_values)
    return direct | {name for _, name in renamed}


def values_handed(module: Module) -> frozenset[str]:
    """The same without what a function gives another name, only to call it there."""
    direct, renamed = module.once(_read_as_values)
    found, before = set(direct), -1
    while len(found) > before:
        before = len(found)
        found.update(name for target, name in renamed if target in found)
    return frozenset(found)


def _read_as_values(module: Module) -> tuple[frozenset[str], list[tuple[str, str]]]:
    """Names read as values, and those that are read for other names: (other name, name)."""
    found: set[str] = set()
    renamed: list[tuple[str, str]] = []
    pending: list[ast.AST] = [module.tree]
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
            found.add(_last(node))
        other = _renamed_by(node)
        if other is not None:
            renamed.append(other)
            pending += _bound_by(node.value)  # type: ignore[attr-defined]
        elif type(node) not in LEAVES and type(node) not in MARKS:
            pending += _values_in(node)
    return frozenset(found), renamed


def _last(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr


def _renamed_by(node: ast.AST) -> tuple[str, str] | None:
    """Another name and what it stands for: `back = self.back`, `back = partial(self.back, x)`."""
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return None
    target, binder = node.targets[0], binder_of(node.value)
    value = binder.args[0] if binder is not None else node.value
    if isinstance(target, ast.Name) and isinstance(value, (ast.Name, ast.Attribute)):
        return target.id, _last(value)
    return None


def _values_in(node: ast.AST) -> Iterator[ast.AST]:
    """The children of a node that are no mere mentions of what they name."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "bases", "decorator_list", "type"):
            continue
        if name == "func" or (isinstance(node, ast.Attribute) and name == "value"):
            if isinstance(value, ast.Name):
                continue
            if isinstance(value, ast.Attribute):
                yield value.value
                continue
            if name == "func" and binder_of(value) is not None:  # `partial(f, x)(y)`
                yield from _bound_by(value)
                continue
        if isinstance(node, ast.Call) and name == "args" and _asks_for_type(node):
            value = value[:1]
        items = value if isinstance(value, list) else [value]
        if isinstance(node, (ast.Module, ast.ClassDef)):  # other files may read these names
            items = [item.value if _renamed_by(item) is not None else item for item in items]
        yield from (item for item in items if isinstance(item, ast.AST))


def _bound_by(value: ast.expr) -> Iterator[ast.AST]:
    """What is read of `self.f`, or of `partial(self.f, x)`, but the function itself."""
    binder = binder_of(value)
    if binder is None:
        yield from _values_in(value)
        return
    yield from _bound_by(binder.args[0])
    yield from (*binder.args[1:], *(word.value for word in binder.keywords))


def _asks_for_type(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id in ("isinstance", "issubclass")


def bound_in(function: Function, node: ast.AST) -> set[str]:
    """Root names that a part of the function binds, `self` excluded."""
    return {root_of(path) for path in paths_bound_in(function, node)} - {"self"}


def paths_bound_in(function: Function, node: ast.AST) -> set[str]:
    """The paths that a part of the function binds: `optimizer`, `self.optimizer`, `rows[0]`."""
    layout = layout_of(function)
    return {
        path
        for path, bindings in bindings_of(function).items()
        if any(item.statement in layout and layout.holds(node, item.statement) for item in bindings)
    }


_BINDING = frozenset(
    {
        *(ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.AugAssign, ast.For, ast.AsyncFor),
        *(ast.withitem, ast.Delete, ast.Import, ast.ImportFrom, ast.ExceptHandler),
        *(ast.Global, ast.Nonlocal, *SCOPES),
    }
)


def _targets(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _unpack(target, node.value)
    elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
        yield node.target, node.value
    elif isinstance(node, ast.AugAssign):
        yield node.target, None
    elif isinstance(node, (ast.For, ast.AsyncFor)):
        yield from _unpack(node.target, None)
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield from _unpack(node.optional_vars, None)
    elif isinstance(node, ast.Delete):
        for target in node.targets:
            yield target, None


def _unpack(target: ast.expr, value: ast.expr | None) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    if isinstance(target, ast.Starred):
        target = target.value
    if not isinstance(target, (ast.Tuple, ast.List)):
        yield target, value
        return
    parts: list[ast.expr | None] = [None] * len(target.elts)
    if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(parts):
        parts = list(value.elts)
    for inner, part in zip(target.elts, parts):
        yield from _unpack(inner, part)


def _bound_names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, SCOPES):
        yield node.name
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        for alias in node.names:
            yield alias.asname or alias.name.partition(".")[0]
    elif isinstance(node, ast.ExceptHandler) and node.name:
        yield node.name
    elif isinstance(node, ELSEWHERE):
        yield from node.names


def scopes(function: Function, module: Module) -> Iterator[Function]:
    """The function, the functions around it and the module body."""
    scope: Function | None = function
    while scope is not None:
        yield scope
        scope = scope.parent
    if function is not module.body:
        yield module.body


def definitions(module: Module, expression: ast.expr, function: Function) -> list[Binding] | None:
    """Everything that the file binds a name or `self` attribute to; None if one is unknown.

    A parameter is unknown, so is a name that a loop, an import or an unpacking binds.
    """
    path = path_text(expression)
    if path is None:
        return None
    found = _bindings_seen(module, path, function)
    if not found or any(binding.value is None for binding in found):
        return None
    return found


def _bindings_seen(module: Module, path: str, function: Function) -> list[Binding]:
    root = root_of(path)
    owner = enclosing_class(function)
    if root in ("self", "cls") and owner is not None:
        family = [*ancestry_in_file(owner), *subclasses_in(module, owner)]
        methods = [other for other in module.functions if enclosing_class(other) in family]
        return [binding for method in methods for binding in bindings_of(method).get(path, ())]
    for scope in scopes(function, module):
        if root in parameters(scope):
            return [*bindings_of(scope).get(path, ()), Binding(scope.node, None, scope)]
        if root in bindings_of(scope):
            others = rebinders(scope).get(path, ())
            rebound = [item for other in others for item in rebindings(other, path)]
            return [*bindings_of(scope).get(path, ()), *rebound]
    return []


def receiver(call: ast.Call) -> str:
    """The source text of what a method is called on; "" for a plain function."""
    return ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""


def arguments(call: ast.Call) -> list[ast.expr]:
    """The values of positional and keyword arguments, of `*(a, b)` and `partial` as well."""
    return passed(call).every()


def names_in(node: ast.AST) -> set[str]:
    """The names that an expression or statement mentions."""
    return {inner.id for inner in walk(node) if isinstance(inner, ast.Name)}


def constant_of(expression: ast.expr | None) -> object:
    """The value of a literal; `...` for anything else (no literal here is `...`)."""
    return expression.value if isinstance(expression, ast.Constant) else ...
