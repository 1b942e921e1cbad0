"""The same for rules about the order of calls, and about shapes."""

from __future__ import annotations

from .page_examples import Changes, Outcome, Run, update_ratio, update_ratio_of


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
    "AMP107": Changes(0.45, 0.55, measure=update_ratio_of("head")),
    "AMP115": Changes(6e4, 7e4, measure=_logged_ratio),
    "AMP119": Changes(0.1, 0.4, measure=_remembered_steps, reference="good"),
    "AMP126": Changes(0.0, 0.0, measure=_counted_skips, reference="good"),
    "AMP204": Changes(0.0, 1e-6, measure=update_ratio, reference="good"),
    "AMP301": Changes(0.0, 0.0, measure=update_ratio_of("backbone"), reference="good"),
}
