"""Python's garbage collector walks every tree that is kept, again and again: make it rarer."""

from __future__ import annotations

import gc

#: New objects between two collections of the young ones; Python's default is 700. Modules and
#: trees have few cycles, and are kept as long as the process works.
_YOUNG = 50_000


def spare() -> None:
    """Collect rarely in this process, which is ours: a check of trees is a tenth faster."""
    gc.set_threshold(_YOUNG, 20, 100)
