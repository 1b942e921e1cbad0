"""A call while it is being evaluated, and small questions about its arguments."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, replace

from amplint.code.arguments import Passed, passed, receiver_of, written
from amplint.code.dataflow import bindings_of
from amplint.code.expressions import callee_of, last_name
from amplint.code.module import Function, Module, walk
from amplint.flow.state import State
from amplint.flow.values import Value

#: A bound argument: its keyword or None, its expression, its value.
Bound = tuple["str | None", ast.expr, Value]


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
        bound: arguments that `partial` has bound: (keyword or None, expression, value).
        whose: the participant of a method that is called by another name.
    """

    node: ast.Call
    name: str
    receiver: Value
    values: dict[ast.expr, Value]
    state: State
    frame: Frame
    bound: tuple[Bound, ...] = ()
    whose: str = ""

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
    def receiver_text(self) -> str:
        """The object before the dot as the code writes it."""
        return self.whose or ast.unparse(self.place)

    @property
    def passed(self) -> Passed:
        """What is passed, bound arguments first."""
        positional = tuple(part for word, part, _ in self.bound if word is None)
        named = {word: part for word, part, _ in self.bound if word is not None}
        return Passed(positional, named).then(written(self.node))

    @property
    def positional(self) -> tuple[ast.expr, ...]:
        """Positional arguments, bound ones first."""
        return self.passed.positional

    @property
    def named(self) -> Mapping[str, ast.expr]:
        """Keyword arguments; what the call passes replaces what was bound. No `**` among them."""
        return self.passed.named

    @property
    def optimizer(self) -> ast.expr | None:
        """The argument that names the optimizer of `step` or `unscale_`."""
        if self.positional:
            first = self.positional[0]
            return None if isinstance(first, ast.Starred) else first
        return self.named.get("optimizer")

    def is_bound(self, argument: ast.expr) -> bool:
        """Whether an argument was evaluated elsewhere, by `partial`."""
        return any(part is argument for _, part, _ in self.bound)

    def with_bound(self, bound: tuple[Bound, ...]) -> Call:
        """The same call with arguments that were bound before."""
        values = {**{part: value for _, part, value in bound}, **self.values}
        return replace(self, bound=(*bound, *self.bound), values=values)

    def changed(self) -> Call:
        """The same call with a state of its own, free to be changed in place."""
        return replace(self, state=self.state.copy())

    def within(self, state: State) -> Call:
        """The same call in another state."""
        return replace(self, state=state)


def callee_name(node: ast.Call) -> str:
    """The last name of a callee: "step" for `scaler.step(...)`, and of `partial(step, x)()`."""
    callee = callee_of(node)
    return last_name(callee) if isinstance(callee, (ast.Attribute, ast.Name)) else ""


def argument_expressions(node: ast.Call) -> list[ast.expr]:
    """Positional arguments, then keyword values; of `*(a, b)` and `**{"key": a}` the parts."""
    return written(node).every()


def given_to(node: ast.Call) -> list[ast.expr]:
    """What a call hands to what it runs: its arguments, and those that `partial` has bound."""
    return passed(node).every()


def is_super(place: ast.expr) -> bool:
    """Whether an expression is a call of `super`."""
    if not isinstance(place, ast.Call):
        return False
    return isinstance(place.func, ast.Name) and place.func.id == "super"


def keeps_zeros(node: ast.Call) -> bool:
    """Whether a zero_grad call asks for zeros instead of None."""
    values = [word.value for word in node.keywords if word.arg == "set_to_none"] + node.args[:1]
    return any(isinstance(value, ast.Constant) and value.value is False for value in values)


def scaler_text(call: Call, scaler: str) -> str:
    """The scaler of a backward as the code writes it where it scales, else by its place alone.

    Args:
        scaler: the place.
    """
    made = [call.place]
    if isinstance(call.place, ast.Name):
        found = bindings_of(call.function).get(call.place.id, ())
        made = [item.value for item in found if item.value is not None]
    for callee in (part.func for item in made for part in walk(item) if isinstance(part, ast.Call)):
        if isinstance(callee, ast.Attribute) and callee.attr == "scale":
            return ast.unparse(callee.value)
    whole, _, rest = scaler.partition(".")
    own = receiver_of(call.function)
    return f"{own}.{rest}" if own and rest and "@" in whole else scaler.rpartition(":")[2]
