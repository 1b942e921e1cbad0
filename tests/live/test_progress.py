"""The line that says how far a run is: on a terminal of its own, or nowhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from amplint.live.merge import Round
from amplint.live.progress import Progress
from tests.live.programs import environment
from tests.live.test_outside import STEPS

pytest.importorskip("pty")

#: Runs a command on a terminal of its own, its output in a file or there; prints what is shown.
ON_A_TERMINAL = """
import os, pty, sys

child, terminal = pty.fork()
if child == 0:
    if sys.argv[1] == "away":
        log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
    os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
shown = b""
while True:
    try:
        new = os.read(terminal, 4096)
    except OSError:
        break
    if not new:
        break
    shown += new
os.write(1, shown)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
LINE = "\r\x1b[Kamplint: update 7, loss scale 512, 0 skipped"


def on_a_terminal(folder: Path, where: str, *options: str) -> str:
    """What the terminal shows of a run."""
    (folder / "train.py").write_text(STEPS + "\ntrain(7, lambda _: None)\n", "utf-8")
    run = ("-m", "amplint", "run", "--fail-on", "never", "--python", sys.executable, "--out", "rec")
    done = subprocess.run(
        [sys.executable, "-c", ON_A_TERMINAL, where, *run, *options, "train.py"],
        cwd=folder,
        env=environment(),
        capture_output=True,
        timeout=300,
        check=True,
    )
    return done.stdout.decode()


def test_output_that_goes_elsewhere(tmp_path: Path) -> None:
    """The terminal has the line, and at last nothing; the file has the rest."""
    shown = on_a_terminal(tmp_path, "away", "--progress", "--quiet")
    assert LINE in shown
    assert shown.endswith("\r\x1b[K")
    log = (tmp_path / "log").read_text("utf-8")
    assert log.startswith(("0x", "-0x"))
    assert "update 7" not in log


@pytest.mark.parametrize("options", [(), ("--progress",)])
def test_output_on_the_terminal(tmp_path: Path, options: tuple[str, ...]) -> None:
    shown = on_a_terminal(tmp_path, "there", *options)
    assert "\x1b[K" not in shown
    assert ("no progress line" in shown) == bool(options)


def test_words() -> None:
    """The process that is furthest behind says how far the run is."""
    progress = Progress()
    assert progress.words() == ""
    progress.add("rank 0", 1, [Round(1, 0.1, 8.0, True, 0), Round(2, 0.2, 4.0, False, 0)])
    assert progress.words() == "amplint: update 2, loss scale 4, 1 skipped"
    progress.add("rank 1", 1, [Round(1, 0.1, None, None, 0)])
    assert progress.words() == "amplint: update 1 of 2 processes, loss scale unknown, 0 skipped"
