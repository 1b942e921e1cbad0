"""What a program accepts, read from the tests around its own `raise`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from amplint.config import Settings
from amplint.probe.confirmation import plan_builder
from amplint.probe.refusals import ways_around

LAST = '    raise ValueError("refused")'
#: The body of `build(kind, config)` before the last line, and the inputs that lead past that.
CASES: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "equal": (
        '    if config.kind == "a":\n        return 1\n    if "b" == config.kind:\n        return 2\n',
        [{"config.kind": "a"}, {"config.kind": "b"}],
    ),
    "one of": (
        '    if config.kind in ("a", "b"):\n        return 1\n',
        [{"config.kind": "a"}, {"config.kind": "b"}],
    ),
    "keys of a table": (
        '    table = {"a": 1, "b": 2}\n    if config.kind in table:\n        return table\n',
        [{"config.kind": "a"}, {"config.kind": "b"}],
    ),
    "in any spelling": (
        '    if config.kind.lower() == "a":\n        return 1\n',
        [{"config.kind": "a"}],
    ),
    "either": (
        '    if config.kind == "a" or config.size == 3:\n        return 1\n',
        [{"config.kind": "a"}, {"config.size": 3}],
    ),
    "passed": ('    if kind == "a":\n        return 1\n', [{"options.kind": "a"}]),
    "a flag": ("    if config.kind == True:\n        return 1\n", []),
    "another test": ("    if config.size > 3:\n        return 1\n", []),
    "both, of which one suffices to come here": (
        '    if config.kind == "a" and config.size == 3:\n        return 1\n',
        [],
    ),
    "no test": ("    kind = config.kind\n", []),
    "of another": ('    if kind.name() == "a":\n        return 1\n', []),
}
MAIN = """
import argparse

def main(options):
    build(options.kind, options)

main(argparse.ArgumentParser().parse_args())
"""


def ways(folder: Path, source: str) -> list[dict[str, Any]]:
    """The ways around the only statement that says "refused"."""
    path = folder / "build.py"
    path.write_text(source)
    builder = plan_builder(str(path), Settings(project_root=str(folder)))
    assert builder is not None
    row = next(n for n, line in enumerate(source.splitlines(), 1) if "refused" in line)
    return ways_around(builder.view.module, row, builder.view.values.origins)


@pytest.mark.parametrize("name", CASES)
def test_what_leads_past_a_refusal(tmp_path: Path, name: str) -> None:
    body, expected = CASES[name]
    assert ways(tmp_path, f"def build(kind, config):\n{body}{LAST}\n{MAIN}") == expected


def test_the_other_side_of_a_test(tmp_path: Path) -> None:
    source = 'def build(config):\n    if config.kind != "a":\n        raise ValueError("refused")\n'
    assert ways(tmp_path, source) == [{"config.kind": "a"}]


def test_an_assertion(tmp_path: Path) -> None:
    source = 'def build(config):\n    assert config.kind in ["a"], "refused"\n'
    assert ways(tmp_path, source) == [{"config.kind": "a"}]


def test_any_other_statement_refuses_nothing(tmp_path: Path) -> None:
    source = 'def build(config):\n    if config.kind != "a":\n        print("refused")\n'
    assert ways(tmp_path, source) == []


def test_there_are_few(tmp_path: Path) -> None:
    names = ", ".join(repr(chr(n)) for n in range(97, 120))
    source = f'def build(config):\n    assert config.kind in [{names}], "refused"\n'
    assert [*map(list, ways(tmp_path, source))] == [["config.kind"]] * 6
