"""Terminals, pipes, colours and the progress line."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from amplint.cli import terminal

BROKEN = "from torch.amp import autocast\ndef f(:\n"
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def broken(empty_folder: Path) -> str:
    (empty_folder / "broken.py").write_text(BROKEN)
    return "broken.py"


@pytest.mark.parametrize(
    ("args", "env", "colored"),
    [
        ((), {}, False),
        (("--color", "always"), {}, True),
        (("--color", "auto"), {"FORCE_COLOR": "1"}, True),
        (("--color", "never"), {"FORCE_COLOR": "1"}, False),
        ((), {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        (("--color", "always"), {"NO_COLOR": "1"}, True),
        ((), {"FORCE_COLOR": ""}, False),
    ],
)
def test_colour_in_a_pipe(start, broken, args, env, colored) -> None:
    done = start("check", broken, *args, env=env)
    assert ("\x1b[" in done.stdout) is colored
    assert done.returncode == 2


def test_a_pipe_gets_the_concise_format(start, broken) -> None:
    assert start("check", broken).stdout.startswith("broken.py:2:7: error AMP000 ")


def on_a_terminal(*args: str, **env: str) -> str:
    """What a person sees: stdout and stderr of a process whose streams are a terminal."""
    pty = pytest.importorskip("pty", reason="no pseudo-terminals on this platform")
    master, slave = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", **env}
    process = subprocess.Popen(
        [sys.executable, "-m", "amplint", *args], stdout=slave, stderr=slave, env=environment
    )
    os.close(slave)
    seen = b""
    while True:
        try:
            chunk = os.read(master, 65536)
        except OSError:  # Linux reports the closed terminal as an error
            break
        if not chunk:
            break
        seen += chunk
    os.close(master)
    process.wait(timeout=60)
    return seen.decode()


def test_a_terminal_gets_the_full_format_in_colour(broken) -> None:
    seen = on_a_terminal("check", broken)
    assert "\x1b[1;31merror[AMP000]\x1b[0m" in seen
    assert "broken.py:2:7\r\n" in seen and "^" in seen


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_terminal_without_colour(broken, env) -> None:
    seen = on_a_terminal("check", broken, **env)
    assert "error[AMP000] unreadable-file" in seen and "\x1b" not in seen


def test_a_reader_that_went_away_is_no_error(broken) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [sys.executable, "-m", "amplint", "check", broken],
        stdout=write_end,
        stderr=subprocess.PIPE,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=60,
    )
    os.close(write_end)
    assert (done.returncode, done.stderr) == (2, b"")


def test_an_encoding_without_the_characters_is_no_error(start, empty_folder) -> None:
    (empty_folder / "broken.py").write_text("autocast = '模型'; x(:\n", encoding="utf-8")
    done = start("check", "broken.py", "--output-format", "full", env={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 2
    assert r"\u6a21" in done.stdout and done.stderr == ""


class Clock:
    """A clock that a test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(terminal.time, "monotonic", lambda: self.now)


def test_a_short_run_has_no_progress_line(monkeypatch) -> None:
    clock, stream = Clock(monkeypatch), io.StringIO()
    with terminal.Progress(stream, enabled=True) as progress:
        clock.now += 0.9
        progress(1, 2)
    assert stream.getvalue() == ""


def test_a_long_run_has_one_and_removes_it(monkeypatch) -> None:
    clock, stream = Clock(monkeypatch), io.StringIO()
    with terminal.Progress(stream, enabled=True) as progress:
        clock.now += 1.5
        progress(9, 10)
        progress(10, 10)  # too soon after the last one
    text = "checking 9/10 files"
    assert stream.getvalue() == f"\r{text}\r{' ' * len(text)}\r"


def test_progress_is_silent_where_nobody_looks(monkeypatch) -> None:
    clock, stream = Clock(monkeypatch), io.StringIO()
    with terminal.Progress(stream, enabled=False) as progress:
        clock.now += 60
        progress(1, 2)
    assert stream.getvalue() == ""


def test_a_closed_stream_is_no_terminal() -> None:
    stream = io.StringIO()
    stream.close()
    assert terminal.is_terminal(stream) is False
