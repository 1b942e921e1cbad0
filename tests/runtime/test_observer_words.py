"""Every word of calls on real torch: the observer tells what the table says, at each update.

Each word runs under the hooks of `amplint run` with an optimizer of one parameter. What is right
is known without amplint: the weight has moved by a whole number of true gradients, or it has not.

    python -m tests.runtime.test_observer_words      # all words up to length 5, some minutes
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import count

import torch

from amplint.protocol import Event, Tracker
from amplint.runtime.hooks import Hooks, Switch
from amplint.runtime.objects import ScalerRecord
from amplint.runtime.observer import Observer
from amplint.runtime.places import Place, Territory
from amplint.runtime.sink import Finding
from amplint.selftest.scalar_torch import ScalarTorch
from amplint.selftest.side_by_side import (
    FIXED_SCALE_EVENTS,
    OF_THE_SCALER,
    TOLERANCE,
    Word,
    write,
)

#: All words are run up to this length, and of those that are longer by one, one in so many.
LENGTH, ONE_IN = 4, 17
#: Words whose mistake is a plain loop beside a scaler that never met its gradients.
INTENDED = {"bbOOO", "bbbOO"}
SCALER = "scaler"
#: Not of the table, but said by it: torch stops there.
_STEPS = (Event.STEP, Event.OPTIMIZER_STEP)


class Told:
    """A sink that keeps what it hears."""

    def __init__(self) -> None:
        self.slugs: list[str] = []

    def finding(self, found: Finding) -> None:
        self.slugs.append(found.slug)

    def reached(self, place: Place) -> None:
        """Not of interest here."""

    def round(self, scaler: ScalerRecord, skipped: bool | None) -> None:
        """Not of interest here."""

    def stepped(self) -> None:
        """Not of interest here."""


def _fail(error: BaseException) -> None:
    raise AssertionError("an error of the observer's own") from error


class Watched:
    """Torch under the hooks, for one word."""

    def __init__(self) -> None:
        self.told = Told()
        territory = Territory((), (str(__file__).rpartition("/")[0],))
        self._errors: list[BaseException] = []
        self.observer = Observer(self.told, territory)
        self._hooks = Hooks(self.observer, Switch(self._errors.append))
        self.torch = ScalarTorch()

    def close(self) -> None:
        self._hooks.undo()
        for error in self._errors:
            _fail(error)


def words(length: int, one_in: int = 1) -> Iterator[tuple[Word, set[str], set[str], bool]]:
    """Each accepted word with what was told, what the table says, and whether it is wrong.

    Args:
        one_in: of the words of the full length, one in so many.
    """
    pending: list[Word] = [()]
    longest = count()
    while pending:
        prefix = pending.pop()
        for event in FIXED_SCALE_EVENTS:
            word = (*prefix, event)
            if len(word) == length and next(longest) % one_in:
                continue
            told, foreseen, raised, wrong = run(word)
            yield word, told, foreseen, wrong
            if not raised and len(word) < length:
                pending.append(word)


def run(word: Word) -> tuple[set[str], set[str], bool, bool]:
    """Run a word: what is told, what the table says, whether torch raised, whether it is wrong."""
    watched, tracker, foreseen = Watched(), Tracker(), set()
    raised, before = None, 0.0
    try:
        for event in word:
            violation = tracker.apply(
                event, SCALER if event in OF_THE_SCALER else None, "optimizer"
            )
            if violation is not None and _is_somebodys(tracker, event):
                foreseen.add(violation.slug)
            before = watched.torch.weight()
            raised = watched.torch.apply(event)
    finally:
        watched.close()
    moved = raised is None and word[-1] in _STEPS and watched.torch.weight() != before
    return set(watched.told.slugs), foreseen, raised is not None, moved and _is_wrong(watched, word)


def _is_somebodys(tracker: Tracker, event: Event) -> bool:
    """A plain loop beside a scaler that never met its gradients breaks nothing."""
    return (
        event not in (Event.OPTIMIZER_STEP, Event.CLIP) or tracker.partner("optimizer") is not None
    )


def _is_wrong(watched: Watched, word: Word) -> bool:
    applied = abs(watched.torch.weight())
    is_whole = abs(applied - round(applied)) < TOLERANCE and 0.5 <= applied <= len(word)
    return not is_whole


class Tally:
    """What was told of many words."""

    def __init__(self, found: Iterable[tuple[Word, set[str], set[str], bool]]) -> None:
        self.words = self.wrong = 0
        self.differing: list[tuple[str, list[str], list[str]]] = []
        self.silent: set[str] = set()
        for word, told, foreseen, is_wrong in found:
            self.words += 1
            self.wrong += is_wrong
            if told != foreseen:
                self.differing.append((write(word), sorted(told), sorted(foreseen)))
            if is_wrong and not told:
                self.silent.add(write(word))


def test_every_word_is_told_as_the_table_says() -> None:
    torch.set_num_threads(1)
    told = Tally(words(LENGTH + 1, ONE_IN))
    assert told.wrong > 150
    assert (len(told.differing), told.differing[:20]) == (0, [])
    assert told.silent <= INTENDED


def main() -> None:
    """All words up to length 5."""
    torch.set_num_threads(1)
    start = time.process_time()
    told = Tally(words(LENGTH + 1))
    print(
        f"{told.words} words, {told.wrong} apply a wrong update, {len(told.differing)} are told "
        f"otherwise than the table says, not told: {sorted(told.silent)}; "
        f"{time.process_time() - start:.0f} s"
    )


if __name__ == "__main__":
    main()
