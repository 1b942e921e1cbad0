"""How it is known that an expression is a scaler or an optimizer: by code, by use, by its name."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from amplint.amp.roles import Role, Roles
from amplint.amp.uses import key_of, uses_of
from amplint.code.expressions import path_text
from amplint.code.module import Function, enclosing_class
from amplint.findings import Standing

#: What a scaler and an optimizer are asked -> how many arguments they are given. Two of these on
#: one object are no accident; `unscale_`, and the backward of what `scale` gives, stand alone.
_SCALER_USES: Mapping[str, int] = {"scale": 1, "unscale_": 1, "step": 1, "update": 0}
_OPTIMIZER_USES: Mapping[str, int] = {"step": 0, "zero_grad": 0}
_ENOUGH = 2


def standing_of(expression: ast.expr, function: Function, roles: Roles, role: Role) -> Standing:
    """How it is known that an expression has a role where a function reads it."""
    if isinstance(expression, ast.Call) or _is_built(expression, function, roles):
        return Standing.CODE
    if roles.by_value is not None and roles.by_value(expression, function) is role:
        return Standing.CODE
    path = path_text(expression)
    if path is None:
        return Standing.GUESS
    by_use = _used_as_scaler if role is Role.SCALER else _used_as_optimizer
    return Standing.USE if by_use(path, function, roles) else Standing.GUESS


def _is_built(expression: ast.expr, function: Function, roles: Roles) -> bool:
    return any(key in roles.built for key in roles.keys(expression, function))


def _used_as_scaler(path: str, function: Function, roles: Roles) -> bool:
    if key_of(function, path) in roles.module.once(uses_of).scalers:
        return True
    return len(_uses(path, function, _SCALER_USES)) >= _ENOUGH


def _used_as_optimizer(path: str, function: Function, roles: Roles) -> bool:
    """Whether a scaler that is one by more than its name steps or unscales it, or two of its own."""
    if len(_uses(path, function, _OPTIMIZER_USES)) >= _ENOUGH:
        return True
    for call in _calls(path, function):
        callee = call.func
        if not isinstance(callee, ast.Attribute) or callee.attr not in ("step", "unscale_"):
            continue
        if [path_text(item) for item in call.args] == [path]:
            stepping = standing_of(callee.value, function, roles, Role.SCALER)
            return stepping is not Standing.GUESS
    return False


def _uses(path: str, function: Function, shapes: Mapping[str, int]) -> set[str]:
    """The methods of a path that a function calls, those of a class all its methods, by shape."""
    return {
        call.func.attr
        for call in _calls(path, function)
        if isinstance(call.func, ast.Attribute)
        and shapes.get(call.func.attr) == len(call.args)
        and path_text(call.func.value) == path
    }


def _calls(path: str, function: Function) -> Iterator[ast.Call]:
    owner = enclosing_class(function) if path.startswith(("self.", "cls.")) else None
    for item in owner.methods.values() if owner is not None else (function,):
        yield from (node for node in item.nodes if isinstance(node, ast.Call))
