"""Whether a caller's text calls a function again and again with the same optimizers.

A run calls the function twice. That somebody does so, with what lives longer than one call, is
read here, and only where nothing is left to guess: a loop around the call, optimizers that stand
under plain names which are bound before it, and nothing in the loop that decides about the call,
leaves after it, or may begin another training.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from amplint.amp.scaler_calls import starts_over
from amplint.code.arguments import bind
from amplint.code.dataflow import bindings_of, bound_in, constant_of, names_in, parameters
from amplint.code.expressions import last_name
from amplint.code.layout import LOOPS, Layout, layout_of
from amplint.code.module import CallSite, Function
from amplint.probe.callers import Callers
from amplint.probe.inputs import root_of
from amplint.values.objects import Objects

#: Calls that lead into the function are followed through this many others.
_CLIMB = 3
#: Statements that end a loop or its function.
_LEAVING = (ast.Break, ast.Return, ast.Raise)


class Repetition:
    """Reads the calls around functions.

    Args:
        objects, calls: of the checked file.
    """

    def __init__(self, objects: Objects, calls: Callers) -> None:
        self._objects = objects
        self._calls = calls

    def is_repeated(self, function: Function, optimizers: Collection[str]) -> bool:
        """Whether a loop calls a function several times, and its optimizers outlive a pass.

        Args:
            optimizers: their paths in the function: `optimizer`, `self.optimizer`.
        """
        return bool(optimizers) and self._is_repeated(function, frozenset(optimizers), _CLIMB)

    def _is_repeated(self, function: Function, optimizers: frozenset[str], climb: int) -> bool:
        if not all(self._stays(path, function) for path in optimizers):
            return False
        for site in self._calls.sites(function):
            layout = layout_of(site.function)
            if site.function is function or site.node not in layout:
                continue
            passed = _passed(site, function, optimizers)
            if passed is None:
                continue
            loops = self._objects.loops(site.node, site.function)
            if loops and _repeats(site, layout, loops[0], passed):
                return True
            inherited = passed <= {*parameters(site.function), "self"}
            if not loops and climb and inherited and not layout.conditions(site.node):
                outer = frozenset(p for p in optimizers if root_of(p) == "self") or passed
                if self._is_repeated(site.function, outer, climb - 1):
                    return True
        return False

    def _stays(self, path: str, function: Function) -> bool:
        """Whether what stands at a path is the same in each call with the same arguments."""
        if any(binding.value is not None for binding in bindings_of(function).get(path, ())):
            return False
        owner = function.owner
        if root_of(path) != "self" or owner is None:
            return True
        attribute = path.partition(".")[2].partition(".")[0].partition("[")[0]
        return all(
            method.name == "__init__" or f"self.{attribute}" not in bindings_of(method)
            for method in owner.methods.values()
        )


def _passed(
    site: CallSite, function: Function, optimizers: Collection[str]
) -> frozenset[str] | None:
    """The plain names under which a call passes what the optimizers are part of; None where
    anything else is passed."""
    given = bind(site.node, function).given
    found = set()
    for root in {root_of(path) for path in optimizers}:
        value = given.get(root)
        if root == "self":
            value = site.node.func.value if isinstance(site.node.func, ast.Attribute) else None
        if not isinstance(value, ast.Name):
            return None
        found.add(value.id)
    return frozenset(found)


def _repeats(site: CallSite, layout: Layout, loop: ast.AST, passed: frozenset[str]) -> bool:
    """Whether each pass of a loop comes to a call in it, with the same objects, and there is a
    second pass."""
    bound = bound_in(site.function, loop)
    known = {*bindings_of(site.function), *parameters(site.function), "self"}
    if bound & passed or not passed <= known:
        return False
    if starts_over(layout, loop, besides=site.node) or _is_single(loop):
        return False
    header = getattr(loop, "test", None)
    inside = [test for test in layout.conditions(site.node) if test is not header]
    inside = [test for test in inside if layout.holds(loop, test)]
    if any(names_in(test) & bound or _calls(test) for test in inside):
        return False
    return not any(_leaves(statement) for statement in _body(loop))


def _calls(test: ast.expr) -> bool:
    return any(isinstance(node, ast.Call) for node in ast.walk(test))


def _is_single(loop: ast.AST) -> bool:
    """Whether the header of a loop says that there is one pass."""
    iterated = getattr(loop, "iter", None)
    if isinstance(iterated, (ast.Tuple, ast.List, ast.Set)):
        return len(iterated.elts) < 2
    for call in ast.walk(iterated) if iterated is not None else ():
        if isinstance(call, ast.Call) and last_name(call.func) == "range" and call.args:
            bounds = [constant_of(argument) for argument in call.args]
            stop = bounds[0] if len(bounds) == 1 else bounds[1]
            start = bounds[0] if len(bounds) > 1 else 0
            if isinstance(stop, int) and isinstance(start, int):
                return stop - start < 2
    return not isinstance(loop, LOOPS)


def _body(loop: ast.AST) -> Iterator[ast.stmt]:
    """The statements that every pass of a loop comes to, and those of `with` and `try` in it."""
    pending = list(getattr(loop, "body", ()))
    while pending:
        statement = pending.pop()
        yield statement
        if isinstance(statement, (ast.With, ast.AsyncWith, ast.Try)):
            pending += statement.body


def _leaves(statement: ast.stmt) -> bool:
    return isinstance(statement, _LEAVING)
