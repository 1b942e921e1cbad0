"""Tests of whether gradients are finite: which outcome one has where some are inf, or are NaN."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from amplint.amp import names
from amplint.amp.view import AmpView
from amplint.code.arguments import bind
from amplint.code.dataflow import Binding, bindings_of, constant_of, names_in
from amplint.code.expressions import last_name
from amplint.code.module import Function
from amplint.code.tree import walk
from amplint.values.conditions import conditions_at

#: A test -> its outcome for inf. What is only NaN is no overflow.
_AT_INF = {"isfinite": False, "isinf": True}
#: The same for NaN.
_AT_NAN = {"isfinite": False, "isinf": False, "isnan": True}
#: Functions and methods that give the outcome of what they get on.
_HANDS_ON = frozenset(("any", "all", "item", "bool", "cpu"))
#: What torch calls its measures of all gradients, as functions and as methods of sharded models.
_NORMS = frozenset(("clip_grad_norm_", "get_total_norm"))
_COMPARED = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot)
_DEPTH = 3

#: What a name is bound to, or a function returns, and the statement that does it.
_Given = tuple[ast.expr | None, ast.AST]


def at_overflow(view: AmpView, test: ast.expr, function: Function) -> bool | None:
    """The outcome of a test where gradients are inf; None where that does not decide it.

    Args:
        function: holds the test, in whatever file.
    """
    return _Asker(view, function, _AT_INF).outcome(test)


def at_nan(view: AmpView, test: ast.expr, function: Function) -> bool | None:
    """The outcome of a test where gradients are NaN; None where that does not decide it."""
    return _Asker(view, function, _AT_NAN).outcome(test)


@dataclass(frozen=True, slots=True, eq=False)
class _Asker:
    """Answers for the expressions of one function.

    Args:
        tests: functions of numbers, each with its outcome for the number in question.
        names: the parameters that get gradients, or a size of them.
        known: what was answered for a function and its parameters; what is being asked stands
            there, too, and says nothing about itself. Without it names that depend on each other
            are asked along every path between them.
    """

    view: AmpView
    function: Function
    tests: Mapping[str, bool]
    names: frozenset[str] = frozenset()
    depth: int = _DEPTH
    known: dict[tuple[object, ...], bool | None] = field(default_factory=dict)

    def outcome(self, test: ast.expr) -> bool | None:
        """The outcome of a test, or what a value counts for, where gradients are inf."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self.outcome(test.operand)
            return None if inner is None else not inner
        if isinstance(test, ast.BoolOp):
            found = (self.outcome(part) for part in test.values)
            return _joined(found, isinstance(test.op, ast.Or))
        if isinstance(test, ast.BinOp) and isinstance(test.op, (ast.BitOr, ast.BitAnd)):
            found = (self.outcome(part) for part in (test.left, test.right))
            return _joined(found, isinstance(test.op, ast.BitOr))
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Invert):
            inner = self.outcome(test.operand)
            return None if inner is None else not inner
        if isinstance(test, ast.Compare):
            return self._of_comparison(test)
        if isinstance(test, ast.Call):
            return self._of_call(test)
        if isinstance(test, ast.Name):
            return self._of_name(test.id)
        return None

    def _of_name(self, name: str) -> bool | None:
        key = (self.function, self.names, self.depth, name)
        if key not in self.known:
            self.known[key] = None
            self.known[key] = self._settled(_given(bindings_of(self.function).get(name, ())))
        return self.known[key]

    def _of_comparison(self, test: ast.Compare) -> bool | None:
        """`norm == float("inf")`; gradients that are inf are not None."""
        if len(test.ops) != 1 or not isinstance(test.ops[0], _COMPARED):
            return None
        if constant_of(test.comparators[0]) is None:
            is_there = isinstance(test.ops[0], (ast.IsNot, ast.NotEq))
            return is_there if self.are_gradients(test.left) else None
        limit = self.view.values.of(test.comparators[0], self.function).only()
        if limit != math.inf or self.tests is _AT_NAN or not self.are_gradients(test.left):
            return None
        return isinstance(test.ops[0], ast.Eq)

    def _of_call(self, call: ast.Call) -> bool | None:
        name = last_name(call.func)
        given = [*call.args]
        if not given and isinstance(call.func, ast.Attribute):
            given = [call.func.value]
        if len(given) == 1 and name in _HANDS_ON:
            return self._handed_on(name, given[0])
        if len(given) == 1 and name in self.tests:
            return self.tests[name] if self.are_gradients(given[0]) else None
        helper = self._called(call, self._holding(call))
        if helper is None:
            return None
        results = [node for node in helper.function.nodes if isinstance(node, ast.Return)]
        return helper._settled([(node.value, node) for node in results])

    def _handed_on(self, name: str, given: ast.expr) -> bool | None:
        if not isinstance(given, (ast.GeneratorExp, ast.ListComp)):
            return self.outcome(given)
        held = (
            name
            for loop in given.generators
            if self.are_gradients(loop.iter)
            for name in names_in(loop.target)
        )
        found = replace(self, names=self.names.union(held)).outcome(given.elt)
        wanted = {"any": True, "all": False}.get(name)
        return found if found is wanted else None

    def _settled(self, given: list[_Given]) -> bool | None:
        """What one of several values is for, if all that depend on an overflow agree.

        A constant depends on one by where it is given: `bad = True` under such a test.
        """
        outcomes: set[bool | None] = set()
        for value, statement in given:
            found = self._added(statement) if value is None else self.outcome(value)
            possible = None if value is None else self.view.values.of(value, self.function)
            if found is not None:
                outcomes.add(found)
            elif possible is None or not possible.values:
                return None
            elif self._runs_at_overflow(statement):
                only = possible.only()
                outcomes.add(None if only is ... else bool(only))
        return outcomes.pop() if len(outcomes) == 1 else None

    def _added(self, statement: ast.AST) -> bool | None:
        """`bad |= torch.isinf(parameter.grad).any()`."""
        if not isinstance(statement, ast.AugAssign):
            return None
        is_or = isinstance(statement.op, ast.BitOr)
        if not is_or and not isinstance(statement.op, ast.BitAnd):
            return None
        return _joined([self.outcome(statement.value), None], is_or)

    def _runs_at_overflow(self, statement: ast.AST) -> bool:
        return any(
            self.outcome(item.test) is item.side for item in conditions_at(statement, self.function)
        )

    # -- gradients ---------------------------------------------------------------------------------

    def are_gradients(self, expression: ast.expr) -> bool:
        """Whether an expression reads gradients, or a size of them."""
        return self._reads(expression, self._holding(expression))

    def _holding(self, expression: ast.expr) -> frozenset[str]:
        """The names that hold gradients, of those that an expression depends on."""
        behind = self._behind(expression)
        held = self.names
        while fresh := {
            name
            for name, sources in behind.items()
            if name not in held and any(self._reads(source, held) for source in sources)
        }:
            held |= fresh
        return held

    def _behind(self, expression: ast.expr) -> dict[str, list[ast.expr]]:
        """The names that an expression depends on, each with what it is bound to."""
        bindings = bindings_of(self.function)
        found: dict[str, list[ast.expr]] = {}
        pending = [*names_in(expression)]
        while pending:
            name = pending.pop()
            if name not in found:
                bound = (item.source for item in bindings.get(name, ()))
                found[name] = [source for source in bound if source is not None]
                pending += [each for source in found[name] for each in names_in(source)]
        return found

    def _reads(self, expression: ast.expr, held: frozenset[str]) -> bool:
        """Whether an expression reads gradients by itself, or by one of some names."""
        called = {node.func for node in walk(expression) if isinstance(node, ast.Call)}
        return any(
            (isinstance(node, ast.Attribute) and node.attr == "grad" and node not in called)
            or (isinstance(node, ast.Name) and node.id in held)
            or (isinstance(node, ast.Call) and self._gives_gradients(node, held))
            for node in walk(expression)
        )

    def _gives_gradients(self, call: ast.Call, held: frozenset[str]) -> bool:
        if last_name(call.func) in _NORMS:
            return True
        if self.function.module.resolve(call.func) in names.CLIP_FUNCTIONS:
            return True
        key = (call, held, self.names, self.depth)
        if key not in self.known:
            helper = self._called(call, held)
            self.known[key] = helper is not None and helper._returns_gradients()
        return bool(self.known[key])

    def _returns_gradients(self) -> bool:
        key = (self.function, self.names, self.depth, None)
        if key not in self.known:
            self.known[key] = any(
                node.value is not None and self.are_gradients(node.value)
                for node in self.function.nodes
                if isinstance(node, ast.Return)
            )
        return bool(self.known[key])

    def _called(self, call: ast.Call, held: frozenset[str]) -> _Asker | None:
        """The same questions in the function of the project that a call runs.

        Args:
            held: names that hold gradients here.
        """
        if not self.depth:
            return None
        callee = self.view.objects.callee(call, self.function)
        if callee is None or callee is self.function or callee.name == "__init__":
            return None
        given = bind(call, callee).given
        taken = frozenset(name for name, value in given.items() if self._reads(value, held))
        return replace(self, function=callee, names=taken, depth=self.depth - 1)


def _joined(outcomes: Iterable[bool | None], is_or: bool) -> bool | None:
    """The outcome of parts joined by `or`, or by `and`."""
    known = set(outcomes)
    if is_or in known:
        return is_or
    return None if None in known else not is_or


def _given(bindings: Iterable[Binding]) -> list[_Given]:
    return [(item.value, item.statement) for item in bindings]
