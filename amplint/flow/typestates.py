"""Reading typestates: what is on record about scalers and optimizers, and which record says more.

The entries are those of `State.typestate`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from amplint.protocol import Gradient, Stage

EVERY = "*"  # every optimizer that has not been named yet

Scalers = frozenset[str]
Tag = tuple["Gradient | None", Scalers]
UNKNOWN: Tag = (None, frozenset())
#: The stage of a pair about which nothing is on record.
READY = (Stage.READY, False)

Record = Mapping[tuple, Any]


def tag_of(record: Record, optimizer: str) -> Tag:
    """The gradient tag of an optimizer; unnamed ones share the tag of "*"."""
    found = record.get(("gradient", optimizer))
    if found is None:
        found = record.get(("gradient", EVERY), UNKNOWN)
    return found


def stage_of(record: Record, scaler: str, optimizer: str) -> tuple[Stage | None, bool]:
    """The stage of a pair and whether it was carried over a back edge."""
    found = record.get(("stage", scaler, optimizer))
    if found is not None:
        return found
    return (None, False) if _is_in_havoc(record, scaler) else READY


def checked_of(record: Record, scaler: str) -> bool | None:
    """Whether an inf check is on record since the last update()."""
    found = record.get(("checked", scaler))
    if found is None and not _is_in_havoc(record, scaler):
        return record.get(("checked", EVERY))
    return found


def _is_in_havoc(record: Record, scaler: str) -> bool:
    return ("havoc", scaler) in record or ("havoc", EVERY) in record


def telling(record: Record) -> Iterator[tuple[tuple, Any]]:
    """The entries of a record, but for those that say what would hold without them."""
    unnamed = record.get(("gradient", EVERY))
    for item in record.items():
        key, found = item
        if key[0] == "stage" and found == READY and not _is_in_havoc(record, key[1]):
            continue
        if key[0] == "gradient" and found == unnamed and key[1] != EVERY:
            continue
        yield item


def says_less(one: Record, other: Record) -> bool:
    """Whether one record is unknown wherever it does not say what the other says.

    What is unknown is not reported: but for what the protocol is lenient about where it knows more,
    the other shows all that the one would.
    """
    return all(_is_covered(key, one, other) for key in {**one, **other})


def _is_covered(key: tuple, one: Record, other: Record) -> bool:
    kind = key[0]
    if kind == "gradient":
        found = tag_of(one, key[1])
        return found[0] is None or found == tag_of(other, key[1])
    if kind == "stage":
        held = stage_of(one, *key[1:])
        return held[0] is None or held == stage_of(other, *key[1:])
    if kind == "checked":
        known = checked_of(one, key[1])
        return known is None or known is checked_of(other, key[1])
    if kind == "havoc":
        return key in one or key not in other
    return one.get(key) == other.get(key)
