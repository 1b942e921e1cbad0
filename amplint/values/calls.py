"""From a call back to what it gives: returned values, entries that are looked up."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from amplint.code.expressions import last_name, path_text
from amplint.code.layout import layout_of
from amplint.code.module import Class, Function
from amplint.values.conditions import conditions_at, firmness_of_statement
from amplint.values.kinds import targets_of
from amplint.values.provenance import (
    CALL_DEPTH,
    OTHER_KEY,
    Activation,
    Back,
    Before,
    Firmness,
    Part,
    Step,
    merged,
)
from amplint.values.wrappers import SAME_OBJECT

#: A call of these gives an object, not what they return.
_MAKERS = frozenset(("__init__", "__new__", "forward"))

if TYPE_CHECKING:
    from amplint.values.origins import Origins


def back_of_call(
    origins: Origins, call: ast.Call, function: Function, activation: Activation | None
) -> Back | None:
    """What a call gives; None if it creates its value, or if nothing is known about it."""
    looked_up = _looked_up(origins, call, function, activation)
    if looked_up is not None:
        return looked_up
    symbol = origins.objects.symbol(call.func, function)
    if isinstance(symbol, Class):
        return None
    if activation is not None and activation.depth >= CALL_DEPTH:
        return None
    if isinstance(symbol, Function):
        return back_of_returns(origins, Activation(symbol, call, function, activation))
    return _back_of_targets(origins, call, function, activation)


def _back_of_targets(
    origins: Origins, call: ast.Call, function: Function, activation: Activation | None
) -> Back | None:
    """What any of the functions returns that a call can run."""
    if isinstance(call.func, ast.Attribute) and call.func.attr in SAME_OBJECT:
        return None
    found = targets_of(origins, call, function, activation)
    if not found.functions or any(item.name in _MAKERS for item in found.functions):
        return None
    back: Back | None = None
    for callee in found.functions:
        one = back_of_returns(origins, Activation(callee, call, function, activation))
        if one is None:
            return None
        back = merged(back, one) if back is not None else one
    return back if back is None or not found.unknown else replace(back, complete=False)


def back_of_returns(origins: Origins, inner: Activation) -> Back | None:
    """What one call of a function returns; None for generators and without a value."""
    callee = inner.callee
    found = callee.once(_returns)
    if not found:
        return None
    words = f"`{callee.name}` returns it"
    places: list[Before] = []
    rest: Firmness | None = Firmness.FIXED
    for node in found:
        holds, fails = firmness_of_statement(origins, node, None, callee, inner)
        if holds is not None and rest is not None and node.value is not None:
            step = Step(inner.call, inner.caller.module, words)
            conditions = conditions_at(node, callee)
            before = Before(
                node.value, callee, inner, min(rest, holds), (step,), conditions=conditions
            )
            places.append(before)
        rest = min(rest, fails) if rest is not None and fails is not None else None
        if rest is None:
            break
    return Back(tuple(places))


def _returns(function: Function) -> list[ast.Return]:
    """The statements that return a value; none of a generator."""
    nodes = layout_of(function).nodes
    if any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in nodes):
        return []
    return [node for node in nodes if isinstance(node, ast.Return) and node.value is not None]


def _looked_up(
    origins: Origins, call: ast.Call, function: Function, activation: Activation | None
) -> Back | None:
    """`getattr(x, "name")`, `x.get("name", default)`, `next(iter(x))` and their like."""
    name = last_name(call.func)
    here = (function, activation)
    if isinstance(call.func, ast.Name) and name == "getattr" and len(call.args) >= 2:
        if function.module.resolve(call.args[0]) == "torch":
            return None
        subject, key, is_item, rest = call.args[0], call.args[1], False, call.args[2:]
    elif isinstance(call.func, ast.Attribute) and name in ("get", "pop") and call.args:
        if path_text(call.func.value) in ("os.environ",):
            return None
        subject, key, is_item, rest = call.func.value, call.args[0], True, call.args[1:]
    else:
        return None
    keys = origins.keys(key, *here)
    if not keys or (OTHER_KEY in keys and not is_item):
        return None
    places = [
        Before(subject, *here, firmness, part=Part(content, is_item))
        for content, firmness in keys
        if content is not ...
    ]
    if OTHER_KEY not in keys:
        return _with_fallback(origins, places, rest, *here)
    # Where nothing is kept under the usual key, the given default is what usually comes out.
    absent = (item.firmness for item in places if rest and _is_absent(origins, item))
    firmness = max(absent, default=Firmness.CHOICE)
    others = [Before(item, *here, firmness) for item in rest[:1]]
    others.append(Before(subject, *here, Firmness.CHOICE, part=Part(..., True, (key, function))))
    return Back((*places, *others), complete=bool(rest))


def _is_absent(origins: Origins, place: Before) -> bool:
    """Whether a container surely has nothing under a key."""
    found = origins.behind(place, None)
    return found.complete and not found.origins


def _with_fallback(
    origins: Origins,
    places: list[Before],
    rest: list[ast.expr],
    function: Function,
    activation: Activation | None,
) -> Back:
    """What is looked up, and the given default where nothing, or not everything, is known."""
    found = [origins.behind(place, None) for place in places]
    absent = all(item.complete and not item.origins for item in found)
    if rest and not all(item.complete and item.origins for item in found):
        firmness = Firmness.FIXED if absent else Firmness.DEFAULT
        places.append(Before(rest[0], function, activation, firmness))
    return Back(tuple(places[-1:] if absent else places))
