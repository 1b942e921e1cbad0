"""Whether the program accepts what a failure needs, all of it together.

A confirmation that needs inputs claims that somebody can have them. Between the inputs and the
line everything has run that could refuse or change them, or it is a doubt: what an unknown
function says, what it was asked, what machine it is.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from amplint.code.dataflow import parameters
from amplint.code.expressions import last_name
from amplint.probe.inputs import (
    Need,
    describe,
    is_machine,
    is_remarkable,
    is_surroundings,
    root_of,
)
from amplint.probe.messages import LONGEST_GIVEN, Asked, Decision, Note
from amplint.probe.modules import (
    is_observer,
    is_of_data,
    reads_files,
    takes_any_length,
    writes_files,
)
from amplint.probe.planning import Planned
from amplint.probe.search import Trial, is_default, same

_WORD = re.compile(r"\w+")


def doubts_about(needed: Iterable[Need], trial: Trial, planned: Planned) -> Iterator[Note]:
    """Why the program may not accept what a run needs."""
    needed = [need for need in needed if not is_default(need.decision)]
    for need in needed:
        words = describe(need, planned.options)
        if is_machine(need.decision.path):
            yield Note("machine", detail=words)
        elif not is_known(need.decision, planned):
            yield Note("unknown-value", detail=words)
        elif reads_files(need.decision.path):
            yield from _writers(need, words, trial)
    inputs = [need for need in needed if not is_surroundings(need.decision.path)]
    yield from _refusals(inputs, trial)


def is_doubtful(decision: Decision) -> bool:
    """Whether a need of this value would be a doubt: nobody has it by default, and no data."""
    return not is_default(decision) and (
        not is_surroundings(decision.path) or is_machine(decision.path)
    )


def is_known(decision: Decision, planned: Planned) -> bool:
    """Whether it is known who sets a value: a user, the data, a file, or callers that are asked
    themselves."""
    path = decision.path
    return (
        is_surroundings(path)
        or decision.origin in ("option", "default", "role")
        or root_of(path) in planned.plan.parameters
        or reads_files(path)
    )


def _writers(need: Need, words: str, trial: Trial) -> Iterator[Note]:
    """Calls that may have written the entry of a file that is needed: it is no user's then."""
    key = _WORD.findall(need.decision.path)[-1]
    for call in trial.result.asked:
        mentions = len(call.given) >= LONGEST_GIVEN or key in _WORD.findall(call.given)
        if writes_files(call.name) and mentions:
            yield Note("written", call.name, call.row, words)
            return


# -- what unknown functions are asked --------------------------------------------------------------


def _refusals(needed: list[Need], trial: Trial) -> Iterator[Note]:
    """Unknown functions that hang on what is needed, so that they may refuse or change it."""
    asked = [
        call
        for call in trial.result.asked
        if not is_observer(call.name) and not is_of_data(call.name)
        if not takes_any_length(call.name)
    ]
    seen: set[str] = set()
    for call in asked:
        if call.name in seen:
            continue
        others = [need for need in needed if f"{call.name}()" not in need.decision.path]
        if any(_gets(call, need) or _hangs_on(call, need, trial) for need in others):
            seen.add(call.name)
            yield Note("may-refuse", call.name, call.row)


def _gets(call: Asked, need: Need) -> bool:
    """Whether a call got something that the needed value is a part of."""
    return any(_is_part(need.decision.path, path) for path in call.inputs)


def _is_part(path: str, whole: str) -> bool:
    found = path.find(whole)
    while found >= 0 and whole:
        before, after = path[:found][-1:], path[found + len(whole) :][:1]
        if not (before.isalnum() or before in ("_", ".")) and after in (
            ".",
            "[",
            " ",
            ",",
            ")",
            "",
        ):
            return True
        found = path.find(whole, found + 1)
    return False


def _hangs_on(call: Asked, need: Need, trial: Trial) -> bool:
    """Whether a call is made, or made like that, only where the value is as it is needed.

    Where it is called from makes no difference to what it can tell. A run that is broken off
    before the line says nothing about what it would have called.
    """
    targets = set(trial.plan.target_rows)
    told = [
        run
        for run in need.without
        if run.status in ("returned", "stopped") or not targets.isdisjoint(run.rows)
    ]
    return any(_question(call) not in map(_question, run.asked) for run in told)


def _question(call: Asked) -> Asked:
    return replace(call, row=0)


# -- whose an input is -----------------------------------------------------------------------------


def is_own(decision: Decision, planned: Planned) -> bool:
    """Whether a decision is about an input that a caller passes."""
    if is_surroundings(decision.path) or not is_remarkable(decision):
        return False
    if decision.origin == "option":
        return False
    return root_of(decision.path) in planned.plan.parameters


def invents_none(need: Need, planned: Planned) -> bool:
    """Whether a need is that a parameter is None, and nothing declares that it may be."""
    path = need.decision.path.removesuffix(" is None")
    if path == need.decision.path or not need.decision.choice:
        return False
    if need.decision.origin == "default":
        return False
    known = parameters(planned.function).get(path)
    default = known.default if known is not None else None
    return not (isinstance(default, ast.Constant) and default.value is None)


def is_round_count(need: Need, planned: Planned) -> bool:
    """Whether a need is that a loop over `range(epochs)` runs at all, whatever the number is."""
    options = need.decision.options
    if not need.tried or not all(type(option) in (int, float) for option in options):
        return False
    name = need.decision.path.rpartition(".")[2]
    known = parameters(planned.function).get(need.decision.path)
    if known is not None and isinstance(known.default, ast.Constant) and not known.default.value:
        return False  # by default it does not run
    holds = all((option > 0) is (option in need.holding) for option in options)
    return holds and _bounds_a_loop(name, planned)


def is_so_by_default(need: Need, planned: Planned) -> bool:
    """Whether a need is what an option is by default, or that a loop over `range(epochs)` runs
    often enough, which it does by default."""
    name = need.decision.path.rpartition(".")[2]
    option = planned.options.get(name)
    default = option.default if option is not None else None
    if default is not None and same(need.decision.choice, default):
        return True
    numbers = [value for value in need.decision.options if type(value) is int]
    if not need.tried or type(default) is not int or len(numbers) < len(need.decision.options):
        return False
    least = min(need.holding)
    every = all((value >= least) is (value in need.holding) for value in numbers)
    return every and len(need.holding) > 1 and default >= least and _bounds_a_loop(name, planned)


def _bounds_a_loop(name: str, planned: Planned) -> bool:
    return any(
        isinstance(node, (ast.For, ast.AsyncFor)) and _counts_to(node.iter, name)
        for function in planned.function.module.functions
        for node in function.nodes
    )


def _counts_to(iterated: ast.expr, name: str) -> bool:
    return (
        isinstance(iterated, ast.Call)
        and isinstance(iterated.func, ast.Name)
        and iterated.func.id == "range"
        and any(
            isinstance(node, (ast.Name, ast.Attribute)) and last_name(node) == name
            for argument in iterated.args
            for node in ast.walk(argument)
        )
    )
