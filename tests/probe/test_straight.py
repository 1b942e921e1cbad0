"""Which lines a function reaches whatever its inputs are."""

from __future__ import annotations

import ast
import textwrap

import pytest

from amplint.probe.straight import is_straight

STRAIGHT = [
    "here()",
    "if flag:\n    a = 1\nhere()",
    "for x in loader:\n    with region:\n        here()",
    "try:\n    here()\nexcept TypeError:\n    pass",
    "if __name__ == '__main__':\n    here()",
    "def inner():\n    return 1\nwith here():\n    pass",
    "a = b if flag else c\nhere()",
]
DECIDED = [
    "if flag:\n    here()",
    "if flag:\n    pass\nelse:\n    here()",
    "if flag:\n    return\nhere()",
    "for x in loader:\n    if flag:\n        continue\n    here()",
    "while flag:\n    here()",
    "assert flag\nhere()",
    "if flag:\n    parser.error('no')\nhere()",
    "if flag:\n    sys.exit(1)\nhere()",
    "try:\n    pass\nexcept TypeError:\n    here()",
    "for x in loader:\n    pass\nelse:\n    here()",
    "a = here() if flag else 1",
    "flag and here()",
    "run(lambda: here())",
    "def inner():\n    here()",
    "match flag:\n    case 1:\n        here()",
]


def _answer(text: str) -> bool:
    body = f"def f():\n{textwrap.indent(text, '    ')}\n"
    row = next(number for number, line in enumerate(body.splitlines(), 1) if "here()" in line)
    function = ast.parse(body).body[0]
    assert isinstance(function, ast.FunctionDef)
    return is_straight(function.body, row)


@pytest.mark.parametrize("text", STRAIGHT)
def test_reached_always(text: str) -> None:
    assert _answer(text)


@pytest.mark.parametrize("text", DECIDED)
def test_something_decides(text: str) -> None:
    assert not _answer(text)
