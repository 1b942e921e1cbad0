"""Tests that passes of a loop decide, whatever the options of a run are.

`(step + 1) % every == 0` and `torch.isnan(loss)` say when something happens; which precision a run
has says nothing about them. So they tie no two switches, and exclude no two either.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.amp.gradients import FINITENESS
from amplint.code.dataflow import bindings_of, constant_of, names_in
from amplint.code.expressions import last_name, path_text
from amplint.code.layout import layout_of
from amplint.code.tree import walk
from amplint.values.conditions import Condition

#: Comparisons that are not of numbers.
_NO_NUMBERS = (ast.Is, ast.IsNot, ast.In, ast.NotIn)
_COUNTING = frozenset(("int", "len", "max", "min"))
#: What makes one answer of many, or another form of it.
_HANDS_ON = frozenset(("all", "any", "bool", "item"))


def is_of_a_pass(guard: Condition, node: ast.AST) -> bool:
    """Whether some pass of the loops around a node meets a condition, and options do not matter.

    Counters of these loops are compared with numbers, or something computed is asked for being
    finite, and is. False for everything else, also where a part of the test reads an option.
    """
    return _some_pass(guard.test, guard, node, guard.side)


def _some_pass(test: ast.expr, guard: Condition, node: ast.AST, side: bool) -> bool:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _some_pass(test.operand, guard, node, not side)
    if isinstance(test, ast.BoolOp):
        return all(_some_pass(part, guard, node, side) for part in test.values)
    if isinstance(test, (ast.Compare, ast.BinOp)):
        return _counts(test, _counters(guard, node))
    return _is_finite(test, guard) is side


def _counts(test: ast.Compare | ast.BinOp, counters: set[str]) -> bool:
    """Whether a test is about numbers, counters among them; `batch.dtype == kind` is not."""
    sides = [test.left, *test.comparators] if isinstance(test, ast.Compare) else [test]
    if isinstance(test, ast.Compare) and any(isinstance(item, _NO_NUMBERS) for item in test.ops):
        return False
    is_counted = any(_paths(side) & counters for side in sides)
    return is_counted and all(_is_number(side, counters) for side in sides)


def _paths(side: ast.expr) -> set[str]:
    """The names and dotted paths in an expression."""
    found = (path_text(part) for part in walk(side) if isinstance(part, ast.expr))
    return {path for path in found if path is not None}


def _is_number(part: ast.expr, counters: set[str]) -> bool:
    """Whether an expression may be a number; an option is one, where it is compared with one."""
    if isinstance(part, ast.Constant):
        return isinstance(part.value, (int, float))
    if isinstance(part, (ast.BinOp, ast.UnaryOp)):
        operands = (part.left, part.right) if isinstance(part, ast.BinOp) else (part.operand,)
        return all(_is_number(operand, counters) for operand in operands)
    if isinstance(part, ast.Call):
        return last_name(part.func) in _COUNTING
    return isinstance(part, ast.Name) or not names_in(part) & counters


def _counters(guard: Condition, node: ast.AST) -> set[str]:
    """Names that count the passes of loops around a node: `for i, x in enumerate(…)`, `i += 1`."""
    layout = layout_of(guard.function)
    loops = layout.loops(node) if node in layout else []
    found = {name for loop in loops for name in _index(loop)}
    for path, bindings in bindings_of(guard.function).items():
        moves = [item.statement for item in bindings if isinstance(item.statement, ast.AugAssign)]
        if any(_goes_up(move) and layout.holds(loop, move) for move in moves for loop in loops):
            found.add(path)
    return found


def _index(loop: ast.AST) -> Iterator[str]:
    """The name that `range` or `enumerate` counts with, whatever shows their progress."""
    run = getattr(loop, "iter", None)
    target = getattr(loop, "target", None)
    while isinstance(run, ast.Call):
        if last_name(run.func) == "enumerate" and isinstance(target, ast.Tuple):
            target = target.elts[0]
        elif last_name(run.func) != "range":
            run = run.args[0] if run.args else None
            continue
        if isinstance(target, ast.Name):
            yield target.id
        return


def _goes_up(move: ast.AugAssign) -> bool:
    return isinstance(move.op, ast.Add) and isinstance(constant_of(move.value), int)


def _is_finite(test: ast.expr, guard: Condition) -> bool | None:
    """The outcome of a question whether numbers are finite where they are; None for others."""
    while isinstance(test, ast.Call) and last_name(test.func) in _HANDS_ON:
        inner = test.args[0] if test.args else getattr(test.func, "value", None)
        if not isinstance(inner, ast.expr):
            return None
        test = inner
    if not isinstance(test, ast.Call) or last_name(test.func) not in FINITENESS:
        return None
    dotted = guard.function.module.resolve(test.func) or ""
    is_method = isinstance(test.func, ast.Attribute) and not test.args
    if not is_method and dotted.partition(".")[0] not in ("torch", "math", "numpy"):
        return None
    return last_name(test.func) == "isfinite"
