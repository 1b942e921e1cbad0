"""How much work one checked file may cause.

Counted in visits (statements times the states that reach them), never by the clock: the same
file ends at the same place on any machine, with any number of jobs and in any order of files.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from amplint.code.module import Function

#: So many visits may be spent for one checked file: on its own functions, on those of other
#: files that they call, and on the callers and subclasses that are asked about a finding.
FILE_LIMIT = 24_000
#: A short file has fewer, so that its cost grows with its length: these, and so many for a line. Of
#: 1,114 files of training code one needed more than this and less than `FILE_LIMIT` (2026-11-28).
LEAST, PER_LINE = 3_000, 40
#: So many more may be spent on following the paths of its findings once more
#: (`flow/feasibility.py`), however many findings there are and however short it is.
AGAIN_LIMIT = 12_000


def limit_of(lines: int) -> int:
    """How many visits a file of so many lines may cause."""
    return min(FILE_LIMIT, LEAST + PER_LINE * lines)


class BudgetExceeded(Exception):
    """What was begun is too large to be followed to its end."""


class BesideBudgetExceeded(Exception):
    """The functions without events that an entry calls are too large."""


class Cost(NamedTuple):
    """What has been spent on an entry, or on a part of it.

    Args:
        visits: all of them.
        beside: of these the visits of functions without events.
    """

    visits: int
    beside: int

    def since(self, before: Cost) -> Cost:
        """What has been spent since."""
        return Cost(self.visits - before.visits, self.beside - before.beside)


class Budget:
    """The visits of one checked file.

    Args:
        limit: how many there are.

    Attributes:
        spent: visits until now.
    """

    def __init__(self, limit: int) -> None:
        self.spent = 0
        self._limit = limit

    def spend(self, visits: int) -> None:
        """Count visits.

        Raises:
            BudgetExceeded: there are no more left for the file.
        """
        self.spent += visits
        if self.is_spent:
            raise BudgetExceeded

    @property
    def is_spent(self) -> bool:
        """Whether the file's work ended before its end."""
        return self.spent > self._limit


class Work:
    """What following one checked file has cost, and what was left half-way for that.

    Args:
        visits: how many there are.

    Attributes:
        budget: what the checked file may still cost.
        unfinished: functions that were begun, and were not followed to their end.
        cuts: how often that happened, or an answer rested on it.
        endless: functions without events that were too large for one entry: no other begins them.
    """

    def __init__(self, visits: int) -> None:
        self.budget = Budget(visits)
        self._apart = Budget(AGAIN_LIMIT)
        self.unfinished: set[Function] = set()
        self.cuts = 0
        self.endless: set[Function] = set()

    @contextmanager
    def beside(self) -> Iterator[None]:
        """A context with the budget of what is followed again: it takes none from the rest."""
        kept, self.budget = self.budget, self._apart
        try:
            yield
        finally:
            self.budget = kept

    def leave(self, function: Function) -> None:
        """Note that a function is left half-way: silence about the rest means nothing."""
        self.unfinished.add(function)
        self.cuts += 1
