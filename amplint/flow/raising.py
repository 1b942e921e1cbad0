"""Which handler takes an exception, where the text says so."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable
from itertools import pairwise

from amplint.code.exits import is_exit
from amplint.code.expressions import last_name
from amplint.code.layout import layout_of
from amplint.code.module import Function
from amplint.code.tree import TRIES


def catches(handler: ast.ExceptHandler, raised: ast.Raise) -> bool | None:
    """Whether a handler takes what a statement raises; None where it may."""
    if handler.type is None:
        return True
    if raised.exc is None:
        return None
    name = last_name(raised.exc.func if isinstance(raised.exc, ast.Call) else raised.exc)
    name = "SystemExit" if is_exit(raised.exc) else name
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    answers = [_is_kind_of(name, last_name(item)) for item in types]
    return True if True in answers else (None if None in answers else False)


def is_awaited(node: ast.AST, function: Function, names: Iterable[str]) -> bool:
    """Whether a handler around a node names one of these exceptions: they are expected there.

    A handler of all exceptions says nothing of these.
    """
    layout = layout_of(function)
    around = [node, *layout.ancestors(node)] if node in layout else []
    handlers = [
        handler
        for inner, outer in pairwise(around)
        if isinstance(outer, TRIES) and inner in outer.body
        for handler in outer.handlers
    ]
    types = [handler.type for handler in handlers if handler.type is not None]
    parts = [part for item in types for part in getattr(item, "elts", [item])]
    return any(last_name(part) in names for part in parts)


def _is_kind_of(name: str, other: str) -> bool | None:
    """By name, or among Python's own exceptions; every other class may derive from any."""
    if name == other or other == "BaseException":
        return True
    known, caught = (getattr(builtins, item, None) for item in (name, other))
    both = isinstance(known, type) and isinstance(caught, type)
    return issubclass(known, caught) if both else None  # type: ignore[arg-type]
