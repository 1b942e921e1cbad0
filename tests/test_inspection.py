"""What the check of one file leaves behind in its process."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from amplint import collector
from amplint.code import project
from amplint.code.index import forget
from amplint.inspection import Task, inspect
from amplint.source.reading import SourceFile

SCRIPT = """
from helper import build

scaler = build()
scaler.step(optimizer)
"""
HELPER = """
from torch.amp import GradScaler

def build():
    return GradScaler("cuda")
"""


@pytest.fixture
def rare() -> Iterator[None]:
    before = gc.get_threshold()
    collector.spare()
    yield
    gc.set_threshold(*before)


def projects_of(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> list[weakref.ref[project.Project]]:
    """The projects that two runs over a script with an import have made."""
    made: list[weakref.ref[project.Project]] = []

    class Noted(project.Project):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments)  # type: ignore[arg-type]
            made.append(weakref.ref(self))

    monkeypatch.setattr(project, "Project", Noted)
    (folder / "pyproject.toml").touch()
    (folder / "helper.py").write_text(HELPER, "utf-8")
    path = folder / "script.py"
    path.write_text(SCRIPT, "utf-8")
    for _ in range(2):
        forget()
        source = SourceFile("script.py", SCRIPT)
        inspect(Task(source, frozenset({"AMP101", "AMP402"}), path=str(path)))
    forget()
    collector.sweep()
    return made


@pytest.mark.usefixtures("rare")
def test_a_check_leaves_no_project_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "_ENOUGH", 0)
    made = projects_of(tmp_path, monkeypatch)
    assert made
    assert not any(item() for item in made)


def test_the_collector_of_other_processes_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = gc.get_freeze_count()
    projects_of(tmp_path, monkeypatch)
    assert gc.get_freeze_count() <= before  # what others froze may die meanwhile
