"""States and events of one (scaler, optimizer) pair.

torch itself keeps `stage` and `checked` (torch/amp/grad_scaler.py, `OptState` and
`found_inf_per_device`). It knows nothing about the gradients: the strict gradient tag
is amplint's own, and it is what makes silent mistakes visible.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Stage(enum.Enum):
    """torch's `OptState` of one optimizer, reset to READY by `update()`."""

    READY = "ready"
    UNSCALED = "unscaled"
    STEPPED = "stepped"

    # Members are singletons: hashing them by identity is what Enum does, only faster.
    __hash__ = object.__hash__

    @property
    def meaning(self) -> str:
        """What happened to the optimizer since the last update(), in words."""
        return _STAGE_MEANINGS[self]


class Gradient(enum.Enum):
    """What the `.grad` of the optimizer's parameters holds (strict tag)."""

    NONE = "none"
    CLEARED = "cleared"
    ZERO = "zero"
    SCALED = "scaled"
    STALE = "stale"
    UNSCALED = "unscaled"
    SPENT = "spent"
    LEFTOVER = "leftover"
    PLAIN = "plain"
    MIXED = "mixed"
    RESCALED = "rescaled"
    PILED = "piled"

    __hash__ = object.__hash__

    @property
    def meaning(self) -> str:
        """What `.grad` holds under this tag, in words."""
        return _GRADIENT_MEANINGS[self]


_STAGE_MEANINGS = {
    Stage.READY: "neither unscaled nor stepped since the last update()",
    Stage.UNSCALED: "unscale_ has run, by itself or inside a step that failed",
    Stage.STEPPED: "scaler.step has run",
}

_GRADIENT_MEANINGS = {
    Gradient.NONE: "no gradient: no backward has run, or a step used it up before zero_grad()",
    Gradient.CLEARED: "no gradient: zero_grad() threw away one that no step had used",
    Gradient.ZERO: "zeros: zero_grad(set_to_none=False)",
    Gradient.SCALED: "multiplied by the current loss scale",
    Gradient.STALE: "multiplied, at least in part, by the loss scale of before an update()",
    Gradient.UNSCALED: "divided by unscale_, not yet applied",
    Gradient.SPENT: "applied by a step, still in .grad",
    Gradient.LEFTOVER: "applied by a step, still in .grad, and update() ran since",
    Gradient.PLAIN: "from a backward on the unscaled loss",
    Gradient.MIXED: "scaled and plain backwards added together",
    Gradient.RESCALED: "a scaled backward landed on unscaled gradients",
    Gradient.PILED: "a scaled backward landed on gradients already applied",
}


class Event(enum.Enum):
    """What a program can do to the pair; the value is how the code spells it."""

    SCALE = "scaler.scale(loss)"  # the result is dropped
    SCALED_BACKWARD = "scaler.scale(loss).backward()"
    PLAIN_BACKWARD = "loss.backward()"
    UNSCALE = "scaler.unscale_(optimizer)"
    STEP = "scaler.step(optimizer)"
    UPDATE = "scaler.update()"
    SET_SCALE = "scaler.update(new_scale)"
    ZERO_GRAD = "optimizer.zero_grad()"
    ZERO_GRAD_KEEP = "optimizer.zero_grad(set_to_none=False)"
    CLIP = "clip_grad_norm_(parameters, max_norm)"
    OPTIMIZER_STEP = "optimizer.step()"

    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class Pair:
    """State of one (scaler, optimizer) pair.

    Args:
        stage: torch's own stage of the optimizer.
        gradient: the strict tag of its gradients; None where there are some, and nobody knows
            what they hold.
        checked: an inf check is on record since the last update()
            (torch: `found_inf_per_device` is not empty).
    """

    stage: Stage = Stage.READY
    gradient: Gradient | None = Gradient.NONE
    checked: bool = False


#: Tags under which `.grad` holds no tensor: nothing can be unscaled, no inf check is recorded.
ABSENT = frozenset({Gradient.NONE, Gradient.CLEARED})
