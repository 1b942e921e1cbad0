"""Running a function of a text in the warm worker of all tests of the probe."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

from amplint.code.layout import LOOPS
from amplint.probe.messages import Plan, Request, RunResult, Source
from amplint.probe.planning import CALLS
from amplint.probe.process import Worker

Probe = Callable[..., RunResult]


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
        usual = {"target_rows": (), "calls": _calls_of(source, entry)}
        made = Plan(tuple(sources), entry, **{**usual, **(plan or {})})
        result = worker.run(Request(made, **request))
        broken = [note for note in result.notes if note.kind == "assertion"]
        assert assumes or not broken, broken  # the assertions in these sources are expectations
        return result

    return run


def _calls_of(source: str, entry: str) -> int:
    """How often a plan lets a function be called: several times where it does not loop by itself."""
    name = entry.rpartition(".")[2]
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return 1
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name
    ]
    loops = any(isinstance(inner, LOOPS) for node in found for inner in ast.walk(node))
    return CALLS if found and not loops else 1
