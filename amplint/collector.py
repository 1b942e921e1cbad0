"""Python's garbage collector walks every tree that is kept, again and again: make it rarer."""

from __future__ import annotations

import gc

#: New objects between two collections of the young ones; Python's default is 700. Modules and
#: trees have few cycles, and are kept as long as the process works.
_RARELY = (1_000_000, 4, 100)
#: New objects after which there may be much to free.
_ENOUGH = 2_000_000
#: Objects in use, about 350 MB of parsed modules.
_MANY = 5_000_000


def spare() -> None:
    """Collect rarely in this process, which is ours: a check of trees is a tenth faster."""
    gc.set_threshold(*_RARELY)


def sweep() -> None:
    """Free what the check of one file has left behind, if this process is ours.

    Nothing is done until there may be much of it. What an earlier sweep has found in use is
    looked at again only when that is much, too: hardly any of it is dropped, and to walk it takes
    half a second.
    """
    if gc.get_threshold() != _RARELY or _new_objects() < _ENOUGH:
        return
    if gc.get_freeze_count() > _MANY:
        gc.unfreeze()
    gc.collect()
    gc.freeze()


def thaw() -> None:
    """Much of what was in use is in use no more: the next sweep looks at all of it."""
    if gc.get_threshold() == _RARELY:
        gc.unfreeze()


def _new_objects() -> int:
    """About how many objects there are that no full collection has seen."""
    objects, young, middle = gc.get_count()
    return objects + _RARELY[0] * (young + _RARELY[1] * middle)
