"""Lists and tables at the top of a module that nothing changes: `HOOKS = [Clip(), log_loss]`."""

from __future__ import annotations

import ast
from collections.abc import Callable

from amplint.code.dataflow import fills_of
from amplint.code.expressions import path_text
from amplint.values.provenance import Firmness, Found, Origin


def fixed_display(found: Found) -> Origin | None:
    """The list, tuple or dict display that a place always holds, by where its values come from."""
    if len(found.origins) != 1 or not found.complete:
        return None
    (origin,) = found.origins
    is_display = isinstance(origin.expression, (ast.List, ast.Tuple, ast.Dict))
    return origin if is_display and not _may_change(origin) else None


def runs_once(loop: ast.AST, origins_of: Callable[[ast.expr], Found]) -> bool:
    """Whether a loop takes the only element out of a list: nothing in it is repeated."""
    if not isinstance(loop, (ast.For, ast.AsyncFor)):
        return False
    display: ast.expr | None = loop.iter
    if isinstance(display, (ast.Name, ast.Attribute)):
        origin = fixed_display(origins_of(display))
        display = None if origin is None else origin.expression
    if not isinstance(display, (ast.List, ast.Tuple)) or len(display.elts) != 1:
        return False
    return not isinstance(display.elts[0], ast.Starred)


def _may_change(origin: Origin) -> bool:
    """Whether a list is one of several, or some function of its file fills one at a place."""
    module = origin.function.module
    if origin.firmness is not Firmness.FIXED or origin.function is not module.body:
        return True
    names = {
        path_text(target)
        for statement in module.tree.body
        if isinstance(statement, ast.Assign) and statement.value is origin.expression
        for target in statement.targets
    }
    return not names or any(names & fills_of(other).keys() for other in module.functions)
