"""Which arguments of a call its result still has a graph to."""

from __future__ import annotations

import ast

from amplint.amp.view import AmpView
from amplint.code.arguments import parameters
from amplint.code.definitions import is_stub
from amplint.code.module import Function
from amplint.gradflow.interpreter import Interpreter
from amplint.gradflow.values import ANYTHING, LEAF, Flow

_LAZY = (ast.Yield, ast.YieldFrom)


def hands_on(view: AmpView, call: ast.Call, part: ast.AST, function: Function) -> bool:
    """Whether gradients of what a call returns may come back to a part of one of its arguments.

    Code out of sight hands on all that it is given.
    """
    callee = view.objects.callee(call, function)
    if callee is None or callee.name == "__init__" or is_stub(callee):
        return True
    if getattr(callee.node, "decorator_list", ()) or any(
        isinstance(node, _LAZY) for node in callee.nodes
    ):
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
