"""Room for recursion: what Python asks the system for it."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable

import pytest

from amplint.recursion import with_frames_at_hand

DEPTH, CALLS = 600, 100


def leaf() -> None:
    """A call that needs room for one frame."""


def down(depth: int) -> None:
    """At each depth, calls that return at once: at the border of a chunk each needs the next one."""
    for _ in range(CALLS):
        leaf()
    if depth:
        down(depth - 1)


def faults_of(function: Callable[[], None]) -> int:
    """How many pages the system had to give this process meanwhile."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    function()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def dive() -> None:
    down(DEPTH)


@pytest.mark.skipif(
    sys.platform != "linux" or sys.version_info < (3, 11), reason="frames lie in chunks since 3.11"
)
def test_frames_need_no_pages_from_the_system_at_each_call() -> None:
    with_frames_at_hand(dive)  # the first time touches the pages that it keeps
    plain, at_hand = faults_of(dive), faults_of(lambda: with_frames_at_hand(dive))
    assert plain > 2 * CALLS
    assert at_hand < plain / 3


def test_gives_back_what_the_function_gives() -> None:
    assert with_frames_at_hand(lambda: 7) == 7


def test_an_error_comes_through() -> None:
    with pytest.raises(ZeroDivisionError):
        with_frames_at_hand(lambda: 1 // 0)
