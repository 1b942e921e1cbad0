"""Whether a program goes on behind what torch raises at a call, and nothing is lost by that.

A handler knows the error by its text, or the call is the last that its `try` does.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from amplint.code.dataflow import names_in
from amplint.code.expressions import last_name
from amplint.code.layout import EXITS, layout_of
from amplint.code.module import Function
from amplint.code.tree import TRIES, walk
from amplint.flow.raising import is_kind_of
from amplint.protocol import Violation


def is_survived(node: ast.AST, function: Function, violation: Violation) -> bool:
    """Whether the first handler around a node that takes the error of a violation goes on.

    `except RuntimeError as error: if "already been called" not in str(error): raise`. One that goes on
    whatever the text is leaves out what stands behind the call in its `try`; where nothing does,
    no more is lost than the call.
    """
    layout = layout_of(function)
    if violation.error is None or node not in layout:
        return False
    inner = node
    for outer in layout.ancestors(node):
        if isinstance(outer, TRIES) and inner in outer.body:
            for handler in outer.handlers:
                if _takes(handler, violation.exception or ""):
                    return _is_known(handler, violation.error) or (
                        _is_all(inner, node, outer) and _goes_on(handler)
                    )
        inner = outer
    return False


def _takes(handler: ast.ExceptHandler, exception: str) -> bool:
    if handler.type is None:
        return True
    kinds = getattr(handler.type, "elts", [handler.type])
    return any(is_kind_of(exception, last_name(kind)) for kind in kinds)


def _is_all(statement: ast.AST, node: ast.AST, outer: ast.Try) -> bool:
    """Whether a call is the last thing that a `try` does, and all of its statement.

    Not a step: without it nothing is trained.
    """
    is_alone = isinstance(statement, ast.Expr) and statement.value is node
    steps = isinstance(node, ast.Call) and last_name(node.func) == "step"
    return is_alone and not steps and statement is outer.body[-1] and not outer.orelse


def _goes_on(handler: ast.ExceptHandler) -> bool:
    """Whether a handler neither raises nor leaves the place where it stands."""
    return not any(isinstance(node, EXITS) for node in walk(handler))


def _is_known(handler: ast.ExceptHandler, error: str) -> bool:
    """Whether a handler looks for a part of an error's text, and raises nothing where it is there."""
    tests = (node for node in walk(handler) if isinstance(node, ast.Compare))
    if all(_outcome(test, handler, error) is None for test in tests):
        return False
    return not _may_raise(handler.body, handler, error)


def _may_raise(body: Iterable[ast.stmt], handler: ast.ExceptHandler, error: str) -> bool:
    """Whether statements of a handler may raise for an error."""
    for statement in body:
        if isinstance(statement, ast.If):
            outcome = _outcome(statement.test, handler, error)
            sides = ((True, statement.body), (False, statement.orelse))
            taken = [block for side, block in sides if outcome in (None, side)]
            if any(_may_raise(block, handler, error) for block in taken):
                return True
        elif any(isinstance(node, ast.Raise) for node in walk(statement)):
            return True
    return False


def _outcome(test: ast.expr, handler: ast.ExceptHandler, error: str) -> bool | None:
    """How a test of an error's text comes out; None for other tests."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _outcome(test.operand, handler, error)
        return None if inner is None else not inner
    if isinstance(test, ast.BoolOp):
        found = {_outcome(part, handler, error) for part in test.values}
        decisive = isinstance(test.op, ast.Or)
        if decisive in found:
            return decisive
        return None if None in found else not decisive
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    part, text = test.left, test.comparators[0]
    if not isinstance(test.ops[0], (ast.In, ast.NotIn)) or handler.name not in names_in(text):
        return None
    if not isinstance(part, ast.Constant) or not isinstance(part.value, str):
        return None
    is_lower = any(isinstance(n, ast.Attribute) and n.attr == "lower" for n in walk(text))
    return (part.value in (error.lower() if is_lower else error)) is isinstance(test.ops[0], ast.In)
