"""Names that note what training has done, such as `pending`: what they are set to.

A setting behind `use_amp = options.amp` may be anything, and each path assumes one or the other.
A name that a loop sets again and again is no setting: the program knows what it is set to.
"""

from __future__ import annotations

import ast

from amplint.code.dataflow import Binding, bindings_of
from amplint.code.layout import layout_of
from amplint.code.module import Function
from amplint.flow.program import Program
from amplint.flow.values import Value

_PLACES = (ast.Name, ast.Attribute, ast.Subscript)


class Markers:
    """Answers what a marker is set to.

    Args:
        program: knows the constants that expressions may be.
    """

    def __init__(self, program: Program) -> None:
        self.program = program

    def set_by(self, node: ast.stmt, function: Function) -> bool:
        """Whether a statement sets a marker to what a place holds."""
        if not isinstance(node, ast.Assign) or not isinstance(node.value, _PLACES):
            return False
        if len(node.targets) != 1 or not isinstance(node.targets[0], ast.Name):
            return False
        name = node.targets[0].id
        if name not in self.program.slice(function).guards.names:
            return False
        bound = bindings_of(function)
        if isinstance(node.value, ast.Name) and node.value.id in bound:
            return False  # `last = index` is no setting, but another name of what the path knows
        found = bound.get(name, [])
        return len(found) > 1 and all(map(_is_plain, found)) and any(map(_in_loop, found))

    def value(self, node: ast.Assign, function: Function) -> Value:
        """What a place holds unless somebody chooses otherwise; None if that is not known."""
        possible = self.program.values.of(node.value, function)
        contents = {item.content for item in possible.by_default()}
        content = contents.pop() if len(contents) == 1 and possible.complete else None
        return ("const", content) if isinstance(content, (bool, int, float, str)) else None


def _is_plain(binding: Binding) -> bool:
    return isinstance(binding.value, (ast.Constant, *_PLACES))


def _in_loop(binding: Binding) -> bool:
    return is_repeated(binding.statement, binding.function)


def is_repeated(node: ast.AST, function: Function) -> bool:
    """Whether a loop of the function holds a statement."""
    return bool(layout_of(function).loops(node))
