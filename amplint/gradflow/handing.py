"""Which arguments of a call its result still has a graph to."""

from __future__ import annotations

import ast

from amplint.amp.grad_modes import switched
from amplint.amp.view import AmpView
from amplint.code.arguments import parameters
from amplint.code.definitions import is_stub
from amplint.code.layout import layout_of
from amplint.code.module import Function
from amplint.gradflow.interpreter import Interpreter
from amplint.gradflow.values import ANYTHING, LEAF, Flow

_LAZY = (ast.Yield, ast.YieldFrom)


def is_handed_on(view: AmpView, part: ast.AST, whole: ast.AST, function: Function) -> bool:
    """Whether the calls around a part of an expression hand gradients on to it."""
    layout = layout_of(function)
    if part is whole or part not in layout:
        return True
    for around in layout.ancestors(part):
        if isinstance(around, ast.Call) and not _hands_on(view, around, part, function):
            return False
        if around is whole:
            break
    return True


def _hands_on(view: AmpView, call: ast.Call, part: ast.AST, function: Function) -> bool:
    """Whether gradients of what a call returns may come back to a part of one of its arguments.

    Code out of sight hands on all that it is given, and so may what a decorator makes of a function.
    """
    callee = view.objects.callee(call, function)
    if callee is None or callee.name == "__init__" or is_stub(callee):
        return True
    decorators = getattr(callee.node, "decorator_list", ())
    if not all(switched(item, callee.module) for item in decorators):
        return True
    if any(isinstance(node, _LAZY) for node in callee.nodes):
        return True
    bound = view.objects.bind(call, function, callee)
    filled = [name for name, value in bound.given.items() if _holds(value, part)]
    reached = view.once(_reached, callee)
    return not filled or any(name in reached for name in filled)


def _holds(expression: ast.AST, part: ast.AST) -> bool:
    return any(node is part for node in ast.walk(expression))


def _reached(view: AmpView, function: Function) -> frozenset[str]:
    """The parameters whose gradients a function's result reaches, by all that is known."""
    names = parameters(function)
    given = {name: Flow(frozenset({name, ANYTHING})) for name in names}
    interpreter = Interpreter(view.objects, made=given, values=view.values)
    reached = interpreter.result_of(function).connected - {ANYTHING, LEAF}
    return frozenset(names) if interpreter.gave_up else reached
