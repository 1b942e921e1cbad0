"""One warm worker for all tests here, started as the probe starts it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from amplint.probe.interpreter import Interpreter
from amplint.probe.messages import Plan, Request, RunResult, Source
from amplint.probe.process import Worker

Probe = Callable[..., RunResult]


@pytest.fixture(scope="session")
def worker() -> Iterator[Worker]:
    """A worker in this interpreter."""
    import torch

    search_path = tuple(entry for entry in sys.path if entry)
    started = Worker(Interpreter(sys.executable, torch.__version__, search_path))
    yield started
    started.close()


@pytest.fixture
def probe_source(worker: Worker, tmp_path: Path) -> Probe:
    """Run a function of a source text; more files are given as `files`."""

    def run(
        source: str,
        entry: str = "train",
        files: dict[str, str] | None = None,
        plan: dict[str, object] | None = None,
        assumes: bool = False,
        **request: object,
    ) -> RunResult:
        checked = tmp_path / "checked.py"
        checked.write_text(source, encoding="utf-8")
        sources = [Source(str(checked), "checked")]
        for name, text in (files or {}).items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            sources.append(Source(str(path), name.removesuffix(".py").replace("/", ".")))
        made = Plan(tuple(sources), entry, **{"target_rows": (), **(plan or {})})
        result = worker.run(Request(made, **request))
        broken = [note for note in result.notes if note.kind == "assertion"]
        assert assumes or not broken, broken  # the assertions in these sources are expectations
        return result

    return run
