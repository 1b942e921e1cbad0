"""Order and branches inside one function, as the rules about shapes ask for them.

Each case marks two calls, `a()` and `b()`, and says whether control can run from the first
straight down to the second, and whether the first always runs before the second.
"""

from __future__ import annotations

import ast
import textwrap

import pytest

from amplint.code.layout import Layout, layout_of
from amplint.code.module import build_module

CASES = {
    "in order": ("a()\nb()", True, True),
    "reversed": ("b()\na()", False, False),
    "second under a condition": ("a()\nif x:\n    b()", True, True),
    "first under a condition": ("if x:\n    a()\nb()", True, False),
    "branches of one if": ("if x:\n    a()\nelse:\n    b()", False, False),
    "elif": ("if x:\n    a()\nelif y:\n    pass\nelse:\n    b()", False, False),
    "conditional expression": ("z = a() if x else b()", False, False),
    "left by continue": (
        "for i in x:\n    if y:\n        a()\n        continue\n    b()",
        False,
        False,
    ),
    "left by return": ("if x:\n    a()\n    return\nb()", False, False),
    "out of a with block": ("with x:\n    a()\nb()", True, True),
    "out of a loop": ("for i in x:\n    a()\nb()", True, False),
    "into a loop": ("a()\nfor i in x:\n    b()", True, True),
    "test and body": ("if a():\n    b()", True, True),
    "try and handler": ("try:\n    a()\nexcept E:\n    b()", False, False),
    "two handlers": ("try:\n    pass\nexcept E:\n    a()\nexcept F:\n    b()", False, False),
    "handler and behind": ("try:\n    pass\nexcept E:\n    a()\nb()", True, False),
    "body and finally": ("try:\n    a()\nfinally:\n    b()", True, True),
    "match cases": ("match x:\n    case 1:\n        a()\n    case 2:\n        b()", False, False),
}


def layout(body: str) -> Layout:
    source = "def f():\n" + textwrap.indent(body, "    ") + "\n"
    module = build_module("example.py", source, ast.parse(source))
    return layout_of(module.functions[1])


def call(where: Layout, name: str) -> ast.Call:
    (found,) = [
        node
        for node in where.nodes
        if isinstance(node, ast.Call) and ast.unparse(node.func) == name
    ]
    return found


@pytest.mark.parametrize(("body", "reaches", "dominates"), CASES.values(), ids=CASES)
def test_order_of_two_calls(body: str, reaches: bool, dominates: bool) -> None:
    where = layout(body)
    first, second = call(where, "a"), call(where, "b")
    assert where.reaches(first, second) is reaches
    assert where.dominates(first, second) is dominates


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ("a()", 0),
        ("for i in x:\n    a()", 1),
        ("for i in a():\n    pass", 0),
        ("while a():\n    pass", 1),
        ("for i in x:\n    while y:\n        a()", 2),
    ],
)
def test_loops_that_repeat_a_call(body: str, count: int) -> None:
    where = layout(body)
    assert len(where.loops(call(where, "a"))) == count


def test_conditions_are_the_tests_around_a_node() -> None:
    where = layout("if x:\n    z = a() if y else 0\nelse:\n    pass")
    tests = [ast.unparse(test) for test in where.conditions(call(where, "a"))]
    assert tests == ["y", "x"]


def test_nested_functions_are_single_statements() -> None:
    where = layout("def g():\n    a()\nb()")
    assert not [node for node in where.nodes if isinstance(node, ast.Return)]
    assert [ast.unparse(node.func) for node in where.nodes if isinstance(node, ast.Call)] == ["b"]
