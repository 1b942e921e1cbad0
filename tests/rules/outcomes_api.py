"""The same for the rules about the age of the interface: nothing changes but the warning."""

from __future__ import annotations

from .page_examples import Changes, Outcome, Raises

OUTCOMES: dict[str, Outcome] = {
    "AMP801": Changes(1.0, 1.0, reference="good"),
    "AMP802": Raises("ModuleNotFoundError", "No module named 'apex'"),
}
