"""The same for the rules about frameworks and distributed training."""

from __future__ import annotations

import math

from .page_examples import Changes, Outcome, Run


def _counted(run: Run, reference: Run) -> float:
    """Steps that the hook of each script counted."""
    return run.names["counted"] / reference.names["counted"]


def _apart(run: Run, reference: Run) -> float:
    """How far the parameters of two runs are apart, relative to the way that the second went."""
    pairs = zip(run.before, reference.before, strict=True)
    squares = sum((one - other).detach().square().sum().item() for one, other in pairs)
    return math.sqrt(squares) / reference.update


OUTCOMES: dict[str, Outcome] = {
    "AMP606": Changes(1.4, 1.6, measure=_counted, reference="good"),
    "AMP611": Changes(0.05, 1.0, measure=_apart, reference="good"),
}
