"""What the bad example of each page does when torch 2.13 runs it (CPU scaler, scale 65536)."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator
from pathlib import Path

from .page_examples import Changes, Outcome, Raises, update_ratio_of

NO_INF_CHECKS = "No inf checks were recorded for this optimizer."

_OUTCOMES: dict[str, Outcome] = {
    "AMP101": Raises("AssertionError", NO_INF_CHECKS),
    "AMP102": Raises("AssertionError", NO_INF_CHECKS),
    "AMP103": Raises("AssertionError", NO_INF_CHECKS),
    "AMP104": Changes(1.9, 2.1, reference="good"),
    "AMP105": Raises("RuntimeError", "step() has already been called since the last update()."),
    "AMP106": Raises("AssertionError", "No inf checks were recorded prior to update."),
    "AMP107": Changes(0.45, 0.55, measure=update_ratio_of("head")),
    "AMP108": Raises(
        "RuntimeError",
        "unscale_() has already been called on this optimizer since the last update().",
    ),
    "AMP109": Changes(100, math.inf),
    "AMP110": Changes(1e-6, 1e-4),
    "AMP112": Changes(6e4, math.inf),
    "AMP113": Changes(0.3, 0.9),
    "AMP116": Changes(0.35, 0.45),
    "AMP117": Raises("AssertionError", "No inf checks were recorded prior to update."),
    "AMP127": Changes(10, math.inf, reference="good"),
    "AMP129": Raises(
        "RuntimeError",
        "The total norm of order 2.0 for gradients from `parameters` is non-finite, so it cannot be "
        "clipped. To disable this error and scale the gradients by the non-finite norm anyway, set "
        "`error_if_nonfinite=False`",
    ),
    "AMP201": Raises("AssertionError", "Attempted step but _scale is None."),
    "AMP202": Raises("AttributeError", "'NoneType' object has no attribute 'scale'"),
}


def _more() -> Iterator[tuple[str, Outcome]]:
    """The tables of the other files of this package, one for each group of rules."""
    for file in sorted(Path(__file__).parent.glob("outcomes_*.py")):
        yield from importlib.import_module(f".{file.stem}", __package__).OUTCOMES.items()


OUTCOMES: dict[str, Outcome] = {**_OUTCOMES, **dict(_more())}
