"""Which bindings reach a use: what always binds anew ends what was bound before."""

from __future__ import annotations

import ast

import pytest

from amplint.code.dataflow import bindings_of
from amplint.code.layout import layout_of
from amplint.values.bindings import reaching
from amplint.view import view_of

BOTH_BRANCHES = """
def run(flag):
    x = "first"
    if flag:
        x = "second"
    else:
        x = "third"
    return x
"""
ONE_BRANCH = """
def run(flag):
    x = "first"
    if flag:
        x = "second"
    return x
"""
LEFT_OTHERWISE = """
def run(flag):
    x = "first"
    if flag:
        x = "second"
    else:
        raise ValueError
    return x
"""
NEXT_ROUND = """
def run(flags):
    x = "first"
    for flag in flags:
        if flag:
            x = "second"
        else:
            with open("file"):
                x = "third"
        print(x)
        x = "fourth"
"""
NEXT_ROUND_PERHAPS = """
def run(flags):
    for flag in flags:
        if flag:
            x = "first"
        print(x)
        x = "second"
"""
OUTER_ROUND = """
def run(flags):
    for flag in flags:
        x = "first"
        for other in flags:
            print(x)
            x = "second"
        x = "third"
"""
ADDED = """
def run(flag):
    x = "first"
    x += "second"
    return x
"""


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        (BOTH_BRANCHES, {"second", "third"}),
        (ONE_BRANCH, {"first", "second"}),
        (LEFT_OTHERWISE, {"second"}),
        (NEXT_ROUND, {"second", "third"}),
        (NEXT_ROUND_PERHAPS, {"first", "second"}),
        (OUTER_ROUND, {"first", "second"}),
        (ADDED, {"first", "second"}),
    ],
)
def test_bindings_that_reach_a_use(source: str, wanted: set[str]) -> None:
    view = view_of("run.py", source, ast.parse(source))
    (function,) = (item for item in view.module.functions if item.name == "run")
    uses = [
        node
        for node in layout_of(function).nodes
        if isinstance(node, ast.Name) and node.id == "x" and isinstance(node.ctx, ast.Load)
    ]
    groups = reaching(bindings_of(function)["x"], uses[0], function)
    found = {ast.literal_eval(item.source) for group in groups for item in group if item.source}
    assert found == wanted
