"""Run a function over many inputs in several processes, and survive one that dies.

A worker that is killed (a native crash, no memory left) breaks the whole
`ProcessPoolExecutor`: every unfinished input fails, whichever was to blame. They are run
again, one at a time, so that only the input in flight at the second death is lost.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, as_completed
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Died(Exception):
    """The worker process died while it worked on an input."""


def available_processors() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run(
    function: Callable[[T], R], inputs: Sequence[T], processes: int
) -> Iterator[tuple[T, R | Died]]:
    """Yield each input with its result, or with `Died`, in order of completion.

    Args:
        function: of a module's top level; it should not raise.
        inputs: picklable values.
        processes: how many at once; where no process can be started, the work is done here.
    """
    finished: set[int] = set()
    for index, result in _all_at_once(function, inputs, processes):
        finished.add(index)
        yield inputs[index], result
    rest = [item for index, item in enumerate(inputs) if index not in finished]
    if not rest:
        return
    if _can_start_processes():
        yield from _one_at_a_time(function, rest)
    else:
        yield from ((item, function(item)) for item in rest)


def _all_at_once(
    function: Callable[[T], R], inputs: Sequence[T], processes: int
) -> Iterator[tuple[int, R]]:
    """Results of a shared pool; those that a dead worker took along are missing."""
    try:
        pool = _pool(processes)
    except (OSError, NotImplementedError, ImportError):  # no semaphores on this platform
        return
    try:
        futures = {pool.submit(function, item): index for index, item in enumerate(inputs)}
        for future in as_completed(futures):
            yield futures[future], future.result()
    except BrokenExecutor:
        return
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _one_at_a_time(function: Callable[[T], R], inputs: Sequence[T]) -> Iterator[tuple[T, R | Died]]:
    pool = _pool(1)
    try:
        for item in inputs:
            try:
                result: R | Died = pool.submit(function, item).result()
            except BrokenExecutor:
                pool.shutdown(wait=False)
                pool = _pool(1)
                result = Died()
            yield item, result
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _can_start_processes() -> bool:
    """Whether an idle worker survives; it does not where `__main__` is no importable script."""
    try:
        with _pool(1) as pool:
            return pool.submit(available_processors).result() > 0
    except (BrokenExecutor, OSError, NotImplementedError, ImportError):
        return False


def _pool(processes: int) -> ProcessPoolExecutor:
    # "fork" is not safe where the caller has threads (a language server).
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context = multiprocessing.get_context(method)
    return ProcessPoolExecutor(processes, mp_context=context, initializer=_leave_interrupts)


def _leave_interrupts() -> None:
    """Ctrl-C reaches every process of the terminal; only the parent shall act on it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
