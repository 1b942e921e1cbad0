"""The tracker and torch side by side: single events, and every event word up to a length."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from amplint.protocol import Event, Gradient, Tracker, Violation
from amplint.protocol.states import ABSENT
from amplint.selftest.scalar_torch import INIT_SCALE, ScalarTorch

EVERY_EVENT = tuple(Event)
#: Words of these keep the initial scale of 65536: no update() grows or backs it off.
FIXED_SCALE_EVENTS = tuple(event for event in Event if event is not Event.SET_SCALE)
NEW_SCALE = 128.0
LETTERS = {
    "S": Event.SCALE,
    "B": Event.SCALED_BACKWARD,
    "b": Event.PLAIN_BACKWARD,
    "U": Event.UNSCALE,
    "T": Event.STEP,
    "P": Event.UPDATE,
    "N": Event.SET_SCALE,
    "Z": Event.ZERO_GRAD,
    "0": Event.ZERO_GRAD_KEEP,
    "C": Event.CLIP,
    "O": Event.OPTIMIZER_STEP,
}
TOLERANCE = 1e-3
#: The only scaler; and what the code does with it, or with a loss that it has scaled.
SCALER = "scaler"
OF_THE_SCALER = frozenset(
    {
        *(Event.SCALE, Event.SCALED_BACKWARD, Event.UNSCALE),
        *(Event.STEP, Event.UPDATE, Event.SET_SCALE),
    }
)
BACKWARDS = frozenset({Event.SCALED_BACKWARD, Event.PLAIN_BACKWARD})

Word = tuple[Event, ...]


def read(letters: str) -> Word:
    """`read("BTP")` is the word scaled backward, step, update."""
    return tuple(LETTERS[letter] for letter in letters)


def write(word: Word) -> str:
    """The inverse of `read`."""
    names = {event: letter for letter, event in LETTERS.items()}
    return "".join(names[event] for event in word)


@dataclass(frozen=True)
class Reaction:
    """What one event did on both sides."""

    violation: Violation | None
    raised: tuple[str, str] | None
    differences: tuple[str, ...]


class Rig:
    """The tracker, a real scaler, and the same program with a disabled scaler."""

    def __init__(
        self, optimizers: tuple[Hashable, ...] = ("optimizer",), device: str = "cpu"
    ) -> None:
        self.optimizers = optimizers
        self.tracker = Tracker()
        self.torch = ScalarTorch(optimizers, device=device)
        self.without_amp = ScalarTorch(optimizers, enabled=False, device=device)

    def apply(
        self, event: Event, key: Hashable = "optimizer", new_scale: float = INIT_SCALE
    ) -> Reaction:
        """Apply one event to all three and compare the tracker with the real scaler."""
        raised = self.torch.apply(event, key, new_scale)
        scaler = SCALER if event in OF_THE_SCALER else None
        fed = self.optimizers if event in BACKWARDS else (key,)
        violation = self.tracker.apply(event, scaler, *fed)
        if raised is None:
            self.without_amp.apply(event, key, new_scale)
        return Reaction(violation, raised, tuple(self._differences(violation, raised)))

    def _differences(
        self, violation: Violation | None, raised: tuple[str, str] | None
    ) -> list[str]:
        predicted = None
        if violation is not None and violation.raises:
            predicted = violation.exception, violation.error
        compared: dict[str, tuple[object, object]] = {
            "raises": (predicted, raised),
            "initialised": (self.tracker.is_initialised(SCALER), self.torch.initialised),
        }
        for key in self.optimizers:
            pair = self.tracker.pair(key, SCALER)
            observed = self.torch.observe(key)
            gradient = observed.gradient
            compared |= {
                f"stage of {key}": (pair.stage.name, observed.stage),
                f"checked of {key}": (pair.checked, observed.checked),
                f"absence of the gradient of {key}": (pair.gradient in ABSENT, gradient is None),
                f"zero gradient of {key}": (pair.gradient is Gradient.ZERO, gradient == 0),
            }
        return [
            f"{what}: tracker {ours!r}, torch {theirs!r}"
            for what, (ours, theirs) in compared.items()
            if ours != theirs
        ]

    def snapshot(self) -> tuple[Any, ...]:
        return self.tracker.snapshot(), self.torch.snapshot(), self.without_amp.snapshot()

    def restore(self, snapshot: tuple[Any, ...]) -> None:
        tracker_state, torch_state, without_amp_state = snapshot
        self.tracker.restore(tracker_state)
        self.torch.restore(torch_state)
        self.without_amp.restore(without_amp_state)


@dataclass(frozen=True)
class Update:
    """An accepted word whose last event is a step of the optimizer.

    Args:
        weight: change of the weight since the start; an applied true gradient is -1.
        without_amp: the same with a disabled scaler, which is what AMP has to reproduce.
        slugs: the rules that the tracker saw broken along the word, in order.
    """

    word: Word
    weight: float
    without_amp: float
    slugs: tuple[str, ...]

    @property
    def is_whole(self) -> bool:
        """Whether the change is a whole number of true gradients, 1 to the word's length."""
        applied = abs(self.weight)
        near_whole = abs(applied - round(applied)) < TOLERANCE
        return near_whole and 0.5 <= applied <= len(self.word)

    @property
    def is_same_without_amp(self) -> bool:
        difference = abs(self.weight - self.without_amp)
        return difference < TOLERANCE * max(1.0, abs(self.without_amp))


@dataclass
class Tally:
    """What the words with one first event showed."""

    words: int = 0
    differences: list[str] = field(default_factory=list)
    raised: Counter[tuple[str, str]] = field(default_factory=Counter)
    updates: list[Update] = field(default_factory=list)


class Walk:
    """Depth-first over the words; the rig is rewound to the prefix that words share."""

    def __init__(self, length: int, alphabet: Word, device: str = "cpu") -> None:
        self.length = length
        self.alphabet = alphabet
        self.tally = Tally()
        self.rig = Rig(device=device)

    def extend(self, prefix: Word, slugs: tuple[str, ...], events: Word) -> None:
        before = self.rig.snapshot()
        for event in events:
            self.rig.restore(before)
            self._visit((*prefix, event), slugs)

    def _visit(self, word: Word, slugs: tuple[str, ...]) -> None:
        reaction = self.rig.apply(word[-1], new_scale=NEW_SCALE)
        if reaction.violation is not None:
            slugs = (*slugs, reaction.violation.slug)
        self.tally.words += 1
        for text in (*reaction.differences, *self._untrue_tag(slugs)):
            self.tally.differences.append(f"{write(word)}: {text}")
        if reaction.raised is not None:
            self.tally.raised[reaction.raised] += 1
            return
        if word[-1] in (Event.STEP, Event.OPTIMIZER_STEP):
            self.tally.updates.append(last_update(self.rig, word, slugs))
        if len(word) < self.length:
            self.extend(word, slugs, self.alphabet)

    def _untrue_tag(self, slugs: tuple[str, ...]) -> list[str]:
        """A tag that does not describe the gradient, in a word that broke no rule."""
        tag = self.rig.tracker.pair("optimizer").gradient
        gradient = self.rig.torch.observe().gradient
        if slugs or describes(tag, gradient):
            return []
        return [f"{tag} is said of a gradient of {gradient}"]


def describes(tag: Gradient | None, gradient: float | None) -> bool:
    """Whether `tag` fits a gradient to which each backward adds 1, or a loss scale."""
    if not gradient:
        return tag in ABSENT if gradient is None else tag is Gradient.ZERO
    if tag in (Gradient.SCALED, Gradient.STALE):
        return gradient % NEW_SCALE == 0  # which divides the initial scale too
    if tag in (Gradient.MIXED, Gradient.PILED):
        return gradient > NEW_SCALE and gradient % NEW_SCALE > 0.5
    on_its_own_scale = (Gradient.UNSCALED, Gradient.PLAIN, Gradient.SPENT, Gradient.LEFTOVER)
    is_whole = abs(gradient - round(gradient)) < TOLERANCE
    return tag in on_its_own_scale and is_whole and 0.5 < gradient < NEW_SCALE


def last_update(rig: Rig, word: Word, slugs: tuple[str, ...]) -> Update:
    """Read the result of a word off the rig that has just run it."""
    return Update(word, rig.torch.weight(), rig.without_amp.weight(), slugs)


@cache
def walk(
    first: Event, length: int, alphabet: Word = FIXED_SCALE_EVENTS, device: str = "cpu"
) -> Tally:
    """Run every word over `alphabet` of up to `length` events that starts with `first`."""
    words = Walk(length, alphabet, device)
    words.extend((), (), (first,))
    return words.tally


def run(word: Word) -> tuple[Update, tuple[str, ...]]:
    """Run one word; return its result and every difference on the way."""
    rig = Rig()
    reactions = [rig.apply(event, new_scale=NEW_SCALE) for event in word]
    slugs = tuple(r.violation.slug for r in reactions if r.violation is not None)
    differences = tuple(text for r in reactions for text in r.differences)
    return last_update(rig, word, slugs), differences
