"""Run a function over many inputs in several processes, and survive one that dies.

A worker that is killed (a native crash, no memory left) breaks the whole
`ProcessPoolExecutor`: every unfinished input fails, whichever was to blame. They are run
again, one at a time, so that only the input in flight at the second death is lost.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor, as_completed
from typing import TypeVar

from amplint import collector

T = TypeVar("T")
R = TypeVar("R")

#: What a platform raises that has no semaphores, or a folder that is gone.
_NO_PROCESSES = (BrokenExecutor, OSError, NotImplementedError, ImportError)


class Died(Exception):
    """The worker process died while it worked on an input."""


def available_processors() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run(
    function: Callable[[T], R], inputs: Iterable[T], processes: int
) -> Iterator[tuple[T, R | Died]]:
    """Yield each input with its result, or with `Died`, in order of completion.

    The first inputs are worked on while the others are still being made.

    Args:
        function: of a module's top level.
        inputs: picklable values.
        processes: how many at once; where none can be started, the work is done here.

    Raises:
        Exception: whatever `function` or the making of `inputs` raises.
    """
    remaining = iter(inputs)
    taken: list[T] = []
    finished: set[int] = set()
    for index, result in _all_at_once(function, _keeping(remaining, taken), processes):
        finished.add(index)
        yield taken[index], result
    taken += remaining
    rest = [item for index, item in enumerate(taken) if index not in finished]
    if not rest:
        return
    if _can_start_processes():
        yield from _one_at_a_time(function, rest)
    else:
        yield from ((item, function(item)) for item in rest)


def _keeping(items: Iterator[T], taken: list[T]) -> Iterator[T]:
    for item in items:
        taken.append(item)
        yield item


def _all_at_once(
    function: Callable[[T], R], inputs: Iterable[T], processes: int
) -> Iterator[tuple[int, R]]:
    """Results of a shared pool; those that a dead worker took along are missing."""
    others = set(multiprocessing.active_children())
    try:
        pool = _open(processes)
    except _NO_PROCESSES:
        return
    try:
        index_of = _submit(pool, function, inputs)
        for future in as_completed(index_of):
            if not isinstance(future.exception(), BrokenExecutor):
                yield index_of[future], future.result()
    except BaseException:  # an interrupt, too, must not wait for what is still running
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in set(multiprocessing.active_children()) - others:
            worker.terminate()
        raise
    pool.shutdown()


def _one_at_a_time(function: Callable[[T], R], inputs: Sequence[T]) -> Iterator[tuple[T, R | Died]]:
    rest = list(inputs)
    while rest:
        finished: set[int] = set()
        for index, result in _all_at_once(function, rest, 1):
            finished.add(index)
            yield rest[index], result
        missing = [item for index, item in enumerate(rest) if index not in finished]
        if missing:
            # A single worker takes the inputs in their order: it died at the first missing.
            yield missing[0], Died()
        rest = missing[1:]


def _can_start_processes() -> bool:
    """Whether an idle worker survives; it does not where `__main__` is no importable script."""
    return list(_all_at_once(abs, [-1], 1)) == [(0, 1)]


def _open(processes: int) -> ProcessPoolExecutor:
    context = multiprocessing.get_context(_start_method())
    return ProcessPoolExecutor(
        processes, mp_context=context, initializer=_begin, initargs=(os.getcwd(),)
    )


def _submit(
    pool: ProcessPoolExecutor, function: Callable[[T], R], inputs: Iterable[T]
) -> dict[Future[R], int]:
    """The futures, each with the index of its input; what a broken pool refuses has none."""
    index_of = {}
    for index, item in enumerate(inputs):
        with contextlib.suppress(*_NO_PROCESSES), _in_a_trusted_folder():
            index_of[pool.submit(function, item)] = index
    return index_of


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


def _begin(folder: str) -> None:
    """Prepare a new process: its relative paths start in `folder`, its imports never do.

    Ctrl-C reaches every process of the terminal; only the parent shall act on it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    collector.spare()
    sys.path[:] = [entry for entry in sys.path if entry]
    os.chdir(folder)
