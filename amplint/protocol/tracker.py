"""The one concrete runner of the transition table: real scalers, optimizers and gradients.

The monitor tells it what happens while a program runs, the probe what did happen in a run,
and the tests every word of events that torch gets as well.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import cache
from typing import NamedTuple, TypeAlias

from amplint.protocol.states import ABSENT, Event, Gradient, Pair, Stage
from amplint.protocol.table import UNCHECKED, UNINITIALISED, advance
from amplint.protocol.violations import VIOLATIONS, Violation

#: Events that move every optimizer of a scaler.
_UPDATES = (Event.UPDATE, Event.SET_SCALE)


#: A stage, and whether an inf check is on record.
_Checked: TypeAlias = tuple[Stage, bool]
_FRESH: _Checked = (Stage.READY, False)


class Saved(NamedTuple):
    """One scaler with one optimizer, as they were before an event."""

    scaler: Hashable
    optimizer: Hashable
    gradient: Gradient | None
    stage: _Checked
    partner: Hashable


class Snapshot(NamedTuple):
    """Everything that a `Tracker` knows; `Tracker.restore` takes it."""

    initialised: frozenset[Hashable]
    gradients: dict[Hashable, Gradient | None]
    stages: dict[Hashable, dict[Hashable, _Checked]]
    partners: dict[Hashable, Hashable]
    shared: dict[Hashable, Hashable]


@cache
def _outcome(
    stage: _Checked, gradient: Gradient | None, event: Event
) -> tuple[_Checked, Gradient | None, Violation | None]:
    """`advance`, asked without a new `Pair`: to make and to hash one costs more than an event."""
    following, violation = advance(Pair(stage[0], gradient, stage[1]), event)
    return (following.stage, following.checked), following.gradient, violation


class Tracker:
    """The typestates of any number of scalers and optimizers, which are any hashable keys.

    Stages belong to a scaler and an optimizer, as in torch; gradients to an optimizer alone,
    unless `share` says that two hold the same. Events raise nothing: a broken rule is returned,
    and a raising one leaves everything as torch leaves it.
    """

    def __init__(self) -> None:
        self.restore(Snapshot(frozenset(), {}, {}, {}, {}))

    def snapshot(self) -> Snapshot:
        """A copy of all states, for `restore`."""
        return Snapshot(
            frozenset(self._initialised),
            dict(self._gradients),
            {scaler: dict(stages) for scaler, stages in self._stages.items()},
            dict(self._partners),
            dict(self._shared),
        )

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to what was known when the snapshot was taken."""
        self._initialised = set(snapshot.initialised)
        #: Of an optimizer that is not here yet, no gradient exists.
        self._gradients = dict(snapshot.gradients)
        #: By scaler and optimizer.
        self._stages = {scaler: dict(stages) for scaler, stages in snapshot.stages.items()}
        #: The scaler that last scaled gradients of an optimizer, or was called with it.
        self._partners = dict(snapshot.partners)
        self._shared = dict(snapshot.shared)

    def is_initialised(self, scaler: Hashable) -> bool:
        """Whether a scaler has ever scaled anything."""
        return scaler in self._initialised

    def partner(self, optimizer: Hashable) -> Hashable | None:
        """The scaler that an optimizer was last used with, None for none."""
        return self._partners.get(self._key(optimizer))

    def gradient(self, optimizer: Hashable) -> Gradient | None:
        """The tag of an optimizer's gradients, None where nobody knows what they hold."""
        return self._gradients.get(self._shared.get(optimizer, optimizer), Gradient.NONE)

    def pair(self, optimizer: Hashable, scaler: Hashable | None = None) -> Pair:
        """The state of an optimizer with a scaler; None for the one it was last used with."""
        partner = self.partner(optimizer) if scaler is None else scaler
        stage, checked = self._stage(partner, optimizer)
        return Pair(stage, self.gradient(optimizer), checked)

    def share(self, optimizer: Hashable, gradients: Hashable) -> None:
        """The gradients of an optimizer are from now on those that go by the name `gradients`."""
        self._shared[optimizer] = gradients

    def forget(self, optimizer: Hashable) -> None:
        """Nobody knows any more what the gradients of an optimizer hold."""
        self._gradients[self._key(optimizer)] = None

    def saved(self, scaler: Hashable, optimizer: Hashable) -> Saved:
        """What an event of this scaler and this optimizer may change, for `put_back`."""
        key = self._shared.get(optimizer, optimizer)
        gradient = self._gradients.get(key, Gradient.NONE)
        stage = self._stage(scaler, optimizer)
        return Saved(scaler, optimizer, gradient, stage, self._partners.get(key))

    def put_back(self, saved: Saved) -> None:
        """The event has not happened after all: torch refused it for a reason of its own."""
        key = self._key(saved.optimizer)
        self._gradients[key] = saved.gradient
        self._stages.setdefault(saved.scaler, {})[saved.optimizer] = saved.stage
        self._partners[key] = saved.partner

    def _stage(self, scaler: Hashable, optimizer: Hashable) -> _Checked:
        return self._stages.get(scaler, {}).get(optimizer, _FRESH)

    def _key(self, optimizer: Hashable) -> Hashable:
        return self._shared.get(optimizer, optimizer)

    def apply(
        self, event: Event, scaler: Hashable | None = None, *optimizers: Hashable
    ) -> Violation | None:
        """Apply one event; returns the first rule that it breaks, None for none.

        Args:
            scaler: whose event it is; None for a plain backward and for what the code does
                without a scaler.
            optimizers: whose gradients it is about, of a backward all that it feeds; events of
                the whole scaler need none.
        """
        if event in UNINITIALISED and scaler not in self._initialised:
            return VIOLATIONS[UNINITIALISED[event]]
        if event in (Event.SCALE, Event.SCALED_BACKWARD):
            self._initialised.add(scaler)
        if event is Event.SCALE:
            return None
        if event in _UPDATES:
            return self._update(event, scaler)
        first = None
        for optimizer in optimizers:
            violation = self._advance(event, scaler, optimizer)
            first = first or violation
        return first

    def observe(self, optimizer: Hashable, *, present: bool) -> bool:
        """Follow gradients that were set or dropped without an event.

        Args:
            present: whether any parameter of the optimizer has a gradient now.

        Returns: whether they were dropped.
        """
        key = self._shared.get(optimizer, optimizer)
        is_absent = self._gradients.get(key, Gradient.NONE) in ABSENT
        if present and is_absent:
            self._gradients[key] = None
        if present or is_absent:
            return False
        self._advance(Event.ZERO_GRAD, None, optimizer)
        return True

    def _update(self, event: Event, scaler: Hashable) -> Violation | None:
        stages = self._stages.get(scaler, {})
        mine = list(stages.items())
        if event is Event.UPDATE and not any(is_checked for _, (_, is_checked) in mine):
            return VIOLATIONS[UNCHECKED[event]]
        for optimizer, stage in mine:
            key = self._shared.get(optimizer, optimizer)
            gradient = self._gradients.get(key, Gradient.NONE)
            stages[optimizer], following, _ = _outcome(stage, gradient, event)
            # Gradients that another scaler has multiplied do not get stale by this update.
            if self._partners.get(key) == scaler:
                self._gradients[key] = following
        return None

    def _advance(
        self, event: Event, scaler: Hashable | None, optimizer: Hashable
    ) -> Violation | None:
        key = self._shared.get(optimizer, optimizer)
        if scaler is None:
            scaler = self._partners.get(key)
        else:
            self._partners[key] = scaler
        stages = self._stages.setdefault(scaler, {}) if scaler is not None else {}
        gradient = self._gradients.get(key, Gradient.NONE)
        stage, following, violation = _outcome(stages.get(optimizer, _FRESH), gradient, event)
        stages[optimizer], self._gradients[key] = stage, following
        return violation


__all__ = ["Saved", "Snapshot", "Tracker"]
