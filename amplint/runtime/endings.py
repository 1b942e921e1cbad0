"""What can only be said once a program has ended: steps that never came, and what it ended at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import torch

from amplint.runtime.objects import OptimizerRecord, ScalerRecord
from amplint.runtime.places import NOWHERE, Place

#: Updates without a step after which it is no coincidence; after so many it is told at once.
_SOME, _MANY = 3, 20

#: Tells a finding: slug, place and scaler, and more by name.
Report = Callable[..., None]


@dataclass(slots=True)
class _Idle:
    """An optimizer whose gradients are unscaled, and which has never stepped with any.

    Args:
        place: where they were unscaled first.
        weights: a few of the weights by then.
        rounds: updates since, of gradients that were finite.
        is_waiting: unscaled since the last update.
        is_still: the weights were the same when they were compared last.
        empty: the last step that found no gradient, because they were cleared.
    """

    scaler: ScalerRecord
    place: Place
    weights: torch.Tensor | None
    rounds: int = 0
    is_waiting: bool = True
    is_still: bool = False
    empty: Place = NOWHERE


class Endings:
    """Told about unscaled gradients and updates; asked when the program has ended."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._idle: dict[OptimizerRecord, _Idle] = {}

    def forget(self) -> None:
        """A forked process: it is its parent that goes on."""
        self._idle.clear()

    def unscaled(self, record: ScalerRecord, known: OptimizerRecord, place: Place) -> None:
        """`unscale_` of an optimizer has ended; of one that has stepped nothing is to be said."""
        if known.steps or known.set is None:
            return
        idle = self._idle.get(known)
        if idle is None:
            self._idle[known] = _Idle(record, place, known.set.few_weights())
        else:
            idle.is_waiting = True

    def stepped_without_gradients(self, known: OptimizerRecord, place: Place) -> None:
        """A step of an optimizer has found none, and moved nothing."""
        idle = self._idle.get(known)
        if idle is not None:
            idle.empty = place

    def updated(self, record: ScalerRecord, skipped: bool | None) -> None:
        """`update()` has ended."""
        for known, idle in list(self._idle.items()):
            if known.steps:
                del self._idle[known]
            elif idle.scaler is record and idle.is_waiting:
                idle.is_waiting = False
                # Where only the device knows whether they were finite, the first may all be inf.
                if skipped is False or (skipped is None and record.updates > _MANY):
                    self._count(known, idle)

    def _count(self, known: OptimizerRecord, idle: _Idle) -> None:
        idle.rounds += 1
        if idle.rounds in (_SOME, _MANY):
            # This waits for the device, because a mistake is about to be told.
            now = known.set.few_weights() if known.set is not None else None
            idle.is_still = idle.weights is not None and _same(idle.weights, now)
        if idle.rounds == _MANY and idle.is_still:
            self._tell(idle)

    def _tell(self, idle: _Idle) -> None:
        slug, place = "never-stepped", idle.place
        if idle.empty != NOWHERE:
            slug, place = "always-cleared", idle.empty
        self._report(slug, place, idle.scaler, is_late=True, rounds=float(idle.rounds))

    def ended(
        self,
        error: BaseException | None,
        scalers: list[ScalerRecord],
        is_user: Callable[[str], bool],
    ) -> None:
        """The program has ended, by an exception that nobody has caught or without one."""
        for known, idle in self._idle.items():
            if not known.steps and idle.is_still and idle.rounds < _MANY:
                self._tell(idle)
        if not isinstance(error, Exception):
            return
        place = _user_row(error.__traceback__, is_user)
        for record in scalers:
            # After skips the program may have counted them: it has let the scaler do its work.
            if place != NOWHERE and not record.skips_in_a_row and _is_overflown(record):
                name = type(error).__name__
                self._report("ended-at-overflow", place, record, is_late=True, error=name)


def _same(before: torch.Tensor, now: torch.Tensor | None) -> bool:
    return now is not None and before.numel() > 0 and torch.equal(before, now)


def _user_row(trace: TracebackType | None, is_user: Callable[[str], bool]) -> Place:
    """The innermost line of the user's that an exception has come through."""
    place = NOWHERE
    while trace is not None:
        filename = trace.tb_frame.f_code.co_filename
        if is_user(filename):
            place = filename, trace.tb_lineno or 0
        trace = trace.tb_next
    return place


def _is_overflown(record: ScalerRecord) -> bool:
    """Whether gradients are unscaled, not stepped, and not finite. Waits for the device."""
    scaler = record.object()
    states = getattr(scaler, "_per_optimizer_states", {})
    return any(bool(found.item()) for state in states.values() for found in _unscaled(state))


def _unscaled(state: dict[str, Any]) -> Iterator[torch.Tensor]:
    if getattr(state.get("stage"), "name", "") == "UNSCALED":
        yield from state["found_inf_per_device"].values()
