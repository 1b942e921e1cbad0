"""What has to be true of inputs so that the tests on a finding's path come out as they must."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator
from typing import Any

from amplint.code.expressions import path_text
from amplint.probe.messages import membership

_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
}


class Truth:
    """A value is wanted that is true, or one that is not."""

    def __init__(self, holds: bool) -> None:
        self.holds = holds


class Compared:
    """A value is wanted with which a comparison holds, or does not."""

    def __init__(self, compare: Callable[[Any, Any], Any], other: Any, holds: bool) -> None:
        self._compare = compare
        self._other = other
        self._holds = holds

    def fits(self, value: Any) -> bool:
        """Whether a value is wanted."""
        try:
            return bool(self._compare(value, self._other)) is self._holds
        except TypeError:
            return False


def demands(test: ast.expr, holds: bool) -> Iterator[tuple[str, Truth | Compared]]:
    """What has to be true of paths so that a test holds, or does not."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from demands(test.operand, not holds)
    elif isinstance(test, ast.BoolOp):
        decided = isinstance(test.op, ast.And) is holds
        for value in test.values if decided else test.values[:1]:
            yield from demands(value, holds)
    elif isinstance(test, ast.Compare) and len(test.ops) == 1:
        if isinstance(test.ops[0], (ast.In, ast.NotIn)):
            yield from _memberships(test, holds is isinstance(test.ops[0], ast.In))
            return
        if isinstance(test.left, ast.BinOp) and isinstance(test.left.op, ast.Mod):
            yield from _of_windows(test, test.left.right, holds)
            return
        path = path_text(test.left)
        constant = test.comparators[0]
        if path is None or not isinstance(constant, ast.Constant):
            return
        if constant.value is None:
            equal = isinstance(test.ops[0], (ast.Eq, ast.Is))
            yield path, Truth(equal is not holds)
        elif type(test.ops[0]) in _COMPARISONS:
            yield path, Compared(_COMPARISONS[type(test.ops[0])], constant.value, holds)
    else:
        path = path_text(test)
        if path is not None:
            yield path, Truth(holds)


def _of_windows(
    test: ast.Compare, length: ast.expr, holds: bool
) -> Iterator[tuple[str, Truth | Compared]]:
    """A window that has more than one batch, where `(i + 1) % window == 0` does not hold."""
    path = path_text(length)
    equal = isinstance(test.ops[0], ast.Eq)
    if path is not None and isinstance(test.ops[0], (ast.Eq, ast.NotEq)) and equal is not holds:
        yield path, Compared(operator.gt, 1, holds=True)


def _memberships(test: ast.Compare, holds: bool) -> Iterator[tuple[str, Truth]]:
    """Whether a constant is in something, as a run decides it."""
    path = path_text(test.comparators[0])
    if path is not None and isinstance(test.left, ast.Constant):
        yield membership(path, test.left.value), Truth(holds)


def fits(value: Any, wanted: Truth | Compared) -> bool:
    if isinstance(wanted, Truth):
        return bool(value) is wanted.holds
    return isinstance(wanted, Compared) and wanted.fits(value)
