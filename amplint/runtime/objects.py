"""Scalers and optimizers of a running program, with what is known about each."""

from __future__ import annotations

import math
import struct
import weakref
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

import torch

from amplint.runtime.places import Place
from amplint.runtime.sets import GradientSet


class ScalerRecord:
    """One enabled scaler.

    The loss scale is followed on the host: `step` has waited for the inf check anyway, so
    whether it called the optimizer says which way `update` goes. Nothing on a device is read.
    """

    def __init__(self, number: int, scaler: Any, place: Place) -> None:
        self.number, self.place = number, place
        self.object = weakref.ref(scaler)
        self.scale: float | None = None
        self._growth = 0
        self.has_scaled = False
        self.updates = 0
        self.skips_in_a_row = 0
        #: For each step since the last update whether it was skipped, None for "not known".
        self.steps: list[bool | None] = []
        #: The update after which the program last asked for the scale.
        self.asked_at = -1
        #: Hash of the kinds of events since the last update.
        self.word = 0
        self.is_saved = False
        self.resume()

    def resume(self) -> None:
        """Take over what the scaler holds: it is new, or has loaded a state."""
        scaler = self.object()
        if scaler is None:
            return
        self.scale = self._from_host(getattr(scaler, "_scale", None))
        tracker = self._from_host(getattr(scaler, "_growth_tracker", None))
        if getattr(scaler, "_scale", None) is None:
            self.scale = _number(getattr(scaler, "_init_scale", None))
            tracker = _number(getattr(scaler, "_init_growth_tracker", None))
        self._growth = int(tracker or 0)

    def loaded(self, state: Any) -> None:
        """A checkpoint was loaded; its numbers are on the host."""
        self.scale = _number(state.get("scale"))
        self._growth = int(_number(state.get("_growth_tracker")) or 0)

    def set_scale(self, new_scale: Any) -> None:
        """`update(new_scale)` has run."""
        self.scale = _number(new_scale)
        if self.scale is None:
            self.scale = self._from_host(new_scale)

    def updated(self) -> bool | None:
        """`update()` has run: the next scale. Returns whether a step of the round was skipped."""
        steps, self.steps = self.steps, []
        skipped = None if None in steps or not steps else True in steps
        scaler = self.object()
        if scaler is None:
            return skipped
        on_host = self._from_host(scaler._scale)
        if on_host is not None:
            before, self.scale = self.scale, on_host
            if skipped is None and before is not None:
                skipped = on_host < before
        elif self.scale is None or skipped is None:
            self.scale = None
        elif skipped:
            self.scale, self._growth = _float32(self.scale * scaler._backoff_factor), 0
        else:
            self._grow(scaler)
        self.skips_in_a_row = self.skips_in_a_row + 1 if skipped else 0
        return skipped

    def _grow(self, scaler: Any) -> None:
        self._growth += 1
        if self._growth == scaler._growth_interval and self.scale is not None:
            grown = _float32(self.scale * scaler._growth_factor)
            self.scale = grown if math.isfinite(grown) else self.scale
            self._growth = 0

    @staticmethod
    def _from_host(value: Any) -> float | None:
        """The number in a plain tensor of the CPU, for which nobody has to wait."""
        if type(value) is torch.Tensor and value.is_cpu and value.numel() == 1:
            return float(value)
        return None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def _float32(value: float) -> float:
    """Rounded as torch holds it."""
    return (
        float(struct.unpack("f", struct.pack("f", value))[0]) if abs(value) < 3.4e38 else math.inf
    )


class OptimizerRecord:
    """One optimizer object."""

    def __init__(self, number: int, optimizer: Any, place: Place) -> None:
        self.number, self.place = number, place
        self.object = weakref.ref(optimizer)
        self.set: GradientSet | None = None
        self.shape: list[int] = []
        #: The set whose gradients the tracker knows as its own.
        self.shared: GradientSet | None = None
        #: The scaler it was last used with.
        self.scaler: ScalerRecord | None = None
        self.ran = False
        self.steps = 0
        self.is_saved = False

    def is_current(self, optimizer: Any) -> bool:
        """Whether its parameters are those that were seen last, by a cheap test."""
        known, groups = self.set, optimizer.param_groups
        if known is None or len(groups) != len(self.shape):
            return False
        first = None
        for group, length in zip(groups, self.shape):
            parameters = group["params"]
            if len(parameters) != length:
                return False
            if first is None and length:
                first = parameters[0]
        return not known.parameters or first is known.parameters[0]


def parameters_of(optimizer: Any) -> Iterator[Any]:
    """All parameters of an optimizer, in order."""
    for group in optimizer.param_groups:
        yield from group["params"]


class Objects:
    """All scalers, optimizers and gradient sets that were seen and still exist.

    Attributes:
        fail: is told about an error of amplint's own while an object dies. Python calls that from
            wherever the training is, and would print the error there.
    """

    def __init__(self, place: Callable[[], Place]) -> None:
        self._place = place
        self.fail: Callable[[BaseException], None] = forgive
        self._scalers: dict[int, ScalerRecord] = {}
        self._by_number: dict[int, ScalerRecord] = {}
        self._optimizers: dict[int, OptimizerRecord] = {}
        #: id(parameter) -> the sets that hold it, and the parameter, weakly.
        self._holders: dict[int, tuple[weakref.ref[Any], list[GradientSet]]] = {}
        self._sets: list[GradientSet] | None = None
        #: Running numbers; gradient sets count downwards, as they are keys beside optimizers.
        #: `next` of a counter is one step: two threads never get the same number.
        self._next_scaler, self._next_optimizer = count(1), count(1)
        self._next_set = count(-1, -1)

    def scaler(self, scaler: Any) -> ScalerRecord:
        """The record of an enabled scaler."""
        known = self._scalers.get(id(scaler))
        if known is None or known.object() is not scaler:
            known = ScalerRecord(next(self._next_scaler), scaler, self._place())
            self._scalers[id(scaler)] = self._by_number[known.number] = known
        return known

    def scaler_of(self, number: int) -> ScalerRecord | None:
        """The record that has a number."""
        return self._by_number.get(number)

    def scalers(self) -> list[ScalerRecord]:
        """All that were seen and are not replaced in memory."""
        return list(self._scalers.values())

    def scales(self) -> list[float]:
        """The loss scales of today, as far as they are known."""
        return [known.scale for known in self.scalers() if known.scale]

    def optimizers(self) -> list[OptimizerRecord]:
        """All that were seen and are not replaced in memory."""
        return list(self._optimizers.values())

    def optimizer(self, optimizer: Any) -> OptimizerRecord:
        """The record of an optimizer, with its parameters of today."""
        known = self._optimizers.get(id(optimizer))
        if known is None or known.object() is not optimizer:
            known = OptimizerRecord(next(self._next_optimizer), optimizer, self._place())
            known.object = weakref.ref(optimizer, self._gone)
            self._optimizers[id(optimizer)] = known
        if not known.is_current(optimizer):
            self._find_set(known, optimizer)
        return known

    def sets(self) -> list[GradientSet]:
        """The gradient sets of all optimizers that exist."""
        if self._sets is None:
            found = {id(known.set): known.set for known in self.optimizers() if known.set}
            self._sets = list(found.values())
        return self._sets

    def sets_of(self, parameters: Sequence[Any]) -> list[GradientSet]:
        """The sets that hold any of these parameters; asked of the first and the last."""
        if not parameters:
            return []
        found = self._holding(parameters[0])
        for holder in self._holding(parameters[-1]):
            if holder not in found:
                found = [*found, holder]
        return [each for each in found if each.parameters]  # the others are released

    def user_of(self, gradients: GradientSet) -> OptimizerRecord | None:
        """An optimizer that holds a set."""
        return next((known for known in self.optimizers() if known.set is gradients), None)

    def _gone(self, reference: object) -> None:
        """An optimizer has died."""
        try:
            self._forget(reference)
        except Exception as error:  # noqa: BLE001 - never the user's
            self.fail(error)

    def _forget(self, reference: object) -> None:
        """The parameters of an optimizer that has died must not be kept alive."""
        self._sets = None
        for key, known in list(self._optimizers.items()):
            if known.object is reference:
                del self._optimizers[key]
                self._release(known)

    def _release(self, known: OptimizerRecord) -> None:
        gradients, known.set = known.set, None
        if gradients is not None and self.user_of(gradients) is None:
            gradients.release()

    def _holding(self, parameter: Any) -> list[GradientSet]:
        known = self._holders.get(id(parameter))
        return known[1] if known is not None and known[0]() is parameter else []

    def _find_set(self, known: OptimizerRecord, optimizer: Any) -> None:
        parameters = list(parameters_of(optimizer))
        known.shape = [len(group["params"]) for group in optimizer.param_groups]
        self._sets = None
        self._release(known)
        living = {id(other.set) for other in self.optimizers() if other.set}
        holders = [
            holder
            for parameter in parameters
            for holder in self._holding(parameter)
            if id(holder) in living
        ]
        same = next((each for each in holders if _same(each.parameters, parameters)), None)
        if same is not None:
            known.set = same
            return
        known.set = GradientSet(next(self._next_set), parameters)
        for holder in {id(each): each for each in holders}.values():
            holder.overlaps = known.set.overlaps = True
        for parameter in parameters:
            others = [each for each in self._holding(parameter) if id(each) in living]
            self._holders[id(parameter)] = (weakref.ref(parameter), [*others, known.set])


def forgive(_error: BaseException) -> None:
    """Nobody watches (any more)."""


def _same(first: list[Any], second: list[Any]) -> bool:
    return len(first) == len(second) and {id(each) for each in first} == {
        id(each) for each in second
    }
