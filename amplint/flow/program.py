"""The program under analysis: modules, what is known about their functions, who calls whom.

One file is a program of one module; the modules that it imports join it when a call leads
there. The interpreter asks for functions and classes by expression, never for files.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from amplint.flow.call import callee_name
from amplint.flow.facts import FunctionFacts, collect_facts, scaler_like_paths
from amplint.flow.slice import Slice, Slicer
from amplint.project.module import Class, Function, Module
from amplint.project.project import Project
from amplint.project.roles import Roles


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """One module with everything that was read from it.

    Args:
        scaler_like: paths that are used as a scaler although nothing says that they are one.
        reach: callee name -> protocol words that a call of that name may reach.
    """

    module: Module
    roles: Roles
    facts: dict[Function, FunctionFacts]
    scaler_like: frozenset[str]
    slicer: Slicer
    reach: dict[str, frozenset[str]]


class Program:
    """Modules of one project, as far as the interpreter asked for them.

    Args:
        project: finds functions and classes of other files; None for a file judged alone.
    """

    def __init__(self, project: Project | None = None) -> None:
        self._project = project
        self._units: dict[Module, Unit] = {}
        self._slices: dict[Function, Slice] = {}
        self._reaches: dict[Module, dict[str, frozenset[str]]] = {}

    def add(self, module: Module, roles: Roles) -> Unit:
        """Take a module into the program, with what its imports may reach."""
        self._units[module] = Unit(module, roles, {}, frozenset(), Slicer(roles, frozenset()), {})
        facts = collect_facts(module, roles, self._imported_reach(module))
        imported = frozenset(self._imported_reach(module))
        slicer = Slicer(roles, _interesting_names(module, facts) | imported)
        slicer.interesting |= {
            owner.name
            for owner in module.classes.values()
            if _stores_tested(owner, facts, slicer.lasting_names)
        }
        reach = _reach_by_name(facts)
        for name, words in self._imported_reach(module).items():
            reach[name] = reach.get(name, frozenset()) | words
        unit = Unit(module, roles, facts, scaler_like_paths(roles), slicer, reach)
        self._units[module] = unit
        return unit

    def stores_tested(self, owner: Class) -> bool:
        """Whether running the constructor of a class may decide a test."""
        constructor = self.find_method(owner, "__init__")
        if constructor is None:
            return False
        unit = self.unit(constructor)
        return bool(unit.facts[constructor].self_stores & unit.slicer.lasting_names)

    def knows(self, function: Function) -> bool:
        """Whether the module of a function is part of the program."""
        return function.module in self._units

    def unit(self, function: Function) -> Unit:
        """The unit that holds a function."""
        return self._units[function.module]

    def facts(self, function: Function) -> FunctionFacts:
        """Facts of a function."""
        return self._units[function.module].facts[function]

    def roles(self, function: Function) -> Roles:
        """Roles of the module that holds a function."""
        return self._units[function.module].roles

    def slice(self, function: Function) -> Slice:
        """The relevance slice of a function, computed once."""
        found = self._slices.get(function)
        if found is None:
            found = self._slices[function] = self.unit(function).slicer.slice(function)
        return found

    def find_function(self, expression: ast.expr, function: Function) -> Function | None:
        """The function of another file that an expression names where `function` reads it."""
        found = self._imported(expression, function.module)
        return found if isinstance(found, Function) else None

    def find_class(self, expression: ast.expr, function: Function) -> Class | None:
        """The class of the program that an expression names where `function` reads it."""
        return self._class_named(expression, function.module)

    def _class_named(self, expression: ast.expr, module: Module) -> Class | None:
        if isinstance(expression, ast.Name) and module.resolve(expression) is None:
            own = module.classes.get(expression.id)
            if own is not None:
                return own
        found = self._imported(expression, module)
        return found if isinstance(found, Class) else None

    def _imported(self, expression: ast.expr, module: Module) -> Function | Class | None:
        if self._project is None:
            return None
        dotted = module.resolve(expression)
        if dotted is not None:
            return self._known(self._project.symbol(dotted, module))
        if isinstance(expression, ast.Name) and expression.id not in module.imports.aliases:
            for star in module.imports.stars:
                found = self._project.symbol(f"{star}.{expression.id}", module)
                if found is not None:
                    return self._known(found)
        return None

    def _known(self, found: Function | Class | None) -> Function | Class | None:
        """Take the module of a symbol into the program before anybody uses it."""
        if found is None or found.module in self._units or self._project is None:
            return found
        roles = self._project.roles_of(found.module)
        if roles is None:
            return None
        self.add(found.module, roles)
        return found

    def _imported_reach(self, module: Module) -> dict[str, frozenset[str]]:
        """Names that calls of imported functions and methods use -> words they may reach."""
        known = self._reaches.get(module)
        if known is not None:
            return known
        reach: dict[str, set[str]] = {}
        self._reaches[module] = {}
        for name in sorted(module.imports.aliases):
            found = self._imported(ast.Name(name, ast.Load()), module)
            if found is None:
                continue
            for called, words in self._reach_of(found, name):
                reach.setdefault(called, set()).update(words)
        self._reaches[module] = {name: frozenset(words) for name, words in reach.items() if words}
        return self._reaches[module]

    def _reach_of(self, found: Function | Class, name: str) -> Iterator[tuple[str, set[str]]]:
        if isinstance(found, Function):
            yield name, self._reach(found)
            return
        for item in self.ancestry(found):
            for method in item.methods.values():
                yield method.name, self._reach(method)
                if method.name in ("__init__", "__call__"):
                    yield name, self._reach(method)

    def _reach(self, function: Function) -> set[str]:
        facts = self._units[function.module].facts.get(function)
        return facts.reach if facts is not None else set()

    def importers(self, function: Function) -> Iterator[Unit]:
        """Units of other files that may call a function."""
        if self._project is None:
            return
        for module in self._project.importers(function):
            if module not in self._units:
                roles = self._project.roles_of(module)
                if roles is None:
                    continue
                self.add(module, roles)
            yield self._units[module]

    def ancestry(self, owner: Class) -> list[Class]:
        """The class and its bases, in whatever file, nearest first, each one once."""
        found: list[Class] = []
        pending = [owner]
        while pending:
            current = pending.pop(0)
            if current in found:
                continue
            found.append(current)
            for base in current.bases:
                known = self._class_named(base, current.module)
                if known is not None:
                    pending.append(known)
        return found

    def find_method(self, owner: Class, name: str) -> Function | None:
        """A method of the class or of its bases, nearest first."""
        for candidate in self.ancestry(owner):
            if name in candidate.methods:
                return candidate.methods[name]
        return None

    def is_interesting(self, owner: Class) -> bool:
        """Whether any method of the class, inherited ones included, reaches the protocol."""
        methods = (method for item in self.ancestry(owner) for method in item.methods.values())
        return any(self.facts(method).reach for method in methods)

    def reach(self, call: ast.Call, function: Function) -> frozenset[str]:
        """Protocol words that a call may reach, judged by the callee's name."""
        return self.unit(function).reach.get(callee_name(call), frozenset())

    def asks_is_enabled(self, function: Function) -> bool:
        """Whether the function's module ever calls `is_enabled`."""
        return any("is_enabled" in facts.callees for facts in self.unit(function).facts.values())


def _reach_by_name(facts: dict[Function, FunctionFacts]) -> dict[str, frozenset[str]]:
    """Reach by the names under which functions are called; constructors by their class."""
    found: dict[str, set[str]] = {}
    for function, known in facts.items():
        names = [function.name]
        if function.owner is not None and function.name in ("__init__", "__call__"):
            names.append(function.owner.name)
        for name in names:
            found.setdefault(name, set()).update(known.reach)
    return {name: frozenset(words) for name, words in found.items()}


def _interesting_names(module: Module, facts: dict[Function, FunctionFacts]) -> frozenset[str]:
    """Names whose call may reach the protocol: functions, methods, classes."""
    names = {function.name for function, found in facts.items() if found.reach}
    for owner in module.classes.values():
        if any(facts[method].reach for method in owner.methods.values()):
            names.add(owner.name)
    return frozenset(names - {"__init__", "<module>"})


def _stores_tested(
    owner: Class, facts: dict[Function, FunctionFacts], tested: frozenset[str]
) -> bool:
    """Whether the constructor of a class stores an attribute that some test reads."""
    constructor = owner.methods.get("__init__")
    return constructor is not None and bool(facts[constructor].self_stores & tested)
