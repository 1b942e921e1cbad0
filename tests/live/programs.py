"""Running programs under `amplint run`, and reading what it has to say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
#: Seconds after which a program hangs.
_LIMIT = 300


@dataclass(frozen=True)
class Watched:
    """How a watched program ended, and the report on it."""

    status: int
    stdout: str
    stderr: str
    report: dict[str, Any]

    @property
    def told(self) -> list[tuple[str, str, int]]:
        """Slug, file name and row of each finding."""
        return [
            (found["slug"], os.path.basename(found["file"]), found["row"])
            for found in self.report["findings"]
        ]

    @property
    def updates(self) -> list[int]:
        """The number of updates of each scaler of each process."""
        return [
            len(scaler["updates"])
            for process in self.report["processes"]
            for scaler in process["scalers"].values()
        ]


def environment(**more: str) -> dict[str, str]:
    """That of this process, with amplint's sources, and one thread for torch."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("AMPLINT")}
    return {**kept, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **more}


def watch(
    folder: Path, *command: str, options: tuple[str, ...] = (), env: Mapping[str, str] | None = None
) -> Watched:
    """Run `amplint run` in a folder."""
    out, report = folder / "record", folder / "report.json"
    given = ("--python", sys.executable, "--out", str(out), "--json", str(report))
    done = subprocess.run(
        [sys.executable, "-m", "amplint", "run", *given, *options, *command],
        cwd=folder,
        env=dict(env or environment()),
        capture_output=True,
        text=True,
        timeout=_LIMIT,
        check=False,
    )
    found = json.loads(report.read_text("utf-8")) if report.exists() else {}
    return Watched(done.returncode, done.stdout, done.stderr, found)


def plain(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """The same program without amplint."""
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=_LIMIT,
        check=False,
    )


@cache
def printed(source: str) -> str:
    """What a program without arguments prints without amplint. Several tests compare with it."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "train.py").write_text(source, "utf-8")
        done = plain(Path(folder), "train.py")
    assert done.returncode == 0, done.stderr
    return done.stdout


def row_of(source: str, text: str) -> int:
    """The 1-based row of the first line that holds a text."""
    return next(row for row, line in enumerate(source.splitlines(), 1) if text in line)
