"""Loops over parameters, and what is read of one parameter in them, or in what they call with it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from amplint.amp.names import PARAMETERS
from amplint.code.dataflow import bindings_of, constant_of, names_in
from amplint.code.expressions import last_name, path_text
from amplint.code.layout import layout_of
from amplint.code.module import Function, walk
from amplint.values.bindings import container_of
from amplint.values.conditions import conditions_at
from amplint.values.objects import Objects
from amplint.values.origins import Origins
from amplint.values.provenance import Condition, Origin

#: What is written with its elements.
DISPLAYS = (ast.List, ast.Tuple, ast.Dict)
#: Under these names optimizers keep their parameters.
_GROUPS = frozenset(("param_groups", "params"))


def loops_behind(
    place: ast.expr, function: Function, origins: Origins
) -> Iterator[tuple[Origin, ast.expr, Origin]]:
    """The loops whose variable an expression is, where it is bound or was handed in from.

    Returns:
        the variable as it is read in the loop, the target, and what the loop goes over.
    """
    for item in origins.aliases(place, function):
        turn = turn_of(item.expression, item.function)
        if turn is not None:
            over = item.at(turn.part.iter, item.function, item.activation)
            yield item, turn.part.target, over


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """What gives a variable one element after the other.

    Args:
        loop: the statement, or the comprehension.
        part: where its target and its iterable stand: the statement itself, or one of the
            comprehension's `for`.
    """

    loop: ast.AST
    part: ast.For | ast.AsyncFor | ast.comprehension


def turn_of(variable: ast.expr, function: Function) -> Turn | None:
    """The nearest loop or comprehension around a name that binds it."""
    layout, name = layout_of(function), path_text(variable)
    for node in layout.ancestors(variable) if variable in layout else ():
        for part in (node, *getattr(node, "generators", ())):
            is_loop = isinstance(part, (ast.For, ast.AsyncFor, ast.comprehension))
            if is_loop and name in names_in(part.target):
                return Turn(node, part)
    return None


def paths_in_turn(
    variable: ast.expr, function: Function, *, any_round: bool = False
) -> tuple[str, ...]:
    """The places that a loop variable stands for in each of its rounds, as the function writes them.

    Args:
        any_round: also where a test decides for which of them the loop comes to the variable.
    """
    turn = turn_of(variable, function) if isinstance(variable, ast.Name) else None
    if (
        turn is None
        or not isinstance(turn.loop, ast.stmt)
        or (tests_inside(variable, turn, function) and not any_round)
    ):
        return ()
    container = container_of(turn.part, path_text(variable) or "")
    made = bindings_of(function).get(path_text(container) or "", ()) if container else ()
    display = made[0].value if len(made) == 1 else container
    places = map(path_text, entries_of(display) or ())
    return (*filter(None, places), *places_held(container, display))


def places_held(container: ast.expr | None, display: ast.expr | None) -> list[str]:
    """The paths of what a list or a dict with a name holds: `nets['G']`, `nets[0]`."""
    name = path_text(container) if container is not None else None
    entries = entries_of(display) or []
    keys: list[object] = [*range(len(entries))]
    if isinstance(display, ast.Dict):
        keys = [*map(constant_of, display.keys)]
    return [f"{name}[{key!r}]" for key in keys] if name is not None else []


def tests_inside(node: ast.AST, turn: Turn, function: Function) -> list[Condition]:
    """The tests in a loop before a node, which may leave some of its elements out."""
    before = {item.test for item in conditions_at(turn.loop, function)}
    return [item for item in conditions_at(node, function) if item.test not in before]


def entries_of(display: ast.expr | None) -> list[ast.expr] | None:
    """What a list, a tuple or a dict is written with; None for anything else."""
    entries = display.values if isinstance(display, ast.Dict) else getattr(display, "elts", None)
    if entries is None or any(isinstance(item, ast.Starred) for item in entries):
        return None
    return list(entries)


def parameters_behind(place: ast.expr, function: Function, objects: Objects) -> ast.expr | None:
    """What a loop goes over whose variable an expression such as `p.grad.data` reads.

    The expression itself where that loop is in another function; None where it is not known to be
    one over parameters.
    """
    root = place
    while isinstance(root, (ast.Attribute, ast.Subscript)):
        root = root.value
    origins = objects.origins
    for _, _, iterable in loops_behind(root, function, origins):
        made = origins.of(iterable.expression, iterable.function, iterable.activation).origins
        if any(_lists_parameters(item.expression) for item in (iterable, *made)):
            return iterable.expression if iterable.function is function else place
    return None


def _lists_parameters(expression: ast.expr) -> bool:
    return any(
        (isinstance(part, ast.Call) and last_name(part.func) in PARAMETERS)
        or (isinstance(part, ast.Attribute) and part.attr in _GROUPS)
        or (isinstance(part, ast.Constant) and part.value in _GROUPS)
        for part in walk(expression)
    )
