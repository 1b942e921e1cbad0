"""A call while it is being evaluated, and small questions about its arguments."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace

from amplint.flow.state import State
from amplint.flow.values import Value
from amplint.project.module import Function, Module


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """One activation of a function during interpretation.

    Args:
        function: the function.
        depth: how many calls deep.
        active: the functions that are being interpreted, to stop recursion.
    """

    function: Function
    depth: int = 0
    active: tuple[Function, ...] = ()

    @property
    def entry(self) -> Module:
        """The module in which the interpretation began."""
        return self.active[0].module if self.active else self.function.module


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One call with its receiver and arguments evaluated.

    Args:
        node: the call expression.
        name: the last name of the callee: "step" for `scaler.step(...)`.
        receiver: value of the object before the dot, None if unknown or absent.
        values: value of each argument expression.
        state: the state in which the call happens.
        frame: the calling activation.
    """

    node: ast.Call
    name: str
    receiver: Value
    values: dict[ast.expr, Value]
    state: State
    frame: Frame

    @property
    def function(self) -> Function:
        """The calling function."""
        return self.frame.function

    @property
    def place(self) -> ast.expr:
        """The expression before the dot; the callee itself for plain calls."""
        func = self.node.func
        return func.value if isinstance(func, ast.Attribute) else func

    @property
    def optimizer(self) -> ast.expr | None:
        """The argument that names the optimizer of `step` or `unscale_`."""
        if self.node.args:
            first = self.node.args[0]
            return None if isinstance(first, ast.Starred) else first
        words = (word.value for word in self.node.keywords if word.arg == "optimizer")
        return next(words, None)

    def changed(self) -> Call:
        """The same call with a state of its own, free to be changed in place."""
        return replace(self, state=self.state.copy())

    def within(self, state: State) -> Call:
        """The same call in another state."""
        return replace(self, state=state)


def callee_name(node: ast.Call) -> str:
    """The last name of a callee: "step" for `scaler.step(...)`."""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def argument_expressions(node: ast.Call) -> list[ast.expr]:
    """Positional arguments, then keyword values, in source order."""
    return [*node.args, *(word.value for word in node.keywords)]


def is_super(place: ast.expr) -> bool:
    """Whether an expression is a call of `super`."""
    if not isinstance(place, ast.Call):
        return False
    return isinstance(place.func, ast.Name) and place.func.id == "super"


def keeps_zeros(node: ast.Call) -> bool:
    """Whether a zero_grad call asks for zeros instead of None."""
    values = [word.value for word in node.keywords if word.arg == "set_to_none"] + node.args[:1]
    return any(isinstance(value, ast.Constant) and value.value is False for value in values)
