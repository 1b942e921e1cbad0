"""The same for the rules about dtypes and half-precision numerics."""

from __future__ import annotations

from .page_examples import Changes, Outcome, Raises

OUTCOMES: dict[str, Outcome] = {
    "AMP401": Raises("ValueError", "Attempting to unscale FP16 gradients."),
    "AMP402": Changes(0.999, 1.001),
}
