"""Edits of whole statements: new ones beside them, and taking them away.

Only statements that have their lines for themselves are touched; of any other one the
functions say None, and a rule offers no fix.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.amp.scaler_calls import scaler_calls
from amplint.code.layout import layout_of
from amplint.code.module import CallSite
from amplint.findings import Edit, Fix, Position, Span
from amplint.fixing.edits import joined
from amplint.rule import Misuse
from amplint.source.positions import LineTable
from amplint.view import FileView


def insert_before(view: FileView, statement: ast.stmt, code: str) -> Edit | None:
    """An edit that puts a line of code in front of a statement."""
    start = view.span_of(statement).start
    indent = _lines(view).line(start.row)[: start.column - 1]
    if indent.strip():
        return None
    return Edit(Span(start, start), f"{code}\n{indent}")


def insert_after(view: FileView, statement: ast.stmt, code: str) -> Edit | None:
    """An edit that puts a line of code behind a statement and its comment."""
    span = view.span_of(statement)
    lines = _lines(view)
    indent = lines.line(span.start.row)[: span.start.column - 1]
    rest = lines.line(span.end.row)[span.end.column - 1 :].strip()
    if indent.strip() or (rest and not rest.startswith("#")):
        return None
    end = Position(span.end.row, len(lines.line(span.end.row)) + 1)
    return Edit(Span(end, end), f"\n{indent}{code}")


def remove(view: FileView, statement: ast.stmt) -> Edit | None:
    """An edit that removes a statement with its line; None if a comment would go with it."""
    span = view.span_of(statement)
    lines = _lines(view)
    before = lines.line(span.start.row)[: span.start.column - 1]
    rest = lines.line(span.end.row)[span.end.column - 1 :]
    is_last = span.end.row >= len(lines.lines)
    if before.strip() or rest.strip() or is_last:
        return None
    return Edit(Span(Position(span.start.row, 1), Position(span.end.row + 1, 1)), "")


def move_before(
    view: FileView, statement: ast.stmt, target: ast.stmt, first: str = ""
) -> list[Edit | None]:
    """Edits that move a statement of one line, with its comment, in front of another one.

    Args:
        first: a line of code to put in front of both; "" for none.
    """
    lines, span = _lines(view), view.span_of(statement)
    row = span.start.row
    line, start = lines.line(row), view.span_of(target).start
    rest = line[span.end.column - 1 :].strip()
    if span.end.row != row or line[: span.start.column - 1].strip():
        return [None]
    if (rest and not rest.startswith("#")) or row >= len(lines.lines):
        return [None]
    code, indent = line[span.start.column - 1 :].rstrip(), lines.line(start.row)[: start.column - 1]
    inserted = insert_before(view, target, f"{first}\n{indent}{code}" if first else code)
    return [inserted, Edit(Span(Position(row, 1), Position(row + 1, 1)), "")]


def unsafe(*edits: Edit | None) -> Fix | None:
    """A fix that changes what training does; None if one of its edits cannot be made."""
    known = [edit for edit in edits if edit is not None]
    if len(known) < len(edits):
        return None
    return Fix("unsafe", tuple(joined(known)))


def is_unconditional(misuse: Misuse) -> bool:
    """Whether the path to a misuse assumes nothing, so that a fix suits every run of it."""
    return not any(step.kind == "assume" for step in misuse.path)


def own_statement(misuse: Misuse, view: FileView) -> ast.stmt | None:
    """The statement that consists of the offending call, or of a name given its result."""
    layout = layout_of(misuse.function)
    if misuse.function.module is not view.module or misuse.node not in layout:
        return None
    statement = layout.statement(misuse.node)
    is_it = isinstance(statement, (ast.Expr, ast.Assign)) and statement.value is misuse.node
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


def _lines(view: FileView) -> LineTable:
    return LineTable(view.module.source)
