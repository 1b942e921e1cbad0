"""What an observer tells, whom, and what it may do to the training: the words both sides share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from amplint.runtime.measures import Kinds, Origin, Shares
from amplint.runtime.objects import ScalerRecord
from amplint.runtime.places import NOWHERE, Place


@dataclass(slots=True)
class Finding:
    """A broken rule that was seen.

    Args:
        slug: of `amplint.protocol.VIOLATIONS`, or a name of `amplint.live.catalogue`.
        place: the user's innermost line.
        inside: the library's line that made the call, if that is not the user's.
        first, last: the updates (from 0) after which it was seen first and last.
        facts: what was measured: "scale", "bound", "was" (the earlier scale).
        trail: the last events of these gradients, oldest first.
    """

    slug: str
    place: Place
    inside: Place = NOWHERE
    scaler: int = 0
    optimizer: int = 0
    count: int = 1
    first: int = 0
    last: int = 0
    facts: dict[str, Any] = field(default_factory=dict)
    trail: tuple[tuple[str, Place], ...] = ()


@dataclass(frozen=True, slots=True)
class Sample:
    """What a sampled step has shown.

    Args:
        scaler, update: the scaler's number (0 for none) and the update that ended the step.
        before, after: the norm of all gradients before and after they were unscaled, None where
            that was not seen.
        shares: of gradients and weights, by the module that holds them.
        kinds: dtypes of modules, by name.
        origin: where the first value that is not finite arose.
        is_compiled: a part of the program is compiled, so modules were not looked at.
    """

    scaler: int
    update: int
    before: float | None
    after: float | None
    shares: dict[str, Shares]
    kinds: dict[str, Kinds]
    origin: Origin | None = None
    is_compiled: bool = False


class Misuse(RuntimeError):
    """Raised in the training, where the user has asked to stop at a broken rule."""


class Enough(SystemExit):
    """Ends a training that was to run for a few steps only."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What shall happen to the training; by default nothing.

    Args:
        steps: it ends where the next backward would begin after so many updates; 0 for never.
        overflow: the number of the update, from 1, before which a gradient becomes infinite.
    """

    steps: int = 0
    overflow: int = 0


class Sink(Protocol):
    """Who is told. `finding` may raise `Misuse`."""

    def reached(self, place: Place) -> None:
        """A line of the user's had an event, for the first time."""

    def finding(self, found: Finding) -> None:
        """A rule was broken: for the first time at its place, or again."""

    def round(self, scaler: ScalerRecord, skipped: bool | None) -> None:
        """An `update()` has ended."""

    def stepped(self) -> None:
        """An optimizer has stepped without a scaler."""

    def sample(self, sample: Sample) -> None:
        """A sampled step has ended; only told where samples were asked for."""
