"""Run a function over many inputs in several processes, and survive each that dies.

A worker has pipes of its own and one input at a time. So it is known which input a worker died
of, the others are finished, and no thread is needed, which some systems refuse. Workers end with
this process, whatever ends it: the kernel ends them, and an idle one sees that its pipe is closed.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar

from amplint import collector

T = TypeVar("T")
R = TypeVar("R")

#: Processor time that a worker may spend on one input, in seconds.
SECONDS = 600
#: Bytes of data that a worker may hold. More than that is no program's analysis.
BYTES = 8 << 30

#: What a system raises that has no pipes or processes left, or a folder that is gone.
_NO_PROCESSES = (OSError, NotImplementedError, ImportError, MemoryError)
#: The exit status of a worker that has no memory left, and that of one that lost its parent.
_NO_MEMORY, _NO_PARENT = 71, 72
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Died:
    """The worker process died while it worked on an input.

    Args:
        status: of the process: a negative one is that of the signal which ended it.
    """

    status: int

    @property
    def of_time(self) -> bool:
        """Whether the input took more processor time than it may."""
        return hasattr(signal, "SIGXCPU") and self.status == -signal.SIGXCPU

    @property
    def of_memory(self) -> bool:
        """Whether there was no memory left for the worker."""
        return self.status == _NO_MEMORY

    @property
    def was_killed(self) -> bool:
        """Whether something ended the worker, as systems do that have no memory left."""
        return hasattr(signal, "SIGKILL") and self.status == -signal.SIGKILL


class WorkerTraceback(Exception):
    """The cause of an exception that a worker raised: the traceback there, as text."""


def available_processors() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run(
    function: Callable[[T], R],
    inputs: Iterable[T],
    processes: int,
    alone: Callable[[], object] = lambda: None,
) -> Iterator[tuple[T, R | Died]]:
    """Yield each input with its result, or with `Died`, in order of completion.

    The first inputs are worked on while the others are still being made.

    Args:
        function: of a module's top level.
        inputs: picklable values.
        processes: how many at once; where none can be started, the work is done here.
        alone: called before the first input that is worked on here.

    Raises:
        Exception: whatever `function` or the making of `inputs` raises.
    """
    pool: _Pool[T, R] = _Pool(function, processes)
    told = False
    try:
        for item in pool.results(iter(inputs)):
            if isinstance(item, _Left):
                if not told:
                    alone()
                    told = True
                yield item.input, function(item.input)
            else:
                yield item
    except BaseException:  # an interrupt, too, must not wait for what is still running
        pool.kill()
        raise
    pool.close()


@dataclass(frozen=True, slots=True)
class _Left(Generic[T]):
    """An input that no worker takes."""

    input: T


class _Worker(Generic[T]):
    """A process, the pipe that its inputs go into, and the one that its results come out of.

    Attributes:
        ready: whether it has said that it is there.
        working: on the input in `input`.
    """

    def __init__(self, process: BaseProcess, inputs: Connection, results: Connection) -> None:
        self.process = process
        self.inputs = inputs
        self.results = results
        self.ready = False
        self.working = False
        self.input: T | None = None

    def disconnect(self) -> None:
        self.inputs.close()
        self.results.close()


class _Pool(Generic[T, R]):
    """Up to `processes` workers, started when there is something to do."""

    def __init__(self, function: Callable[[T], R], processes: int) -> None:
        self._function = function
        self._most = processes
        self._workers: list[_Worker[T]] = []

    def results(self, inputs: Iterator[T]) -> Iterator[tuple[T, R | Died] | _Left[T]]:
        """Inputs with their results; those for which there is no worker as they are."""
        waiting: deque[T] = deque()
        more = True
        while more or waiting or any(worker.working for worker in self._workers):
            for item in inputs if more else ():
                waiting.append(item)
                break
            else:
                more = False
            self._hand_out(waiting)
            if waiting and not self._workers:
                yield _Left(waiting.popleft())
            elif self._workers:
                yield from self._collect(0 if more else None, waiting)

    def close(self) -> None:
        """Let the workers end: they have nothing to do."""
        for worker in self._workers:
            worker.disconnect()
        for worker in self._workers:
            worker.process.join()

    def kill(self) -> None:
        """End the workers, whatever they do."""
        for worker in self._workers:
            worker.process.kill()
        self.close()

    def _hand_out(self, waiting: deque[T]) -> None:
        for worker in [each for each in self._workers if each.ready and not each.working]:
            if waiting:
                worker.input, worker.working = waiting.popleft(), True
                with contextlib.suppress(OSError):  # it is dead: `_collect` notices
                    _send(worker.inputs, worker.input)
        starting = sum(not worker.ready for worker in self._workers)
        while len(waiting) > starting and len(self._workers) < self._most:
            try:
                self._workers.append(self._start())
            except _NO_PROCESSES:
                self._most = len(self._workers)
            starting += 1

    def _start(self) -> _Worker[T]:
        method = _start_method()
        context = multiprocessing.get_context(method)
        to_do, inputs = context.Pipe(duplex=False)
        results, done = context.Pipe(duplex=False)
        # A forked process holds our ends of all pipes, too, and would keep them open.
        known = [each for worker in self._workers for each in (worker.inputs, worker.results)]
        ours = [inputs, results, *known] if method == "fork" else []
        process = context.Process(  # type: ignore[attr-defined]
            target=_work, args=(to_do, done, ours, self._function, os.getcwd()), daemon=True
        )
        worker: _Worker[T] = _Worker(process, inputs, results)
        try:
            with to_do, done, _in_a_trusted_folder():
                process.start()
        except BaseException:
            worker.disconnect()
            raise
        return worker

    def _collect(self, timeout: float | None, waiting: deque[T]) -> Iterator[tuple[T, R | Died]]:
        by_pipe = {worker.results: worker for worker in self._workers}
        for pipe in wait(list(by_pipe), timeout):
            worker = by_pipe[pipe]  # type: ignore[index]
            try:
                message = _receive(worker.results)
            except (EOFError, OSError):
                died = self._bury(worker)
                if worker.working:
                    yield worker.input, died  # type: ignore[misc]
                elif not worker.ready:  # so would the next one
                    self._most = len(self._workers)
                continue
            if not worker.ready:
                worker.ready = True
                continue
            worker.working = False
            yield worker.input, _opened(message)  # type: ignore[misc]

    def _bury(self, worker: _Worker[T]) -> Died:
        self._workers.remove(worker)
        worker.disconnect()
        worker.process.join()
        return Died(worker.process.exitcode or 0)


def _send(pipe: Connection, what: Any) -> None:
    pipe.send_bytes(pickle.dumps(what))


def _receive(pipe: Connection) -> Any:
    """What was sent.

    `Connection.recv` opens it inside a buffer; Ctrl-C there leaves "BufferError: Existing exports of
    data" on the terminal (seen on Python 3.13).

    Raises:
        EOFError: the other end is closed.
        OSError: likewise.
    """
    return pickle.loads(pipe.recv_bytes())


def _opened(message: tuple[Any, str]) -> Any:
    """The result in a worker's message.

    Raises:
        Exception: the one that it holds.
    """
    result, trace = message
    if trace:
        raise result from WorkerTraceback(trace)
    return result


def _start_method() -> str:
    """ "fork" costs next to nothing, but is safe only for a single thread, and not on macOS."""
    if sys.platform == "linux" and threading.active_count() == 1:
        return "fork"
    return "spawn"


@contextlib.contextmanager
def _in_a_trusted_folder() -> Iterator[None]:
    """Stay in the standard library's folder while processes are started.

    `multiprocessing` starts them with `python -c`, which looks for modules in the working
    directory first: a `socket.py` of the checked project would be executed.
    """
    before = os.getcwd()
    os.chdir(os.path.dirname(os.__file__))
    try:
        yield
    finally:
        os.chdir(before)


# -- in the worker ---------------------------------------------------------------------------


def _work(
    to_do: Connection,
    done: Connection,
    others: Iterable[Connection],
    function: Callable[[Any], Any],
    folder: str,
) -> None:
    """Answer each input with its result until there are no more; `others` are not ours."""
    try:
        _begin(folder)
        for other in others:
            other.close()
        _send(done, None)
        while True:
            _send(done, _message(function, _receive(to_do)))
    except MemoryError:
        os._exit(_NO_MEMORY)
    except (EOFError, OSError):
        os._exit(_NO_PARENT)


def _message(function: Callable[[Any], Any], item: Any) -> tuple[Any, str]:
    _limit_time()
    try:
        return function(item), ""
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - it is raised again in the parent
        return error, traceback.format_exc()


def _begin(folder: str) -> None:
    """Prepare a new process: its relative paths start in `folder`, its imports never do.

    Ctrl-C reaches every process of the terminal; only the parent shall act on it.
    """
    sys.path[:] = [entry for entry in sys.path if entry]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    _end_with_parent()
    _limit_memory()
    collector.spare()
    os.chdir(folder)


def _end_with_parent() -> None:
    """Let the kernel end this process with its parent; elsewhere a thread watches for that."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        if ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) == 0:
            if os.getppid() != parent.pid:  # it was too late for that
                os._exit(_NO_PARENT)
            return
    with contextlib.suppress(RuntimeError):  # no thread left: the pipe is still watched
        threading.Thread(target=_watch, args=(parent.sentinel,), daemon=True).start()


def _watch(sentinel: int) -> None:
    wait([sentinel])
    os._exit(_NO_PARENT)


def _limit_memory() -> None:
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        if soft == resource.RLIM_INFINITY or soft > BYTES:
            resource.setrlimit(resource.RLIMIT_DATA, (BYTES, hard))


def _limit_time() -> None:
    """Allow the next input its share of processor time, counted from now."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        used = resource.getrusage(resource.RUSAGE_SELF)
        limit = int(used.ru_utime + used.ru_stime) + SECONDS
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        if hard == resource.RLIM_INFINITY or limit < hard:
            resource.setrlimit(resource.RLIMIT_CPU, (limit, hard))
