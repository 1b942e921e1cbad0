"""The same for advice about the scaler's life, and for its configuration."""

from __future__ import annotations

from .page_examples import Changes, Outcome, Run, update_ratio


def _learning_rate(run: Run, reference: Run) -> float:
    """The learning rate that is left at the end, relative to the good example."""
    rates = (each.names["scheduler"].get_last_lr()[0] for each in (run, reference))
    return next(rates) / next(rates)


OUTCOMES: dict[str, Outcome] = {
    "AMP120": Changes(0.0, 0.0, measure=update_ratio, reference="good"),
    "AMP121": Changes(0.12, 0.13, measure=_learning_rate, reference="good"),
    "AMP203": Changes(0.0, 1e-6, measure=update_ratio, reference="good"),
}
