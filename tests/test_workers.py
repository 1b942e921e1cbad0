"""Workers: every input gets a result, whatever happens to the processes."""

from __future__ import annotations

import multiprocessing
import operator
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from amplint import workers
from amplint.workers import Died, run

needs_signals = pytest.mark.skipif(os.name != "posix", reason="processes are killed by a signal")


@pytest.fixture(params=["fork", "spawn"], autouse=True)
def start_method(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to start a process."""
    if request.param not in multiprocessing.get_all_start_methods():
        pytest.skip("this platform cannot start processes so")
    monkeypatch.setattr(workers, "_start_method", lambda: request.param)


def outcomes(function: object, inputs: list[int], processes: int = 2) -> list[tuple[int, str]]:
    results = run(function, inputs, processes)  # type: ignore[arg-type]
    return sorted((item, "died" if isinstance(r, Died) else str(r)) for item, r in results)


def test_every_input_has_its_result() -> None:
    assert outcomes(operator.neg, list(range(20))) == [(n, str(-n)) for n in range(20)]


def test_nothing_to_do() -> None:
    assert outcomes(operator.neg, []) == []


@needs_signals
@pytest.mark.parametrize("place", [0, 3, 6])
def test_only_the_input_that_kills_is_lost(place: int) -> None:
    inputs = [0] * 6
    inputs.insert(place, signal.SIGKILL)
    found = outcomes(signal.raise_signal, inputs)
    assert found == [(0, "None")] * 6 + [(signal.SIGKILL, "died")]


@needs_signals
def test_several_inputs_that_kill() -> None:
    found = outcomes(signal.raise_signal, [signal.SIGKILL, 0, signal.SIGTERM, 0])
    assert [result for _, result in found] == ["None", "None", "died", "died"]


def test_an_exception_reaches_the_caller() -> None:
    with pytest.raises(TypeError):
        outcomes(len, [1, 2, 3])


def test_without_processes_the_work_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_process(*args: object, **options: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    told: list[bool] = []
    monkeypatch.setattr(multiprocessing.process.BaseProcess, "start", no_process)
    results = run(operator.neg, [1, 2, 3], 2, alone=lambda: told.append(True))
    assert sorted(results) == [(1, -1), (2, -2), (3, -3)]
    assert told == [True]


def test_one_process_of_two_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    start = multiprocessing.process.BaseProcess.start
    left = [1]

    def one_process(self: multiprocessing.process.BaseProcess) -> None:
        if not left.pop():
            raise BlockingIOError(11, "Resource temporarily unavailable")
        left.append(0)
        start(self)

    monkeypatch.setattr(multiprocessing.process.BaseProcess, "start", one_process)
    told: list[bool] = []
    results = run(operator.neg, range(10), 2, alone=lambda: told.append(True))
    assert sorted(results) == sorted((n, -n) for n in range(10))
    assert not told


def _spin(seconds: float) -> float:
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass
    return seconds


@needs_signals
def test_an_input_that_takes_too_long_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the processor's time, which the system counts; a spawned worker has its own limit."""
    if workers._start_method() == "spawn":
        pytest.skip("the limit is changed in this process, which only forked workers inherit")
    monkeypatch.setattr(workers, "SECONDS", 1)
    found = dict(run(_spin, [0.0, 1000.0, 0.1, 0.2], 2))
    died = found.pop(1000.0)
    assert isinstance(died, Died)
    assert died.of_time
    assert found == {0.0: 0.0, 0.1: 0.1, 0.2: 0.2}


def _fill(size: int) -> int:
    return len(bytearray(size))


def test_an_input_that_takes_too_much_memory_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    if workers._start_method() == "spawn" or sys.platform != "linux":
        pytest.skip("the limit is changed in this process, which only forked workers inherit")
    monkeypatch.setattr(workers, "BYTES", 1 << 29)
    found = dict(run(_fill, [1, 1 << 30, 2], 2))
    died = found.pop(1 << 30)
    assert isinstance(died, Died)
    assert died.of_memory
    assert found == {1: 1, 2: 2}


def test_an_exception_tells_where_in_the_worker(tmp_path: Path) -> None:
    with pytest.raises(TypeError) as raised:
        list(run(_spin, ["no number"], 2))  # type: ignore[list-item]
    assert "in _spin" in str(raised.value.__cause__)


_WITHOUT_THREADS = """
import operator, resource, sys
from amplint import workers
if __name__ == "__main__":
    pages = int(open("/proc/self/statm").read().split()[0])
    # Less than the stack of a thread is left.
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (6 << 20),) * 2)
    print(sorted(result for _, result in workers.run(operator.neg, [1, 2, 3], 2)))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_where_no_thread_can_start(tmp_path: Path) -> None:
    script = tmp_path / "limited.py"
    script.write_text(_WITHOUT_THREADS)
    assert _run_script(script) == "[-3, -2, -1]\n"


_ABANDONED = """
import os, signal, sys, time
from amplint import workers
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored
_, method, state, way = sys.argv
workers._start_method = lambda: method
if way == "watched":
    workers._PR_SET_PDEATHSIG = -1  # as where the kernel has no such thing

def work(seconds):
    if seconds:
        os.write(1, b"busy\\n")
        time.sleep(seconds)

def inputs():
    yield from (0.0, 0.0)
    if state == "busy":
        yield from (1000.0, 1000.0)
    else:
        os.write(1, b"idle\\n")
        time.sleep(1000)

if __name__ == "__main__":
    list(workers.run(work, inputs(), 2))
"""


@needs_signals
@pytest.mark.parametrize("state", ["idle", "busy"])
@pytest.mark.parametrize(
    ("ending", "way"),
    [("SIGTERM", ""), ("SIGHUP", ""), ("SIGKILL", ""), ("SIGKILL", "watched")],
)
def test_workers_end_with_their_parent(tmp_path: Path, ending: str, way: str, state: str) -> None:
    """They hold its standard output: only when the last one is gone does it end."""
    script = tmp_path / "abandoned.py"
    script.write_text(_ABANDONED)
    running = subprocess.Popen(
        [sys.executable, str(script), workers._start_method(), state, way],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    for _ in range(1 if state == "idle" else 2):
        assert running.stdout.readline() == f"{state}\n"
    running.send_signal(getattr(signal, ending))
    assert running.communicate(timeout=600)[0] == ""
    assert running.returncode == -getattr(signal, ending)


def test_a_script_without_a_main_guard(tmp_path: Path) -> None:
    """Each spawned worker runs such a script again and dies; the work is done here then."""
    script = tmp_path / "unguarded.py"
    script.write_text(
        "import operator\n"
        "from amplint import workers\n"
        "workers._start_method = lambda: 'spawn'\n"
        "print(sorted(result for _, result in workers.run(operator.neg, [1, 2, 3], 2)))\n"
    )
    assert _run_script(script) == "[-3, -2, -1]\n"


def test_modules_of_the_working_directory_are_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("socket", "struct", "signal", "selectors", "tempfile", "pickle", "random", "re"):
        (tmp_path / f"{name}.py").write_text("open('was-executed', 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    assert outcomes(operator.neg, [1, 2, 3]) == [(1, "-1"), (2, "-2"), (3, "-3")]
    assert os.getcwd() == str(tmp_path)
    assert not (tmp_path / "was-executed").exists()


_INTERRUPTED = """
import signal, sys, time
from amplint import workers
# Jobs in the background of a shell inherit that interrupts are ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
workers._start_method = lambda: sys.argv[1]
if __name__ == "__main__":
    print("ready", flush=True)
    try:
        list(workers.run(time.sleep, [1000.0] * 5, 2))
    except KeyboardInterrupt:
        print("interrupted")
"""


@needs_signals
def test_an_interrupt_waits_for_nobody(tmp_path: Path) -> None:
    script = tmp_path / "interrupted.py"
    script.write_text(_INTERRUPTED)
    running = subprocess.Popen(
        [sys.executable, str(script), workers._start_method()],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "ready\n"
    time.sleep(0.5)
    os.killpg(running.pid, signal.SIGINT)
    assert running.communicate(timeout=600)[0] == "interrupted\n"


def _run_script(script: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_at_least_one_processor() -> None:
    assert workers.available_processors() >= 1


def test_inputs_are_taken_as_they_come() -> None:
    """Relative paths of the caller's folder hold while inputs are made."""
    here = os.getcwd()
    folders = []

    def inputs() -> Iterator[int]:
        for number in range(5):
            folders.append(os.getcwd())
            yield number

    assert sorted(result for _, result in run(operator.neg, inputs(), 2)) == [-4, -3, -2, -1, 0]
    assert folders == [here] * 5


def test_an_exception_of_the_inputs_reaches_the_caller() -> None:
    def inputs() -> Iterator[int]:
        yield 1
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        list(run(operator.neg, inputs(), 2))
    # Another thread of the pool collects them, too.
    deadline = time.monotonic() + 600
    while multiprocessing.active_children() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not multiprocessing.active_children()
