"""Definitions and calls inside one file, for the rules about shapes.

Nothing here follows calls or solves paths: that is the flow analysis' work. A question
that a function's text does not settle is answered with "no" or None, so that a rule
stays silent.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from amplint.code.arguments import parameters, passed
from amplint.code.classes import ancestry_in_file, subclasses_in
from amplint.code.expressions import path_text
from amplint.code.layout import SCOPES, layout_of
from amplint.code.module import Function, Module, enclosing_class, walk
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


def values_read(module: Module) -> frozenset[str]:
    """Names that a file reads as values: not to call them, to annotate, or to derive from them."""
    found: set[str] = set()
    pending: list[ast.AST] = [module.tree]
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
            found.add(node.id if isinstance(node, ast.Name) else node.attr)
        if type(node) not in LEAVES and type(node) not in MARKS:
            pending += _values_in(node)
    return frozenset(found)


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
        if isinstance(node, ast.Call) and name == "args" and _asks_for_type(node):
            value = value[:1]
        items = value if isinstance(value, list) else [value]
        yield from (item for item in items if isinstance(item, ast.AST))


def _asks_for_type(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id in ("isinstance", "issubclass")


def bound_in(function: Function, node: ast.AST) -> set[str]:
    """Root names that a part of the function binds, `self` excluded."""
    layout = layout_of(function)
    return {
        path.partition(".")[0].partition("[")[0]
        for path, bindings in bindings_of(function).items()
        if any(layout.holds(node, binding.statement) for binding in bindings)
    } - {"self"}


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
    elif isinstance(node, (ast.Global, ast.Nonlocal)):
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
    root = path.partition(".")[0].partition("[")[0]
    owner = enclosing_class(function)
    if root in ("self", "cls") and owner is not None:
        family = [*ancestry_in_file(owner), *subclasses_in(module, owner)]
        methods = [other for other in module.functions if enclosing_class(other) in family]
        return [binding for method in methods for binding in bindings_of(method).get(path, ())]
    for scope in scopes(function, module):
        if root in parameters(scope):
            return [*bindings_of(scope).get(path, ()), Binding(scope.node, None, scope)]
        if root in bindings_of(scope):
            return bindings_of(scope).get(path, [])
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
