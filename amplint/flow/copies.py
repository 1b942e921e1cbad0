"""Copies of objects: new objects whose fields are those of the original until somebody assigns one.

A dict display is a copy of nothing: `{"scaler": scaler}` has the fields that stand in it.

`config = copy.deepcopy(config)`, `dataclasses.replace(options, lr=0.1)`, `dict(table, amp=True)`:
a flag of the copy is the same fact as the flag of the original. That a place holds a copy stands
in the state beside it, under `ORIGINAL`; a field that is assigned is a place of its own.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import lru_cache

from amplint.flow.call import callee_name
from amplint.flow.conditions import forget, is_under
from amplint.flow.state import State
from amplint.flow.values import COPIES, NONE, ORIGINAL, Value, kind_of

#: What a dict display is a copy of.
NOTHING = ""
#: Functions that copy their first argument, by dotted name; keywords are fields of the copy.
_FUNCTIONS = frozenset(
    {
        *("copy.copy", "copy.deepcopy", "dataclasses.replace", "attr.evolve", "attrs.evolve"),
        *("omegaconf.OmegaConf.create", "omegaconf.OmegaConf.to_container"),
        *("omegaconf.OmegaConf.merge", "argparse.Namespace", "types.SimpleNamespace"),
    }
)
#: Methods that copy their object likewise.
_METHODS = frozenset({"copy", "clone", "_replace", "model_copy"})

#: What is copied, and the fields that get another value.
Copied = tuple[ast.expr, dict[str, ast.expr]]


def copied_by(node: ast.expr, resolve: Callable[[ast.expr], str | None]) -> Copied | None:
    """The object that an expression copies; None if it copies nothing, or nobody knows what."""
    if isinstance(node, ast.Dict):
        return _display(node)
    if not isinstance(node, ast.Call):
        return None
    fields: dict[str, ast.expr] = {}
    spread = [word.value for word in node.keywords if word.arg is None]
    words = {word.arg: word.value for word in node.keywords if word.arg is not None}
    originals = [*node.args, *spread]
    if isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS and not originals:
        if callee_name(node) == "model_copy":
            return (node.func.value, {}) if not words else None
        return node.func.value, {**words}
    plain_dict = isinstance(node.func, ast.Name) and node.func.id == "dict"
    if not plain_dict and resolve(node.func) not in _FUNCTIONS:
        return None
    for more in originals[1:]:
        given = _display_fields(more)
        if given is None:
            return None
        fields |= given
    return (originals[0], {**fields, **words}) if originals else None


def displayed(node: ast.expr) -> dict[str, ast.expr]:
    """The fields of a dict display; none where not all of its keys are in sight."""
    return _display_fields(node) or {}


def _display(node: ast.Dict) -> Copied | None:
    """`{**table, "amp": True}`."""
    if not node.keys or node.keys[0] is not None or None in node.keys[1:]:
        return None
    fields = _display_fields(ast.Dict(node.keys[1:], node.values[1:]))
    return (node.values[0], fields) if fields is not None else None


def _display_fields(node: ast.expr) -> dict[str, ast.expr] | None:
    """What a dict display with constant keys holds."""
    if not isinstance(node, ast.Dict):
        return None
    fields: dict[str, ast.expr] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
            return None
        fields[key.value] = value
    return fields


def place_copy(value: Value, location: str, state: State) -> None:
    """Put a copy into a place, in place."""
    assert value is not None
    _, original, fields, owner = value
    if original == location:  # `config = deepcopy(config)`: others may still hold the old one
        for place in [place for place, held in state.values.items() if held == ("path", location)]:
            del state.values[place]
    else:
        forget(location, state)
        if not is_under(original, location):  # `options = dict(options["train"])`
            state.values[location + ORIGINAL] = ("copy", original, (), None)
            state.values[COPIES] = NONE
    if owner is not None:
        state.values[location] = ("instance", owner, location)
    gone = "" if is_under(original, location) else location
    for rest, known in fields:
        forget(location + rest, state)
        assign_field(location + rest, _unless_gone(known, gone, location), state)


def _unless_gone(value: Value, gone: str, location: str) -> Value:
    """What a field holds; nothing is known of what its place held: `plan = {"scheduler": plan}`.

    Args:
        gone: a place whose fields are those of another object now; "" for none.
        location: the place of the copy itself.
    """
    if value is None or value[0] != "path":
        return value
    is_gone = value[1] == location or (gone and is_under(value[1], gone))
    return None if is_gone else value


def assign_field(location: str, value: Value, state: State) -> None:
    """Note, in place, what a field of a copy holds: unknown is not what the original has."""
    if value is None:
        own = f"{location}'"
        forget(own, state)
        value = ("path", own)
    state.values[location] = value


def original_of(location: str, state: State) -> str:
    """Where what a place holds was copied from; the place itself if it is its own."""
    if not is_part_of_copy(location, state):
        return location
    if any(is_under(place, location) for place in state.values):
        return location
    whole = next(each for each in _wholes(location) if each + ORIGINAL in state.values)
    copied = state.values[whole + ORIGINAL]
    assert copied is not None
    return location if copied[1] == NOTHING else copied[1] + location[len(whole) :]


def is_part_of_copy(location: str, state: State) -> bool:
    """Whether a place is a field of a copy."""
    if COPIES not in state.values:
        return False
    return not state.values.keys().isdisjoint(_marks(location))


@lru_cache(maxsize=65536)
def _marks(location: str) -> frozenset[str]:
    """Where it would stand that what a place is a part of is a copy."""
    return frozenset(whole + ORIGINAL for whole in _wholes(location))


def _wholes(location: str) -> Iterator[str]:
    """What a place is a part of, nearest first: "f:cfg.a" and "f:cfg" for "f:cfg.a.b"."""
    start = location.rfind(":") + 1
    end = max(location.rfind("."), location.rfind("["))
    while end > start:
        yield location[:end]
        end = max(location.rfind(".", 0, end), location.rfind("[", 0, end))


def as_copy(location: str, state: State, outlive: Callable[[Value], Value]) -> Value:
    """What is left of a copy when its place is gone: of what it is a copy, and what was assigned.

    Args:
        outlive: what is left of the value of a field.
    """
    copied = state.values.get(location + ORIGINAL)
    if copied is None:
        return None
    held = state.values.get(location)
    owner = held[1] if held is not None and kind_of(held) == "instance" else None
    fields = tuple(
        (place[len(location) :], outlive(value))
        for place, value in state.values.items()
        if place not in (location, location + ORIGINAL) and is_under(place, location)
    )
    return ("copy", copied[1], fields, owner)
