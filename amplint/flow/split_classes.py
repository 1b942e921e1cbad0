"""Classes whose callers run the backward: one method returns a scaled loss, a sibling steps."""

from __future__ import annotations

from collections.abc import Iterator

from amplint.code.module import Class, Function
from amplint.flow.budget import BudgetExceeded
from amplint.flow.call import Frame
from amplint.flow.entries import Entries
from amplint.flow.facts import BACKWARD, CLIP, SCALE, STEP, UNSCALE
from amplint.flow.interpreter import silent_interpreter
from amplint.flow.program import Program, Unit
from amplint.flow.state import State
from amplint.flow.typestates import EVERY
from amplint.protocol import Gradient


def split_steppers(
    unit: Unit, program: Program, entries: Entries
) -> Iterator[tuple[Function, list[State]]]:
    """Methods that clip and step what a sibling scaled, with states whose gradients are scaled.

    What the callers do between the two methods is not in sight: only that a clip comes before any
    `unscale_` of the class is certain.
    """
    for owner in unit.module.classes.values():
        words = [unit.facts[method].words for method in owner.methods.values()]
        reach = set().union(*words) if words else set()
        if not {SCALE, STEP, CLIP} <= reach or reach & {BACKWARD, UNSCALE}:
            continue
        scalers = _scaled_by_returns(owner, unit, program, entries)
        for method in owner.methods.values() if scalers else ():
            if {STEP, CLIP} <= unit.facts[method].words:
                states = entries.states(method)
                for state in states:
                    state.typestate[("gradient", EVERY)] = (Gradient.SCALED, scalers)
                yield method, states


def _scaled_by_returns(
    owner: Class, unit: Unit, program: Program, entries: Entries
) -> frozenset[str]:
    """Scalers of the object whose scaled losses some method of the class returns."""
    scalers: set[str] = set()
    for method in owner.methods.values():
        if SCALE not in unit.facts[method].words:
            continue
        interpreter = silent_interpreter(program, method)
        try:
            outcome = interpreter.run(Frame(method, active=(method,)), entries.states(method))
        except BudgetExceeded:
            program.work.leave(method)
            continue
        scalers |= {
            value[1]
            for _, value in outcome.returns
            if value is not None and value[0] == "scaled" and value[1].startswith(f"{owner.label}.")
        }
    return frozenset(scalers)
