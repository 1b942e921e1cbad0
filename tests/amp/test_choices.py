"""Whether tests can come out as asked, all together, and by which choice."""

from __future__ import annotations

import ast
import textwrap

import pytest

from amplint.amp.choices import choice_of
from amplint.code.expressions import condition_text
from amplint.code.project import Project
from amplint.values.objects import Objects
from amplint.values.provenance import Condition
from amplint.values.values import Values

OPTIONS = """
import argparse
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--first", action="store_true")
parser.add_argument("--second", action="store_true")
parser.add_argument("--kept", action="store_false")
parser.add_argument("--level", choices=("low", "middle", "high"), default="middle")
parser.add_argument("--free")
options = parser.parse_args()
"""


def chosen(program: str) -> set[str] | None:
    """The parts of a way in which all arguments of the only `ask(...)` call are true."""
    source = OPTIONS + textwrap.dedent(program)
    project = Project()
    module = project.add("main.py", source, ast.parse(source), "")
    (site,) = (site for site in module.calls if site.method == "ask")
    values = Values(Objects(project))
    way = choice_of(values, [Condition(item, True, site.function) for item in site.node.args])
    return None if way is None else {condition_text(part.test, part.side) for part in way}


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("ask(options.first)", {"options.first"}),
        ("ask(not options.first, options.second)", {"not options.first", "options.second"}),
        ("ask(options.first, not options.first)", None),
        # of two ways the one with fewer options away from their defaults
        ("ask(options.first or options.kept)", {"options.kept"}),
        # what a name was copied from is the same place
        ("copy = options.first\nask(copy, not options.first)", None),
        # None is what was built under no test
        (
            (
                "made = torch.amp.GradScaler('cuda') if options.first else None\n"
                "ask(made is None, options.first or options.second)"
            ),
            {"not options.first", "options.second"},
        ),
        (
            (
                "made = None\nif options.first:\n    made = torch.amp.GradScaler('cuda')\n"
                "ask(made is None, options.first)"
            ),
            None,
        ),
        (
            (
                "made = None\nif options.first:\n    made = torch.amp.GradScaler('cuda')\n"
                "ask(made is not None, options.second)"
            ),
            {"options.first", "options.second"},
        ),
        # one of several words
        (
            "ask(options.level != 'low', not options.level == 'high')",
            {"options.level != 'low'", "not (options.level == 'high')"},
        ),
        ("ask(options.level == 'low', options.level == 'high')", None),
        ("ask(options.level == 'other')", None),
        # what is not in sight, what a call gives
        ("ask(options.free)", None),
        ("ask(elsewhere.first, options.first)", None),
        ("ask(torch.cuda.is_available(), options.first)", None),
        # what the program does not accept, or sets anew
        (
            (
                "if options.first and not options.second:\n    parser.error('both')\n"
                "ask(options.first, not options.second)"
            ),
            None,
        ),
        (
            "assert options.second or not options.first\nask(options.first, not options.second)",
            None,
        ),
        (
            (
                "if options.first and not options.kept:\n    raise ValueError\n"
                "ask(options.first, not options.second)"
            ),
            {"options.first", "not options.second"},
        ),
        (
            (
                "if options.kept:\n    if options.first:\n        raise ValueError\n"
                "ask(options.first, not options.second)"
            ),
            None,
        ),
        (
            (
                "if options.first:\n    options.second = True\n"
                "ask(not options.second, options.first or options.second)"
            ),
            None,
        ),
        # a field that is declared a bool, of what somebody out of sight fills
        (
            """
            from dataclasses import dataclass

            @dataclass
            class Settings:
                first: bool = False
                second: bool = True
                many: int = 0

            def run(settings: Settings):
                ask(settings.first, settings.second)
            """,
            {"settings.first", "settings.second"},
        ),
        (
            """
            from dataclasses import dataclass

            @dataclass
            class Settings:
                first: bool = False
                many: int = 0

            def run(settings: Settings):
                ask(settings.first, settings.many)
            """,
            None,
        ),
        (
            """
            class Settings:
                first = False

            def run(settings: Settings):
                ask(settings.first)
            """,
            None,
        ),
        # two calls give a parameter each its own values: by which one is not known
        (
            """
            def run(one, other):
                ask(one, not other)

            run(True, True)
            run(False, False)
            """,
            None,
        ),
        (
            """
            def run(one, other):
                ask(one, other)

            run(options.first, options.second)
            """,
            {"one", "other"},
        ),
    ],
)
def test_choices(program: str, expected: set[str] | None) -> None:
    assert chosen(program) == expected
