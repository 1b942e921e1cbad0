"""Styles that add what never runs: comments, docstrings and dead code about AMP."""

from __future__ import annotations

import ast

from restyling.program import DoesNotApplyError, Program, first_row

_NOTE = "# autocast and GradScaler: scaler.unscale_(optimizer), scaler.step(optimizer), amp\n"
_DEAD = """

def never_called(scaler, optimizer, loss):
    \"\"\"Unscales with the GradScaler under autocast, then steps.\"\"\"
    if False:
        scaler.unscale_(optimizer)
    return scaler, loss
"""


def comments(program: Program) -> Program:
    """Comments with AMP words before every function and in every loop."""
    changed = {}
    for source in program.python:
        edits = []
        for node in ast.walk(source.tree):
            if isinstance(node, (ast.FunctionDef, ast.For, ast.ClassDef)):
                edits.append(source.before_row(first_row(node), " " * node.col_offset + _NOTE))
            if isinstance(node, ast.For) and node.body[0].lineno > node.lineno:
                first = node.body[0]
                edits.append(source.before_row(first_row(first), " " * first.col_offset + _NOTE))
        edits = [edit for edit in edits if not _splits(source, edit)]
        changed[source.name] = source.edited(edits) + _NOTE
    return program.with_texts(changed)


def _splits(source, edit) -> bool:
    row = source.text.count("\n", 0, edit.start) + 1
    return row in source.rows_in_strings


def docstrings(program: Program) -> Program:
    """Functions without a docstring get one with AMP words."""
    changed = {}
    for source in program.python:
        edits = []
        for node in ast.walk(source.tree):
            if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) is None:
                first = node.body[0]
                if first.lineno > node.lineno:
                    text = '"""Called with a GradScaler under autocast; amp is off."""\n'
                    blanks = " " * first.col_offset
                    edits.append(source.before_row(first_row(first), blanks + text))
        if edits:
            changed[source.name] = source.edited(edits)
    if not changed:
        raise DoesNotApplyError("every function has a docstring")
    return program.with_texts(changed)


def dead_code(program: Program) -> Program:
    """A function that nobody calls, and in each loop a branch that never runs."""
    changed = {}
    for source in program.python:
        edits = []
        for node in ast.walk(source.tree):
            if isinstance(node, ast.For) and node.body[0].lineno > node.lineno:
                first = node.body[0]
                blanks = " " * first.col_offset
                text = f'{blanks}if False:\n{blanks}    print("the scaler is off")\n'
                edits.append(source.before_row(first_row(first), text))
        text = source.edited(edits)
        changed[source.name] = text + ("" if text.endswith("\n") else "\n") + _DEAD
    return program.with_texts(changed)
