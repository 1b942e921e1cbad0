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
    """What a function returns that does nothing else."""
    body = [
        statement
        for statement in function.body
        if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
    ]
    if len(body) == 1 and isinstance(body[0], ast.Return):
        return body[0].value
    return None


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
