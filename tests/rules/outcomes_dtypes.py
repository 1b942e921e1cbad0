"""The same for the rules about dtypes and half-precision numerics."""

from __future__ import annotations

from .page_examples import Changes, Elsewhere, Outcome, Raises

OUTCOMES: dict[str, Outcome] = {
    "AMP401": Raises("ValueError", "Attempting to unscale FP16 gradients."),
    "AMP402": Changes(0.999, 1.001),
    "AMP403": Changes(0.0, 1e-9, reference="good"),
    "AMP405": Raises("ValueError", "Attempting to unscale FP16 gradients."),
    "AMP404": Raises("RuntimeError", "expected target dtype to be Long or Byte, but got Float"),
    "AMP503": Raises(
        "RuntimeError", "value cannot be converted to type c10::Half without overflow"
    ),
    "AMP504": Changes(0.0, 1e-9, reference="good"),
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
