"""What is right in one file is right in several: correct programs, split by tests/flow/splitting.

The split program is executed in one piece, then its files are checked as a project. Every
finding is a false alarm.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from amplint.checker import check_paths
from amplint.config import Settings
from tests.budget import budget

from . import splitting
from .concrete import every_run
from .programs import Author, joined
from .several import Pairs
from .test_shapes import PROGRAMS

#: How many programs of each author are split.
GENERATED = budget(24, 60)
#: What a split can break by itself: a name that the new function does not see.
UNSOUND = (NameError, TypeError, AttributeError, SyntaxError)


def _splits(source: str, seeds: range) -> Iterator[dict[str, str]]:
    """The splits of a program that still run without breaking a rule."""
    for seed in seeds:
        files = splitting.split(source, seed)
        if files is None:
            continue
        try:
            worlds = list(every_run(splitting.joined(files)))
        except UNSOUND:
            continue
        if all((world.broken, world.stopped) == ([], "") for world in worlds):
            yield files


def _findings(files: dict[str, str], folder: Path) -> list[str]:
    folder.mkdir()
    (folder / "pyproject.toml").write_text("", "utf-8")
    for name, text in files.items():
        (folder / name).write_text(text, "utf-8")
    report = check_paths([str(folder)], Settings(jobs=1, cache=False, respect_gitignore=False))
    assert report.errors == ()
    return [
        f"{Path(item.filename).name}:{item.span.start.row} {item.code} {item.message}"
        for item in report.findings
    ]


@pytest.mark.parametrize("author", (Author, Pairs))
def test_generated_programs(author: type, tmp_path: Path) -> None:
    count = 0
    for number in range(GENERATED):
        for files in _splits(joined(author(number).program()), range(1)):
            count += 1
            assert _findings(files, tmp_path / str(count)) == [], files
    assert count > GENERATED / 2


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_shapes_of_real_code(path: Path, tmp_path: Path) -> None:
    source = path.read_text("utf-8")
    for number, files in enumerate(_splits(source, range(budget(1, 2)))):
        assert _findings(files, tmp_path / str(number)) == [], files
