"""Where the scalers of a file come from: constructors, and factories in whatever file."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from amplint.project.dataflow import bindings_of, constant_of
from amplint.project.module import Function
from amplint.project.objects import returned
from amplint.project.roles import Role, path_text

if TYPE_CHECKING:
    from amplint.rule import FileView


@dataclass(frozen=True, slots=True, eq=False)
class BuiltScaler:
    """A call of the checked file that gives it a new GradScaler.

    Args:
        call: in the checked file: the constructor, or the factory that calls it.
        function: the function that holds `call`.
        target: what it is assigned to, as source text; "" when it is not assigned directly.
        constructor: the call of the constructor itself.
        factory: the function that holds `constructor`; None where that is `call`.
    """

    call: ast.Call
    function: Function
    target: str
    constructor: ast.Call
    factory: Function | None = None

    @property
    def is_off(self) -> bool:
        """Whether the scaler is disabled by a constant."""
        given = {item.arg: item.value for item in self.constructor.keywords}
        return constant_of(given.get("enabled")) is False


def built_scalers(view: FileView) -> Iterator[BuiltScaler]:
    """Every scaler that the checked file builds, or lets another function build."""
    for built in view.roles.constructions:
        target = built.target or _chosen_for(built.call, built.function)
        yield BuiltScaler(built.call, built.function, target, built.call)
    for function in view.module.functions:
        for target, bindings in bindings_of(function).items():
            for binding in bindings:
                if isinstance(binding.value, ast.Call):
                    yield from _from_factory(view, binding.value, function, target)


def _chosen_for(call: ast.Call, function: Function) -> str:
    """What `x = GradScaler() if amp else None` assigns a constructor call to, or ""."""
    for target, bindings in bindings_of(function).items():
        for binding in bindings:
            value = binding.value
            if isinstance(value, ast.IfExp) and call in (value.body, value.orelse):
                return target
    return ""


def _from_factory(
    view: FileView, call: ast.Call, function: Function, target: str
) -> Iterator[BuiltScaler]:
    """The scaler that a called function of the project builds and returns, if it always does."""
    if view.roles.role_of(call, function) is not None:
        return
    factory = view.objects.callee(call, function)
    if factory is None or factory.name == "__init__":
        return
    built = [_constructor(view, value, factory) for value in returned(factory)]
    if built and all(item is not None for item in built):
        assert built[0] is not None
        yield BuiltScaler(call, function, target, built[0], factory)


def _constructor(view: FileView, value: ast.expr, factory: Function) -> ast.Call | None:
    """The constructor call that a returned expression stands for."""
    if isinstance(value, ast.Name):
        bindings = bindings_of(factory).get(value.id, [])
        value = bindings[0].value if len(bindings) == 1 and bindings[0].value else value
    roles = view.objects.project.roles_of(factory.module)
    if not isinstance(value, ast.Call) or roles is None:
        return None
    return value if roles.role_of(value, factory) is Role.SCALER else None


def is_handed_to(call: ast.Call, path: str) -> bool:
    """Whether an object is among the arguments of a call."""
    given = [*call.args, *(item.value for item in call.keywords)]
    return any(path_text(argument) == path for argument in given)
