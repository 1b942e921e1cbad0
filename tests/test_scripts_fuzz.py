"""`scripts/fuzz.py` and `scripts/kills.py`: a small budget of both, and what they would notice."""

from __future__ import annotations

import ast
import importlib
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ROOT / "scripts"
LOOP = """\
import torch
def train(model, loader, optimizer):
    scaler = torch.amp.GradScaler("cuda")
    for x in loader:
        scaler.scale(model(x)).backward()
        scaler.step(optimizer)
        scaler.step(optimizer)
"""


@pytest.fixture(scope="module")
def fuzz() -> ModuleType:
    return load("fuzz")


def load(script: str) -> ModuleType:
    sys.path.insert(0, str(SCRIPTS))
    try:
        return importlib.import_module(script)
    finally:
        sys.path.remove(str(SCRIPTS))


def run(script: str, *arguments: object) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / script), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_programs_of_the_fixtures_break_nothing(tmp_path: Path) -> None:
    folders = [ROOT / "fixtures" / name for name in ("AMP101", "AMP201", "incidents", "silent")]
    options = ("--programs", 120, "--files", 60, "--keep", tmp_path / "kept")
    status, output = run("fuzz.py", *folders, *options)
    assert (status, output.splitlines()[0]) == (0, "120 programs from 60 files: 0 failures")
    assert list((tmp_path / "kept").iterdir()) == []


def test_the_same_seed_gives_the_same_programs(fuzz: ModuleType) -> None:
    one, two = (fuzz.broken(LOOP, LOOP, random.Random(7)) for _ in range(2))
    assert one == two
    assert len({fuzz.broken(LOOP, LOOP, random.Random(number)) for number in range(40)}) > 30


@pytest.mark.parametrize("seed", range(40))
def test_a_program_of_comments_alone_is_edited(fuzz: ModuleType, seed: int) -> None:
    text = fuzz.broken("# nothing\n", "# nothing either\n", random.Random(seed))
    assert text.strip()


def test_no_files(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    assert run("fuzz.py", tmp_path) == (2, "fuzz: no file that mentions AMP\n")


@pytest.mark.parametrize(
    ("result", "failure"),
    [
        ("raise ValueError('x')", "internal"),
        (
            "return FileResult('a.py', errors=(FileError('a.py', 'internal error of x'),))",
            "internal",
        ),
        ("return FileResult('a.py', errors=(FileError('a.py', 'too large'),))", "refused"),
        ("while True: pass", "late"),
        ("return FileResult('a.py')", ""),
    ],
)
def test_what_is_noticed(
    fuzz: ModuleType, monkeypatch: pytest.MonkeyPatch, result: str, failure: str
) -> None:
    names: dict[str, object] = {}
    source = "from amplint.findings import FileError\nfrom amplint.inspection import FileResult\n"
    exec(f"{source}def check_source(*_):\n    {result}\n", names)  # noqa: S102
    monkeypatch.setattr("amplint.checker.check_source", names["check_source"])
    assert fuzz.checked(LOOP, 0.2)[1] == failure


def test_a_failure_is_made_smaller(fuzz: ModuleType) -> None:
    def fails(text: str) -> bool:
        return "scaler.step(optimizer)" in text and "for x" in text

    small = fuzz.reduced(LOOP + "x = 1\n" * 20 + LOOP.replace("step", "update"), fails)
    assert fails(small)
    assert len(ast.dump(ast.parse(small))) < 600
    assert fuzz.reduced("x = (\ny\nscaler\n(\n", lambda text: "scaler" in text) == "scaler\n"


def test_a_process_that_dies_is_a_failure(fuzz: ModuleType, tmp_path: Path) -> None:
    """The program that it was at is named, and those behind it are checked."""
    (tmp_path / "train.py").write_text(LOOP)
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\nif '--worker' in sys.argv and sys.argv[sys.argv.index('--start') + 1]"
        " == '0':\n    os.abort()\n"
    )
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / "fuzz.py"), str(tmp_path), "--programs", "4", "--json"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert [json.loads(line)["number"] for line in done.stdout.splitlines()] == [1, 2, 3]
    assert "died: 1" in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_kills_leave_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LOOP)
    (tmp_path / "old.py").write_text(
        "import torch\nscaler = torch.cuda.amp.GradScaler()\n# é\n" + LOOP
    )
    rows = tmp_path / "rows.jsonl"
    budget = ("--kills", 8, "--grace", 120, "--rows", rows)
    status, output = run("kills.py", tmp_path, *budget)
    counted, progress = output.split("\n", 1)
    assert (status, counted.startswith("8 kills (")) == (0, True), output
    assert len(progress.splitlines()) == len(rows.read_text().splitlines()) >= 8
    assert run("kills.py", "--sum", rows) == (0, f"{counted}\n")
    assert run("kills.py", tmp_path, *budget) == (0, f"{counted}\n"), "a run that is over goes on"
    rows.write_text(rows.read_text() + rows.read_text())
    assert "16 kills (" in run("kills.py", "--sum", rows)[1]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("code", ["import time; time.sleep(1000)", "while True: pass"])
def test_whoever_sleeps_or_works_on_is_left(code: str) -> None:
    """Only a process that waits for a processor gets more time, and no more than its share."""
    kills = load("kills")
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    bench = kills.Bench.__new__(kills.Bench)
    bench._grace = 0.0 if "while" in code else 1.0
    problems, _ = bench._left([process.pid])
    assert problems == [f"process {process.pid} is left"]
    assert process.wait() == -signal.SIGKILL


def test_a_failed_kill_is_told_in_a_sum(tmp_path: Path) -> None:
    row = {"number": 3, "way": "fix", "signal": "SIGKILL", "delay": 0.5, "late": False}
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({**row, "problems": ["a.py is damaged"]}) + "\n")
    assert run("kills.py", "--sum", rows) == (
        1,
        "1 kills (fix SIGKILL: 1): 1 failures\n3: fix, SIGKILL after 0.50 s: a.py is damaged\n",
    )


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_kill_needs_findings(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("x = 1\n")
    assert run("kills.py", tmp_path) == (
        2,
        "kills: there are no findings that a run could lose\n",
    )
