"""The parts of what switches a scaler or an autocast, so that two switches can be compared.

`enabled=amp` of a caller and `enabled=use_amp` of its callee are one switch where their values come from
one place.
"""

from __future__ import annotations

import ast

from amplint.amp.roles import Role
from amplint.amp.switches import asked_for_its_switch, switch_given
from amplint.amp.view import AmpView
from amplint.code.dataflow import constant_of, definitions
from amplint.code.expressions import path_text
from amplint.code.module import Function
from amplint.values.provenance import NO_DATA

#: The parts of a switch, as text; each with its expression and the function that reads it.
Parts = dict[str, tuple[ast.expr, Function]]


def parts_of(
    view: AmpView, expression: ast.expr, function: Function, depth: int = 4
) -> Parts | None:
    """The parts of an `and`, names replaced by their only definition; None if it is False."""
    value = constant_of(expression)
    if isinstance(value, bool):
        return {} if value else None
    if isinstance(expression, ast.BoolOp) and isinstance(expression.op, ast.And):
        parts = [parts_of(view, part, function, depth) for part in expression.values]
        known = [part for part in parts if part is not None]
        complete = len(known) == len(parts)
        return {text: place for part in known for text, place in part.items()} if complete else None
    bindings = definitions(view.module, expression, function) or []
    binding = bindings[0] if len(bindings) == 1 and depth else None
    if binding is not None and isinstance(
        binding.value, (ast.Name, ast.Attribute, ast.BoolOp, ast.Constant)
    ):
        return parts_of(view, binding.value, binding.function, depth - 1)
    scalers = view.roles.constructions
    if depth and len(scalers) == 1 and _asks_scaler(view, expression, function):
        built = scalers[0]
        return parts_of(view, switch_given(built.call, built.dotted), built.function, depth - 1)
    return {_as_made(view, expression, function): (expression, function)}


def _as_made(view: AmpView, expression: ast.expr, function: Function) -> str:
    """A part of a switch as text, in which places stand for where their values come from.

    So `device == "cuda"` of a function is the test of its caller, who passes `config.device`.
    """
    if isinstance(expression, ast.UnaryOp) and isinstance(expression.op, ast.Not):
        return f"not {_as_made(view, expression.operand, function)}"
    if isinstance(expression, ast.Compare):
        operands: list[ast.expr] = [
            ast.Name(_as_made(view, operand, function))
            for operand in (expression.left, *expression.comparators)
        ]
        return ast.unparse(ast.Compare(operands[0], expression.ops, operands[1:]))
    if path_text(expression) is None:
        return ast.unparse(expression)
    found = view.values.origins.of(expression, function)
    places = sorted(
        f"{item.function.module.filename}:{item.expression.lineno}:{item.expression.col_offset}"
        for item in found.origins
        if item.data is NO_DATA  # of a file one expression loads all entries
    )
    is_known = found.complete and places and len(places) == len(found.origins)
    return " or ".join(places) if is_known else ast.unparse(expression)


def _asks_scaler(view: AmpView, flag: ast.expr, function: Function) -> bool:
    """Whether a switch is what the scaler says of itself, as far as calls are in sight.

    An object that nothing is known of may be the scaler.
    """
    found = view.values.origins.of(flag, function).origins
    asked = [(asked_for_its_switch(item.expression), item.function) for item in found]
    return bool(asked) and all(
        scaler is not None and view.roles.role_of(scaler, where) in (Role.SCALER, None)
        for scaler, where in asked
    )
