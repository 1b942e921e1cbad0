"""Whatever a probed function does, it ends with its run: nothing is left, nothing is spoilt.

Most of it comes to nothing already because the worker puts stand-ins in the place of the
modules that could do it. What the kernel refuses beyond that: tests/probe/test_limits.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from amplint.checker import check_paths
from amplint.config import Settings
from amplint.probe.confirmation import Limits, ended_by_sigterm, probe_findings
from amplint.probe.interpreter import Interpreter, find_interpreter
from amplint.probe.messages import Domain, Plan, Prediction, Request, Role, RunResult, Source
from amplint.probe.process import Worker, WorkerFailed

from .hostile import FORGERIES, STATEMENTS, TEMPLATE

ROOT = Path(__file__).resolve().parents[2]
STEP_ROW = 15


@pytest.fixture(scope="module")
def interpreter() -> Interpreter:
    return find_interpreter(sys.executable, str(ROOT))


@pytest.fixture(scope="module")
def worker(interpreter: Interpreter) -> Iterator[Worker]:
    with contextlib.closing(Worker(interpreter)) as worker:
        yield worker


#: For a run that ends by itself, however busy the machine is, and for one that may never end:
#: of that much processor time it needs a tenth to come to its statement.
PATIENT, SHORT = 60.0, 1.0


def request(path: Path, seconds: float = PATIENT) -> Request:
    roles = (
        Role("model", "model"),
        Role("optimizer", "optimizer"),
        Role("loader", "loader"),
        Role("scaler", "scaler"),
    )
    plan = Plan(
        sources=(Source(str(path)),),
        entry="train",
        target_rows=(STEP_ROW,),
        roles=roles,
        domains=(Domain("len(loader)", (2,)),),
        predictions=(Prediction("raises", "RuntimeError", "step", (STEP_ROW,)),),
        slice_rows=tuple(range(1, STEP_ROW + 1)),
    )
    return Request(plan, seconds=seconds)


def write(folder: Path, statement: str) -> Path:
    path = folder / "train.py"
    path.write_text(TEMPLATE.format(folder=str(folder), statement=statement))
    return path


def descendants() -> set[int]:
    """Processes below this one, by their parents."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The name stands in brackets and may hold anything; the parent is second after it.
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found = {os.getpid()}
    while True:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        if not more:
            return found - {os.getpid()}
        found |= more


def is_missing_update(result: RunResult) -> bool:
    raised = result.raised
    return raised is not None and raised.row == STEP_ROW and "already been" in raised.message


def assert_shows_missing_update(result: RunResult) -> None:
    assert result.status == "raised", result
    assert is_missing_update(result), result


def test_an_ordinary_misuse_is_seen(worker: Worker, tmp_path: Path) -> None:
    assert_shows_missing_update(worker.run(request(write(tmp_path, "pass"))))


@pytest.mark.parametrize("what", STATEMENTS)
def test_contained(worker: Worker, tmp_path: Path, what: str) -> None:
    ordinary = tmp_path / "ordinary"
    ordinary.mkdir()
    hostile = write(tmp_path, STATEMENTS[what])
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    worker.hello()
    running = descendants()
    worker.run(request(hostile, SHORT))
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before
    assert not (Path.home() / "written").exists()
    # The next run is not disturbed, and no process has been left behind.
    assert_shows_missing_update(worker.run(request(write(ordinary, "pass"))))
    assert len(descendants()) == len(running)


#: What a function may do, and the verdicts on the misuse behind it. Where files, sockets and
#: output are only refused or dropped, the function goes on, and its own failure is shown.
GOES_ON = {"confirmed", "conditional", "inconclusive"}
VERDICTS = {
    "loops for ever": {"inconclusive"},
    "forks": {"inconclusive"},
    "allocates without end": {"inconclusive"},
    "writes to its home": GOES_ON,
    "opens a socket": GOES_ON,
    "leaves": {"inconclusive"},
    "kills its parent": {"inconclusive"},
    "prints a gigabyte": GOES_ON,
    "patches torch": {"inconclusive"},
}


def test_verdicts_on_hostile_functions_and_on_the_one_after_them(tmp_path: Path) -> None:
    names = {}
    for number, what in enumerate(VERDICTS):
        folder = tmp_path / f"hostile{number}"
        folder.mkdir()
        names[str(write(folder, STATEMENTS[what]))] = what
    last = tmp_path / "ordinary"
    last.mkdir()
    names[str(write(last, "pass"))] = "ordinary"
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    running = descendants()
    settings = Settings(project_root=str(tmp_path))
    report = check_paths([str(tmp_path)], settings)
    found = probe_findings(report.findings, settings, Limits(seconds=3.0, python=sys.executable))
    verdicts = {
        names[os.path.realpath(item.finding.filename)]: item.finding.evidence.status
        for item in found
    }
    assert verdicts.pop("ordinary") == "confirmed"
    assert verdicts.keys() == VERDICTS.keys()
    assert {
        what: verdict for what, verdict in verdicts.items() if verdict not in VERDICTS[what]
    } == {}
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before
    assert descendants() == running
    assert not (Path.home() / "written").exists()


@pytest.fixture(scope="module")
def forged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Verdicts on a missing `update()` that the code does not miss any more, but fakes."""
    folder = tmp_path_factory.mktemp("forged")
    names = {}
    for number, what in enumerate(FORGERIES):
        path = folder / f"part{number}" / "train.py"
        path.parent.mkdir()
        write(path.parent, "pass")
        names[str(path)] = what
    settings = Settings(project_root=str(folder))
    report = check_paths([str(folder)], settings)
    assert [finding.code for finding in report.findings] == ["AMP105"] * len(FORGERIES)
    for name, what in names.items():
        path = write(Path(name).parent, FORGERIES[what])
        path.write_text(path.read_text() + "        scaler.update()\n")
    found = probe_findings(report.findings, settings, Limits(seconds=3.0, python=sys.executable))
    return {
        names[os.path.realpath(item.finding.filename)]: item.finding.evidence.status
        for item in found
    }


@pytest.mark.parametrize("what", FORGERIES)
def test_no_verdict_is_forged(forged: dict[str, str], what: str) -> None:
    assert forged[what] != "confirmed"


def test_closing_leaves_nothing(interpreter: Interpreter, tmp_path: Path) -> None:
    before = descendants()
    worker = Worker(interpreter)
    worker.run(request(write(tmp_path, "pass")))
    scratch = Path(worker._scratch)
    assert scratch.exists()
    worker.close()
    assert not scratch.exists()
    assert descendants() == before


FAKE = """
import json, os, sys
def hello(**more):
    print(json.dumps({"torch": "2.13.0", "devices": ["cpu"], "measures": [], "error": "", **more}),
          flush=True)
"""


@pytest.mark.parametrize(
    ("behaviour", "status", "seconds"),
    [
        ("os._exit(3)", "killed", PATIENT),
        ("print('x' * 10, flush=True)", "failed", PATIENT),
        ("print('[]', flush=True)", "failed", PATIENT),
        ("[os.write(1, b'x' * 65536) for _ in range(1 << 12)]", "killed", PATIENT),
        ("import time; time.sleep(1000)", "timeout", 0.3),
    ],
)
def test_a_worker_that_misbehaves_is_restarted(
    interpreter: Interpreter,
    monkeypatch: pytest.MonkeyPatch,
    behaviour: str,
    status: str,
    seconds: float,
) -> None:
    monkeypatch.setattr("amplint.probe.process.GRACE_SECONDS", 0.2)
    boot = FAKE + f"hello()\nfor line in sys.stdin:\n    {behaviour}\n"
    with contextlib.closing(Worker(interpreter, boot=boot)) as worker:
        for starts in (1, 2):
            result = worker.run(Request(Plan((), "train", ()), seconds=seconds))
            assert result.status == status
            assert worker.starts == starts


def test_the_environment_is_empty(
    interpreter: Interpreter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "x")
    boot = FAKE + "hello(error=json.dumps(sorted(os.environ)))\n"
    with (
        contextlib.closing(Worker(interpreter, boot=boot)) as worker,
        pytest.raises(WorkerFailed) as caught,
    ):
        worker.hello()
    names = json.loads(caught.value.message.split(": ", 1)[1])
    assert "SECRET_TOKEN" not in names
    assert {"HOME", "TMPDIR"} <= set(names)


def test_sigterm_ends_like_an_exit() -> None:
    with pytest.raises(SystemExit) as ended, ended_by_sigterm():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)  # the signal comes before
    assert ended.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_folders_of_dead_owners_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    dead, alive = (tmp_path / f"amplint-probe-{pid}-x" for pid in (ended.pid, os.getpid()))
    dead.mkdir()
    alive.mkdir()
    worker = Worker(find_interpreter(sys.executable, str(tmp_path)))
    worker.close()
    assert [path.name for path in tmp_path.iterdir()] == [alive.name]
