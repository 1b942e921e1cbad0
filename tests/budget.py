"""How much of a large check a run of the suite does: a share of it, or all with AMPLINT_THOROUGH=1."""

from __future__ import annotations

import os

#: Whether checks that have a share for every day are done whole.
THOROUGH = bool(os.environ.get("AMPLINT_THOROUGH"))


def budget(share: int, whole: int) -> int:
    """How many programs, rows or examples a check takes."""
    return whole if THOROUGH else share
