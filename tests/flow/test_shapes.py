"""Correct programs in the shapes of real code: executed, then checked.

One program a file, below tests/flow/correct. They are right because they run without
breaking a rule, whatever their flags are; so every finding in them is a false alarm.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from amplint.checker import check_source
from amplint.config import Settings

from .concrete import every_run

PROGRAMS = sorted((Path(__file__).parent / "correct").rglob("*.py"))


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_correct_program(path: Path) -> None:
    source = path.read_text("utf-8")
    for world in every_run(source):
        assert (world.broken, world.stopped) == ([], "")
    result = check_source(path.name, source.encode(), Settings())
    assert result.errors == ()
    assert [f"{item.span.start.row}: {item.code} {item.message}" for item in result.findings] == []
