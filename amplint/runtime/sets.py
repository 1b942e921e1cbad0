"""The gradients of one set of parameters, looked at as little as possible.

Optimizers, and wrappers of optimizers, that hold the same parameters share one set: who unscales,
unscales for all of them. Whether a backward has fed a set is mostly asked of one parameter, the
witness: to look at a thousand gradients costs a fifth of a millisecond.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch

from amplint.runtime.measures import is_captured
from amplint.runtime.places import Place

#: Backwards of a line that are looked at parameter by parameter, and how often later ones are.
_EXACT_CALLS = 8
_EXACT_EVERY = 64
#: Values of one gradient that are kept after a backward.
_SAMPLED = 64
#: Events that are kept for the story of a finding.
_TRAIL = 12


class Before(NamedTuple):
    """Gradients before a backward: all of them, or None where the witness is enough."""

    every: list[tuple[Any, int]] | None


class _Site:
    """What is known about one line with a backward, for one set."""

    __slots__ = ("calls", "feeds")

    def __init__(self) -> None:
        self.calls = 0
        self.feeds = False


class GradientSet:
    """Parameters, and what was last seen of their gradients.

    Args:
        number: its name for the tracker.
        overlaps: another set has some of the parameters, too; then nothing is known of any.
    """

    def __init__(self, number: int, parameters: list[Any]) -> None:
        self.number = number
        self.parameters = parameters
        self.overlaps = False
        #: The thread that last stepped, unscaled or cleared it: no other one may look, because
        #: an engine may be writing (reading `.grad` meanwhile has crashed the process).
        self.owner: int | None = None
        #: The thread in which a backward that may feed it is running.
        self.feeder: int | None = None
        #: The loss scale of its last scaled backward, None where only the device knows it.
        self.scale: float | None = None
        #: The story: kinds of events, and where they were.
        self.trail: deque[tuple[str, Place]] = deque(maxlen=_TRAIL)
        self._sites: dict[Place, _Site] = {}
        self._is_doubtful = False
        self._witness = next((p for p in parameters if p.requires_grad), None)
        self._seen: weakref.ref[Any] | None = None
        self._version = -1
        self.note()

    def release(self) -> None:
        """Keep no parameter alive: the optimizer has gone."""
        self.parameters = []
        self._witness = self._seen = None

    def note(self) -> None:
        """Remember how the witness's gradient looks, without keeping it alive."""
        self._sample: torch.Tensor | None = None
        gradient = None if self._witness is None else self._witness.grad
        self._seen = None if gradient is None else weakref.ref(gradient)
        self._version = -1 if gradient is None else gradient._version

    def sample(self) -> None:
        """Keep a copy of a few values on their device, for `was_edited`."""
        gradient = None if self._witness is None else self._witness.grad
        self._sample = None if gradient is None else _few(gradient)

    def was_edited(self) -> bool:
        """Whether values have changed out of sight since `sample`, or nobody can tell.

        An edit of `.grad.data` moves no version. This waits for the device: it is asked only where
        a mistake is about to be told.
        """
        gradient = None if self._witness is None else self._witness.grad
        if self._sample is None or gradient is None:
            return False
        same = torch.equal(self._sample, _few(gradient))
        return not same or not bool(self._sample.any())

    def present(self) -> bool:
        """Whether any parameter has a gradient; one that has becomes the witness."""
        if self._witness is not None and self._witness.grad is not None:
            return True
        for parameter in self.parameters:
            if parameter.grad is not None:
                self._witness = parameter
                self.note()
                return True
        return False

    def look(self) -> tuple[bool, bool]:
        """Whether there are gradients, and whether the witness's was changed."""
        gradient = None if self._witness is None else self._witness.grad
        if gradient is None:
            return self.present(), False
        return True, self._has_moved(gradient)

    def witness_moved(self) -> bool:
        """Whether the witness's gradient is another one than noted, or was changed in place."""
        gradient = None if self._witness is None else self._witness.grad
        return gradient is not None and self._has_moved(gradient)

    def _has_moved(self, gradient: Any) -> bool:
        is_noted = self._seen is not None and self._seen() is gradient
        return not is_noted or gradient._version != self._version

    def overflow(self) -> None:
        """Make one gradient infinite."""
        if self.present() and self._witness is not None:
            self._witness.grad.fill_(float("inf"))

    def weight_version(self) -> int:
        """Moves with each change of the witness in place; fused kernels do not move it."""
        return -1 if self._witness is None else self._witness._version

    def few_weights(self) -> torch.Tensor | None:
        """A copy of a few values of the witness, on their device."""
        return None if self._witness is None else _few(self._witness)

    def before_backward(self, place: Place) -> Before:
        """Look at the gradients, as closely as this line needs it."""
        site = self._sites.get(place)
        if site is None:
            site = self._sites[place] = _Site()
        is_new = site.calls < _EXACT_CALLS or site.calls % _EXACT_EVERY == 0
        site.calls += 1
        if is_new or self._is_doubtful:
            return Before([_look(parameter) for parameter in self.parameters])
        self.note()
        return Before(None)

    def was_fed(self, place: Place, before: Before) -> bool | None:
        """Whether the backward of this line has fed the set; None if it cannot be told."""
        site = self._sites[place]
        if before.every is None:
            if self.witness_moved():
                site.feeds = True
            elif site.feeds:
                self._is_doubtful = True  # it fed the set so far: next time all are asked
                return None
            return site.feeds
        self._is_doubtful = False
        site.feeds = self._any_moved(before.every)
        return site.feeds

    def _any_moved(self, before: Iterable[tuple[Any, int]]) -> bool:
        for parameter, (gradient, version) in zip(self.parameters, before):
            now = parameter.grad
            if now is not None and (now is not gradient or now._version != version):
                self._witness = parameter
                return True
        return False


def _few(tensor: Any) -> torch.Tensor:
    local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    if local.layout is not torch.strided or is_captured(local):
        return torch.empty(0)  # nobody can tell
    plain = local.detach() if local.requires_grad else local
    count = min(_SAMPLED, plain.numel())
    if plain.is_contiguous():
        return torch.as_strided_copy(plain, (count,), (1,))
    return torch.narrow_copy(plain.reshape(-1), 0, 0, count)


def _look(parameter: Any) -> tuple[Any, int]:
    gradient = parameter.grad
    return gradient, -1 if gradient is None else gradient._version
