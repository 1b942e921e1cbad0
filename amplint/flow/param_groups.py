"""Optimizers whose parameter groups an expression goes over: `o.param_groups for o in optimizers`."""

from __future__ import annotations

import ast

from amplint.code.module import Function, walk
from amplint.flow.properties import only_return
from amplint.flow.reader import Reader
from amplint.flow.state import State
from amplint.flow.values import Value, kind_of


def grouped_in(node: ast.expr, state: State, function: Function, reader: Reader) -> frozenset[str]:
    """The optimizers whose groups an expression reads, here or in a method that only returns them.

    All of them, or none: of an element that nobody knows it is not known which one it is.
    """
    entered = reader.given(node, state, function) if isinstance(node, ast.Call) else None
    returned = only_return(entered[0]) if entered is not None else None
    if entered is not None and returned is not None:
        return grouped_in(returned, entered[1], entered[0], reader)
    parts = [part for part in walk(node) if isinstance(part, ast.Attribute)]
    read = [part.value for part in parts if part.attr == "param_groups"]
    values = [value for each in read for value in _values(each, node, state, function, reader)]
    if not all(kind_of(value) == "optimizer" for value in values):
        return frozenset()
    return frozenset(value[1] for value in values if value is not None)


def _values(
    place: ast.expr, node: ast.expr, state: State, function: Function, reader: Reader
) -> tuple[Value, ...]:
    """What a place inside an expression stands for: of what a comprehension binds, each element."""
    comprehensions = (part for part in walk(node) if isinstance(part, ast.comprehension))
    for part in comprehensions:
        target = part.target
        if not isinstance(place, ast.Name) or not isinstance(target, ast.Name):
            continue
        if target.id == place.id:
            held = reader.listed(part.iter, state, function)
            is_whole = held is not None and held[0] == "tuple" and not part.ifs
            return held[1] if held is not None and is_whole else (None,)
    return (reader.place(place, state, function),)
