"""Leaving a function: what outlives its locals, and what is forgotten with them."""

from __future__ import annotations

import ast
from typing import Any

from amplint.code.module import Function
from amplint.code.tree import NESTED, walk
from amplint.flow.conditions import known_at, mentions, settled
from amplint.flow.copies import as_copy
from amplint.flow.footprints import spoken_of
from amplint.flow.renaming import hand_over
from amplint.flow.state import SWITCH, State
from amplint.flow.typestates import EVERY, UNKNOWN
from amplint.flow.values import Value


def handed_back(state: State, value: Value, function: Function) -> tuple[State, Value]:
    """A state, and what the function returns in it, as the caller has them."""
    prefix = f"{function.label}:"
    state = state.copy()
    value = _outlived(value, prefix, state)
    drop_locals(state, prefix)
    kept = {f"{prefix}{name}" for name in function.once(_names_inside)}
    _drop_records(state, prefix, spoken_of(value) | kept)
    return state, value


def _names_inside(function: Function) -> frozenset[str]:
    """The names that functions inside may read when they are called later."""
    inside = (node for node in function.nodes if isinstance(node, (*NESTED, ast.Lambda)))
    parts = (part for node in inside for part in walk(node))
    return frozenset(part.id for part in parts if isinstance(part, ast.Name))


def _drop_records(state: State, prefix: str, alive: frozenset[str]) -> None:
    """Forget, in place, the records of scalers and optimizers that nothing leads to any more.

    A function that builds both is called again with new ones: what it left undone with the old ones
    is nobody's.

    Args:
        alive: places that the caller, or code that it has, may still come to.
    """
    records = [key for key in state.typestate if _are_under(_places_of(key), prefix)]
    switches = [place for place in state.values if _is_switch(place, prefix)]
    if not records and not switches:
        return
    held = {item for place, item in state.values.items() if not place.endswith(SWITCH)}
    alive = alive.union(*map(spoken_of, held))
    gone = [key for key in records if alive.isdisjoint(_places_of(key))]
    for key in gone:
        del state.typestate[key]
    if any(key[0] == "gradient" for key in gone):
        _end_training(state)
    for place in switches:
        if place.removesuffix(SWITCH) not in alive:
            del state.values[place]


def _end_training(state: State) -> None:
    """Forget, in place, what is not known of one optimizer, where none is left that it may be of."""
    typestate = state.typestate
    if any(map(_places_of, typestate)):
        return
    typestate["gradient", EVERY] = UNKNOWN
    for key in (("checked", EVERY), ("havoc", EVERY), ("flag", "after")):
        typestate.pop(key, None)


def _places_of(key: tuple[Any, ...]) -> list[str]:
    """The scalers and optimizers that an entry of a record is about."""
    if key[0] not in _RECORDS:
        return []
    return [place for place in key[1:] if place != EVERY]


def _are_under(places: list[str], prefix: str) -> bool:
    return bool(places) and all(place.startswith(prefix) for place in places)


def _is_switch(place: str, prefix: str) -> bool:
    return place.startswith(prefix) and place.endswith(SWITCH)


#: Kinds of entries of a typestate whose other parts are scalers and optimizers.
_RECORDS = frozenset({"stage", "gradient", "checked", "renewed", "havoc"})


def drop_locals(state: State, prefix: str) -> None:
    """Forget, in place, every local of a function that was left.

    Whether a scaler is on stays known: the function may hand it back. What is known of a local
    is known of what holds the same: `self.kind = kind`, whoever passes it.
    """
    hand_over(state, prefix)
    values = state.values
    for location in [place for place in values if place.startswith(prefix)]:
        if not location.endswith(SWITCH):
            del values[location]
    for place, value in list(values.items()):
        outlived = _outlived(value, prefix, state)
        if outlived is None:
            del values[place]
        elif outlived is not value:
            values[place] = outlived
    for atom in [atom for atom in state.facts if _mentions_local(atom, prefix)]:
        del state.facts[atom]


#: Kinds of values that may speak of locals.
_LOCAL = frozenset({"path", "instance", "copy", "formula", "text", "cases", "partial", "tuple"})


def _outlived(
    value: Value, prefix: str, state: State, around: frozenset[str] = frozenset()
) -> Value:
    """What is left of a value when the locals it mentions are gone.

    Args:
        around: copies that hold the value; of one that holds itself nothing is left inside.
    """
    if value is None or value[0] not in _LOCAL:
        return value
    if value[0] in ("path", "instance") and value[-1].startswith(prefix):
        inside = around | {value[-1]}
        if inside == around:
            return None
        copied = as_copy(value[-1], state, lambda item: _outlived(item, prefix, state, inside))
        if value[0] == "instance":
            return copied or value
        return _outlived(copied, prefix, state, inside) or known_at(value[1], state)
    if value[0] in ("path", "instance"):
        return value
    if value[0] == "copy":
        return None if value[1].startswith(prefix) else _copy_outlived(value, prefix, state, around)
    if value[0] == "tuple":
        return ("tuple", tuple(_outlived(item, prefix, state, around) for item in value[1]))
    if value[0] == "partial":
        paths = [part[1] for _, _, part in value[2] if part is not None and part[0] == "path"]
        return None if any(path.startswith(prefix) for path in paths) else value
    if not _mentions_local(value[1], prefix):
        return value
    return settled(value, state)


def _copy_outlived(
    value: tuple[Any, ...], prefix: str, state: State, around: frozenset[str]
) -> Value:
    kind, original, fields, owner = value
    left = ((name, _outlived(item, prefix, state, around)) for name, item in fields)
    return (kind, original, tuple(left), owner)


def _mentions_local(formula: tuple, prefix: str) -> bool:
    return any(mention.startswith(prefix) for mention in mentions(formula))
