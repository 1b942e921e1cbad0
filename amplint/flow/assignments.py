"""Assignments: what statements bind, change, put into containers and delete, state by state."""

from __future__ import annotations

import ast

from amplint.code.expressions import last_name
from amplint.code.module import Function
from amplint.flow.call import Frame, callee_name
from amplint.flow.conditions import advanced, forget
from amplint.flow.events import Transitions
from amplint.flow.expressions import Expressions
from amplint.flow.functions import Runner
from amplint.flow.loops import HOOKS
from amplint.flow.markers import Markers, is_repeated
from amplint.flow.reader import Reader
from amplint.flow.slice import REORDERS
from amplint.flow.state import State
from amplint.flow.values import (
    CALLABLE_KINDS,
    HANDED,
    KEEPER,
    POSITIVE,
    UNBOUND,
    ZERO,
    Value,
    kind_of,
)


class Assignments(Expressions):
    """What assignments do to a state; nothing of blocks and ways out of them.

    Args:
        reader: reads expressions.
        transitions: applies protocol events.
        runner: interprets function bodies.
    """

    def __init__(self, reader: Reader, transitions: Transitions, runner: Runner) -> None:
        super().__init__(reader, transitions, runner)
        self.markers = Markers(reader.program)

    def assign(
        self, node: ast.Assign | ast.AnnAssign, states: list[State], frame: Frame
    ) -> list[State]:
        """`x = value`, `x: T = value`."""
        if node.value is None:
            return states
        if isinstance(node, ast.Assign) and self.markers.set_by(node, frame.function):
            return self._mark(node, states, frame)
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        normal = []
        for state in states:
            for after, value in self.expression(node.value, state, frame, binding=True):
                after = after.copy()
                for target in targets:
                    self.bind(target, value, after, frame)
                    if value is None and _is_something(node.value, frame.function):
                        self._note_some(target, after, frame)
                for location in self.calls.functions.blank(node, frame.function):
                    after.values[location] = UNBOUND
                normal.append(after)
        return normal

    def _note_some(self, target: ast.expr, state: State, frame: Frame) -> None:
        """Note, in place, that what was assigned is not None, where a test may ask for it."""
        asked = last_name(target) in self.program.slice(frame.function).guards.names
        location = self.reader.locate(target, state, frame.function) if asked else None
        if location is not None:
            state.facts["some", location] = True

    def _mark(self, node: ast.Assign, states: list[State], frame: Frame) -> list[State]:
        """`pending = SETTINGS.done`: if nobody knows the value, the tests of it tell nothing."""
        value = self.markers.value(node, frame.function)
        normal = [state.copy() for state in states]
        for state in normal:
            self.bind(node.targets[0], value, state, frame)
            if value is None and is_repeated(node, frame.function):
                self.transitions.havoc(state)
        return normal

    def fill_container(self, call: ast.Call, state: State, frame: Frame) -> list[State]:
        """`pending.append(x)`: the container is not empty any more."""
        place = call.func.value  # type: ignore[attr-defined]
        appends = callee_name(call) in ("append", "add") and len(call.args) == 1
        part = call.args[0] if appends else call
        filled = []
        for after, item in self.expression(part, state, frame, binding=True):
            location = self.reader.locate(place, after, frame.function)
            known = after.values.get(location) if location is not None else None
            if appends and known is None and self.calls.escapes.leads(item, after):
                after = after.copy()
                after.values[HANDED] = KEEPER
                if location is not None:
                    after.values[location] = KEEPER
            if location is not None and callee_name(call) == "clear":
                after = after.copy()
                forget(location, after)
                after.values[location] = ZERO
            elif location is not None and known is not None:
                after = after.copy()
                if callee_name(call) in REORDERS:
                    forget(location, after)
                    if callee_name(call) == "insert" and known in (ZERO, POSITIVE):
                        after.values[location] = POSITIVE
                else:
                    _put_into(location, known, item if appends else None, after)
            filled.append(after)
        return filled

    def augmented(self, node: ast.AugAssign, states: list[State], frame: Frame) -> list[State]:
        """`x += value`."""
        normal = []
        for state in states:
            old = (
                self.reader.raw(node.target, state, frame.function)
                if isinstance(node.target, (ast.Name, ast.Attribute))
                else None
            )
            for after, value in self.expression(node.value, state, frame):
                after = after.copy()
                shifted = self._shifted(node, after, frame)
                self.bind(node.target, _added(node.op, old, value), after, frame)
                if isinstance(node.target, ast.Attribute):
                    self.calls.edit_gradient(node, after)
                after.facts.update(shifted[0])
                after.values.update(shifted[1])
                normal.append(after)
        return normal

    def _shifted(self, node: ast.AugAssign, state: State, frame: Frame) -> tuple[dict, dict]:
        """Facts and values after `i += 1`: what held for i + 1 holds for i now."""
        step = node.value
        if not (
            isinstance(node.op, ast.Add) and isinstance(step, ast.Constant) and step.value == 1
        ):
            return {}, {}
        location = self._target_location(node.target, state, frame)
        if location is None:
            return {}, {}
        facts = {
            now: truth for atom, truth in state.facts.items() if (now := advanced(atom, location))
        }
        values = {
            place: ("formula", now)
            for place, value in state.values.items()
            if value is not None and value[0] == "formula" and (now := advanced(value[1], location))
        }
        return facts, values

    def delete(self, node: ast.Delete, states: list[State], frame: Frame) -> list[State]:
        """`del x`."""
        normal = [state.copy() for state in states]
        for state in normal:
            for target in node.targets:
                location = self._target_location(target, state, frame)
                if location:
                    forget(location, state)
        return normal


def _put_into(location: str, known: Value, item: Value, state: State) -> None:
    """Put something into a container, in place; a list of functions keeps its order."""
    assert known is not None
    held = known[1] if known[0] == "tuple" else ()
    if known in (ZERO, POSITIVE) or all(kind_of(part) in CALLABLE_KINDS for part in held):
        extends = kind_of(item) in CALLABLE_KINDS and known != POSITIVE and len(held) < HOOKS
        state.values[location] = ("tuple", (*held, item)) if extends else POSITIVE


def _added(operator: ast.operator, old: Value, value: Value) -> Value:
    """The value of `x op= value`: sums of non-negative numbers are positive afterwards."""
    for part in (old, value):
        if part is not None and part[0] in ("scaled", "opaque"):
            return part
    if not isinstance(operator, ast.Add) or old is None:
        return None
    counts = old[0] == "positive" or (
        old[0] == "const" and isinstance(old[1], (int, float)) and old[1] >= 0
    )
    grows = (
        value is None
        or value[0] in ("path", "positive")
        or (value[0] == "const" and isinstance(value[1], (int, float)) and value[1] > 0)
    )
    return POSITIVE if counts and grows else None


def _is_something(node: ast.expr, function: Function) -> bool:
    """Whether an expression is never None: arithmetic, what `torch.nn.functional` computes."""
    if isinstance(node, ast.Call):
        return (function.module.resolve(node.func) or "").startswith("torch.nn.functional.")
    return isinstance(node, ast.BinOp)
