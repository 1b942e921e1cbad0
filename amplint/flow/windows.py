"""Accumulation windows: `i % k == 0` and its relatives, first and last iterations."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from operator import eq, ge, gt, le, lt, ne

from amplint.code.module import Function, walk
from amplint.flow.call import callee_name
from amplint.flow.companions import companion
from amplint.flow.conditions import Formula, negate
from amplint.flow.places import Places
from amplint.flow.state import State
from amplint.values.assumptions import definition_of

#: What comparisons of numbers ask.
COMPARISONS = {ast.Eq: eq, ast.NotEq: ne, ast.Lt: lt, ast.LtE: le, ast.Gt: gt, ast.GtE: ge}
_TOTAL_NAME = re.compile(r"len|num|n_|total|max|steps|batches|iters|size", re.IGNORECASE)


@dataclass(slots=True, eq=False)
class Windows(Places):
    """Conditions on loop counters.

    Args:
        windows: counter location -> text of what it counts. After the loop the last
            iteration tells whether `len(loader) % k` is zero.
        counters: counter location -> first value (0 or 1); None where nobody knows it.
    """

    windows: dict[str, str] = field(default_factory=dict)
    counters: dict[str, int | None] = field(default_factory=dict)

    def _window_test(
        self,
        left: ast.expr,
        operator: ast.cmpop,
        right: ast.expr,
        state: State,
        function: Function,
    ) -> Formula:
        """`i % k == 0` and its relatives; `i == 0`; `i == len(loader) - 1`."""
        if isinstance(left, ast.BinOp) and isinstance(left.op, ast.Mod):
            return self._modulo(left, operator, right, state, function)
        if not isinstance(operator, (ast.Eq, ast.NotEq, ast.Gt, ast.GtE)):
            return None
        counter, offset = self._counter(left, state, function)
        if counter is None:
            return None
        literal = literal_of(right)
        start = self.counters[counter]
        if literal is not None:
            if start is None or literal != start + offset:
                return None
            first = ("first", counter)
            return first if isinstance(operator, ast.Eq) else negate(first)
        if isinstance(operator, (ast.Eq, ast.NotEq)) and any(
            map(_TOTAL_NAME.search, _names(right))
        ):
            last = ("last", counter)
            return last if isinstance(operator, ast.Eq) else negate(last)
        return None

    def _modulo(
        self,
        left: ast.BinOp,
        operator: ast.cmpop,
        right: ast.expr,
        state: State,
        function: Function,
    ) -> Formula:
        period = self._period(left.right, state, function)
        if period is None:
            return None
        literal = literal_of(right)
        if period == "1" and isinstance(literal, int) and type(operator) in COMPARISONS:
            return COMPARISONS[type(operator)](0, literal)  # nothing is left over, ever
        place, end = self._window_counter(left.left, state, function)
        if place is None:
            return None
        if literal == 1 and self._begins_at_one(left.left, state, function):
            # Counting begins with 1, and so does each window.
            start: Formula = ("boundary", place, period, False)
            if isinstance(operator, (ast.Eq, ast.NotEq)):
                return start if isinstance(operator, ast.Eq) else negate(start)
        if literal == 1 and end == "now" and isinstance(operator, (ast.Eq, ast.NotEq)):
            behind: Formula = ("boundary", place, period, "behind")
            if period.isdecimal():  # where a window may be one round long, 1 is never left over
                return behind if isinstance(operator, ast.Eq) else negate(behind)
        if literal == 0 and isinstance(operator, (ast.Eq, ast.NotEq, ast.Gt)):
            atom: Formula = ("boundary", place, period, end)
            return atom if isinstance(operator, ast.Eq) else negate(atom)
        if (
            (
                isinstance(right, ast.BinOp)
                and isinstance(right.op, ast.Sub)
                and isinstance(operator, (ast.Eq, ast.NotEq))
            )
            and self._period(right.left, state, function) == period
            and literal_of(right.right) == 1
        ):
            atom = ("boundary", place, period, True)
            return atom if isinstance(operator, ast.Eq) else negate(atom)
        return None

    def _period(self, node: ast.expr, state: State, function: Function) -> str | None:
        """The length of a window: its number where a path knows it, under whatever name."""
        known = self.raw(node, state, function)
        if known is not None and known[0] == "const":
            return repr(known[1])
        return self.text(node, state, function)

    def _begins_at_one(self, node: ast.expr, state: State, function: Function) -> bool:
        """Whether a count, or what is added up of one, is 1 in the first round of its loop."""
        counter, offset = self._counter(node, state, function)
        first = self.counters.get(counter or "")
        return first is not None and first + offset == 1

    def _window_counter(
        self, node: ast.expr, state: State, function: Function
    ) -> tuple[str | None, bool | str]:
        """(counter, whether `counter % k == 0` marks the end of a window)."""
        made = definition_of(node, function)
        if isinstance(made, ast.Call) and callee_name(made) == "len":
            node = made  # `batches = len(loader)`
        if isinstance(node, ast.Call) and callee_name(node) == "len" and node.args:
            text = self.text(node.args[0], state, function)
            return (f"len({text})", True) if text else (None, True)
        counter, offset = self._counter(node, state, function)
        start = self.counters.get(counter or "")
        if counter is not None and start is not None:
            return counter, start - offset == 1 or offset == 1
        text = self.text(node, state, function)
        if text is None:
            return None, True
        if (
            isinstance(node, ast.BinOp)
            and isinstance(node.op, ast.Add)
            and literal_of(node.right) == 1
        ):
            place = self.locate(node.left, state, function)
            return (place, "next") if place else (text, "next")
        place = self.locate(node, state, function)
        return place or next(iter(self.mentioned(node, state, function)), text), "now"

    def _counter(self, node: ast.expr, state: State, function: Function) -> tuple[str | None, int]:
        offset = 0
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            if literal_of(node.right) == 1:
                node, offset = node.left, 1
            elif literal_of(node.left) == 1:
                node, offset = node.right, 1
        location = self.locate(node, state, function)
        if location in self.counters:
            return location, offset
        beside = companion(node, function) if isinstance(node, ast.Name) else None
        if beside is None:
            return None, 0
        index, moved = beside
        location = self.name_location(index, function)
        first = self.counters.get(location)
        if first is None:
            return None, 0
        return location, offset + moved - first


def literal_of(node: ast.expr) -> object | None:
    """A literal of the code; enum members (`Precision.FP16`, `torch.float16`) count too."""
    if isinstance(node, ast.Constant):
        return node.value
    if (
        isinstance(node, ast.UnaryOp)
        and isinstance(node.op, ast.USub)
        and isinstance(node.operand, ast.Constant)
    ):
        return f"-{node.operand.value!r}"
    if isinstance(node, ast.Attribute) and isinstance(node.value, (ast.Name, ast.Attribute)):
        root: ast.expr = node
        while isinstance(root, ast.Attribute):
            root = root.value
        if isinstance(root, ast.Name) and (root.id[:1].isupper() or root.id == "torch"):
            return f"<{ast.unparse(node)}>"
    return None


def _names(node: ast.expr) -> list[str]:
    return [
        child.id if isinstance(child, ast.Name) else child.attr
        for child in walk(node)
        if isinstance(child, (ast.Name, ast.Attribute))
    ]
