"""What values hold of graphs: nodes of layers, containers, objects, and what two of them share.

A value is a set of nodes; a tuple or a dict of values; what all elements of a container have in
common; an object; a layer; None for anything unknown.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from amplint.code.dataflow import constant_of
from amplint.code.module import Class

#: A layer's call, with the calls and the repeated loops that lead to it.
Node = tuple[ast.AST, ...]
NOTHING: frozenset[Node] = frozenset()
Value = Any


@dataclass(frozen=True, slots=True, eq=False)
class Object:
    """An object of a class of the project.

    Args:
        place: the names that lead to it from where the analysis began; () if it is not known
            which object of the class it is.
    """

    owner: Class
    place: tuple[str, ...] = ()


class _Layer:
    """A module of `torch.nn` with parameters."""


LAYER = _Layer()


@dataclass(frozen=True, slots=True, eq=False)
class Each:
    """A container of several elements, how many is not known.

    Args:
        element: what is certain of each of them.
        keyed: whether it is a dict: a loop over it takes the keys.
    """

    element: Value
    keyed: bool = False


def flat(value: Value) -> frozenset[Node]:
    """All nodes of a value, those of its elements included."""
    if isinstance(value, frozenset):
        return value
    if isinstance(value, tuple):
        return union(value)
    if isinstance(value, dict):
        return union(value.values())
    return flat(value.element) if isinstance(value, Each) else NOTHING


def union(values: Iterable[Value]) -> frozenset[Node]:
    """All nodes of several values."""
    return NOTHING.union(*map(flat, values))


def common(one: Value, two: Value) -> Value:
    """What is certain whichever of two values it is."""
    if isinstance(one, Object) and isinstance(two, Object) and one.owner is two.owner:
        return one if one.place == two.place else Object(one.owner)
    if same(one, two):
        return one
    if isinstance(one, tuple) and isinstance(two, tuple) and len(one) == len(two):
        return tuple(common(left, right) for left, right in zip(one, two, strict=True))
    if isinstance(one, frozenset) and isinstance(two, frozenset):
        return one & two
    return None


def same(one: Value, two: Value) -> bool:
    """Whether two values are one, as far as objects are told apart."""
    if isinstance(one, Object) and isinstance(two, Object):
        return one.owner is two.owner
    return one is two


def looked_up(value: Value, index: ast.expr) -> Value:
    """What stands in a container under an index; several results of a layer share its graph."""
    key = constant_of(index)
    if isinstance(value, Each):
        return None if isinstance(index, ast.Slice) else value.element
    if isinstance(value, dict):
        return value[key] if key in value else _of_all(value.values())
    if isinstance(value, tuple):
        return value[key] if isinstance(key, int) and key < len(value) else None
    return value if isinstance(value, frozenset) else None


def elements(value: Value) -> Value:
    """What is certain of each element that a loop over a container takes, one after the other."""
    if isinstance(value, Each):
        return None if value.keyed else value.element
    return _of_all(value) if isinstance(value, tuple) else None


def entries(value: Value) -> Value:
    """What is certain of everything that a dict holds."""
    if isinstance(value, dict):
        return _of_all(value.values())
    return value.element if isinstance(value, Each) and value.keyed else None


def _of_all(values: Iterable[Value]) -> Value:
    """What several values have in common; nothing is said of a single one: no second one follows."""
    first, *others = [*values] or [None]
    for other in others:
        first = common(first, other)
    return first if others else None


def without(value: Value, made_in: ast.AST) -> Value:
    """A value without the nodes that were made inside of a place."""
    if isinstance(value, frozenset):
        return frozenset(node for node in value if made_in not in node)
    if isinstance(value, tuple):
        return tuple(without(item, made_in) for item in value)
    if isinstance(value, dict):
        return {key: without(item, made_in) for key, item in value.items()}
    if isinstance(value, Each):
        return Each(without(value.element, made_in), value.keyed)
    return value


def unpacked(value: Value, count: int) -> tuple[Value, ...]:
    """The parts of a tuple; several results of one layer share its graph."""
    if isinstance(value, tuple) and len(value) == count:
        return value
    return (value if isinstance(value, frozenset) else None,) * count
