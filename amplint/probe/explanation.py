"""Whether the events of a run explain what it showed: the protocol, run over them again.

The worker's objects are real, but some of the values between them are invented. An exception
that the protocol does not predict from the events comes from there, not from the code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from amplint.probe.messages import Event
from amplint.protocol import Event as Word
from amplint.protocol import Gradient, Pair, Stage, Violation, advance
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

    Stages belong to a scaler and an optimizer, gradients to an optimizer alone. An event
    that names no scaler (a clip, a plain step) concerns the one that the optimizer was last
    used with.
    """
    replay = _Replay()
    found = []
    for index, event in enumerate(protocol_events(events)):
        for violation in replay.apply(event):
            found.append(Broken(violation.slug, event, index))
    return tuple(found)


class _Replay:
    """The typestates of all scalers and optimizers of a run."""

    def __init__(self) -> None:
        self._initialised: set[int] = set()
        self._gradients: dict[int, Gradient] = {}
        #: Stage, and whether an inf check is on record, of each (scaler, optimizer).
        self._stages: dict[tuple[int, int], tuple[Stage, bool]] = {}
        #: The scaler that an optimizer's gradients, or its last call, belong to.
        self._partner: dict[int, int] = {}

    def apply(self, event: Event) -> Iterator[Violation]:
        """Advance by one event; the rules that it breaks."""
        if event.kind == "backward":
            yield from self._backward(event)
            return
        word = _word(event)
        if word is None:
            return
        if word in UNINITIALISED and event.scaler not in self._initialised:
            yield VIOLATIONS[UNINITIALISED[word]]
        elif word is Word.SCALE:
            self._initialised.add(event.scaler)
        elif word is Word.UPDATE:
            yield from self._update(event.scaler)
        else:
            if event.scaler:
                self._partner[event.optimizer] = event.scaler
            yield from self._advance(event.optimizer, word, bool(event.facts.get("raised")))

    def _update(self, scaler: int) -> Iterator[Violation]:
        checked = any(c for (own, _), (_, c) in self._stages.items() if own == scaler)
        if not checked:
            yield VIOLATIONS[UNCHECKED[Word.UPDATE]]
            return
        for own, optimizer in list(self._stages):
            if own == scaler and self._partner.get(optimizer) == scaler:
                yield from self._advance(optimizer, Word.UPDATE)
            elif own == scaler:
                self._stages[own, optimizer] = (Stage.READY, False)

    def _backward(self, event: Event) -> Iterator[Violation]:
        if event.facts.get("raised"):
            return
        word = Word.SCALED_BACKWARD if event.facts.get("scaled") else Word.PLAIN_BACKWARD
        for optimizer in event.facts.get("optimizers", ()):
            if event.scaler:
                self._partner[optimizer] = event.scaler
            yield from self._advance(optimizer, word)

    def _advance(self, optimizer: int, word: Word, raised: bool = False) -> Iterator[Violation]:
        key = (self._partner.get(optimizer, 0), optimizer)
        stage, checked = self._stages.get(key, (Stage.READY, False))
        gradient = self._gradients.get(optimizer, Gradient.NONE)
        outcome = advance(Pair(stage, gradient, checked), word)
        if raised and not (outcome.violation and outcome.violation.raises):
            return  # for another reason than the protocol's: torch has left the stage as it was
        self._stages[key] = (outcome.pair.stage, outcome.pair.checked)
        self._gradients[optimizer] = outcome.pair.gradient
        if outcome.violation is not None:
            yield outcome.violation


def _word(event: Event) -> Word | None:
    if event.kind == "zero_grad":
        return Word.ZERO_GRAD_KEEP if event.facts.get("keep") else Word.ZERO_GRAD
    return _WORDS.get(event.kind)
