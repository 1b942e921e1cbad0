"""Where the arguments of a call stand in its text."""

from __future__ import annotations

import ast

import pytest

from amplint.source.call_text import call_text
from amplint.source.positions import LineTable


@pytest.mark.parametrize(
    ("source", "arguments"),
    [
        ("f()", []),
        ("f(a, b)", ["a", "b"]),
        ("f((a), b,)", ["(a)", "b"]),
        ("f(  # x, y\n    a,\n    b=(1, 2),  # c\n)", ["a", "b=(1, 2)"]),
        ("f(*a, b=1, **c)", ["*a", "b=1", "**c"]),
        ("f(x for x in y)", ["x for x in y"]),
        ("f(')', [',', {1: 2}])", ["')'", "[',', {1: 2}]"]),
        ("f('é😀', a)", ["'é😀'", "a"]),
        ("f(\r\n    a,\r\n    b)", ["a", "b"]),
        ("f (a)", ["a"]),
        ("g(f)(a, b)", ["a", "b"]),
    ],
)
def test_arguments(source: str, arguments: list[str]) -> None:
    found = call_text(LineTable(source), ast.parse(source).body[0].value)
    assert found is not None
    assert [source[start:end] for start, end in found.arguments] == arguments
    assert source[found.opening - 1] == "("


@pytest.mark.parametrize("source", ["f(lambda a, b: a)", "(f)(a)"])
def test_no_answer(source: str) -> None:
    assert call_text(LineTable(source), ast.parse(source).body[0].value) is None
