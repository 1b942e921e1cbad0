"""Properties that only hand on what an object keeps: another name for one of its fields."""

from __future__ import annotations

import ast

from amplint.code.arguments import is_decorated, receiver_of
from amplint.code.expressions import path_text
from amplint.code.module import Function


def is_property(method: Function) -> bool:
    """Whether a method is read like a field."""
    return is_decorated(method, "property") or is_decorated(method, "cached_property")


def only_return(function: Function) -> ast.expr | None:
    """What a function returns that does nothing else, as one expression.

    `if half: return 16`, then `return 32`, is `16 if half else 32`.
    """
    return function.once(_find_only_return)


def _find_only_return(function: Function) -> ast.expr | None:
    return _returned_by(function.body)


def _returned_by(body: list[ast.stmt]) -> ast.expr | None:
    """What a block gives back; None where it does anything else, or ends without a return."""
    if not body:
        return None
    first, rest = body[0], body[1:]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):  # a docstring
        return _returned_by(rest)
    if isinstance(first, ast.Return):
        return first.value
    if not isinstance(first, ast.If):
        return None
    chosen, other = _returned_by(first.body), _returned_by([*first.orelse, *rest])
    if chosen is None or other is None:
        return None
    return ast.copy_location(ast.IfExp(first.test, chosen, other), first)


def made_anew(method: Function) -> ast.Call | None:
    """The call by which a property makes what it gives, anew at each access; None of others.

    Whether that makes an object is for others to say: it may be any call. What `cached_property`
    gives is one object.
    """
    returned = only_return(method) if is_decorated(method, "property") else None
    return returned if isinstance(returned, ast.Call) else None


def field_behind(method: Function) -> str | None:
    """The path of the field that a property hands on: "_scaler", "amp.scaler"; None of others.

    What `cached_property` gives is kept when the field changes: it is no name for the field.
    """
    returned = only_return(method) if is_decorated(method, "property") else None
    if not isinstance(returned, ast.Attribute):
        return None
    receiver, _, path = (path_text(returned) or "").partition(".")
    is_plain = path.replace(".", "").isidentifier()
    return path if is_plain and receiver == receiver_of(method) else None
