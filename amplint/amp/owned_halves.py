"""Which modules of an optimizer have half-precision parameters that it trains.

An optimizer that takes those of a module that ask for a gradient may leave out just the ones that
are half. Not where all of the module's parameters are: whichever are frozen, the others are half,
and torch refuses an optimizer without any (`torch/optim/optimizer.py`: "optimizer got an empty
parameter list").
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amplint.amp.casts import cast_of
from amplint.amp.halves import Half, halves_of
from amplint.amp.model_uses import Use, uses_of
from amplint.amp.ownership import Owned
from amplint.amp.parameter_loops import turn_of
from amplint.amp.parameter_sets import Taken
from amplint.amp.view import AmpView
from amplint.code.dataflow import arguments, bindings_of
from amplint.code.expressions import path_text
from amplint.code.layout import layout_of
from amplint.code.looking import only_looks
from amplint.code.module import Function
from amplint.code.tree import walk
from amplint.values.provenance import Condition, Origin


def owned_halves(
    view: AmpView, every: Iterable[Owned], step: ast.AST, wanted: str = "float16"
) -> Iterator[tuple[Owned, Half]]:
    """The modules among those of an optimizer that it trains in half precision, and why they are.

    Args:
        every: the modules of all optimizers that one expression may be.
        step: where the optimizer is used, which sees the casts before it.
    """
    every = list(every)
    found = [(owned, _halves(view, owned, step, wanted)) for owned in every]
    for owned, halves in found:
        beside = [item for other, item in found if other.optimizer is owned.optimizer]
        for half in halves:
            if owned.taken is Taken.ALL or all(_is_half_with(half, item) for item in beside):
                yield owned, half


def _halves(view: AmpView, owned: Owned, step: ast.AST, wanted: str) -> list[Half]:
    if owned.taken is Taken.SOME:
        return []
    halves = halves_of(view, owned.module, [step, *_ways(owned)], wanted)
    if halves and any(_casts_elements(view, place, wanted) for place in owned.kept):
        return []
    if owned.taken is Taken.ALL or not halves:
        return halves
    return [] if _may_differ(view, owned, wanted) else [half for half in halves if half.whole]


def _ways(owned: Owned) -> list[ast.AST]:
    """The places by which a built optimizer comes to its use."""
    return [item.node for item in owned.optimizer.steps]


def _is_half_with(half: Half, others: list[Half]) -> bool:
    """Whether all of another module is half, too, wherever one is: none of the two is left over."""
    holds = {_text(item) for item in half.conditions}
    return any(
        other.whole and holds.issuperset(_text(item) for item in other.conditions)
        for other in others
    )


def _text(condition: Condition) -> tuple[Function, str, bool]:
    return condition.function, ast.unparse(condition.test), condition.side


def _may_differ(view: AmpView, owned: Owned, wanted: str) -> bool:
    """Whether something before the optimizer is built may give a module parameters of another dtype."""
    uses = [owned.optimizer.expression, *_ways(owned)]
    module = owned.module
    for place in view.values.origins.aliases(module.expression, module.function, module.activation):
        path, layout = path_text(place.expression), layout_of(place.function)
        if path is None or path in ("self", "cls"):
            continue
        after = [use for use in uses if use in layout]
        nodes = [
            node
            for node in layout.nodes
            if not after or any(layout.reaches(node, use) for use in after)
        ]
        if _replaces_part(path, place.function):
            return True
        if any(_changes(view, use, wanted) for use in uses_of(view, path, place.function, nodes)):
            return True
    return False


def _casts_elements(view: AmpView, container: Origin, wanted: str) -> bool:
    """Whether a function may cast elements of a container to another dtype, under any name."""
    path, function = path_text(container.expression), container.function
    calls = (node for node in layout_of(function).nodes if isinstance(node, ast.Call))
    return path is not None and any(
        _may_cast(view, call, item, function, wanted)
        for call in calls
        for item in (*_receivers(call), *arguments(call))
        if path in _containers(item, function)
    )


def _may_cast(
    view: AmpView, call: ast.Call, element: ast.expr, function: Function, wanted: str
) -> bool:
    """Whether a call casts an element that it is a method of, or hands it to code out of sight."""
    if element in _receivers(call):
        cast = cast_of(view, call, Origin(call, function), wanted)
        return cast is not None and cast.dtype != wanted
    dotted = function.module.resolve(call.func) or ""
    return not (dotted.startswith("torch.") or only_looks(call, function))


def _receivers(call: ast.Call) -> list[ast.expr]:
    return [call.func.value] if isinstance(call.func, ast.Attribute) else []


def _containers(element: ast.expr, function: Function) -> set[str | None]:
    """What a function calls the containers that an expression is an element of."""
    if isinstance(element, ast.Subscript):
        return {path_text(element.value)}
    turn = turn_of(element, function) if isinstance(element, ast.Name) else None
    parts = walk(turn.part.iter) if turn is not None else ()
    return {path_text(node) for node in parts if isinstance(node, ast.expr)} - {None}


def _changes(view: AmpView, use: Use, wanted: str) -> bool:
    """Whether a use of a module may cast a part of it, or put in another one."""
    if not use.followed or _replaces_part(use.path, use.function):
        return True
    callee = use.call.func
    if not isinstance(callee, ast.Attribute) or not _is_below(callee.value, use.path):
        return False
    cast = cast_of(view, use.call, Origin(use.call, use.function), wanted)
    return cast is not None and cast.dtype != wanted


def _is_below(place: ast.expr, path: str) -> bool:
    return (path_text(place) or "").startswith((path + ".", path + "["))


def _replaces_part(path: str, function: Function) -> bool:
    return any(bound.startswith((path + ".", path + "[")) for bound in bindings_of(function))
