"""Reads of locals that nothing has bound yet: Python raises there, and what follows never runs.

An import, or an assignment, further down in a function makes a name local in all of it:
`import torch.sparse` in a branch hides the `torch` of the file from the lines before it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from amplint.code.arguments import parameters
from amplint.code.dataflow import bindings_of
from amplint.code.layout import Layout, layout_of
from amplint.code.module import Function

Passes = Callable[[ast.expr], bool]
#: What may leave out an expression inside of it, or runs it elsewhere.
_MAY_SKIP = (
    *(ast.IfExp, ast.BoolOp, ast.Lambda),
    *(ast.GeneratorExp, ast.ListComp, ast.SetComp, ast.DictComp),
)
#: What may take the error of what stands inside: the function then goes on behind it.
_TAKES = (ast.With, ast.AsyncWith)
#: Where names are bound by more than the statements that bindings are read from.
_OTHERWISE = (ast.Global, ast.Nonlocal, *filter(None, (getattr(ast, "Match", None),)))


def is_cut_off(node: ast.AST, function: Function) -> bool:
    """Whether each way to a node of a function, or through it, reads a local that nothing has bound."""
    reads = function.once(_unbound_reads)
    layout = layout_of(function) if reads else None
    return layout is not None and any(
        layout.holds(node, read) or is_behind(layout, node, read) for read in reads
    )


def _unbound_reads(function: Function) -> tuple[ast.Name, ...]:
    if function is function.module.body:
        return ()
    if any(isinstance(node, _OTHERWISE) for node in function.nodes):
        return ()
    return tuple(_find_reads(function))


def _find_reads(function: Function) -> Iterator[ast.Name]:
    layout = layout_of(function)
    bound = {
        name: [item.statement for item in found]
        for name, found in bindings_of(function).items()
        if name.isidentifier() and name not in parameters(function)
    }
    for node in layout.nodes:
        if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load):
            continue
        later = bound.get(node.id, ())
        is_first = all(item in layout and _runs_later(layout, item, node) for item in later)
        if later and is_first and always_runs(layout, node):
            yield node


def _runs_later(layout: Layout, statement: ast.AST, read: ast.Name) -> bool:
    """Whether a statement runs behind a read only, or not at all: no loop gets there before it."""
    if is_behind(layout, statement, read):
        return True
    repeated = {*layout.loops(statement)}
    return layout.before(read, statement) and repeated.isdisjoint(layout.loops(read))


def is_behind(
    layout: Layout, node: ast.AST, read: ast.AST, passes: Passes = lambda context: False
) -> bool:
    """Whether a node runs only after a read, and not after an error of it that a `with` takes.

    Args:
        passes: whether a context manager is known to let errors through.
    """
    return layout.dominates(read, node) and all(
        layout.holds(outer, node)
        or all(passes(item.context_expr) for item in _entered(layout, outer, read))
        for outer in layout.ancestors(read)
        if isinstance(outer, _TAKES)
    )


def _entered(layout: Layout, outer: ast.AST, read: ast.AST) -> list[ast.withitem]:
    """What a `with` has entered when something in it is read."""
    items: list[ast.withitem] = getattr(outer, "items", [])
    making = [k for k, item in enumerate(items) if layout.holds(item.context_expr, read)]
    return items[: making[0]] if making else items


def always_runs(layout: Layout, node: ast.AST) -> bool:
    """Whether an expression runs with its statement."""
    return not any(isinstance(outer, _MAY_SKIP) for outer in layout.ancestors(node))
