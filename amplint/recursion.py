"""Room for recursion: Python compiles programs that nest deeper than it lets a function recurse."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FunctionType
from typing import TypeVar

T = TypeVar("T")

#: Calls inside each other. A level of a program takes about ten; Python compiles 3,000 levels.
_CALLS = 50_000
#: Bytes of the stack that they may need. Linux keeps 128 MiB free below the main thread's stack,
#: whatever its limit was at the start.
_STACK = 120 << 20
#: Words on the stack of one frame, a little more than 1 MiB: Python makes 2 MiB of them.
_WORDS = (1 << 17) + 64


def with_room(function: Callable[[], T]) -> T:
    """Call a function so that it may recurse deeply, where the stack can grow.

    Raises:
        RecursionError: there is not room enough, or none.
    """
    if sys.platform != "linux" or threading.current_thread() is not threading.main_thread():
        raise RecursionError("the stack of this thread cannot grow")
    import resource

    if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
        raise RecursionError("the stack may not grow")
    before, calls = resource.getrlimit(resource.RLIMIT_STACK), sys.getrecursionlimit()
    if before[1] != resource.RLIM_INFINITY and before[1] < _STACK:
        raise RecursionError("the stack may not grow")
    try:
        resource.setrlimit(resource.RLIMIT_STACK, (_STACK, before[1]))
        sys.setrecursionlimit(max(calls, _CALLS))
        return function()
    finally:
        sys.setrecursionlimit(calls)
        resource.setrlimit(resource.RLIMIT_STACK, before)


def with_frames_at_hand(function: Callable[[], T]) -> T:
    """Call a function whose calls find room for their frames without asking the system.

    CPython keeps frames in chunks of 16 KiB. It maps the next one when a call needs it and unmaps it
    when that call returns (Python/pystate.c, `push_chunk` and `_PyThreadState_PopFrame`, since 3.11):
    a loop just below such a border asks the system at each call, and a third of the processor time of
    a check went there. A chunk is as large as its first frame, rounded up to a power of two, and what
    that leaves is for the others; memory that no frame touches is never taken.
    """

    def call() -> T:
        return function()

    code = call.__code__.replace(co_stacksize=_WORDS)
    with_room: Callable[[], T] = FunctionType(code, globals(), closure=call.__closure__)
    return with_room()
