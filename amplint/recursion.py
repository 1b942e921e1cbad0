"""Room for recursion: Python compiles programs that nest deeper than it lets a function recurse."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: Calls inside each other. A level of a program takes about ten; Python compiles 3,000 levels.
_CALLS = 50_000
#: Bytes of the stack that they may need. Linux keeps 128 MiB free below the main thread's stack,
#: whatever its limit was at the start.
_STACK = 120 << 20


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
