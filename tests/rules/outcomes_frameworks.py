"""The same for the rules about frameworks and distributed training."""

from __future__ import annotations

import math

from .page_examples import Advice, Changes, Outcome, Run


def _counted(run: Run, reference: Run) -> float:
    """Steps that the hook of each script counted."""
    return run.names["counted"] / reference.names["counted"]


def _apart(run: Run, reference: Run) -> float:
    """How far the parameters of two runs are apart, relative to the way that the second went."""
    pairs = zip(run.before, reference.before, strict=True)
    squares = sum((one - other).detach().square().sum().item() for one, other in pairs)
    return math.sqrt(squares) / reference.update


OUTCOMES: dict[str, Outcome] = {
    "AMP601": Changes(6e4, math.inf, reference="good"),
    "AMP602": Advice("lightning's own scaler exists on CUDA only"),
    "AMP604": Advice("on one rank both scalers agree: see test_fsdp_scalers.py"),
    "AMP606": Changes(1.4, 1.6, measure=_counted, reference="good"),
    "AMP608": Advice("lightning's own scaler exists on CUDA only: see test_scaled_by_libraries.py"),
    "AMP609": Advice(
        "accelerate's own scaler exists on CUDA only: see test_scaled_by_libraries.py"
    ),
    "AMP611": Changes(0.05, 1.0, measure=_apart, reference="good"),
}
