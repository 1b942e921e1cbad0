"""Ending a `with autocast` block earlier."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.code.layout import layout_of
from amplint.fixing.verbs import Move, Repair, Unwrap, unsafe
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
