"""Does an expression have one value in all rounds of a loop?

A test of an option chooses for the whole training, one of the batch for each step anew.
"""

from __future__ import annotations

import ast

from amplint.amp.view import AmpView
from amplint.code.arguments import parameters, receiver_of
from amplint.code.dataflow import bindings_of, bound_in, names_in, paths_bound_in
from amplint.code.expressions import path_text
from amplint.code.layout import layout_of
from amplint.code.module import Function

#: Methods of containers, running averages and progress bars that change what they stand for.
CHANGING = frozenset(("append", "extend", "update", "push"))


def is_loop_invariant(
    view: AmpView, expression: ast.expr, function: Function, loop: ast.AST | None = None
) -> bool:
    """Whether an expression says the same in each round of a loop, as far as the code shows.

    Args:
        loop: of the function; None for what repeats the function itself, where its parameters
            are taken to stay the same.
    """
    nodes = list(ast.walk(expression))
    if any(isinstance(node, ast.Call) for node in nodes):
        return False
    if loop is not None:
        return not _is_bound_in(expression, function, loop)
    return _is_plain(expression, function) and not any(
        isinstance(node, ast.Attribute) and _is_changed(view, node, function) for node in nodes
    )


def changes_by_round(
    view: AmpView, expression: ast.expr, function: Function, place: ast.AST
) -> bool:
    """Whether the innermost loop around a place of a function gives an expression new values.

    Where no loop is around it there, the loop around a call of the function counts.
    """
    loops = layout_of(function).loops(place)
    if loops:
        return _is_bound_in(expression, function, loops[0])
    return any(
        bool(around := layout_of(site.function).loops(site.node))
        and _is_bound_in(argument, site.function, around[0])
        for name in names_in(expression) & parameters(function).keys()
        for argument, site in view.objects.arguments(function, name).given
    )


def _is_bound_in(expression: ast.expr, function: Function, loop: ast.AST) -> bool:
    """Whether a loop binds a name of an expression, or an attribute that it reads."""
    paths = {path for node in ast.walk(expression) if (path := path_text(node))}
    read = paths | names_in(expression)
    bound = paths_bound_in(function, loop)
    return not read.isdisjoint(bound | bound_in(function, loop))


def _is_plain(expression: ast.expr, function: Function) -> bool:
    """Whether the names of an expression stand for constants and for attributes."""
    bindings = bindings_of(function)
    return all(
        isinstance(binding.value, (ast.Constant, ast.Attribute))
        for name in names_in(expression)
        for binding in bindings.get(name, [])
    )


def _is_changed(view: AmpView, field: ast.Attribute, function: Function) -> bool:
    """Whether methods of a class go on to change what an attribute of its objects holds."""
    owner = function.owner
    if owner is None or path_text(field.value) != receiver_of(function):
        return False
    methods = {
        method
        for each in view.objects.family(owner)
        for name, method in each.methods.items()
        if name != "__init__"
    }
    return any(
        isinstance(item, ast.Attribute) and item.attr == field.attr and _changes(method, item)
        for method in methods
        for item in method.nodes
    )


def _changes(method: Function, field: ast.Attribute) -> bool:
    """Whether a place of a method stores an attribute, or changes in place what it holds."""
    outer = layout_of(method).parents.get(field)
    in_place = isinstance(outer, ast.Attribute) and (
        outer.attr in CHANGING or outer.attr.endswith("_")
    )
    return in_place or isinstance(field.ctx, ast.Store)
