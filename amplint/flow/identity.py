"""Which objects of a path are one: scalers of several names, optimizers that others hold."""

from __future__ import annotations

import ast

from amplint.flow.state import State
from amplint.flow.typestates import EVERY
from amplint.flow.values import NONE


def holds(state: State, outer: str, inner: str) -> bool:
    """Whether the object `outer` keeps the optimizer `inner` in one of its attributes."""
    if inner.startswith(f"{outer}.") and "." not in inner[len(outer) + 1 :]:
        return True
    return any(
        place.startswith(f"{outer}.") and value is not None and value[1:2] == (inner,)
        for place, value in state.values.items()
    )


def may_be_one(one: str, other: str, state: State) -> bool:
    """Whether two scalers of different names may be one object.

    Certainly not if both were built on the path, or if they are two names of one scope, two
    attributes of one object, two constant keys of one container.
    """
    if one == other or all(state.values.get(each) == ("scaler", each) for each in (one, other)):
        return False
    home, part = _split(one)
    other_home, other_part = _split(other)
    return home != other_home or "*" in part + other_part


def has_plain_twin(scaler: str, state: State) -> bool:
    """Whether another object of the class that has a scaler works without one."""
    owner, built, rest = scaler.partition("@")
    attribute = rest.partition(".")[2]
    return bool(built) and any(
        value == NONE
        and place != scaler
        and place.startswith(f"{owner}@")
        and place.partition("@")[2].partition(".")[2] == attribute
        for place, value in state.values.items()
    )


def scalers_in(state: State) -> set[str]:
    """Every scaler that took part in an event of the path."""
    found = {key[1] for key in state.typestate if key[0] in ("stage", "checked")}
    found.update(*(tag[1] for key, tag in state.typestate.items() if key[0] == "gradient"))
    return found - {EVERY}


def one_access(node: ast.Attribute) -> str:
    """The name of what one access of an attribute gives, and no other access does."""
    return f"{node.attr}#{node.lineno}+{node.col_offset}"


def is_of_one_access(location: str) -> bool:
    """Whether a place is known to one access only: nothing else is ever done to what it holds."""
    return "#" in _split(location)[1]


def spoken(location: str) -> str:
    """A location as a reader would say it: "Step.scaler" of "parts.Step@12+4.scaler"."""
    text = location.rpartition(":")[2]
    owner, built, part = text.partition("@")
    return owner.rpartition(".")[2] + part.lstrip("+0123456789") if built else text


def _split(location: str) -> tuple[str, str]:
    """What holds a location, and its last name or key: "f:run" and "scaler" of "f:run.scaler"."""
    start = max(map(location.rfind, ".[:"))
    return location[:start], location[start:]
