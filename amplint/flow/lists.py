"""Lists of functions and objects at the top of a module: `HOOKS = [Clip(), log_loss]`."""

from __future__ import annotations

import ast

from amplint.code.dataflow import fills_of
from amplint.code.expressions import path_text
from amplint.code.module import Function
from amplint.flow.program import Program
from amplint.flow.values import Value
from amplint.values.provenance import Firmness, Origin


def fixed_list(program: Program, node: ast.expr, function: Function) -> Value:
    """What a list holds, in order; None if it may hold anything else.

    Args:
        node: a place outside of all functions, read in `function`.
    """
    found = program.objects.origins.of(node, function)
    if len(found.origins) != 1 or not found.complete:
        return None
    (origin,) = found.origins
    display = origin.expression
    if not isinstance(display, (ast.List, ast.Tuple)) or _may_change(origin):
        return None
    items = tuple(_item(program, item, origin.function) for item in display.elts)
    return ("tuple", items) if items and None not in items else None


def _may_change(origin: Origin) -> bool:
    """Whether a list is one of several, or some function of its file fills one at a place."""
    module = origin.function.module
    if origin.firmness is not Firmness.FIXED or origin.function is not module.body:
        return True
    names = {
        path_text(target)
        for statement in module.tree.body
        if isinstance(statement, ast.Assign) and statement.value is origin.expression
        for target in statement.targets
    }
    return not names or any(names & fills_of(other).keys() for other in module.functions)


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
    return ("instance", owner, f"{owner.label}@{expression.lineno}")
