"""Looks for inputs under which a finding shows itself: one run after the other.

The first run takes what is declared, and otherwise what the finding's path asks for. Each
further one flips a single decision of an earlier run, those that guards read first. When
nothing is left to flip, the finite domains are exhausted; "all inputs" it is not.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from amplint.probe.messages import (
    ABOUT_FILES,
    FILES,
    PATIENCE,
    SMALL,
    Decision,
    Plan,
    Raised,
    Request,
    RunResult,
)

Runner = Callable[[Request], RunResult]

#: Names of decisions that matter to scalers although no guard of the slice reads them.
_TELLING = re.compile(r"amp|scal|accum|clip|norm|fp16|half|precision|len\(", re.IGNORECASE)
#: Numbers of batches, which many mistakes need two of.
_BATCHES = re.compile(r"len\([\w.]*(?:loader|iterator)", re.IGNORECASE)
#: A word of a message, and the last name of a path.
_WORD = re.compile(r"\w+")
_LEAF = re.compile(r"\w+$")
#: The decision that plans declare where the code asks whether something is finite.
NAN = "nan in forward 1"
#: Statuses of runs that say nothing about the code.
_LOST = frozenset({"timeout", "killed", "failed"})
#: Lost runs after which an entry is given up.
_LOST_LIMIT = 3
#: Processor seconds of a run from which smaller layers are worth a try.
_SLOW = 0.3
#: Runs that come no farther, or end as others did, before the entry is given up.
BLIND_RUNS = 12

_FARTHEST = 1_000_000


class BudgetSpent(Exception):
    """The runs or the seconds of a finding are used up."""


class Budget:
    """Runs requests until the runs or the time of one finding are used up.

    A request that came to an end is not run again: its result is kept.

    Args:
        runner: executes one request.
        runs: how many there may be.
        seconds: processor time for all of them; they may take `PATIENCE` times as long.
    """

    def __init__(self, runner: Runner, *, runs: int, seconds: float) -> None:
        self._runner = runner
        self._left = runs
        self._whole = self._seconds = seconds
        self._deadline = time.monotonic() + seconds * PATIENCE
        self._known: dict[str, RunResult] = {}
        #: The options of each path of each entry, as the first run that read it told them.
        self._options: dict[tuple[str, str], Decision] = {}
        #: What is kept for later, while something may take a part only.
        self._kept = 0.0
        self.used = 0

    @property
    def is_spent(self) -> bool:
        """Whether nothing new can be run."""
        return self._left <= 0 or self._seconds <= 0.0 or time.monotonic() >= self._deadline

    @contextlib.contextmanager
    def share(self, part: float) -> Iterator[None]:
        """Nothing gets more than a part of the time that is left."""
        deadline, kept = self._deadline, (1 - part) * self._seconds
        now = time.monotonic()
        self._deadline = now + part * (deadline - now)
        self._seconds -= kept
        try:
            yield
        finally:
            self._deadline = deadline
            self._seconds += kept

    @contextlib.contextmanager
    def first(self, part: float) -> Iterator[None]:
        """Nothing is begun after the first part of the whole time."""
        kept = (1 - part) * self._whole
        deadline = self._deadline - kept * PATIENCE
        self._seconds, self._deadline, late = self._seconds - kept, deadline, self._deadline
        self._kept = kept
        try:
            yield
        finally:
            self._kept = 0.0
            self._seconds += kept
            self._deadline = late

    @contextlib.contextmanager
    def whole(self) -> Iterator[None]:
        """What has been begun may use what was kept for later."""
        kept, deadline = self._kept, self._deadline
        self._seconds += kept
        self._deadline += kept * PATIENCE
        self._kept = 0.0
        try:
            yield
        finally:
            self._seconds -= kept
            self._deadline = deadline
            self._kept = kept

    def run(self, request: Request) -> RunResult:
        """The result of one request; it gets no more time than is left.

        Raises:
            BudgetSpent: nothing is left.
        """
        key = _identity(request)
        if key not in self._known:
            result = self.run_again(request)
            if result.status in _LOST:
                return result
            self._known[key] = result
        return self._known[key]

    def run_again(self, request: Request) -> RunResult:
        """Run one request, even if its result is known: to see whether it repeats itself.

        Raises:
            BudgetSpent: nothing is left.
        """
        if self.is_spent:
            raise BudgetSpent
        by_clock = (self._deadline - time.monotonic()) / PATIENCE
        seconds = max(min(self._seconds, by_clock), 0.1)
        self._left -= 1
        self.used += 1
        result = self._runner(replace(request, seconds=min(request.seconds, seconds)))
        self._seconds -= result.processor
        return self._with_options(result, request.plan)

    def _with_options(self, result: RunResult, plan: Plan) -> RunResult:
        """A result whose decisions have all their options: what was assigned has one only."""
        decisions = []
        for decision in result.decisions:
            key = (_entry(plan), decision.path)
            first = self._options.setdefault(key, decision)
            if len(decision.options) > 1 and len(first.options) == 1:
                first = self._options[key] = decision
            if len(decision.options) == 1 and len(first.options) > 1:
                options = first.options
                if not any(same(option, decision.choice) for option in options):
                    options = (*options, decision.choice)
                decision = replace(decision, options=options, origin=first.origin)
            decisions.append(decision)
        return replace(result, decisions=tuple(decisions))


def _entry(plan: Plan) -> str:
    """What tells the entries of plans apart."""
    filenames = [source.filename for source in plan.sources[plan.entry_source :][:1]]
    return repr((filenames, plan.entry))


def _identity(request: Request) -> str:
    """What tells requests of one finding apart."""
    plan = request.plan
    inputs = sorted((path, repr(value)) for path, value in request.assignment.items())
    entry = (_entry(plan), plan.target_rows, plan.prefer)
    mode = (request.init_scale, request.enabled, request.device, request.repair)
    counterfactual = (
        *(request.omissions, request.trainable_inputs, request.exaggerate),
        *(request.loss_weight, request.most_steps),
    )
    return repr((entry, inputs, mode, counterfactual))


@dataclass(frozen=True, slots=True)
class Trial:
    """One run and what it gave."""

    request: Request
    result: RunResult

    @property
    def plan(self) -> Plan:
        """What was run."""
        return self.request.plan

    @property
    def identity(self) -> str:
        """What was run, and with what: equal for the same run of another search."""
        return _identity(self.request)

    @property
    def reached(self) -> bool:
        """Whether a target row was executed."""
        return not set(self.plan.target_rows).isdisjoint(self.result.rows)


@dataclass(slots=True)
class Exploration:
    """What a search gave.

    Args:
        trials: all runs, in order.
        shown: whatever `show` returned for the best run, None if it never returned anything.
        exhausted: no decision was left to flip.
    """

    trials: list[Trial] = field(default_factory=list)
    shown: Any = None
    exhausted: bool = False


def explore(
    plan: Plan,
    budget: Budget,
    show: Callable[[Trial], Any],
    enough: Callable[[Any], bool],
    *,
    device: str = "cpu",
    limit: int = 1_000_000,
    repair: bool = False,
    first: dict[str, Any] | None = None,
    patience: int = BLIND_RUNS,
    shrinks: Callable[[Any], bool] = lambda shown: False,
    around: Callable[[Raised], Iterable[dict[str, Any]]] = lambda raised: (),
) -> Exploration:
    """Run a plan under more and more assignments.

    Args:
        show: looks at a run; returns what it shows, None for nothing. May run more.
        enough: whether that ends the search; what is not enough is kept, the first one.
        limit: of runs for this plan, besides the budget.
        repair: whether statements outside the slice that raise are skipped.
        first: an assignment to try before all others, from another entry: what is about
            nothing that this one reads changes nothing.
        patience: runs that come no farther, or end as others did, before the plan is given up.
        shrinks: whether layers may be small where runs are slow: how large they are says
            nothing about what a run shows, or, of None, about what is looked for.
        around: inputs under which the user's code would not have raised what it has.
    """
    found = Exploration()
    with contextlib.suppress(BudgetSpent):
        _search(
            *(plan, budget, show, enough, found, device, repair, limit, first or {}),
            *(patience, shrinks, around),
        )
    return found


def _search(
    plan: Plan,
    budget: Budget,
    show: Callable[[Trial], Any],
    enough: Callable[[Any], bool],
    found: Exploration,
    device: str,
    repair: bool,
    limit: int,
    first: dict[str, Any],
    patience: int,
    shrinks: Callable[[Any], bool],
    around: Callable[[Raised], Iterable[dict[str, Any]]],
) -> None:
    agenda = _Agenda(first)
    lost = 0
    blind = progress = alike = 0
    endings: set[object] = set()
    slow: tuple[Trial, dict[str, Any]] | None = None
    reached = False
    while True:
        if lost >= _LOST_LIMIT or len(found.trials) >= limit or max(blind, alike) >= patience:
            return
        assignment = agenda.take(reached)
        if assignment is None:
            break
        request = Request(plan, assignment, device=device, repair=repair)
        trial = Trial(request, budget.run(request))
        found.trials.append(trial)
        reached = reached or trial.reached
        blind = 0 if reached or _progress(trial) > progress else blind + 1
        progress = max(progress, _progress(trial))
        is_known = found.shown is None and _ending(trial) in endings
        alike = alike + 1 if is_known else 0
        endings.add(_ending(trial))
        lost += trial.result.status in _LOST
        shown = show(trial)
        if shown is not None and (found.shown is None or enough(shown)):
            found.shown = shown
        is_slow = trial.result.processor > _SLOW and SMALL not in assignment and shrinks(shown)
        is_enough = found.shown is not None and enough(found.shown)
        if is_enough and not is_slow:
            return
        if trial.result.status == "timeout" or is_slow:
            agenda.add_first({**assignment, SMALL: True})
        elif _misses_files(trial):
            agenda.add_first({**assignment, FILES: True})
        if is_enough:
            continue
        raised = trial.result.raised
        if raised is not None and raised.inside == "user" and not trial.reached:
            for accepted in around(raised):
                agenda.add_first({**assignment, **accepted})
        if is_slow:
            slow = trial, assignment  # what follows from it comes with small layers
        else:
            agenda.add(trial, assignment)
        if slow is not None and SMALL in assignment:
            if slow[0].reached and not trial.reached:
                agenda.add(*slow)
            slow = None
    found.exhausted = lost == 0


class _Agenda:
    """Assignments to run: in one order as long as the line was not reached, then in another.

    Until then those come first that change what the farthest run has decided, the latest
    decision first if it raised: what stops a run was decided shortly before. Afterwards those
    come first that differ least, and only in decisions that guards read.
    """

    def __init__(self, first: dict[str, Any]) -> None:
        self._order = itertools.count()
        self._seen = {_key(first), _key({})}
        self._done: set[frozenset[tuple[str, str]]] = set()
        self._near: list[tuple[tuple[int, ...], int, dict[str, Any]]] = []
        self._far: list[tuple[tuple[int, ...], int, dict[str, Any]]] = []
        self._push((0, 0, 0), (0, 0), first)
        if first:
            self._push((0, 0, 0), (0, 0), {})

    def take(self, reached: bool) -> dict[str, Any] | None:
        """The next assignment; None if there is none."""
        queue = self._near if reached else self._far
        while queue:
            _, _, assignment = heapq.heappop(queue)
            key = _key(assignment)
            if key not in self._done:
                self._done.add(key)
                return assignment
        return None

    def add(self, trial: Trial, assignment: dict[str, Any]) -> None:
        """Add the assignments that change one decision of a run."""
        places = _places(trial)
        for cost, path, flipped in _flips(trial, assignment):
            key = _key(flipped)
            if key not in self._seen:
                self._seen.add(key)
                self._push(cost, (-_progress(trial), places[path]), flipped)

    def add_first(self, assignment: dict[str, Any]) -> None:
        """Add an assignment that is run next."""
        key = _key(assignment)
        if key not in self._seen:
            self._seen.add(key)
            self._push((-1, 0, 0), (-_FARTHEST, 0), assignment)

    def _push(self, near: tuple[int, int, int], far: tuple[int, int], made: dict[str, Any]) -> None:
        number = next(self._order)
        heapq.heappush(self._near, (near, number, made))
        heapq.heappush(self._far, (far, number, made))


def _misses_files(trial: Trial) -> bool:
    """Whether a run raised before the line, and found none of the files that it asked for: one
    assignment for all is a shorter way than one decision after the other."""
    asked = [d for d in trial.result.decisions if d.path.startswith(ABOUT_FILES)]
    ends_early = trial.result.raised is not None and not trial.reached
    return ends_early and bool(asked) and not any(d.choice for d in asked)


def _ending(trial: Trial) -> object:
    """What makes runs alike: where they went, how they ended, and what happened."""
    result = trial.result
    raised = result.raised and (result.raised.type, result.raised.row)
    events = {(event.kind, event.row) for event in result.events}
    return (result.status, raised, result.rows, frozenset(events))


def _progress(trial: Trial) -> int:
    """How far a run came."""
    return len(trial.result.rows)


def _places(trial: Trial) -> dict[str, int]:
    """Path of a decision -> its place among those that may have stopped the run.

    What the user's own code raises is about something that it names, or has just read. Everything
    else is about guards. A NaN leads nowhere.
    """
    made = trial.result.decisions
    raised = trial.result.raised
    first = [decision for decision in made if is_relevant(decision, trial)]
    if raised is not None and raised.inside in ("user", "probe"):
        named = set(_WORD.findall(raised.message))
        first = [
            decision for decision in made if not named.isdisjoint(_LEAF.findall(decision.path))
        ]
    order = dict.fromkeys(decision.path for decision in (*first, *reversed(made)))
    paths = sorted(order, key=lambda path: path.startswith("nan in "))
    return {path: place for place, path in enumerate(paths)}


def _flips(
    trial: Trial, assignment: dict[str, Any]
) -> Iterator[tuple[tuple[int, int, int], str, dict[str, Any]]]:
    """Assignments with one decision more, and their cost: irrelevant ones, all of them, and
    what comes first: a NaN that the code tests for, then another number of batches."""
    relevant = [decision for decision in trial.result.decisions if is_relevant(decision, trial)]
    others = [decision for decision in trial.result.decisions if decision not in relevant]
    irrelevant = _irrelevant(assignment, trial)
    for weight, decisions in ((0, relevant), (1, others)):
        for decision in decisions:
            if decision.path in assignment:
                continue
            is_nan = weight == 0 and decision.path.startswith("nan in ")
            late = 0 if is_nan else 1 if _BATCHES.match(decision.path) else 2
            for option in decision.options:
                if not same(option, decision.choice):
                    flipped = {**assignment, decision.path: option}
                    yield (irrelevant + weight, len(flipped), late), decision.path, flipped


def _irrelevant(assignment: dict[str, Any], trial: Trial) -> int:
    known = {decision.path: decision for decision in trial.result.decisions}
    return sum(path not in known or not is_relevant(known[path], trial) for path in assignment)


def is_relevant(decision: Decision, trial: Trial) -> bool:
    """Whether a decision may decide about events: a guard reads it, or its name says so."""
    plan = trial.plan
    if decision.path.startswith("nan in "):
        return any(domain.path == NAN for domain in plan.domains)
    return (
        decision.row in plan.slice_rows
        or decision.path in plan.prefer
        or any(domain.path == decision.path for domain in plan.domains)
        or _TELLING.search(decision.path) is not None
    )


def is_default(decision: Decision) -> bool:
    """Whether a value is the one that is declared where nobody sets another."""
    return decision.origin in ("default", "option") and same(decision.choice, decision.options[0])


def choices(trial: Trial) -> dict[str, Any]:
    """What a run has decided: path -> value."""
    return {decision.path: decision.choice for decision in trial.result.decisions}


def same(one: Any, other: Any) -> bool:
    """Equal and of one type: True is not 1."""
    return type(one) is type(other) and bool(one == other)


def _key(assignment: dict[str, Any]) -> frozenset[tuple[str, str]]:
    return frozenset((path, repr(value)) for path, value in assignment.items())
