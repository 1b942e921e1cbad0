"""Under which conditions a statement runs, and how firmly they hold."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from amplint.code.layout import EXITS, layout_of
from amplint.code.module import Function
from amplint.values.provenance import Activation, Condition, Firmness

if TYPE_CHECKING:
    from amplint.values.origins import Origins


def conditions_at(
    node: ast.AST, function: Function, use: ast.AST | None = None
) -> tuple[Condition, ...]:
    """The conditions under which control reaches a node: tests around it, exits before it.

    Args:
        use: tests that also hold this node do not count.
    """
    layout = layout_of(function)
    if node not in layout:
        return ()
    found: list[Condition] = []
    inner: ast.AST = node
    for outer in layout.ancestors(node):
        if use is not None and use in layout and layout.holds(outer, use):
            break
        for block in (getattr(outer, "body", None), getattr(outer, "orelse", None)):
            if isinstance(block, list) and inner in block:
                found += _exits_before(block[: block.index(inner)], function)
        if isinstance(outer, (ast.If, ast.IfExp)) and inner is not outer.test:
            in_body = inner is outer.body if isinstance(outer, ast.IfExp) else inner in outer.body
            found.append(Condition(outer.test, in_body, function))
        inner = outer
    return tuple(found)


def tests_at(node: ast.AST, function: Function, use: ast.AST | None = None) -> Iterator[ast.expr]:
    """The tests that decide by themselves whether control reaches a node, as in `conditions_at`."""
    for condition in conditions_at(node, function, use):
        yield from (part.test for part in parts_that_hold(condition))


def parts_that_hold(condition: Condition) -> Iterator[Condition]:
    """A condition, or what it is made of where all of that holds by itself: `a and not (b or c)`."""
    test, side = condition.test, condition.side
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from parts_that_hold(replace(condition, test=test.operand, side=not side))
    elif isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) is side:
        for operand in test.values:
            yield from parts_that_hold(replace(condition, test=operand))
    else:
        yield condition


def _exits_before(statements: list[ast.stmt], function: Function) -> Iterator[Condition]:
    """`if done: return`, `if done: ... continue`: behind it the test was false."""
    for statement in statements:
        if not isinstance(statement, ast.If) or statement.orelse:
            continue
        if isinstance(statement.body[-1], EXITS):
            yield Condition(statement.test, False, function)


def firmness_of_statement(
    origins: Origins,
    node: ast.AST,
    use: ast.AST | None,
    function: Function,
    activation: Activation | None,
) -> tuple[Firmness | None, Firmness | None]:
    """How firmly a statement runs, and how firmly it does not; None for "cannot be".

    Conditions that hold the place of use, too, do not count.
    """
    layout = layout_of(function)
    if node not in layout:  # a field of a class body
        return Firmness.FIXED, None
    holds: Firmness | None = Firmness.FIXED
    fails: Firmness | None = None
    inner = node
    for outer in layout.ancestors(node):
        here, inner = inner, outer
        if use is not None and use in layout and layout.holds(outer, use):
            break
        if isinstance(outer, (ast.ExceptHandler, ast.match_case)):
            holds, fails = weaker(holds, Firmness.CHOICE), Firmness.DEFAULT
        if not isinstance(outer, ast.If) or here is outer.test:
            continue
        truth = origins.truth(outer.test, function, activation)
        side = here in outer.body
        holds = weaker(holds, truth.get(side))
        fails = _stronger(fails, truth.get(not side))
    return holds, fails


def equality(left: ast.expr, right: ast.expr, function: Function) -> Condition:
    """The condition `left == right`, which stands nowhere in the code."""
    test = ast.Compare(left, [ast.Eq()], [right])
    return Condition(ast.fix_missing_locations(ast.copy_location(test, left)), True, function)


def weaker(first: Firmness | None, second: Firmness | None) -> Firmness | None:
    """How firmly both hold; None ("cannot be") if one of them cannot."""
    return None if first is None or second is None else min(first, second)


def _stronger(first: Firmness | None, second: Firmness | None) -> Firmness | None:
    if first is None or second is None:
        return first if second is None else second
    return max(first, second)
