"""Which calls make nothing, as nothing binds their name: Python says, by its NameError."""

from __future__ import annotations

import ast

import pytest

from amplint.code.module import Function, build_module
from amplint.code.undefined import is_in_a_branch, makes_nothing

#: (name, program whose `build(half)` calls something on its line marked `# here`, what it raises)
PROGRAMS = (
    (
        "never imported",
        "def build(half):\n    if half:\n        return Scaler()  # here\n    return None\n",
        NameError,
    ),
    (
        "the module of it never imported",
        "def build(half):\n    if half:\n        return amp.Scaler('cuda')  # here\n    return None\n",
        NameError,
    ),
    (
        "imported by another function alone",
        (
            "def load():\n    from decimal import Decimal\n    return Decimal\n"
            "def build(half):\n    if half:\n        return Decimal()  # here\n    return None\n"
        ),
        NameError,
    ),
    (
        "in a loop",
        "def build(half):\n    for _ in range(half):\n        kept = wrap(half)  # here\n    return 1\n",
        NameError,
    ),
    (
        "imported at the top",
        (
            "from decimal import Decimal\n"
            "def build(half):\n    if half:\n        return Decimal()  # here\n    return None\n"
        ),
        None,
    ),
    (
        "defined further down",
        (
            "def build(half):\n    if half:\n        return made()  # here\n    return None\n"
            "def made():\n    return 1\n"
        ),
        None,
    ),
    (
        "global by another function",
        (
            "def load():\n    global make\n    make = int\nload()\n"
            "def build(half):\n    if half:\n        return make()  # here\n    return None\n"
        ),
        None,
    ),
    (
        "by a star",
        (
            "from decimal import *\n"
            "def build(half):\n    if half:\n        return Decimal()  # here\n    return None\n"
        ),
        None,
    ),
    (
        "by the names of the module",
        (
            "globals().update(make=int)\n"
            "def build(half):\n    if half:\n        return make()  # here\n    return None\n"
        ),
        None,
    ),
    (
        "a builtin",
        "def build(half):\n    if half:\n        return dict()  # here\n    return None\n",
        None,
    ),
    (
        "a handler awaits it",
        (
            "def build(half):\n    try:\n        if half:\n            return Scaler()  # here\n"
            "    except NameError:\n        pass\n    return None\n"
        ),
        None,
    ),
)


@pytest.mark.parametrize(
    ("program", "raised"), [row[1:] for row in PROGRAMS], ids=[row[0] for row in PROGRAMS]
)
def test_a_call_makes_nothing_as_in_python(program: str, raised: type[Exception] | None) -> None:
    space: dict[str, object] = {}
    exec(compile(program, "program.py", "exec"), space)  # noqa: S102 - the table above
    build = space["build"]
    assert callable(build)
    if raised is not None:
        with pytest.raises(raised):
            build(1)
    else:
        build(1)
    build(0)
    assert _at_the_mark(program) is (raised is not None)


def _at_the_mark(program: str) -> bool:
    return makes_nothing(*_marked(program))


def _marked(program: str) -> tuple[ast.Call, Function]:
    module = build_module("program.py", program, ast.parse(program))
    row = next(i for i, line in enumerate(program.splitlines(), 1) if line.endswith("# here"))
    (site,) = (site for site in module.calls if site.node.lineno == row)
    return site.node, site.function


@pytest.mark.parametrize(
    ("program", "is_branch"),
    [
        ("def build(half):\n    if half:\n        return Scaler()  # here\n", True),
        ("def build(half):\n    for _ in range(half):\n        Scaler()  # here\n", True),
        ("def build(half):\n    kept = Scaler()  # here\n    return kept\n", False),
        ("def build(half):\n    with open(half):\n        Scaler()  # here\n", False),
    ],
)
def test_what_every_call_of_a_function_comes_to_is_no_branch(program: str, is_branch: bool) -> None:
    assert is_in_a_branch(*_marked(program)) is is_branch
