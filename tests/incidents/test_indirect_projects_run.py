"""Broken projects of a few lines under real torch: what is marked in them really happens.

Each one that can be run on its own either raises at a marked line, or ends with other
parameters than with its scalers disabled. A scaler's scales are powers of two, so a correct
protocol would give the same ones both times.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.fixtures_runner import expectations, read
from tests.incidents.projects import FIXTURES, open_project
from tests.incidents.test_silent_shapes_run import disable_scalers

PROJECTS = FIXTURES / "projects"


def entries() -> list[Path]:
    """Files, and `main.py` of folders, whose `main()` needs nothing."""
    files = [*PROJECTS.glob("*.py"), *PROJECTS.glob("*/main.py")]
    return sorted(file for file in files if _runs_alone(file))


def _runs_alone(entry: Path) -> bool:
    text = read(entry)
    return "def main():" in text or "def main(amp=" in text or "def main(name=" in text


def name_of(entry: Path) -> str:
    return entry.relative_to(PROJECTS).as_posix()


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def train(entry: Path) -> list[torch.Tensor]:
    with open_project(entry.parent) as project:
        model = project.module(entry.stem).main()
    return [parameter.detach().clone() for parameter in model.parameters()]


@pytest.mark.parametrize("entry", entries(), ids=name_of)
def test_the_mark_is_true(entry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        scaled = train(entry)
    except (RuntimeError, AssertionError, AttributeError, ValueError) as error:
        assert _stands_at_a_mark(error)
        return
    disable_scalers(monkeypatch)
    plain = train(entry)
    assert any(
        not torch.allclose(one, other, rtol=2e-2, atol=2e-4)
        for one, other in zip(scaled, plain, strict=True)
    )


def _stands_at_a_mark(error: BaseException) -> bool:
    """Whether the traceback passes through a line of a project that expects a finding."""
    return any(
        mark.row == frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if PROJECTS in Path(frame.filename).parents
        for mark in expectations(read(Path(frame.filename))).now
    )


def test_some_projects_run() -> None:
    assert len(entries()) > 10
