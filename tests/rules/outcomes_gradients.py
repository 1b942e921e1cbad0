"""The same for the rules about gradient flow."""

from __future__ import annotations

from .page_examples import Changes, Outcome, Raises, update_ratio_of

NO_INF_CHECKS = "No inf checks were recorded for this optimizer."

OUTCOMES: dict[str, Outcome] = {
    "AMP301": Changes(0.0, 0.0, measure=update_ratio_of("backbone"), reference="good"),
    "AMP302": Raises("AssertionError", NO_INF_CHECKS),
}
