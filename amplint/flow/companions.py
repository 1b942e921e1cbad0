"""Counters that go up once in each round, beside the index of the loop.

`count = 0` before the loop and `count += 1` in it: from there on `count` is the index and one.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from amplint.code.dataflow import Binding, bindings_of
from amplint.code.layout import layout_of
from amplint.code.module import Function, walk

_Loop = ast.For | ast.AsyncFor


@dataclass(frozen=True, slots=True)
class _Counter:
    """A name that goes up by one in each round of a loop.

    Args:
        move: the statement that does it.
        index: the name that the loop counts its rounds by.
    """

    move: ast.AST
    loop: _Loop
    index: str


def companion(name: ast.Name, function: Function) -> tuple[str, bool] | None:
    """The index of the loop that a counter goes along with where it is read.

    Returns:
        The name, and whether the counter has gone up in this round; in its first round it was
        zero before. None for what is no such counter.
    """
    counter = function.once(_counters).get(name.id)
    if (
        counter is None
        or _place(name) < _place(counter.loop.body[0])
        or _is_taken(counter.index, counter.loop, name, function)
    ):
        return None
    return counter.index, _place(name) > _place(counter.move)


def _counters(function: Function) -> dict[str, _Counter]:
    """All such names of a function; asked of every test in each state, so found only once."""
    every = bindings_of(function)
    counters = {name: _counter(found, function) for name, found in every.items()}
    return {name: counter for name, counter in counters.items() if counter is not None}


def _counter(found: list[Binding], function: Function) -> _Counter | None:
    """What a name counts, by all its bindings."""
    moves = [item for item in found if isinstance(item.statement, ast.AugAssign)]
    if len(moves) != 1 or len(found) < 2:
        return None
    move = moves[0].statement
    loop = layout_of(function).parents.get(move)
    if not isinstance(loop, _Loop) or not _moves_each_round(move, loop):
        return None
    if not all(item is moves[0] or _starts(item, loop, function) for item in found):
        return None
    index = _index(loop)
    return None if index is None else _Counter(move, loop, index)


def _moves_each_round(move: ast.AST, loop: _Loop) -> bool:
    """Whether `+= 1` runs in every round of a loop."""
    assert isinstance(move, ast.AugAssign)
    by_one = isinstance(move.value, ast.Constant) and move.value.value == 1
    if not by_one or not isinstance(move.op, ast.Add) or move not in loop.body:
        return False
    before = loop.body[: loop.body.index(move)]
    ways_out = (ast.Break, ast.Continue)
    return not any(isinstance(node, ways_out) for item in before for node in walk(item))


def _starts(item: Binding, loop: _Loop, function: Function) -> bool:
    """Whether a binding sets a counter to zero whenever a loop is about to begin."""
    parents = layout_of(function).parents
    is_zero = isinstance(item.value, ast.Constant) and item.value.value == 0
    beside = parents.get(item.statement) is parents.get(loop)
    return is_zero and beside and _place(item.statement) < _place(loop)


def _index(loop: _Loop) -> str | None:
    """The name that a loop may count its rounds by."""
    target = loop.target.elts[0] if isinstance(loop.target, ast.Tuple) else loop.target
    return target.id if isinstance(target, ast.Name) else None


def _is_taken(index: str, loop: _Loop, name: ast.Name, function: Function) -> bool:
    """Whether something else binds the index between its loop and a place."""
    others = (item.statement for item in bindings_of(function).get(index, ()))
    return any(
        other is not loop and _place(loop) < _place(other) < _place(name) for other in others
    )


def _place(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
