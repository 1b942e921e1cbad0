"""The same for the rules about gradient flow."""

from __future__ import annotations

from .page_examples import Changes, Outcome, Raises, update_ratio_of

NO_INF_CHECKS = "No inf checks were recorded for this optimizer."

OUTCOMES: dict[str, Outcome] = {
    "AMP301": Changes(0.0, 0.0, measure=update_ratio_of("backbone"), reference="good"),
    "AMP302": Raises("AssertionError", NO_INF_CHECKS),
    "AMP303": Raises(
        "RuntimeError", "element 0 of tensors does not require grad and does not have a grad_fn"
    ),
    "AMP307": Raises(
        "RuntimeError",
        "Inference tensors cannot be saved for backward. Please do not use Tensors created in "
        "inference mode in computation tracked by autograd. To work around this, you can make a "
        "clone to get a normal tensor and use it in autograd, or use `torch.no_grad()` instead of "
        "`torch.inference_mode()`.",
    ),
}
