"""Under which name a new object is known: that of the first place that keeps it."""

from __future__ import annotations

from amplint.flow.conditions import settle
from amplint.flow.protocol_calls import ProtocolCalls
from amplint.flow.state import SWITCH, State
from amplint.flow.values import Value

#: How the identity of an object begins that no place keeps yet.
NEW = "new@"


def named(value: Value, location: str, state: State, events: ProtocolCalls) -> Value:
    """A value as its place keeps it, in place: what was built for it is known by it from now on."""
    if value is not None and value[0] == "tuple":
        parts = (_listed(item, f"{location}[{i}]", events) for i, item in enumerate(value[1]))
        return ("tuple", tuple(parts))
    if value is not None and value[0] == "library" and value[2].startswith(NEW):
        return (*value[:2], location)
    if not _is_new(value):
        return value
    assert value is not None
    events.rename(value[1], location)
    if value[0] == "optimizer":
        events.transitions.renew(state, location)
    else:
        enabled = value[2] if len(value) > 2 else None
        events.transitions.fresh_scaler(state, location)
        state.values[location + SWITCH] = settle(("formula", enabled), location, state)
    return (value[0], location)


def _listed(item: Value, location: str, events: ProtocolCalls) -> Value:
    """A participant in a display is known by its place in the container."""
    if not _is_new(item):
        return item
    assert item is not None
    events.rename(item[1], location)
    return (item[0], location)


def _is_new(value: Value) -> bool:
    """Whether a value is a scaler or an optimizer without a name."""
    return value is not None and value[0] in ("scaler", "optimizer") and value[1].startswith(NEW)
