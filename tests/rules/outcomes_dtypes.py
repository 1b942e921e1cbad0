"""The same for the rules about dtypes and half-precision numerics."""

from __future__ import annotations

import torch

from .page_examples import Advice, Changes, Elsewhere, Outcome, Raises, Run


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
    "AMP210": Advice("it needs a GPU older than Ampere: see test_old_gpus.py"),
    "AMP211": Raises(
        "RuntimeError",
        "PyTorch is checking whether allow_tf32_new is enabled for cuBlas matmul,Current status "
        "indicate that you have used mix of the legacy and new APIs to set the TF32 status for cublas "
        "matmul. We suggest only using the new API to set the TF32 flag. See also: "
        "https://pytorch.org/docs/main/notes/cuda.html"
        "#tensorfloat-32-tf32-on-ampere-and-later-devices",
    ),
    "AMP401": Raises("ValueError", "Attempting to unscale FP16 gradients."),
    "AMP402": Changes(0.999, 1.001),
    "AMP403": Changes(0.0, 1e-9, reference="good"),
    "AMP405": Raises("ValueError", "Attempting to unscale FP16 gradients."),
    "AMP404": Raises("RuntimeError", "expected target dtype to be Long or Byte, but got Float"),
    "AMP406": Changes(0.0, 0.25, measure=_weights_changed, reference="good"),
    "AMP407": Changes(0.0, 0.1, measure=_averages_moved, reference="good"),
    "AMP503": Raises(
        "RuntimeError", "value cannot be converted to type c10::Half without overflow"
    ),
    "AMP504": Changes(0.0, 1e-9, reference="good"),
    "AMP509": Changes(0.18, 0.19, measure=_positions_left, reference="good"),
    "AMP512": Raises(
        "RuntimeError", "mat1 and mat2 must have the same dtype, but got BFloat16 and Float"
    ),
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
