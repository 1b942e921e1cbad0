"""A reader of one function's expressions, for tests."""

from __future__ import annotations

import ast

from amplint.amp.roles import build_roles
from amplint.code.module import Function, build_module
from amplint.flow.program import Program
from amplint.flow.reader import Reader

HEAD = "import torch\ndef train(x, y, k, i, n, mode, cfg, scaler, optimizer, loader, flag):\n"


class Reading:
    """One function and the reader of its module."""

    def __init__(self, body: str = "", head: str = HEAD) -> None:
        lines = [f"    {line}" for line in (body or "pass").splitlines()]
        source = head + "\n".join(lines) + "\n"
        module = build_module("train.py", source, ast.parse(source))
        program = Program()
        program.add(module, build_roles(module))
        self.program = program
        self.reader = Reader(program)
        self.function: Function = next(
            function for function in module.functions if function.name == "train"
        )

    def formula(self, text: str, state) -> object:
        """The condition under which an expression is truthy."""
        return self.reader.formula(_expression(text), state, self.function)

    def value(self, text: str, state) -> object:
        """The value of an expression."""
        return self.reader.value(_expression(text), state, self.function)

    def place(self, text: str, state) -> str | None:
        """The location of an expression."""
        return self.reader.locate(_expression(text), state, self.function)


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body
