"""What expressions stand for, in whatever file: functions, classes, and objects of classes.

The flow analysis follows values along paths; the questions here are the ones that need no
path: which function a call runs, of which class an object is, where a name or an attribute
gets its values, who calls a function. An answer that definitions do not settle is None or
an empty list, so that a rule stays silent.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from amplint.code.arguments import Bound, bind, parameters
from amplint.code.classes import Ancestries, classes_of, method_of
from amplint.code.dataflow import (
    Binding,
    bindings_of,
    outside_stores,
    rebinders,
    rebindings,
    scopes,
    values_read,
)
from amplint.code.definitions import class_fields, is_of_tests, returned
from amplint.code.expressions import callee_of, last_name, path_text
from amplint.code.layout import layout_of
from amplint.code.mentions import Mentions
from amplint.code.module import CallSite, Class, Function, Module, enclosing_class
from amplint.code.project import Project
from amplint.values.callables import Kinds, Targets, classes_called, classes_in
from amplint.values.displays import runs_once
from amplint.values.kinds import kinds_of, targets_of
from amplint.values.origins import Origins
from amplint.values.provenance import Firmness, Found, Keys
from amplint.values.wrappers import MODULE_BASES

#: Definitions are followed through this many names, calls and attributes.
DEPTH = 8
#: Classes of libraries whose objects are made as Python makes any other.
_PLAIN_BASES = MODULE_BASES | {"object", "abc.ABC", "torch.utils.data.Dataset"}


#: What a metaclass may define that is run only where a class is made.
_MAKES_CLASSES = frozenset(("__new__", "__init__"))


@dataclass(frozen=True, slots=True, eq=False)
class Arguments:
    """What the known callers of a function pass for one parameter.

    Args:
        given: each argument with the call that passes it.
        omitted: calls that leave the parameter to its default.
        unclear: calls that may pass anything for it, behind a `*` or `**`.
    """

    given: tuple[tuple[ast.expr, CallSite], ...]
    omitted: tuple[CallSite, ...]
    unclear: tuple[CallSite, ...] = ()


class Objects:
    """Resolves expressions of one program.

    Args:
        project: finds the definitions of other files.
    """

    def __init__(self, project: Project) -> None:
        self.project = project
        self.mentions = Mentions(project)
        self._origins: Origins | None = None
        self._ancestries = Ancestries(self._base)
        self._heirs: dict[Module, dict[Class, list[Class]]] = {}
        self._made: dict[Class, bool] = {}
        self._subclasses: dict[Class, tuple[Class, ...]] = {}
        self._stores: dict[Class, dict[str, list[tuple[Function, list[Binding]]]]] = {}
        self._symbols: dict[tuple[ast.expr, Function], Function | Class | None] = {}
        self._bound: dict[tuple[ast.Call, Function], Bound] = {}

    # -- names ---------------------------------------------------------------------------------

    def symbol(self, expression: ast.expr, function: Function) -> Function | Class | None:
        """The function or class that an expression names where `function` reads it."""
        key = (expression, function)
        if key not in self._symbols:
            self._symbols[key] = self._symbol(expression, function)
        return self._symbols[key]

    def _symbol(self, expression: ast.expr, function: Function) -> Function | Class | None:
        known = self.project.named(expression, function)
        if known is not None or not isinstance(expression, ast.Attribute):
            return known
        owner = self.symbol(expression.value, function)
        return self.method(owner, expression.attr) if isinstance(owner, Class) else None

    # -- classes -------------------------------------------------------------------------------

    def ancestry(self, owner: Class) -> list[Class]:
        """The class and its bases, in whatever file, in the order of method resolution."""
        return list(self._ancestries.of(owner).order)

    def _base(self, expression: ast.expr, owner: Class) -> Class | None:
        if isinstance(expression, ast.Subscript):  # `Number[int]` derives from `Number`
            expression = expression.value
        known = self.symbol(expression, owner.module.body)
        return known if isinstance(known, Class) else None

    def method(self, owner: Class, name: str) -> Function | None:
        """A method of the class or of its bases, nearest first."""
        return method_of(self.ancestry(owner), name)

    def base_names(self, owner: Class) -> set[str]:
        """Dotted names of all base classes that imports name ("torch.nn.Module")."""
        bases = ((item.module, base) for item in self.ancestry(owner) for base in item.bases)
        return {dotted for module, base in bases if (dotted := module.resolve(base)) is not None}

    def is_module(self, owner: Class) -> bool:
        """Whether objects of the class are called through `forward`."""
        return bool(self.base_names(owner) & MODULE_BASES)

    def is_plain(self, owner: Class) -> bool:
        """Whether a call of the class runs its `__init__`, and no other code that is out of sight."""
        order = self.ancestry(owner)
        unknown = (
            item.module.resolve(base) or ast.unparse(base)
            for item in order
            for base in item.bases
            if self._base(base, item) is None
        )
        return _PLAIN_BASES.issuperset(unknown) and not any(
            item.node.decorator_list
            or "__new__" in item.methods
            or not all(self._is_plain_metaclass(word, item) for word in item.node.keywords)
            for item in order
        )

    def _is_plain_metaclass(self, word: ast.keyword, owner: Class) -> bool:
        """Whether a keyword of a class is a metaclass that adds nothing to it: it only notes it."""
        if word.arg != "metaclass":
            return False
        if owner.module.resolve(word.value) == "abc.ABCMeta":
            return True
        known = self.symbol(word.value, owner.module.body)
        if not isinstance(known, Class) or not _MAKES_CLASSES.issuperset(known.methods):
            return False
        return not any(map(_changes_a_class, ast.walk(known.node)))

    def subclasses(self, owner: Class) -> tuple[Class, ...]:
        """Classes of the project with `owner` among their bases, directly or not."""
        if owner not in self._subclasses:
            self._subclasses[owner] = tuple(self._find_subclasses(owner))
        return self._subclasses[owner]

    def _find_subclasses(self, owner: Class) -> Iterator[Class]:
        seen = {owner}
        pending = [owner]
        while pending:
            current = pending.pop(0)
            others = self.project.deriving(current.module, current.name)
            for module in (current.module, *others):
                for item in self._heirs_in(module).get(current, ()):
                    if item not in seen:
                        seen.add(item)
                        pending.append(item)
                        yield item

    def _heirs_in(self, module: Module) -> dict[Class, list[Class]]:
        """The classes of a file by those that they name as bases."""
        if module not in self._heirs:
            heirs: dict[Class, list[Class]] = {}
            for item in module.once(classes_of):
                for base in filter(None, (self._base(each, item) for each in item.bases)):
                    heirs.setdefault(base, []).append(item)
            self._heirs[module] = heirs
        return self._heirs[module]

    def is_made(self, owner: Class) -> bool:
        """Whether anything in the project may make objects of a class itself, not of its heirs."""
        if owner not in self._made:
            self._made[owner] = bool(owner.node.decorator_list) or any(
                owner.name in module.once(values_read) or self._makes(module, owner)
                for module in (owner.module, *self.project.mentioning(owner.module, owner.name))
            )
        return self._made[owner]

    def _makes(self, module: Module, owner: Class) -> bool:
        """Whether a file calls a class."""
        return any(
            self.symbol(site.node.func, site.function) is owner
            for site in module.calls
            if owner.name in (site.method, (site.dotted or "").rpartition(".")[2])
        )

    def stores(self, owner: Class, name: str) -> list[tuple[Function, list[Binding]]]:
        """The methods of a class itself that bind an attribute of `self`, and how they do."""
        if owner not in self._stores:
            self._stores[owner] = _stores_of(owner)
        return self._stores[owner].get(name, [])

    def family(self, owner: Class) -> list[Class]:
        """The class, its bases and its subclasses, in whatever file."""
        return [*self.ancestry(owner), *self.subclasses(owner)]

    # -- values --------------------------------------------------------------------------------

    @property
    def origins(self) -> Origins:
        """Goes back to where values were created, whatever conditions say."""

        if self._origins is None:
            either = {True: Firmness.CHOICE, False: Firmness.CHOICE}
            self._origins = Origins(self, lambda *_: either, _literal_keys)
        return self._origins

    def kinds(self, expression: ast.expr, function: Function) -> Kinds:
        """What an expression can be: objects of classes, functions, classes."""
        return kinds_of(self.origins, expression, function)

    def targets(self, call: ast.Call, function: Function) -> Targets:
        """The functions of the project that a call can run."""
        return self.origins.once(
            ("targets", call, function),
            lambda: targets_of(self.origins, call, function),
            Targets((), "circular"),
        )

    def class_of(self, expression: ast.expr, function: Function) -> Class | None:
        """The one class of the project that all known values of an expression are objects of."""
        found = list(classes_in(self.kinds(expression, function)))
        return found[0] if len(found) == 1 else None

    def classes_called(self, expression: ast.expr, function: Function) -> tuple[Class, ...]:
        """The classes of the project whose objects a call of an expression runs."""
        return classes_called(self.kinds(expression, function))

    def callee(self, call: ast.Call, function: Function) -> Function | None:
        """The one function of the project that a call is known to run.

        A class stands for its `__init__`, an object for its `__call__` or `forward`.
        """
        found = self.targets(call, function).functions
        return found[0] if len(found) == 1 else None

    # -- calls ---------------------------------------------------------------------------------

    def calls_of(self, function: Function) -> list[CallSite]:
        """Calls of a function in its own file, in those that import it, and in its bases' files."""
        return self.origins.once(("calls", function), lambda: list(self._find_calls(function)), [])

    def every_call_of(self, function: Function) -> list[CallSite]:
        """As `calls_of`, where these are all; none where somebody else may call it, too."""
        sites = self.calls_of(function)
        return [] if sites and self.may_have_other_callers(function) else sites

    def _find_calls(self, function: Function) -> Iterator[CallSite]:
        names = {function.name}
        modules: list[Module] = [function.module, *self.project.users(function)]
        if function.owner is not None and function.name == "__init__":
            heirs = self.subclasses(function.owner)
            names |= {item.name for item in (function.owner, *heirs)}
            modules += [item.module for item in heirs]
        elif function.owner is not None:  # the loop of a base class calls what completes it
            modules += [item.module for item in self.ancestry(function.owner)]
        for module in dict.fromkeys(modules):
            for site in module.calls:
                if site.method not in names:
                    continue
                if function in self.targets(site.node, site.function).functions:
                    yield site

    def is_run_by_tests(self, function: Function, depth: int = 3) -> bool:
        """Whether tests alone are seen to run a function, through at most so many calls."""
        callers = self.calls_of(function)
        if not callers or not depth:
            return not callers and is_of_tests(function)
        return all(self.is_run_by_tests(site.function, depth - 1) for site in callers)

    def may_have_other_callers(self, function: Function) -> bool:
        """Whether somebody may call it whose call `calls_of` does not list: it is a value, too."""
        return self.origins.once(
            ("open", function), lambda: self._find_other_callers(function), True
        )

    def _find_other_callers(self, function: Function) -> bool:
        if self.is_run_by_tests(function):
            return True  # a test of what users run
        name = function.name
        if name == "__init__" and function.owner is not None:
            name = function.owner.name
        for module in dict.fromkeys((function.module, *self.project.users(function))):
            if name in module.once(values_read):
                return True
            for site in module.calls:
                if site.method == function.name and isinstance(site.node.func, ast.Attribute):
                    found = self.targets(site.node, site.function)
                    is_open = bool(found.unknown) and function not in found.functions
                    if is_open and not self._is_of_others(site, function):
                        return True
        return False

    def _is_of_others(self, site: CallSite, function: Function) -> bool:
        """Whether a call is `super().name(...)` of a class that no object shares with a method's."""
        assert isinstance(site.node.func, ast.Attribute)
        place = site.node.func.value
        own = enclosing_class(site.function)
        if own is None or not isinstance(place, ast.Call) or last_name(place.func) != "super":
            return False
        heirs = (own, *self.subclasses(own))
        return not any(function.owner in self.ancestry(item) for item in heirs)

    def loops(self, node: ast.AST, function: Function) -> list[ast.AST]:
        """The loops that may run a node of a function more than once, innermost first."""
        layout = layout_of(function)
        found = layout.loops(node) if node in layout else []
        return [loop for loop in found if not self.runs_once(loop, function)]

    def runs_once(self, loop: ast.AST, function: Function) -> bool:
        """Whether a loop of a function takes the only element out of a list."""

        def origins_of(node: ast.expr) -> Found:
            return self.origins.of(node, function)

        return runs_once(loop, origins_of)

    def is_replaced(self, function: Function, caller: Function) -> bool:
        """Whether some file stores another value under the name of a global function."""
        if function.parent is not None or function.owner is not None:
            return False
        homes = (function.module, caller.module)
        return any(
            self.project.module_named(dotted, stored.function.module) in homes
            for receiver, stored in self.outside_stores(function.module, function.name)
            if (dotted := stored.function.module.resolve(receiver)) is not None
        )

    def outside_stores(self, home: Module, name: str) -> list[tuple[ast.expr, Binding]]:
        """What an attribute is stored on in the project, `self` excluded, and how."""
        return [
            item
            for module in (home, *self.project.storing(home, name))
            for item in module.once(outside_stores).get(name, ())
        ]

    def is_read_outside(self, owner: Class, name: str) -> bool:
        """Whether another file reads an attribute that objects of a class may have."""
        heirs = self.subclasses(owner)
        return any(
            isinstance(node, ast.Attribute)
            and node.attr == name
            and (path_text(node.value) != "self" or enclosing_class(function) in heirs)
            for module in self.project.mentioning(owner.module, name)
            for function in module.functions
            for node in function.nodes
        )

    def arguments(self, function: Function, name: str) -> Arguments:
        """What the known callers pass for a parameter."""
        bound = [
            (self.bind(site.node, site.function, function), site)
            for site in self.calls_of(function)
        ]
        return Arguments(
            tuple((item.given[name], site) for item, site in bound if name in item.given),
            tuple(site for item, site in bound if name in item.defaults),
            tuple(site for item, site in bound if name in item.unknown),
        )

    def bind(self, call: ast.Call, caller: Function, function: Function) -> Bound:
        """How a call in `caller`, which runs `function`, fills its parameters."""
        key = (call, function)
        if key not in self._bound:
            self._bound[key] = self._bind(call, caller, function)
        return self._bound[key]

    def _bind(self, call: ast.Call, caller: Function, function: Function) -> Bound:
        callee = callee_of(call)
        on_object = None
        is_method = function.owner is not None
        if is_method and isinstance(callee, ast.Attribute) and callee.attr == function.name:
            on_object = not isinstance(self.symbol(callee.value, caller), Class)
        return bind(call, function, on_object=on_object)

    # -- values --------------------------------------------------------------------------------

    def bindings(self, expression: ast.expr, function: Function) -> list[Binding] | None:
        """Everything that a name or attribute is bound to, in whatever file.

        None where it is a parameter, or nothing is known. A binding whose value is no single
        expression (a loop target, an unpacking) has the value None.
        """
        if isinstance(expression, ast.Name):
            return self._bindings_of_name(expression, function)
        if not isinstance(expression, ast.Attribute):
            return None
        local = self._bindings_of_path(expression, function)
        if local:
            return local
        dotted = function.module.resolve(expression)
        if dotted is not None:
            return self._bindings_in_module(dotted, function.module)
        owner = self.class_of(expression.value, function)
        return self._fields(owner, expression.attr) if owner is not None else None

    def _bindings_of_name(self, name: ast.Name, function: Function) -> list[Binding] | None:
        for scope in scopes(function, function.module):
            if name.id in parameters(scope):
                return None
            found = bindings_of(scope).get(name.id)
            if found and not all(isinstance(item.statement, _IMPORTS) for item in found):
                others = rebinders(scope).get(name.id, ())
                return found + [item for one in others for item in rebindings(one, name.id)]
        dotted = function.module.resolve(name)
        return self._bindings_in_module(dotted, function.module) if dotted else None

    def _bindings_of_path(self, expression: ast.Attribute, function: Function) -> list[Binding]:
        """Bindings of `options.amp = True` in the function itself; attributes of self excluded."""
        path = path_text(expression)
        if path is None or path.startswith(("self.", "cls.")):
            return []
        root = path.partition(".")[0]
        for scope in scopes(function, function.module):
            if root in parameters(scope) or root in bindings_of(scope):
                return bindings_of(scope).get(path, [])
        return []

    def _bindings_in_module(
        self, dotted: str, importer: Module, depth: int = DEPTH
    ) -> list[Binding] | None:
        parent, _, name = dotted.rpartition(".")
        module = self.project.module_named(parent, importer) if parent else None
        if module is None:
            return None
        found = bindings_of(module.body).get(name)
        if found and all(isinstance(item.statement, _IMPORTS) for item in found):
            origin = module.scopes.aliases.get(name)
            if origin is None or depth == 0:
                return None
            return self._bindings_in_module(origin, module, depth - 1)
        return found

    def _fields(self, owner: Class, name: str) -> list[Binding] | None:
        """Bindings of an attribute of objects of a class: in methods, or in the class itself."""
        found: list[Binding] = []
        for item in self.ancestry(owner):
            found += class_fields(item).get(name, ())
            prop = item.methods.get(name)
            if prop is not None:
                return [Binding(prop.node, value, prop) for value in returned(prop)] or None
            found += (each for _, written in self.stores(item, name) for each in written)
        return found or None


_IMPORTS = (ast.Import, ast.ImportFrom)


def _literal_keys(index: ast.expr, function: Function, activation: object) -> Keys | None:
    return [(index.value, Firmness.FIXED)] if isinstance(index, ast.Constant) else None


def _stores_of(owner: Class) -> dict[str, list[tuple[Function, list[Binding]]]]:
    found: dict[str, list[tuple[Function, list[Binding]]]] = {}
    for method in owner.methods.values():
        for path, written in bindings_of(method).items():
            if path.startswith("self."):
                found.setdefault(path[len("self.") :], []).append((method, written))
    return found


def _changes_a_class(node: ast.AST) -> bool:
    """Whether a metaclass may add something by a node: it stores attributes, or entries of `attrs`."""
    if isinstance(node, ast.Call):
        return last_name(node.func) in ("setattr", "update", "setdefault", "pop")
    if isinstance(node, (ast.Attribute, ast.Subscript)):
        return not isinstance(node.ctx, ast.Load)
    return False
