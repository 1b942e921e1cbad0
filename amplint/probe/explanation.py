"""Whether the events of a run explain what it showed: the protocol, run over them again.

The worker's objects are real, but some of the values between them are invented. An exception
that the protocol does not predict from the events comes from there, not from the code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from amplint.probe.messages import Event
from amplint.protocol import Event as Word
from amplint.protocol import Pair, Violation, advance
from amplint.protocol.machine import UNCHECKED, UNINITIALISED
from amplint.protocol.violations import VIOLATIONS

_WORDS = {
    "scale": Word.SCALE,
    "unscale_": Word.UNSCALE,
    "step": Word.STEP,
    "update": Word.UPDATE,
    "clip": Word.CLIP,
    "plain-step": Word.OPTIMIZER_STEP,
}


@dataclass(frozen=True, slots=True)
class Broken:
    """A rule of the protocol that an event of a run breaks.

    Args:
        index: of the event among the protocol's events of the run.
    """

    slug: str
    event: Event
    index: int

    @property
    def violation(self) -> Violation:
        """What torch does about it."""
        return VIOLATIONS[self.slug]


def protocol_events(events: Iterable[Event]) -> tuple[Event, ...]:
    """The events that the protocol knows: entering a region or a forward is none."""
    kinds = {*_WORDS, "backward", "zero_grad"}
    return tuple(event for event in events if event.kind in kinds)


def broken_rules(events: Iterable[Event]) -> tuple[Broken, ...]:
    """Everything that the events of a run break, in order.

    Runs with several scalers are not judged, because which of them an optimizer belongs to
    is not in every event: nothing is explained then.
    """
    events = protocol_events(events)
    if len({event.scaler for event in events if event.scaler}) > 1:
        return ()
    replay = _Replay({event.optimizer for event in events if event.optimizer})
    found = []
    for index, event in enumerate(events):
        for violation in replay.apply(event):
            found.append(Broken(violation.slug, event, index))
    return tuple(found)


class _Replay:
    """The typestates of one scaler and all optimizers of a run."""

    def __init__(self, optimizers: set[int]) -> None:
        self.initialised = False
        self.pairs = {number: Pair() for number in sorted(optimizers)}

    def apply(self, event: Event) -> Iterator[Violation]:
        """Advance by one event; the rules that it breaks."""
        if event.kind == "backward":
            yield from self._backward(event)
            return
        word = _word(event)
        if word is None:
            return
        if word in UNINITIALISED and not self.initialised:
            yield VIOLATIONS[UNINITIALISED[word]]
            return
        if word is Word.UPDATE and not any(pair.checked for pair in self.pairs.values()):
            yield VIOLATIONS[UNCHECKED[word]]
            return
        if word is Word.SCALE:
            self.initialised = True
        concerned = [event.optimizer] if event.optimizer else list(self.pairs)
        for number in concerned:
            yield from self._advance(number, word)

    def _backward(self, event: Event) -> Iterator[Violation]:
        if event.facts.get("raised"):
            return
        word = Word.SCALED_BACKWARD if event.facts.get("scaled") else Word.PLAIN_BACKWARD
        for number in event.facts.get("optimizers", list(self.pairs)):
            yield from self._advance(number, word)

    def _advance(self, number: int, word: Word) -> Iterator[Violation]:
        outcome = advance(self.pairs.get(number, Pair()), word)
        self.pairs[number] = outcome.pair
        if outcome.violation is not None:
            yield outcome.violation


def _word(event: Event) -> Word | None:
    if event.kind == "zero_grad":
        return Word.ZERO_GRAD_KEEP if event.facts.get("keep") else Word.ZERO_GRAD
    return _WORDS.get(event.kind)
