"""Autocast regions while they are open, thread by thread; who opened them, and what they leave.

A region that a library has entered is the library's business: what runs inside is not told. Only
a region of the user's own is asked about backwards and steps.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from amplint.runtime.objects import ScalerRecord, forgive
from amplint.runtime.places import NOWHERE, Place
from amplint.runtime.reloads import watch
from amplint.runtime.sets import GradientSet

#: Backwards in float16 without a scaler, or steps without any region, after which it is no
#: coincidence.
_ENOUGH = 3

_is_enabled, _dtype_of = torch.is_autocast_enabled, getattr(torch, "get_autocast_dtype", None)

#: Tells a finding: slug and place, and more by name.
Report = Callable[..., None]


@dataclass(slots=True)
class _Region:
    """One entry of a region that is open.

    Args:
        key: identity of the region.
        keeps: it computes in half precision, and keeps copies of float32 weights.
        before: the state of autocast that leaving has to restore.
        place: where it was entered, asked of float16 regions only.
        again: where the same object was entered once more inside.
        island: autocast was off in a region inside.
        stepped: the gradient sets whose parameters were stepped inside, by number, and where.
    """

    key: int
    is_users: bool
    is_half: bool
    device: str
    keeps: bool
    before: tuple[bool, torch.dtype]
    place: Place = NOWHERE
    again: Place | None = None
    island: bool = False
    stepped: dict[int, Place] = field(default_factory=dict)


class _Made(weakref.ref[Any]):
    """A region that nobody has entered: its identity, and where it was made."""

    __slots__ = ("key", "place")
    key: int
    place: Place


class _Open(threading.local):
    """What is open in one thread, innermost last."""

    def __init__(self) -> None:
        self.regions: list[_Region] = []
        #: Looks at layers whose weights were loaded inside; to be taken back at the end.
        self.looks: list[Any] = []
        #: Whether the last region that was left ran in float16 with gradients.
        self.was_half = False


class Regions:
    """All regions; told about entries, exits, backwards and steps.

    Args:
        place: the user's innermost line, asked for inside a wrapper.
        here: the same, asked for from anywhere.
    """

    def __init__(
        self,
        report: Report,
        place: Callable[[], Place],
        here: Callable[[], Place],
        is_by_library: Callable[[], bool],
    ) -> None:
        self._report, self._place, self._is_by_library = report, place, is_by_library
        self._here = here
        self._unused: dict[int, _Made] = {}
        #: Lines that make a region and let go of it; of no interest once one was entered.
        self._dropped: set[Place] = set()
        self._steps = 0
        #: Is told about an error of amplint's own while a region dies; see `Objects.fail`.
        self.fail: Callable[[BaseException], None] = forgive
        self._open = _Open()
        self._half_backwards = 0
        self._half_place = NOWHERE
        #: Dtypes of enabled regions.
        self.dtypes: set[torch.dtype] = set()

    @property
    def is_inside(self) -> bool:
        """Whether a region of the user's is open in this thread, and autocast is on."""
        regions = self._open.regions
        return bool(regions) and any(each.is_users for each in regions) and _is_on()

    def made(self, region: Any) -> None:
        """A region exists. Only before the first one is entered does that matter."""
        if not region._enabled or self.dtypes:
            return
        made = _Made(region, self._gone)
        made.key, made.place = id(region), self._place()
        self._unused[made.key] = made

    def _gone(self, made: _Made) -> None:
        """A region has died, which nobody has entered; Python calls this from anywhere."""
        try:
            if self._unused.pop(made.key, None) is made and made.place == self._here():
                self._dropped.add(made.place)
        except Exception as error:  # noqa: BLE001 - never the user's
            self.fail(error)

    def entering(self, region: Any) -> None:
        """`__enter__` of a region is about to run."""
        regions, device, enabled = self._open.regions, region.device, bool(region._enabled)
        key = id(region)
        self._unused.pop(key, None)
        for each in regions:
            if each.key == key and each.again is None:
                each.again = self._place()
            each.island = each.island or not enabled
        is_users = not self._is_by_library()
        is_half = enabled and is_users and region.fast_dtype is torch.float16
        keeps = enabled and bool(region._cache_enabled)
        entry = _Region(key, is_users, is_half, device, keeps, _state(device))
        if is_half and self._half_backwards < _ENOUGH:
            entry.place = self._place()
        regions.append(entry)
        if enabled:
            self.dtypes.add(region.fast_dtype)

    def left(self, region: Any) -> None:
        """`__exit__` of a region has run."""
        regions, key = self._open.regions, id(region)
        mine = [each for each in regions if each.key == key]
        if not mine:
            return
        regions.remove(mine[-1])
        if self._open.looks and not regions:
            self._forget_loads()
        self._open.was_half = mine[-1].is_half and torch.is_grad_enabled()
        if mine[-1].place != NOWHERE:
            self._half_place = mine[-1].place
        outermost = mine[0]
        # What the object restores is what its innermost entry has seen.
        is_last = len(mine) == 1 and outermost.again is not None
        if is_last and outermost.before != _state(outermost.device):
            self._report("autocast-re-entered", outermost.again)

    def loaded(self, module: Any) -> None:
        """`module.load_state_dict()` has run: copies of the weights from before may be left."""
        if not self.is_inside or not any(each.keeps for each in self._open.regions):
            return
        place = self._place()

        def tell() -> None:
            self._report("weights-loaded-under-autocast", place, is_late=True)

        self._open.looks += watch(module, tell, self.fail)

    def _forget_loads(self) -> None:
        looks, self._open.looks = self._open.looks, []
        for look in looks:
            look.remove()

    def after_backward(self, fed: list[GradientSet], place: Place, multiplied: bool) -> None:
        """A backward of the outermost level has ended.

        Args:
            multiplied: the loss was multiplied by something, a scaler or a number.
        """
        if self._open.was_half:
            self._half_backwards = 0 if multiplied else self._half_backwards + 1
        self._open.was_half = False
        if not self.is_inside:
            return
        users = [each for each in self._open.regions if each.is_users]
        if any(each.island for each in users):
            self._report("island-backward-under-autocast", place)
        else:
            self._report("backward-under-autocast", place)
        for gradients in fed:
            steps = [each.stepped.get(gradients.number) for each in users if not each.island]
            where = next(filter(None, steps), None)
            if where is not None:
                self._report("training-loop-under-one-autocast", where, None, gradients)

    def stepped(
        self, gradients: GradientSet, place: Place, scaler: ScalerRecord | None = None
    ) -> None:
        """An optimizer has stepped, with a scaler or without."""
        if self._half_backwards >= _ENOUGH and scaler is None:
            self._report("float16-without-scaler", self._half_place)
        self._steps += 1
        if self._steps == _ENOUGH and not self.dtypes:
            for dropped in self._dropped:
                self._report("autocast-never-entered", dropped, is_late=True)
        if not self.is_inside:
            return
        self._report("step-under-autocast", place, scaler)
        if any(parameter.dtype is torch.float32 for parameter in gradients.parameters[:1]):
            for region in self._open.regions:
                if region.keeps and region.is_users:
                    region.stepped[gradients.number] = place


def _is_on() -> bool:
    """Whether autocast is on in this thread; asked only where a region is open."""
    return any(_state(device)[0] for device in ("cuda", "cpu"))


def _state(device: str) -> tuple[bool, torch.dtype]:
    """Whether autocast is on in this thread for a device, and its dtype."""
    if _dtype_of is not None:
        return _is_enabled(device), _dtype_of(device)
    if device == "cpu":  # before torch 2.4
        return torch.is_autocast_cpu_enabled(), torch.get_autocast_cpu_dtype()
    return torch.is_autocast_enabled(), torch.get_autocast_gpu_dtype()
