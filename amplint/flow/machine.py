"""What a path says about the machine: one without CUDA does not get past some calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from amplint.amp.machine import needs_cuda
from amplint.code.module import Function
from amplint.flow.conditions import CONNECTIVES, Formula, evaluate
from amplint.flow.events import Site
from amplint.flow.program import Program
from amplint.flow.state import State

_ASKS = "torch.cuda.is_available()"


def is_impossible(program: Program, state: State, site: Site, passed: Iterable[Function]) -> bool:
    """Whether a path without CUDA runs code that needs it.

    Args:
        passed: the functions that the path is in, or has run.
    """
    asked = {atom for fact in state.facts for atom in _atoms(fact) if _is_asked(atom)}
    if not any(evaluate(atom, state) is False for atom in asked):
        return False
    functions = {site.function, *passed}
    owners = {function.owner for function in functions if function.owner is not None}
    built = {program.find_method(owner, "__init__") for owner in owners}
    return any(
        needs_cuda(function, site.node if function is site.function else None)
        for function in functions | built
        if function is not None
    )


def _atoms(formula: Formula) -> Iterator[tuple]:
    if not isinstance(formula, tuple):
        return
    if formula[0] not in CONNECTIVES:
        yield formula
        return
    for part in (formula[1],) if formula[0] == "not" else formula[1]:
        yield from _atoms(part)


def _is_asked(atom: tuple) -> bool:
    return atom[0] == "other" and str(atom[1]).endswith(_ASKS)
