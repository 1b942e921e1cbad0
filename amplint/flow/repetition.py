"""A training step that somebody calls again and again: the loop around it, nowhere to be seen."""

from __future__ import annotations

import ast

from amplint.amp.roles import roles_of
from amplint.amp.switches import switches
from amplint.code.arguments import parameters, receiver_of
from amplint.code.dataflow import bindings_of
from amplint.code.module import Function
from amplint.code.statements import blocks_of
from amplint.flow.conditions import mentions
from amplint.flow.facts import BACKWARD, SCALE, STEP, UPDATE, ZERO_GRAD
from amplint.flow.interpreter import Interpreter
from amplint.flow.leaving import drop_locals
from amplint.flow.merging import merge
from amplint.flow.program import Unit
from amplint.flow.state import State
from amplint.flow.values import Value, kind_of

SELF_CONTAINED = frozenset({BACKWARD, SCALE, STEP, ZERO_GRAD})


def is_called_per_batch(function: Function, unit: Unit, interpreter: Interpreter) -> bool:
    """Whether a function is a self-contained training step for one batch.

    Args:
        unit: the module under analysis, which may only inherit the function.
    """
    program = interpreter.program
    if function is unit.module.body or not program.facts(function).reach >= SELF_CONTAINED:
        return False
    reach = program.reach_of(function)
    if not reach >= SELF_CONTAINED:
        return False
    around = program.unit(function).facts.values()
    anywhere = any(UPDATE in other.words for other in around)
    if anywhere and UPDATE not in reach:
        return False
    return not _trains_whole_epochs(function, unit, interpreter)


def _trains_whole_epochs(function: Function, unit: Unit, interpreter: Interpreter) -> bool:
    """Whether the function, or one that it may call, loops around a backward."""
    followed = interpreter.calls.functions.inlined  # in whatever file
    by_name: dict[str, list[Function]] = {}
    for other in {**unit.facts, **dict.fromkeys(followed)}:
        by_name.setdefault(other.name, []).append(other)
    pending = [function]
    while pending:
        current = pending.pop()
        if _loops_around_backward(current, current.body, interpreter):
            return True
        for name in interpreter.program.facts(current).callees:
            pending += by_name.pop(name, ())
    return False


def _loops_around_backward(
    function: Function, body: list[ast.stmt], interpreter: Interpreter
) -> bool:
    for statement in body:
        block = statement.body if isinstance(statement, (ast.For, ast.While, ast.AsyncFor)) else []
        if BACKWARD in interpreter.loops.words(block, function):
            return True
        if any(
            _loops_around_backward(function, block, interpreter) for block in blocks_of(statement)
        ):
            return True
    return False


def next_call(
    states: list[State], function: Function, unit: Unit, interpreter: Interpreter
) -> list[State]:
    """The states in which the next call of a training step begins."""
    following = []
    for state in states:
        state = state.copy()
        interpreter.transitions.back_edge(state)
        state.note("again", function.node, function, None)
        keep = f"{function.label}:{receiver_of(function)}"
        instance = state.values.get(keep) if function.owner is not None else None
        lasting, given = _lasting_facts(state, function), _given(state, function)
        drop_locals(state, f"{function.label}:")
        state.facts.update(lasting)
        state.values.update(given)
        if instance is not None:
            state.values[keep] = instance
        following.append(state)
    return merge(following, unit.slicer.lasting)


def _given(state: State, function: Function) -> dict[str, Value]:
    """The constants that all calls pass, for parameters that the function leaves as they are."""
    places = {
        f"{function.label}:{name}"
        for name in parameters(function).keys() - bindings_of(function).keys()
    }
    return {
        place: value for place in places if kind_of(value := state.values.get(place)) == "const"
    }


def _lasts(path: str, function: Function) -> bool:
    """Whether a local path is what switches AMP on, or a scaler."""
    last = path.rpartition(".")[2]
    if last in switches(function.module):
        return True
    read = ast.parse(path, mode="eval").body if path.replace(".", "").isidentifier() else None
    return read is not None and roles_of(function.module).is_scaler(read, function)


def _lasting_facts(state: State, function: Function) -> dict[tuple, bool]:
    """What a call assumed about parameters that are the same in the next call.

    A scaler or an AMP switch is; a batch, a loss or "is this the boundary" is not.
    """
    prefix = f"{function.label}:"
    return {
        atom: truth
        for atom, truth in state.facts.items()
        if all(
            _lasts(m.removeprefix(prefix), function) for m in mentions(atom) if m.startswith(prefix)
        )
    }
