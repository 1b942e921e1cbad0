"""What a caller unpacks is read from its bytecode, whatever this Python's looks like."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from amplint.probe.worker.arity import unpacked


class Asked:
    """Gives as many values as the caller wants, and remembers how many."""

    wanted: int | None = 0

    def __iter__(self) -> Iterator[int]:
        self.wanted = unpacked(sys._getframe(1))
        return iter(range(self.wanted or 0))


def test_counts() -> None:
    asked = Asked()
    a, b, c = asked
    assert (a, b, c, asked.wanted) == (0, 1, 2, 3)
    a, *rest = asked
    assert (asked.wanted, rest) == (2, [1])
    a, *rest, b, c = asked
    assert (asked.wanted, rest, c) == (4, [1], 3)
    for a, (b, c) in [(1, asked)]:
        assert (a, asked.wanted) == (1, 2)


def test_no_unpacking() -> None:
    asked = Asked()
    assert list(asked) == []
    assert asked.wanted is None
    assert [value for value in asked] == []
    assert asked.wanted is None
    assert unpacked(None) is None
