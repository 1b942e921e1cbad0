"""0 clean, 1 findings, 2 usage or an unreadable file, 130 interrupted."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from amplint import checker
from amplint.checker import Report
from amplint.cli.check import check
from amplint.config import FAIL_LEVELS
from amplint.errors import AmplintError
from amplint.findings import FileError, Incomplete

ROOT = Path(__file__).resolve().parents[2]
BROKEN = FileError("broken.py", "invalid syntax")


@pytest.mark.parametrize(
    ("severity", "args", "expected"),
    [
        (None, (), 0),
        ("error", (), 1),
        ("warning", (), 1),
        ("info", (), 0),
        ("error", ("--fail-on", "error"), 1),
        ("warning", ("--fail-on", "error"), 0),
        ("warning", ("--fail-on", "warning"), 1),
        ("info", ("--fail-on", "info"), 1),
        ("error", ("--fail-on", "never"), 0),
        ("error", ("--exit-zero",), 0),
        ("error", ("--config", 'fail-on = "never"'), 0),
        ("info", ("--config", 'fail-on = "info"'), 1),
        ("error", ("--config", 'fail-on = "never"', "--fail-on", "error"), 1),
        ("error", ("--statistics",), 1),
        ("error", ("--quiet",), 1),
        ("error", ("--output-file", "report.txt"), 1),
    ],
)
def test_findings(run, reporting, finding, severity, args, expected) -> None:
    findings = (finding(severity),) if severity else ()
    reporting(Report(findings, files=1))
    assert run("check", *args).exit_code == expected


def test_the_levels_are_those_of_the_configuration() -> None:
    option = next(item for item in check.params if item.name == "fail_on")
    assert tuple(option.type.choices) == FAIL_LEVELS


@pytest.mark.parametrize(
    ("severity", "parts", "args", "expected"),
    [
        (None, 1, (), 0),
        ("error", 1, (), 1),
        (None, 1, ("--strict",), 2),
        ("error", 1, ("--strict",), 2),
        ("error", 1, ("--strict", "--exit-zero"), 2),
        (None, 0, ("--strict",), 0),
        ("error", 0, ("--strict",), 1),
        ("error", 0, ("--strict", "--exit-zero"), 0),
    ],
)
def test_a_file_that_was_followed_in_part(
    run, reporting, finding, severity, parts, args, expected
) -> None:
    findings = (finding(severity),) if severity else ()
    reporting(Report(findings, files=2, incomplete=(Incomplete("a.py", ("fit",)),) * parts))
    assert run("check", *args).exit_code == expected


@pytest.mark.parametrize("args", [(), ("--exit-zero",), ("--fail-on", "never"), ("-q",)])
@pytest.mark.parametrize("severity", [None, "error"])
def test_an_unreadable_file_wins(run, reporting, finding, severity, args) -> None:
    findings = (finding(severity),) if severity else ()
    reporting(Report(findings, (BROKEN,), files=2))
    result = run("check", *args)
    assert result.exit_code == 2
    assert "broken.py:1:1: error AMP000 invalid syntax" in result.stdout


def raising(error: BaseException):
    def check_paths(*args, **options):
        raise error

    return check_paths


def test_a_users_error_is_one_message_and_a_hint(run, monkeypatch) -> None:
    monkeypatch.setattr(checker, "check_paths", raising(AmplintError("no such thing", "try it")))
    result = run("check")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "error: no such thing\nhint: try it\n"


def test_an_error_without_hint(run, monkeypatch) -> None:
    monkeypatch.setattr(checker, "check_paths", raising(AmplintError("no such thing")))
    assert run("check").stderr == "error: no such thing\n"


def test_a_defect_is_one_line(run, monkeypatch) -> None:
    monkeypatch.setattr(checker, "check_paths", raising(ZeroDivisionError("division by zero")))
    result = run("check")
    assert result.exit_code == 2
    assert result.stderr.startswith("internal error: ZeroDivisionError: division by zero; please")
    assert result.stderr.count("\n") == 1 and "report" in result.stderr


def test_a_defect_has_a_traceback_only_when_asked_for(run, monkeypatch) -> None:
    monkeypatch.setenv("AMPLINT_DEBUG", "1")
    monkeypatch.setattr(checker, "check_paths", raising(ZeroDivisionError("division by zero")))
    assert isinstance(run("check").exception, ZeroDivisionError)


def test_interrupted(run, monkeypatch) -> None:
    monkeypatch.setattr(checker, "check_paths", raising(KeyboardInterrupt()))
    result = run("check")
    assert result.exit_code == 130
    assert result.stderr.strip() == ""


def test_no_files_is_said(run, empty_folder) -> None:
    result = run("check")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "warning: no Python files found under the given paths\n"


def test_a_missing_path(run) -> None:
    result = run("check", "gone.py")
    assert result.exit_code == 2
    assert "gone.py:1:1: error AMP000 does not exist" in result.stdout


def test_a_clean_file(run, empty_folder) -> None:
    (empty_folder / "clean.py").write_text("import torch\n")
    result = run("check", "clean.py")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "No AMP misuse found in 1 file.\n"


def test_a_broken_file_does_not_hide_the_others(run, empty_folder) -> None:
    (empty_folder / "broken.py").write_text("from torch.amp import autocast\ndef f(:\n")
    (empty_folder / "clean.py").write_text("import torch\n")
    result = run("check", ".")
    assert result.exit_code == 2
    assert "broken.py:2:" in result.stdout and "AMP000" in result.stdout
    assert "1 file could not be analysed (2 files checked" in result.stdout
    assert "No AMP misuse" not in result.stdout


def test_a_real_mistake(run, empty_folder) -> None:
    (empty_folder / "train.py").write_text(
        "import torch\n"
        "def train(model, optimizer, loader):\n"
        "    scaler = torch.amp.GradScaler('cuda')\n"
        "    for inputs in loader:\n"
        "        optimizer.zero_grad()\n"
        "        scaler.scale(model(inputs).sum()).backward()\n"
        "        scaler.step(optimizer)\n"
        "        scaler.step(optimizer)\n"
        "        scaler.update()\n"
    )
    result = run("check", "-q")
    assert result.exit_code == 1
    (line,) = result.stdout.splitlines()
    assert line.startswith("train.py:8:9: error AMP104 ")
    assert run("check", "-q", "--ignore", "step-twice").stdout == ""


NOTEBOOK = json.dumps({"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


@pytest.mark.parametrize(
    "arguments", [("-",), ("-", "--stdin-filename", "a.ipynb"), ("a.txt",), ("a.ipynb",)]
)
def test_a_notebook_is_not_called_clean(run, empty_folder, arguments) -> None:
    """Without outputs it is a Python expression, too."""
    for name in ("a.txt", "a.ipynb"):
        (empty_folder / name).write_text(NOTEBOOK)
    result = run("check", *arguments, input=NOTEBOOK)
    assert result.exit_code == 2
    assert "notebooks are not supported yet" in result.stdout


_SLOW = """
import os, signal, time
# Jobs in the background of a shell, and under nohup, inherit that signals are ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
from amplint import checker
from amplint.cli.main import main

def inspect(task):
    os.write(1, b"working\\n")  # at once: print writes twice where PYTHONUNBUFFERED is set
    time.sleep(1000)

checker.inspect = inspect
main()
"""


@pytest.mark.skipif(os.name != "posix", reason="ends a process by a signal")
@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize("ending", ["SIGTERM", "SIGHUP", "SIGINT"])
def test_a_signal_ends_the_run(empty_folder, ending, jobs) -> None:
    """Its workers hold its output: when that ends, all of them are gone."""
    for name in ("a.py", "b.py", "c.py"):
        (empty_folder / name).write_text("scaler = 1\n")
    running = subprocess.Popen(
        [sys.executable, "-c", _SLOW, "check", "--jobs", jobs, "."],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "working\n"
    running.send_signal(getattr(signal, ending))
    rest = running.communicate(timeout=60)[0]
    assert rest.replace("working", "").strip() == ""
    assert running.returncode == 128 + getattr(signal, ending)


def test_what_ignores_a_signal_goes_on_ignoring_it() -> None:
    """As `nohup` wants it."""
    program = "import signal; from amplint.cli.main import main; signal.signal(1, signal.SIG_IGN)\n"
    program += "try: main()\nfinally: print(signal.getsignal(1) == signal.SIG_IGN)"
    done = subprocess.run(
        [sys.executable, "-c", program, "--version"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines()[-1] == "True"


def test_without_other_processes_the_run_says_so(run, empty_folder, monkeypatch) -> None:
    def refused(*args: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(multiprocessing.process.BaseProcess, "start", refused)
    for name in ("a.py", "b.py", "c.py"):
        (empty_folder / name).write_text("scaler = 1\n")
    result = run("check", "--jobs", "2", ".")
    assert (result.exit_code, result.stdout) == (
        0,
        "No AMP misuse found in 3 files.\n",
    )
    assert result.stderr == f"note: {checker.ALONE}\n"


#: Ends it where Python drops what a handler raises: while an object goes away.
_DROPPED = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_DFL)
from amplint import checker
from amplint.cli import main

main._AGAIN = 0.2

class Gone:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0)  # the handler runs here, and not behind the destructor

def inspect(task):
    Gone()
    time.sleep(1000)

checker.inspect = inspect
main.main()
"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timer raises a signal again")
def test_a_signal_that_a_destructor_drops_ends_the_run_all_the_same(empty_folder) -> None:
    (empty_folder / "a.py").write_text("scaler = 1\n")
    done = subprocess.run(
        [sys.executable, "-c", _DROPPED, "check", "--jobs", "1", "."],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 128 + signal.SIGTERM
    assert "Terminated: 15" in done.stderr  # of the first: Python's own note that it was dropped
