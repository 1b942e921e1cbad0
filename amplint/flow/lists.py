"""Lists of functions and objects at the top of a module: `HOOKS = [Clip(), log_loss]`."""

from __future__ import annotations

import ast

from amplint.code.module import Function
from amplint.flow.program import Program
from amplint.flow.values import Value
from amplint.values.displays import fixed_display


def fixed_list(program: Program, node: ast.expr, function: Function) -> Value:
    """What a list holds, in order; None if it may hold anything else.

    Args:
        node: a place outside of all functions, read in `function`.
    """
    origin = fixed_display(program.objects.origins.of(node, function))
    if origin is None or not isinstance(origin.expression, (ast.List, ast.Tuple)):
        return None
    items = tuple(_item(program, item, origin.function) for item in origin.expression.elts)
    return ("tuple", items) if items and None not in items else None


def _item(program: Program, expression: ast.expr, function: Function) -> Value:
    """A function, or an object that nothing of the protocol happened to when it was built."""
    if not isinstance(expression, ast.Call):
        return program.find_callable(expression, function)
    owner = program.find_class(expression.func, function)
    if owner is None:
        return None
    constructor = program.find_method(owner, "__init__")
    if constructor is not None and program.facts(constructor).interesting:
        return None
    return ("instance", owner, f"{owner.label}@{expression.lineno}+{expression.col_offset}")
