"""Running the command line in this process and in another one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from amplint import checker
from amplint.checker import Report
from amplint.cli.main import cli
from amplint.findings import Finding, Position, Severity, Span

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test runs in a folder of its own, without colour settings of the caller."""
    monkeypatch.chdir(tmp_path)
    for name in ("NO_COLOR", "FORCE_COLOR", "AMPLINT_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def run() -> Callable[..., Result]:
    """`run("check", ...)` in this process; stdout and stderr are kept apart."""
    try:
        runner = CliRunner(mix_stderr=False)  # click 8.1
    except TypeError:
        runner = CliRunner()

    def invoke(*args: str, input: str | bytes | None = None) -> Result:
        return runner.invoke(cli, args, input=input)

    return invoke


@pytest.fixture
def start() -> Callable[..., subprocess.CompletedProcess[str]]:
    """`start("check", ...)` in a process of its own, from this checkout."""

    def invoke(*args: str, **options: Any) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **options.pop("env", {})}
        return subprocess.run(
            [sys.executable, "-m", "amplint", *args],
            capture_output=True,
            check=False,
            text=True,
            env=environment,
            timeout=120,
            **options,
        )

    return invoke


@pytest.fixture
def finding() -> Callable[..., Finding]:
    def make(severity: str = "error", filename: str = "train.py") -> Finding:
        return Finding(
            code="AMP104",
            name="step-twice",
            severity=Severity(severity),
            message="the second step",
            help="remove it",
            filename=filename,
            span=Span(Position(1, 1), Position(1, 5)),
        )

    return make


@pytest.fixture
def reporting(monkeypatch: pytest.MonkeyPatch) -> Callable[[Report], None]:
    """Make the checker return a given report, so that a test is about the command line."""

    def use(report: Report) -> None:
        monkeypatch.setattr(checker, "check_paths", lambda *args, **options: report)

    return use
