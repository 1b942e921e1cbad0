"""What a path says about the machine: one without CUDA does not get past some calls."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amplint.amp.machine import needs_cuda
from amplint.amp.names import DEVICE_GRAD_SCALERS, GRAD_SCALERS
from amplint.amp.roles import Role
from amplint.code.arguments import written_argument
from amplint.code.dataflow import constant_of
from amplint.code.module import Function
from amplint.flow.conditions import CONNECTIVES, Formula, evaluate
from amplint.flow.events import Site
from amplint.flow.program import Program
from amplint.flow.state import State

_ASKS = "torch.cuda.is_available()"


def is_impossible(
    program: Program, state: State, site: Site, passed: Iterable[Function], *, scales: bool
) -> bool:
    """Whether a path without CUDA runs code that needs it, or is about a scaler that is off there.

    Args:
        passed: the functions that the path is in, or has run.
        scales: whether what is wrong there needs a scaler that is on.
    """
    asked = {atom for fact in state.facts for atom in _atoms(fact) if _is_asked(atom)}
    if not any(evaluate(atom, state) is False for atom in asked):
        return False
    functions = {site.function, *passed}
    if scales and _scales_on_cuda(program, functions):
        return True
    owners = {function.owner for function in functions if function.owner is not None}
    built = {program.find_method(owner, "__init__") for owner in owners}
    return any(
        needs_cuda(function, site.node if function is site.function else None)
        for function in functions | built
        if function is not None
    )


def _scales_on_cuda(program: Program, functions: Iterable[Function]) -> bool:
    """Whether all scalers that the files of a path build are for CUDA.

    Without CUDA such a scaler switches itself off: torch/amp/grad_scaler.py, `GradScaler.__init__`.
    """
    built = [
        site
        for module in {function.module for function in functions}
        for site in module.calls
        if program.roles(module.body).call_role(site.node, site.function) is Role.SCALER
    ]
    return bool(built) and all(_is_for_cuda(site.node, site.function) for site in built)


def _is_for_cuda(constructor: ast.Call, function: Function) -> bool:
    dotted = function.module.resolve(constructor.func)
    if dotted is None or dotted not in GRAD_SCALERS:
        return False
    if dotted in DEVICE_GRAD_SCALERS:
        return ".cuda." in dotted
    given = written_argument(constructor, "device", 0)
    return given is None or constant_of(given) == "cuda"


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
