"""Places of a call that outlive it under another name: `self.cfg = cfg`, whoever passes `cfg`."""

from __future__ import annotations

import re
from typing import Any

from amplint.flow.conditions import is_under
from amplint.flow.state import State
from amplint.flow.values import kind_of


def hand_over(state: State, prefix: str) -> None:
    """Rename, in place, the locals of a function to the places outside that hold the same.

    What is known of such a local, of its parts, and of tests of it, is known of its heir. The
    first place that was assigned is the heir; the others are other names for it.
    """
    for local, heir in _heirs(state, prefix).items():
        _rename(state, local, heir)


def _heirs(state: State, prefix: str) -> dict[str, str]:
    """Local -> the place outside that holds the same; parts of a local go with the whole."""
    found: dict[str, str] = {}
    for place, value in state.values.items():
        if kind_of(value) != "path" or value is None or place.startswith(prefix):
            continue
        if value[1].startswith(prefix):
            found.setdefault(value[1], place)
    return {
        local: heir
        for local, heir in found.items()
        if not any(local != other and is_under(local, other) for other in found)
    }


def _rename(state: State, local: str, heir: str) -> None:
    pattern = re.compile(re.escape(local) + r"(?!\w)")
    state.values.pop(heir)  # it is itself now, and no alias
    for place, value in list(state.values.items()):
        new = _renamed(value, pattern, heir)
        if pattern.match(place):
            del state.values[place]
            state.values[pattern.sub(heir, place)] = new
        elif new != value:
            state.values[place] = new
    for atom in [atom for atom in state.facts if _speaks(atom, pattern)]:
        state.facts[_renamed(atom, pattern, heir)] = state.facts.pop(atom)


def _speaks(part: Any, pattern: re.Pattern[str]) -> bool:
    if isinstance(part, str):
        return pattern.search(part) is not None
    return isinstance(part, (tuple, frozenset)) and any(_speaks(item, pattern) for item in part)


def _renamed(part: Any, pattern: re.Pattern[str], heir: str) -> Any:
    """A value or a formula with the heir in the place of the local."""
    if isinstance(part, str):
        return pattern.sub(lambda _: heir, part)
    if isinstance(part, tuple):
        return tuple(_renamed(item, pattern, heir) for item in part)
    if isinstance(part, frozenset):
        return frozenset(_renamed(item, pattern, heir) for item in part)
    return part
