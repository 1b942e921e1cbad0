"""The same for the rules that look at shapes instead of paths."""

from __future__ import annotations

import math

from .page_examples import Changes, Outcome, Raises, Run, update_ratio

NO_INF_CHECKS = "No inf checks were recorded for this optimizer."


def _logged_ratio(run: Run, reference: Run) -> float:
    """The loss that the script adds up, relative to the same script without scaling."""
    return run.names["running_loss"] / reference.names["running_loss"]


def _remembered_steps(run: Run, reference: Run) -> float:
    """Good steps in a row that the scaler knows of at the end, relative to the good example."""
    steps = (each.names["scaler"].state_dict()["_growth_tracker"] for each in (run, reference))
    return next(steps) / next(steps)


def _counted_skips(run: Run, reference: Run) -> float:
    """Skipped steps that each script saw; the first step of both overflows."""
    assert run.names["scaler"].get_scale() == reference.names["scaler"].get_scale() < 2.0**127
    return run.names["skipped"] / reference.names["skipped"]


OUTCOMES: dict[str, Outcome] = {
    "AMP111": Changes(0.0, 0.0, reference="good"),
    "AMP114": Changes(1e-6, 1e-4),
    "AMP115": Changes(6e4, 7e4, measure=_logged_ratio),
    "AMP118": Changes(6e4, math.inf),
    "AMP119": Changes(0.1, 0.4, measure=_remembered_steps, reference="good"),
    "AMP122": Raises("AssertionError", NO_INF_CHECKS),
    "AMP123": Raises(
        "RuntimeError",
        "Trying to backward through the graph a second time (or directly access saved tensors "
        "after they have already been freed). Saved intermediate values of the graph are freed "
        "when you call .backward() or autograd.grad(). Specify retain_graph=True if you need to "
        "backward through the graph a second time or if you need to access saved tensors after "
        "calling backward.",
    ),
    "AMP124": Raises("AssertionError", NO_INF_CHECKS),
    "AMP125": Raises("AssertionError", "No inf checks were recorded prior to update."),
    "AMP126": Changes(0.0, 0.0, measure=_counted_skips, reference="good"),
    "AMP128": Raises("AttributeError", "'NoneType' object has no attribute 'item'"),
    "AMP130": Changes(0.0, 0.0, reference="good"),
    "AMP204": Changes(0.0, 1e-6, measure=update_ratio, reference="good"),
    "AMP208": Changes(math.inf, math.inf, reference="good"),
    "AMP209": Raises(
        "TypeError",
        "set_autocast_dtype(): argument 'dtype' (position 2) must be torch.dtype, not bool",
    ),
}
