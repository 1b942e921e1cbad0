"""Where a function tests how often something has been done: some steps are not all of them."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from amplint.code.dataflow import parameters
from amplint.code.expressions import last_name
from amplint.code.module import Function
from amplint.code.statements import expressions_of

#: What counts: loops over these.
_COUNTING = frozenset({"range", "enumerate", "count", "trange"})
_ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


_LEAVING = (ast.Break, ast.Continue, ast.Return, ast.Raise)


def tests_of_counters(function: Function, matter: Collection[int]) -> Iterator[int]:
    """Rows that compare how often a loop went round with something, or the order of a parameter
    with something: it may be such a number.

    Args:
        matter: rows of the slice. What only reports, or ends a loop early, is left out.
    """
    counters = {
        node.id
        for loop in function.nodes
        if isinstance(loop, (ast.For, ast.AsyncFor)) and _counts(loop.iter)
        for node in ast.walk(loop.target)
        if isinstance(node, ast.Name)
    }
    passed = set(parameters(function))
    for statement in function.nodes:
        if not isinstance(statement, ast.stmt) or not _matters(statement, matter):
            continue
        for expression in expressions_of(statement):
            for node in ast.walk(expression):
                if not isinstance(node, ast.Compare) or len(node.ops) > 1:
                    continue
                read = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
                ordered = isinstance(node.ops[0], _ORDERS)
                if read & counters or (ordered and read & passed):
                    yield node.lineno


def _matters(statement: ast.stmt, rows: Collection[int]) -> bool:
    """Whether a statement computes something, or tests what leads to a row of the slice."""
    if not isinstance(statement, ast.If):
        return True
    inside = [*statement.body, *statement.orelse]
    return any(
        row in rows
        for inner in inside
        if not isinstance(inner, _LEAVING)
        for row in range(inner.lineno, (inner.end_lineno or inner.lineno) + 1)
    )


def _counts(iterated: ast.expr) -> bool:
    return isinstance(iterated, ast.Call) and last_name(iterated.func) in _COUNTING
