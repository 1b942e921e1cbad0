"""Whether the events of a run explain what it showed: the protocol, run over them again.

The worker's objects are real, but some of the values between them are invented. An exception
that the protocol does not predict from the events comes from there, not from the code.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from amplint.probe.messages import Event
from amplint.protocol import VIOLATIONS, Tracker, Violation
from amplint.protocol import Event as Word

_WORDS = {
    "scale": Word.SCALE,
    "unscale_": Word.UNSCALE,
    "step": Word.STEP,
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
    kinds = {*_WORDS, "backward", "update", "zero_grad"}
    return tuple(event for event in events if event.kind in kinds)


def broken_rules(events: Iterable[Event]) -> tuple[Broken, ...]:
    """Everything that the events of a run break, in order.

    An event that names no scaler (a plain step) concerns the one that the optimizer was last used
    with.
    """
    tracker = Tracker()
    found = []
    for index, event in enumerate(protocol_events(events)):
        for violation in _apply(event, tracker):
            found.append(Broken(violation.slug, event, index))
    return tuple(found)


def _apply(event: Event, tracker: Tracker) -> tuple[Violation, ...]:
    """Tell a tracker what happened; the rules that it breaks, one for each optimizer."""
    optimizers = (
        event.facts.get("optimizers", ()) if event.kind == "backward" else (event.optimizer,)
    )
    if "gradients" in event.facts:
        tracker.observe(event.optimizer, present=event.facts["gradients"] > 0)
    before, word, scaler = tracker.snapshot(), _word(event), event.scaler or None
    broken = tuple(filter(None, [tracker.apply(word, scaler, number) for number in optimizers]))
    if event.facts.get("raised") and not any(violation.raises for violation in broken):
        # For another reason than the protocol's: torch has left everything as it was.
        tracker.restore(before)
        return ()
    return broken


def _word(event: Event) -> Word:
    facts = event.facts
    if event.kind == "backward":
        return Word.SCALED_BACKWARD if facts.get("scaled") else Word.PLAIN_BACKWARD
    if event.kind == "zero_grad":
        return Word.ZERO_GRAD_KEEP if facts.get("keep") else Word.ZERO_GRAD
    if event.kind == "update":
        return Word.SET_SCALE if facts.get("new-scale") else Word.UPDATE
    return _WORDS[event.kind]
