"""Ending a `with autocast` block earlier, or in each round of the loop in it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.code.expressions import last_name
from amplint.code.layout import layout_of
from amplint.fixing.statements import code_of
from amplint.fixing.verbs import Move, Repair, Unwrap, Within, unsafe
from amplint.regions.regions import Inside, Region
from amplint.regions.training import is_forward
from amplint.view import FileView

_PRODUCTS = frozenset(
    ("torch.matmul", "torch.mm", "torch.bmm", "torch.einsum", "torch.addmm", "torch.baddbmm")
)


def end_before(view: FileView, region: Region, item: Inside) -> Repair | None:
    """Let a block end before the statement with a call in it; what follows in it leaves, too.

    None where the block is no `with` of its own, or where what would leave runs a forward, which
    needs autocast.
    """
    block = _block(view, region)
    if block is None:
        return None
    layout = layout_of(region.function)
    call = item.trail[0][0] if item.trail else item.call
    index = next((i for i, each in enumerate(block.body) if layout.holds(each, call)), None)
    leaving = block.body[index:] if index is not None else []
    if not leaving or any(True for _ in _products(view, region, leaving)):
        return None
    if index == 0:
        return unsafe(Unwrap(block))
    return unsafe(*(Move(statement, block, after=True) for statement in leaving))


def into_the_loop(view: FileView, region: Region, loop: ast.AST | None) -> Repair | None:
    """Put the block around what runs under autocast in each round of the one loop in it.

    None where a forward, or what else autocast may change, runs behind the first backward.
    """
    block = _block(view, region)
    if block is None or block.body != [loop] or not isinstance(loop, (ast.For, ast.While)):
        return None
    (item,) = block.items
    layout = layout_of(region.function)
    backwards = (
        index
        for index, statement in enumerate(loop.body)
        if any(getattr(node, "attr", "") == "backward" for node in layout.inside(statement))
    )
    end = next(backwards, 0)
    inside = [
        each for each in loop.body[:end] if any(True for _ in _products(view, region, [each]))
    ]
    leaving = [*loop.body[end:], *loop.orelse]
    if not inside or item.optional_vars or any(True for _ in _products(view, region, leaving)):
        return None
    # What a loss is computed from its outputs by stays inside, as it was.
    last = next(each for each in reversed(loop.body[:end]) if not _clears(each))
    header = f"with {code_of(view, item.context_expr)}:"
    return unsafe(Unwrap(block), Within(inside[0], header, last))


def _clears(statement: ast.stmt) -> bool:
    """Whether a statement only drops gradients."""
    return isinstance(statement, ast.Expr) and last_name(_called(statement)) == "zero_grad"


def _called(statement: ast.Expr) -> ast.expr:
    return statement.value.func if isinstance(statement.value, ast.Call) else statement.value


def _block(view: FileView, region: Region) -> ast.With | None:
    """The `with` statement of the checked file that opens a region and nothing else."""
    if region.function.module is not view.module:
        return None
    parent = view.module.scopes.parents.get(region.opened)
    block = view.module.scopes.parents.get(parent) if parent is not None else None
    if not isinstance(block, ast.With) or len(block.items) > 1:
        return None
    return block if block in layout_of(region.function) else None


def _products(view: FileView, region: Region, leaving: list[ast.stmt]) -> Iterator[ast.AST]:
    """What autocast may change in the statements that leave a region."""
    layout = layout_of(region.function)
    for item in view.regions.inside(region):
        first = item.trail[0][0] if item.trail else item.call
        is_used = bool(item.trail) or not isinstance(layout.parents[first], ast.Expr)
        leaves = any(layout.holds(each, first) for each in leaving)
        if leaves and is_used and is_forward(view.regions, item):
            yield item.call
    for node in (node for each in leaving for node in layout.inside(each)):
        dotted = view.module.resolve(node.func) if isinstance(node, ast.Call) else None
        is_product = isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult)
        if is_product or dotted in _PRODUCTS or (dotted or "").startswith("torch.nn.functional."):
            yield node
