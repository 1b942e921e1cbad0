"""One warm worker for all tests of the probe here, and how they ask about a line of a text."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from amplint.checker import check_paths
from amplint.config import Settings
from amplint.findings import Evidence, Finding, Position, Severity, Span
from amplint.probe.confirmation import plan_builder
from amplint.probe.interpreter import find_interpreter
from amplint.probe.prober import Prober
from amplint.probe.process import Worker

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def worker() -> Iterator[Worker]:
    """Started as the probe starts it. Runs are forks of it, so that none sees another; its start,
    which imports torch, costs as much as dozens of them."""
    with contextlib.closing(Worker(find_interpreter(sys.executable, str(ROOT)))) as worker:
        yield worker


class Asks:
    """Asks about a line of a text, whether or not amplint says anything about it."""

    def __init__(self, worker: Worker, folder: Path) -> None:
        self._worker = worker
        self._folder = folder

    def __call__(self, code: str, line: str, source: str, **others: str) -> Evidence:
        for name, text in {"train": source, **others}.items():
            (self._folder / f"{name}.py").write_text(text, encoding="utf-8")
        return self.of(self._folder / "train.py", self._folder, code, line, source)

    def of(self, file: Path, root: Path, code: str, line: str, source: str) -> Evidence:
        """What the probe says of a line of a file, which is written here."""
        file.write_text(source, encoding="utf-8")
        path, settings = str(file), Settings(project_root=str(root))
        rows = source.splitlines()
        row = next(number for number, text in enumerate(rows, 1) if line in text)
        told = check_paths([path], settings).findings
        known = [f for f in told if (f.code, f.span.start.row) == (code, row)]
        span = Span(Position(row, 1), Position(row, len(rows[row - 1]) + 1))
        asked = Finding(code, "asked", Severity.ERROR, "asked", "", path, span)
        builder = plan_builder(path, settings)
        assert builder is not None
        prober = Prober(builder, self._worker.run, runs=120, seconds=120.0, torch="")
        return prober.probe(known[0] if known else asked).evidence


@pytest.fixture
def ask(worker: Worker, tmp_path: Path) -> Asks:
    return Asks(worker, tmp_path)
