"""What a fix asks about the statements around a misuse, before it says in verbs what to do."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.amp.scaler_calls import scaler_calls
from amplint.code.layout import layout_of
from amplint.code.module import CallSite, Function
from amplint.rule import Misuse
from amplint.view import FileView


def is_unconditional(misuse: Misuse) -> bool:
    """Whether the path to a misuse assumes nothing, so that a fix suits every run of it."""
    return not any(step.kind == "assume" for step in misuse.path)


def own_statement(misuse: Misuse, view: FileView) -> ast.stmt | None:
    """The statement that consists of the offending call, or of a name given its result."""
    if misuse.function.module is not view.module or not isinstance(misuse.node, ast.Call):
        return None
    return statement_of(misuse.node, misuse.function)


def statement_of(call: ast.Call, function: Function) -> ast.stmt | None:
    """The statement that consists of a call, or of a name given its result."""
    layout = layout_of(function)
    statement = layout.statement(call) if call in layout else None
    is_it = isinstance(statement, (ast.Expr, ast.Assign)) and statement.value is call
    return statement if is_it else None


def block_of(misuse: Misuse, statement: ast.stmt) -> list[ast.stmt]:
    """The statements beside a statement, itself included."""
    parent = layout_of(misuse.function).parents[statement]
    for block in ("body", "orelse", "finalbody"):
        found = getattr(parent, block, None)
        if isinstance(found, list) and statement in found:
            return found
    return []


def calls_on(view: FileView, misuse: Misuse, *methods: str) -> Iterator[CallSite]:
    """Calls of methods of the misuse's scaler in the same function, as the code writes it."""
    for site in scaler_calls(view, *methods, within=misuse.function):
        callee = site.node.func
        if isinstance(callee, ast.Attribute) and ast.unparse(callee.value) == misuse.scaler:
            yield site
