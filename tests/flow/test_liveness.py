"""Which locals are dead where, statement by statement."""

from __future__ import annotations

import ast
import textwrap

import pytest

from amplint.code.module import Function, build_module
from amplint.flow.liveness import liveness_of


def function_of(body: str, parameters: str = "batches, flag") -> Function:
    source = f"def train({parameters}):\n" + textwrap.indent(textwrap.dedent(body).strip(), "    ")
    module = build_module("train.py", source, ast.parse(source))
    return next(item for item in module.functions if item.name == "train")


def dead_after(body: str, text: str) -> set[str]:
    """Names that are dead behind the statement whose code begins with `text`."""
    function = function_of(body)
    found = liveness_of(function)
    for node in ast.walk(function.node):
        if isinstance(node, ast.stmt) and ast.unparse(node).startswith(text):
            return {place.rpartition(":")[2] for place in found.after.get(id(node), ())}
    raise AssertionError(f"no statement {text}")


CASES = {
    "the fields of an object are listed": (
        "loss = step(flag)\nuse(vars(batches))\nlog()",
        "use",
        {"flag", "batches", "loss"},
    ),
    "all locals are listed": ("loss = step(flag)\nuse(vars())\nlog()", "use", set()),
    "read later": ("loss = step(flag)\nuse(loss)", "loss", {"flag", "batches"}),
    "read no more": ("loss = step(flag)\nuse(loss)", "use", {"flag", "batches", "loss"}),
    "assigned again before it is read": (
        "loss = first(flag)\nlog()\nloss = second(flag)\nuse(loss)",
        "log",
        {"loss", "batches"},
    ),
    "read on one branch": (
        "loss = first(flag)\nif flag:\n    use(loss)\nelse:\n    loss = None",
        "loss = first",
        {"batches"},
    ),
    "read in the next round": (
        "done = False\nfor batch in batches:\n    if done:\n        stop()\n    done = check(batch)",
        "done = check",
        {"batch", "flag"},
    ),
    "set anew in each round": (
        "for batch in batches:\n    ready = check(batch)\n    if ready:\n        step()\n    log()",
        "log",
        {"ready", "batch", "flag"},
    ),
    "read behind a break": (
        "found = None\nfor batch in batches:\n    if flag:\n        break\n    found = batch\nuse(found)",
        "found = batch",
        {"batch"},
    ),
    "read by a handler": (
        "loss = 0\ntry:\n    loss = step(flag)\n    more()\nexcept ValueError:\n    use(loss)",
        "loss = step",
        {"batches", "flag"},
    ),
    "read in a finally block": (
        "loss = 0\ntry:\n    log()\nfinally:\n    use(loss)",
        "log",
        {"batches", "flag"},
    ),
    "read in a finally block behind a return": (
        "loss = 0\ntry:\n    if flag:\n        mark()\n        return 1\nfinally:\n    use(loss)",
        "mark",
        {"batches", "flag"},
    ),
    "seen by a function inside": (
        "loss = 0\ndef inner():\n    return loss\nlog()\nuse(inner)",
        "log",
        {"batches", "flag"},
    ),
    "seen by a comprehension": (
        "loss = 0\nparts = [loss for _ in batches]\nlog()",
        "log",
        {"flag", "parts"},
    ),
    "global": ("global loss\nloss = 0\nlog()", "log", {"batches", "flag"}),
    "deleted": ("loss = 0\nlog()\ndel loss", "log", {"batches", "flag"}),
    "bound by with": (
        "with open_it(flag) as file:\n    log()\n    use(file)\nend()",
        "log",
        {"batches", "flag"},
    ),
    "read by locals()": ("loss = 0\nlog()\nprint(locals())", "log", set()),
    "generator": ("loss = 0\nyield loss\nlog()", "log", set()),
    "added to": (
        "total = 0\nfor batch in batches:\n    total += 1\nuse(total)",
        "total = 0",
        {"flag", "batch"},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_dead_names(name: str) -> None:
    body, text, expected = CASES[name]
    assert dead_after(body, text) == expected


@pytest.mark.parametrize(
    ("body", "shared"),
    [
        ("other = flag\nlog()\nuse(other)", True),
        ("other = flag is not None\nlog()\nuse(other)", True),
        ("for item in flag:\n    use(item)\nlog()", True),
        ("if flag:\n    log()", False),
        ("flag = flag.half()\nlog()", False),
        ("other, third = flag, 1\nlog()\nuse(other)", True),
    ],
)
def test_names_that_another_name_may_stand_for(body: str, shared: bool) -> None:
    function = function_of(body)
    found = liveness_of(function)
    places = [
        dead[f"{function.label}:flag"]
        for node in ast.walk(function.node)
        if isinstance(node, ast.stmt) and (dead := found.after.get(id(node))) is not None
        if ast.unparse(node) == "log()" and f"{function.label}:flag" in dead
    ]
    assert places == [shared]


def test_the_module_body_has_no_dead_names() -> None:
    module = build_module("train.py", "loss = 0\nlog()\n", ast.parse("loss = 0\nlog()\n"))
    assert liveness_of(module.body).after == {}


def test_a_head_keeps_what_a_round_reads_first() -> None:
    function = function_of(
        "pending = None\nfor batch in batches:\n    use(pending)\n    ready = True\n    pending = ready"
    )
    loop = next(node for node in ast.walk(function.node) if isinstance(node, ast.For))
    names = {place.rpartition(":")[2] for place in liveness_of(function).heads[id(loop)]}
    assert names == {"ready", "batch", "flag"}
