"""What an outcome of a run depends on: values that can be given back, and decisions that it needs.

Whatever does not matter is dropped, and each decision that is left is flipped: where the outcome goes
with it, the outcome needs it. Then those that it survives alone are flipped together: of `a or b` it
needs one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from amplint.probe.inputs import Need, is_remarkable
from amplint.probe.messages import SMALL, Decision, RunResult
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
#: Runs in which what a run with flipped decisions reads besides is flipped, too. After so many
#: the outcome counts as gone.
MOST_CHASED = 24
#: Decisions that are flipped alone, with what only that run reads; some have been before.
MOST_ALONE = 8
#: Decisions that are found to be needed together with others, before all that are left are.
MOST_TOGETHER = 5


def minimise(trial: Trial, holds: Callable[[Trial], bool], budget: Budget) -> tuple[Trial, bool]:
    """Drop assigned values that the outcome does not need.

    Returns:
        the run with the smaller assignment, and whether every value could be tried.
    """
    best = trial
    try:
        for path in list(trial.request.assignment):
            if path == SMALL:
                continue  # nobody's value: it makes runs cheap
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
    is_known: Callable[[Decision], bool] = lambda decision: False,
    is_later: Callable[[Decision], bool] = lambda decision: False,
) -> tuple[Need, ...]:
    """The decisions that an outcome depends on, alone or one of several.

    Those that nobody has declared to be so come first, in case that the budget is soon spent.
    They are flipped together, as many as can be: once where no guard of the slice reads them,
    else to each of their options.

    Args:
        rank: which decisions come first: 0, then 1, and `LAST` for what is no doubt.
        is_known: who is taken where one of several is needed.
        is_later: which ones were made when the outcome had been seen: no needs, if the run that
            ends there shows it.
    """

    def is_doubtful(decision: Decision) -> bool:
        return is_remarkable(decision) and rank(decision) != LAST

    made = [decision for decision in trial.result.decisions if is_remarkable(decision)]
    base = pinned(trial, holds, budget)
    if is_whole(base, trial):
        made = [decision for decision in made if not is_later(decision)]
    found: dict[str, Need | None] = {}
    several: tuple[Need, ...] = ()
    for number in range(LAST + 1):
        group = [decision for decision in made if rank(decision) == number]
        read = [decision for decision in group if is_relevant(decision, trial)]
        beside = [decision for decision in group if decision not in read]
        if number == LAST:
            left = [d for d in made if rank(d) != LAST and found.get(d.path) is None]
            question = Question(trial, base, holds, budget, is_doubtful, is_known)
            several = together(left, question)
        with budget.share(TOLD if number == LAST else 1.0):
            idle = _idle(beside, base, trial, holds, budget, 1)
            if number != LAST:
                few = [decision for decision in read if len(_others(decision)) <= MOST_OPTIONS]
                idle |= _idle(few, base, trial, holds, budget, MOST_OPTIONS)
            for decision in sorted(group, key=is_default):
                if decision.path not in idle:
                    found[decision.path] = need(decision, base, trial, holds, budget)
    in_order = (found.get(decision.path) for decision in made)
    return (*(item for item in in_order if item is not None), *several)


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


@dataclass(frozen=True, slots=True)
class Question:
    """Whether an outcome survives that several decisions are others at once.

    Args:
        base: all decisions of the run, as assigned.
        is_doubtful: whether a decision that only the other run makes is flipped as well.
        is_known: who is taken where one of several is needed.
    """

    trial: Trial
    base: dict[str, Any]
    holds: Callable[[Trial], bool]
    budget: Budget
    is_doubtful: Callable[[Decision], bool]
    is_known: Callable[[Decision], bool] = lambda decision: False

    def run(self, flipped: dict[str, Any]) -> Trial:
        """The run with some decisions changed."""
        request = replace(self.trial.request, assignment={**self.base, **flipped})
        return Trial(request, self.budget.run(request))

    def ends(self, decisions: list[Decision], number: int) -> dict[str, Decision] | None:
        """The decisions without which the outcome is gone, by path; None if it survives.

        What the run with others reads besides is flipped, too, one by one and at once: an `or`
        reads its second part only where the first one is false.

        Args:
            number: which of their other options each gets.
        """
        pending = [{decision.path: decision for decision in decisions}]
        seen = {*self.base, *pending[0]}
        for _ in range(MOST_CHASED):
            if not pending:
                return None
            group = pending.pop(0)
            other = self.run(_options(group, number))
            if not self.holds(other):
                return group
            new = [d for d in other.result.decisions if d.path not in seen]
            new = [d for d in new if _others(d) and self.is_doubtful(d)]
            seen |= {decision.path for decision in new}
            parts = [new, *([decision] for decision in new if len(new) > 1)] if new else []
            pending += [group | {d.path: d for d in part} for part in parts]
        return group if pending else None  # nobody knows what else decides

    def smallest(self, group: dict[str, Decision], number: int) -> dict[str, Decision]:
        """A part of a group without which the outcome is gone, too, and no part of that."""
        size = len(group)
        while size > 1:
            size = (size + 1) // 2
            paths = list(group)
            for start in range(0, len(paths), size):
                chunk = paths[start : start + size]
                fewer = {path: d for path, d in group.items() if path not in chunk}
                if fewer and not self.holds(self.run(_options(fewer, number))):
                    group = fewer
        return group


def together(decisions: list[Decision], question: Question) -> tuple[Need, ...]:
    """Needs of an outcome that survives whichever of some decisions is another, but not several.

    One of each such group is enough; where several are, it is one that is known.

    Args:
        decisions: those that the outcome survives one by one.
    """
    left = [decision for decision in decisions if _others(decision)]
    found: list[Need] = []
    try:
        for _ in range(MOST_TOGETHER):
            gone = _first_end(left, question)
            if gone is None:
                return tuple(found)
            group, number = gone
            group = question.smallest(group, number)
            without = question.run(_options(group, number)).result
            kept, *others = sorted(group.values(), key=lambda d: not question.is_known(d))
            found.append(Need(kept, (kept.choice,), without=(without,), instead=tuple(others)))
            question = replace(question, base={**question.base, kept.path: kept.choice})
            left = [decision for decision in left if decision.path != kept.path]
    except BudgetSpent:
        pass
    return (*found, *(Need(decision, (decision.choice,), tried=False) for decision in left))


def _first_end(left: list[Decision], question: Question) -> tuple[dict[str, Decision], int] | None:
    """A group of flipped decisions that ends the outcome, and the round in which it does."""
    half = len(left) // 2
    rounds = min(MOST_OPTIONS, max((len(_others(decision)) for decision in left), default=0))
    ways = [(left, number) for number in range(rounds)]
    # Two of them may end it where a third one, flipped as well, brings it back.
    ways += [(part, 0) for part in (left[:half], left[half:], left[::2], left[1::2])]
    ways += [([decision], 0) for decision in left[:MOST_ALONE]]
    for group, number in ways:
        gone = question.ends(group, number) if group else None
        if gone is not None:
            return gone, number
    return None


def _options(group: dict[str, Decision], number: int) -> dict[str, Any]:
    """Another option for each of a group."""
    others = {path: _others(decision) for path, decision in group.items()}
    return {path: options[number % len(options)] for path, options in others.items()}


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


def is_whole(base: dict[str, Any], trial: Trial) -> bool:
    """Whether every decision of a run could be pinned."""
    return base == _every(trial)


def _every(trial: Trial) -> dict[str, Any]:
    """All decisions of a run as assigned, and layers as small as they were."""
    small = {SMALL: True} if trial.request.assignment.get(SMALL) else {}
    return {**choices(trial), **small}


def pinned(trial: Trial, holds: Callable[[Trial], bool], budget: Budget) -> dict[str, Any]:
    """Every decision of a run as an assignment, so that flipping one changes no other.

    What is assigned can be passed where nothing was: then the run is another one, and its own
    assignment has to do.
    """
    made = _every(trial)
    with contextlib.suppress(BudgetSpent):
        request = replace(trial.request, assignment=made)
        if not holds(Trial(request, budget.run(request))):
            return dict(trial.request.assignment)
    return made
