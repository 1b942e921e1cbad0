"""Which handler takes the exception of a `raise` statement, where the text says so."""

from __future__ import annotations

import ast
import builtins

from amplint.code.expressions import last_name


def catches(handler: ast.ExceptHandler, raised: ast.Raise) -> bool | None:
    """Whether a handler takes what a statement raises; None where it may."""
    if handler.type is None:
        return True
    if raised.exc is None:
        return None
    name = last_name(raised.exc.func if isinstance(raised.exc, ast.Call) else raised.exc)
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    answers = [_is_kind_of(name, last_name(item)) for item in types]
    return True if True in answers else (None if None in answers else False)


def _is_kind_of(name: str, other: str) -> bool | None:
    """By name, or among Python's own exceptions; every other class may derive from any."""
    if name == other or other == "BaseException":
        return True
    known, caught = (getattr(builtins, item, None) for item in (name, other))
    both = isinstance(known, type) and isinstance(caught, type)
    return issubclass(known, caught) if both else None  # type: ignore[arg-type]
