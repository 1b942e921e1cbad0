"""Loops over generators of the project, which do protocol work of their own between two rounds."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.code.dataflow import bindings_of
from amplint.code.module import Function, walk
from amplint.flow.program import Program


def works_between_rounds(
    program: Program, node: ast.For | ast.AsyncFor, function: Function
) -> bool:
    """Whether what a loop asks for its next element runs code of the protocol.

    `for losses in backwards(model, loader, scaler):`, also behind `enumerate` or a progress bar, and
    where the generator has a name.
    """
    return any(
        program.facts(callee).generator and program.facts(callee).interesting
        for call in _calls_behind(node.iter, function)
        for callee in program.targets(call, function).functions
    )


def _calls_behind(iterable: ast.expr, function: Function) -> Iterator[ast.Call]:
    """The calls that an iterable is made by."""
    for part in walk(iterable):
        if isinstance(part, ast.Call):
            yield part
        elif isinstance(part, ast.Name):
            values = (item.value for item in bindings_of(function).get(part.id, ()))
            yield from (value for value in values if isinstance(value, ast.Call))
