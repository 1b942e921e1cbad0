"""What an outcome of a run depends on: values that can be given back, and decisions that it needs.

Whatever does not matter is dropped, and each decision that is left is flipped: where the outcome goes
with it, the outcome needs it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from amplint.probe.inputs import Need, is_remarkable
from amplint.probe.messages import Decision, RunResult
from amplint.probe.search import (
    Budget,
    BudgetSpent,
    Trial,
    choices,
    is_default,
    is_relevant,
    same,
)

#: The rank of decisions whose need would be told, and no doubt.
LAST = 2
#: The part of the time that is left for needs that are told, and are no doubts.
TOLD = 0.3
#: Decisions that guards read are flipped together if they have at most so many other options.
MOST_OPTIONS = 3


def minimise(trial: Trial, holds: Callable[[Trial], bool], budget: Budget) -> tuple[Trial, bool]:
    """Drop assigned values that the outcome does not need.

    Returns:
        the run with the smaller assignment, and whether every value could be tried.
    """
    best = trial
    try:
        for path in list(trial.request.assignment):
            smaller = {p: v for p, v in best.request.assignment.items() if p != path}
            request = replace(best.request, assignment=smaller)
            candidate = Trial(request, budget.run(request))
            if holds(candidate):
                best = candidate
    except BudgetSpent:
        return best, False
    return best, True


def needs(
    trial: Trial,
    holds: Callable[[Trial], bool],
    budget: Budget,
    rank: Callable[[Decision], int] = lambda decision: LAST,
) -> tuple[Need, ...]:
    """The decisions that an outcome depends on, each found by flipping it alone.

    Those that nobody has declared to be so come first, in case that the budget is soon spent.
    They are flipped together, as many as can be: once where no guard of the slice reads them,
    else to each of their options.

    Args:
        rank: which decisions come first: 0, then 1, and `LAST` for what is no doubt.
    """
    made = [decision for decision in trial.result.decisions if is_remarkable(decision)]
    base = pinned(trial, holds, budget)
    found: dict[str, Need | None] = {}
    for number in range(LAST + 1):
        group = [decision for decision in made if rank(decision) == number]
        read = [decision for decision in group if is_relevant(decision, trial)]
        beside = [decision for decision in group if decision not in read]
        with budget.share(TOLD if number == LAST else 1.0):
            idle = _idle(beside, base, trial, holds, budget, 1)
            if number != LAST:
                few = [decision for decision in read if len(_others(decision)) <= MOST_OPTIONS]
                idle |= _idle(few, base, trial, holds, budget, MOST_OPTIONS)
            for decision in sorted(group, key=is_default):
                if decision.path not in idle:
                    found[decision.path] = need(decision, base, trial, holds, budget)
    in_order = (found.get(decision.path) for decision in made)
    return tuple(item for item in in_order if item is not None)


def _idle(
    decisions: list[Decision],
    base: dict[str, Any],
    trial: Trial,
    holds: Callable[[Trial], bool],
    budget: Budget,
    most: int,
) -> set[str]:
    """The paths of those that the outcome survives when all of a group are flipped at once.

    Args:
        most: other options of each that are tried.
    """
    idle: set[str] = set()
    pending = [decisions]
    while pending:
        group = pending.pop()
        if len(group) < 2:
            continue  # flipped alone, to every option
        rounds = range(1, 2) if most == 1 else range(_rounds(group, most))
        try:
            survives = all(
                holds(_flipped(group, number, base, trial, budget, mixed=most > 1))
                for number in rounds
            )
        except BudgetSpent:
            break
        if survives:
            idle |= {decision.path for decision in group}
        else:
            half = len(group) // 2
            pending += [group[half:], group[:half]]
    return idle


def _rounds(group: list[Decision], most: int) -> int:
    """How many rounds it takes until each of a group has had all its options."""
    return min(most, max(len(_others(decision)) for decision in group)) + 1


def _flipped(
    group: list[Decision],
    number: int,
    base: dict[str, Any],
    trial: Trial,
    budget: Budget,
    *,
    mixed: bool,
) -> Trial:
    """The run of one round of a group: each has another option in each round.

    Args:
        mixed: neighbours are a round apart, one of them as it was when the other is not: two
            that are compared with each other are read one after the other.
    """
    flipped = {}
    for place, decision in enumerate(group):
        options = [decision.choice, *_others(decision)]
        flipped[decision.path] = options[(number + (place if mixed else 0)) % len(options)]
    request = replace(trial.request, assignment={**base, **flipped})
    return Trial(request, budget.run(request))


def _others(decision: Decision) -> list[Any]:
    return [option for option in decision.options if not same(option, decision.choice)]


def need(
    decision: Decision,
    base: dict[str, Any],
    trial: Trial,
    holds: Callable[[Trial], bool],
    budget: Budget,
) -> Need | None:
    """What an outcome needs of a decision; None if it stays under every option.

    Args:
        base: all decisions of the run, as assigned.
    """
    options = _others(decision)
    holding = [decision.choice]
    without: list[RunResult] = []
    for option in options:
        assignment = {**base, decision.path: option}
        request = replace(trial.request, assignment=assignment)
        try:
            other = Trial(request, budget.run(request))
            if holds(other):
                holding.append(option)
            else:
                without.append(other.result)
        except BudgetSpent:
            return Need(decision, tuple(holding), tried=False)
    if len(holding) > len(options):
        return None
    return Need(decision, tuple(holding), without=tuple(without))


def pinned(trial: Trial, holds: Callable[[Trial], bool], budget: Budget) -> dict[str, Any]:
    """Every decision of a run as an assignment, so that flipping one changes no other.

    What is assigned can be passed where nothing was: then the run is another one, and its own
    assignment has to do.
    """
    made = choices(trial)
    with contextlib.suppress(BudgetSpent):
        request = replace(trial.request, assignment=made)
        if not holds(Trial(request, budget.run(request))):
            return dict(trial.request.assignment)
    return made
