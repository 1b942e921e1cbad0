"""The same for the rules about dtypes and half-precision numerics."""

from __future__ import annotations

import torch

from .page_examples import Changes, Elsewhere, Outcome, Raises, Run


def _averages_moved(run: Run, reference: Run) -> float:
    """How far an average went the way that the reference went, of which it is a share."""
    moved = []
    for one in (run, reference):
        pairs = zip(one.names["average"].parameters(), one.before.values())
        steps = [(new.float() - old.to(new.dtype).float()).detach() for new, old in pairs]
        moved.append(torch.cat([step.flatten() for step in steps]))
    return (moved[0] @ moved[1] / moved[1].square().sum()).item()


def _weights_changed(run: Run, reference: Run) -> float:
    """The share of the weights that changed at all, relative to the reference."""
    changed = [
        sum((new != old).sum().item() for new, old in one.before.items())
        for one in (run, reference)
    ]
    return changed[0] / changed[1]


def _positions_left(run: Run, reference: Run) -> float:
    """How many different positions there are, relative to the reference."""
    counts = [one.names["positions"].unique().numel() for one in (run, reference)]
    return counts[0] / counts[1]


OUTCOMES: dict[str, Outcome] = {
    "AMP406": Changes(0.0, 0.25, measure=_weights_changed, reference="good"),
    "AMP407": Changes(0.0, 0.1, measure=_averages_moved, reference="good"),
    "AMP509": Changes(0.18, 0.19, measure=_positions_left, reference="good"),
    "AMP603": Elsewhere(
        Raises("ValueError", "Attempting to unscale FP16 gradients."),
        ("transformers", "accelerate"),
        cuda=True,
    ),
    "AMP605": Elsewhere(
        Raises("ValueError", "At most one of fp16 and bf16 can be True, but not both"),
        ("transformers",),
    ),
}
