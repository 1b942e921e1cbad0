"""Letting a `with autocast` block hold what autocast may change, and no backward and no step."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from amplint.code.expressions import last_name
from amplint.code.layout import Layout, layout_of
from amplint.fixing.statements import code_of
from amplint.fixing.verbs import Move, Repair, Unwrap, Within, unsafe
from amplint.regions.regions import Inside, Region
from amplint.regions.training import backwards, is_forward, steps
from amplint.view import FileView

_PRODUCTS = frozenset(
    ("torch.matmul", "torch.mm", "torch.bmm", "torch.einsum", "torch.addmm", "torch.baddbmm")
)


def narrowed(view: FileView, region: Region) -> Repair | None:
    """Let backward passes and steps leave a block, with what follows them up to the next forward.

    That one, and a forward beside them in a branch or a loop, gets a block of its own. None where
    the block is no `with` statement of its own, or one statement runs both.
    """
    block = _block(view, region)
    parts = _Parts.of(view, region)
    runs = parts.runs(block.body) if block is not None else None
    if block is None or runs is None:
        return None
    first, *others = runs
    later = [run for run in map(parts.trimmed, others) if run]
    if first and not later:
        leaving = block.body[len(first) :]
        return unsafe(*(Move(statement, block, after=True) for statement in leaving))
    (item,) = block.items
    if item.optional_vars is not None:
        return None
    header = f"with {code_of(view, item.context_expr)}:"
    again = [run for run in (parts.trimmed(first), *later) if run]
    return unsafe(Unwrap(block), *(Within(run[0], header, run[-1]) for run in again))


@dataclass(frozen=True, slots=True)
class _Parts:
    """What of a region needs autocast, and what has to leave it.

    Args:
        needs: what autocast may change.
        ends: backward passes and steps.
    """

    layout: Layout
    needs: frozenset[ast.AST]
    ends: frozenset[ast.AST]

    @classmethod
    def of(cls, view: FileView, region: Region) -> _Parts:
        """The parts of a region."""
        found = (*backwards(view.regions, region), *steps(view.regions, region))
        ends = frozenset(map(_entry, found))
        return cls(layout_of(region.function), frozenset(_products(view, region)), ends)

    def runs(self, body: list[ast.stmt]) -> list[list[ast.stmt]] | None:
        """The statements between those that leave; None where one would have to do both."""
        found: list[list[ast.stmt]] = [[]]
        for statement in body:
            nodes = self.layout.inside(statement)
            if self.ends.isdisjoint(nodes):
                found[-1].append(statement)
                continue
            inner = [] if self.needs.isdisjoint(nodes) else self._inner(statement)
            if inner is None:
                return None
            found += [*inner, []]
        return found

    def _inner(self, statement: ast.stmt) -> list[list[ast.stmt]] | None:
        """The same of the branches of a statement, or of a loop's body."""
        if not isinstance(statement, (ast.If, ast.For, ast.While)):
            return None
        if any(self.layout.statement(node) is statement for node in self.needs | self.ends):
            return None
        body, other = self.runs(statement.body), self.runs(statement.orelse)
        return None if body is None or other is None else body + other

    def trimmed(self, run: list[ast.stmt]) -> list[ast.stmt]:
        """A run from what needs autocast; what a loss is computed by behind it stays inside."""
        start = next((i for i, each in enumerate(run) if self._needs(each)), len(run))
        ends = [i for i, each in enumerate(run) if not _clears(each)]
        return run[start : ends[-1] + 1] if ends else []

    def _needs(self, statement: ast.stmt) -> bool:
        return not self.needs.isdisjoint(self.layout.inside(statement))


def _entry(item: Inside) -> ast.Call:
    """The call of the region's own function that leads to a call in it."""
    return item.trail[0][0] if item.trail else item.call


def _clears(statement: ast.stmt) -> bool:
    """Whether a statement only drops gradients."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and last_name(call.func) == "zero_grad"


def _block(view: FileView, region: Region) -> ast.With | None:
    """The `with` statement of the checked file that opens a region and nothing else."""
    if region.function.module is not view.module:
        return None
    parent = view.module.scopes.parents.get(region.opened)
    block = view.module.scopes.parents.get(parent) if parent is not None else None
    if not isinstance(block, ast.With) or len(block.items) > 1:
        return None
    return block if block in layout_of(region.function) else None


def _products(view: FileView, region: Region) -> Iterator[ast.AST]:
    """What autocast may change in a region, in its own function."""
    layout = layout_of(region.function)
    for item in view.regions.inside(region):
        entry = _entry(item)
        is_used = bool(item.trail) or not isinstance(layout.parents[entry], ast.Expr)
        if is_used and is_forward(view.regions, item):
            yield entry
    for node in (node for part in region.parts for node in layout.inside(part)):
        dotted = view.module.resolve(node.func) if isinstance(node, ast.Call) else None
        is_product = isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult)
        if is_product or dotted in _PRODUCTS or (dotted or "").startswith("torch.nn.functional."):
            yield node
