"""The program under analysis: modules, what is known about their functions, who calls whom.

One file is a program of one module. Calls across files enter through `Program.load`: the
interpreter asks for functions and classes by expression and never looks at files itself.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass

from amplint.flow.call import callee_name
from amplint.flow.facts import FunctionFacts, collect_facts, scaler_like_paths
from amplint.flow.slice import Slice, Slicer
from amplint.project.module import Class, Function, Module
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


def _nothing_else(dotted: str) -> tuple[Module, Roles] | None:
    """The loader of a program that consists of one file."""
    return None


class Program:
    """Modules of one project, as far as they were asked for.

    Args:
        load: finds the module of a dotted name, None if the project has none.
    """

    def __init__(self, load: Callable[[str], tuple[Module, Roles] | None] = _nothing_else) -> None:
        self._load = load
        self._units: dict[Module, Unit] = {}
        self._slices: dict[Function, Slice] = {}

    def add(self, module: Module, roles: Roles) -> Unit:
        """Take a module into the program."""
        facts = collect_facts(module, roles)
        slicer = Slicer(roles, _interesting_names(module, facts))
        unit = Unit(module, roles, facts, scaler_like_paths(roles), slicer, _reach_by_name(facts))
        self._units[module] = unit
        return unit

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

    def find_class(self, expression: ast.expr, function: Function) -> Class | None:
        """The class of the program that an expression names where `function` reads it."""
        if isinstance(expression, ast.Name) and function.module.resolve(expression) is None:
            return function.module.classes.get(expression.id)
        return None

    def ancestry(self, owner: Class) -> list[Class]:
        """The class and its bases, nearest first, each one once."""
        return owner.module.ancestry(owner)

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
