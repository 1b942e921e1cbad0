"""What namespaces of `argparse` have: Python says it, by running each program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.values.test_unreached import doubt_about_arriving

OPTIONS = """
import argparse

def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("-s", "--learning-speed", type=float, default=0.1)
    {more}
    return {given}
"""
PROGRAM = """
from options import options

def arrive(*given):
    print('arrived')

def run():
    opts = options()
    {line}
    print(opts.{name})
    arrive()
run()
"""
PARSED = "parser.parse_args()"

#: (name, more options, what is given, a line before, the name that is read, whether a run arrives)
READS = (
    ("declared", "pass", PARSED, "pass", "learning_speed", True),
    ("not declared", "pass", PARSED, "pass", "speed", False),
    ("declared in short", "parser.add_argument('-q')", PARSED, "pass", "q", True),
    (
        "declared as another",
        "parser.add_argument('-q', dest='speed')",
        PARSED,
        "pass",
        "speed",
        True,
    ),
    ("set by default", "parser.set_defaults(speed=2)", PARSED, "pass", "speed", True),
    ("set by defaults", "parser.set_defaults(**{'sp' + 'eed': 2})", PARSED, "pass", "speed", True),
    (
        "declared by a computed name",
        "[parser.add_argument(f'--{n}eed') for n in ('sp', 'w')]",
        PARSED,
        "pass",
        "speed",
        True,
    ),
    (
        "declared in a group",
        "parser.add_argument_group('more').add_argument('--speed')",
        PARSED,
        "pass",
        "speed",
        True,
    ),
    (
        "declared of a command",
        "parser.add_subparsers(dest='speed')",
        PARSED,
        "pass",
        "speed",
        True,
    ),
    ("stored", "pass", PARSED, "opts.speed = 2", "speed", True),
    ("stored by its name", "pass", PARSED, "setattr(opts, 'speed', 2)", "speed", True),
    ("stored by a name", "pass", PARSED, "setattr(opts, 'sp' + 'eed', 2)", "speed", True),
    ("updated", "pass", PARSED, "vars(opts).update({'sp' + 'eed': 2})", "speed", True),
    ("updated below", "pass", PARSED, "opts.__dict__.update(speed=2)", "speed", True),
    ("printed before", "pass", PARSED, "print(opts)", "speed", False),
    (
        "filled from outside",
        "pass",
        "parser.parse_args(namespace=argparse.Namespace(**{'sp' + 'eed': 2}))",
        "pass",
        "speed",
        True,
    ),
    (
        "added by another file",
        "from extras import extend; extend(parser)",
        PARSED,
        "pass",
        "speed",
        True,
    ),
    (
        "stored by another file",
        "pass",
        PARSED,
        "from extras import prepare; prepare(opts)",
        "pace",
        True,
    ),
    (
        "handed to a library",
        "pass",
        PARSED,
        "from functools import reduce; reduce(lambda a, n: object.__setattr__(a, n, 2), ['speed'], opts)",
        "speed",
        True,
    ),
    ("asked first", "pass", PARSED, "hasattr(opts, 'speed') or sys.exit()", "speed", False),
)
EXTRAS = "def extend(p):\n    p.add_argument('--speed')\ndef prepare(o):\n    o.pace = 2\n"


@pytest.mark.parametrize(
    ("more", "given", "line", "name", "arrives"), [r[1:] for r in READS], ids=[r[0] for r in READS]
)
def test_a_namespace_has_what_its_parser_declares(
    more: str, given: str, line: str, name: str, arrives: bool, tmp_path: Path
) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    text = OPTIONS.format(more=more, given=given)
    (tmp_path / "options.py").write_text(text)
    if "extras" in more + line:
        (tmp_path / "extras.py").write_text(EXTRAS)
    script = tmp_path / "train.py"
    script.write_text(PROGRAM.format(line=line, name=name))
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert ("arrived" in ran.stdout) is arrives, ran.stderr
    is_asked = "hasattr" in line
    expected = "" if arrives or is_asked else f"opts.{name}"
    assert doubt_about_arriving(script) == expected
