"""The probe of one finding, from plans to evidence.

Gates 6 and 7 of a confirmation are here, because they need further entries and runs: some
caller of the project must be able to produce the inputs, and the same stand-ins must get past
the line under other circumstances.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from amplint.code.module import Function
from amplint.findings import Evidence, Finding
from amplint.probe.acceptance import (
    doubts_about,
    invents_none,
    is_doubtful,
    is_known,
    is_own,
    is_round_count,
)
from amplint.probe.arguments import Way
from amplint.probe.callers import Settled
from amplint.probe.cases import (
    Case,
    Repair,
    Silent,
    Verdict,
    doubt_about_filling,
    ending_of,
    ends_well,
    goes_by,
    goes_on,
    not_probed,
    runs_with_cases,
    set_by_hand,
    shortened,
)
from amplint.probe.dependence import (
    LAST,
    Question,
    is_whole,
    minimise,
    need,
    needs,
    pinned,
    together,
)
from amplint.probe.domains import OTHER
from amplint.probe.doubts import ABOUT_REACHING, in_words
from amplint.probe.inputs import (
    describe,
    is_data,
    is_remarkable,
)
from amplint.probe.messages import Decision, Note, Request
from amplint.probe.modules import is_launcher, is_observer, reads_files
from amplint.probe.outcomes import nothing_shown
from amplint.probe.planning import CLIMB, PlanBuilder, Planned
from amplint.probe.predictions import expectations
from amplint.probe.replay import replay
from amplint.probe.search import (
    BLIND_RUNS,
    Budget,
    BudgetSpent,
    Exploration,
    Runner,
    Trial,
    choices,
    explore,
    is_default,
    same,
)
from amplint.probe.traces import invents_no_scaler
from amplint.probe.verdicts import Judge

#: Runs for each entry, and such in which statements that fail are skipped, as long as nothing
#: reached the line. First in a short round, so that an entry that leads nowhere leaves some for
#: its callers.
ROUNDS = ((6, 4), (40, 30))
#: The part of a finding's time in which something has to be shown; the rest is for what it
#: depends on. What shows at all did so in the first tenth, in the middle of those confirmed.
SEARCHED = 0.2
#: The same as long as there were few runs: those of large models take longer.
SEARCHED_SLOWLY, FEW_RUNS = 0.3, 8
#: The part after which no search is begun that may show without a doubt what has been shown with one.
DOUBTED = 0.5
#: Functions that are called for one finding.
ENTRY_LIMIT = 6
#: Runs for each caller that is asked whether it can produce an assignment.
CALLER_RUNS = 16
#: Such that come no farther, or end as others did, before the caller is given up.
CALLER_PATIENCE = 6
#: Runs in which the inputs are adjusted to what one call passes.
_ADJUSTMENTS = 4


class Prober:
    """Probes the findings of one file.

    Args:
        builder: plans for the file.
        runner: executes one request.
        runs, seconds: the budget of each finding.
        torch, device: where it runs, for the report.
        repairs: what is left out of every run, and hides the finding otherwise.
    """

    def __init__(
        self,
        builder: PlanBuilder,
        runner: Runner,
        *,
        runs: int,
        seconds: float,
        torch: str,
        device: str = "cpu",
        repairs: tuple[Repair, ...] = (),
    ) -> None:
        self._builder = builder
        self._runner = runner
        self._runs = runs
        self._seconds = seconds
        self._torch = torch
        self._device = device
        self._repairs = repairs

    def probe(self, finding: Finding) -> Verdict:
        """The evidence that executing the finding's code gives."""
        if not expectations(finding.code):
            return not_probed(finding)
        budget = Budget(self._runner, runs=self._runs, seconds=self._seconds)
        judge = Judge(finding, self._builder, budget)
        entries = self._above(self._builder.entries(finding))
        plans: dict[Function, Planned] = {}
        cases: list[Case] = []
        with_skips: list[Case] = []
        searched: list[tuple[Planned, Exploration]] = []
        repaired: list[tuple[Planned, Exploration]] = []
        for limit, repairs in ROUNDS:
            known = list(cases)
            for entry in entries:
                for repair, most, kept, done in (
                    (False, limit, cases, searched),
                    (True, repairs, with_skips, repaired),
                ):
                    if repair and any(ends_well(plain) for _, plain in searched):
                        break
                    searching = SEARCHED_SLOWLY if budget.used < FEW_RUNS else SEARCHED
                    with budget.first(DOUBTED if cases or with_skips else searching):
                        if budget.is_spent:
                            break
                        planned = plans[entry] = plans.get(entry) or self._plan(finding, entry)
                        bound = runs_with_cases(limit, planned, known)
                        if not bound:
                            break
                        runs = most if repair else bound
                        found = self._explore(planned, budget, judge, runs, repair=repair)
                    done.append((planned, found))
                    if found.shown is None:
                        continue
                    case = Case(planned, found, found.shown)
                    case = self._weighed(case, finding, judge, budget)
                    if case.is_confirmed:
                        return self._confirmed(case, budget)
                    kept.append(case)
            if all(exploration.exhausted for _, exploration in (*searched, *repaired)):
                break
        every = [*searched, *repaired]
        unconfirmed = self._unconfirmed([*cases, *with_skips], every, finding.code, budget)
        return self._with_replay(unconfirmed, finding)

    def _plan(self, finding: Finding, entry: Function) -> Planned:
        planned = self._builder.plan(finding, entry)
        if not self._repairs:
            return planned
        cures = tuple(repair.cure for repair in self._repairs)
        plan = replace(planned.plan, omissions=cures, real_data=True)
        return replace(planned, plan=plan)

    def _with_replay(self, verdict: Verdict, finding: Finding) -> Verdict:
        """What the path's own steps do on a tiny model, where the line was not reached."""
        if verdict.evidence.status != "not-reached":
            return verdict
        line = self._builder.text_of(finding.span.start.row)
        replayed = replay(finding, line, self._runner, self._device)
        if replayed is None or not replayed.error:
            return verdict
        detail = (
            f"{verdict.evidence.detail}; a replay of the {len(replayed.events)} steps of the path "
            f"on a tiny model, without your code, raises `{replayed.error}`"
        )
        return replace(verdict, evidence=replace(verdict.evidence, kind="replay", detail=detail))

    def _above(self, entries: list[Function]) -> list[Function]:
        """The entries and their callers: what leads to a line may be the work of a caller."""
        found = list(entries)
        level = found
        for _ in range(CLIMB):
            level = [f for entry in level for f in self._builder.callers(entry) if f not in found]
            found = list(dict.fromkeys((*found, *level)))
        return found[:ENTRY_LIMIT]

    def _explore(
        self,
        planned: Planned,
        budget: Budget,
        judge: Judge,
        limit: int = ROUNDS[-1][0],
        *,
        repair: bool = False,
        first: dict[str, Any] | None = None,
        patience: int = BLIND_RUNS,
    ) -> Exploration:
        return explore(
            planned.plan,
            budget,
            judge.look,
            lambda shown: shown.proves,
            device=self._device,
            limit=limit,
            repair=repair,
            first=first,
            patience=patience,
            shrinks=judge.ignores_sizes,
            around=partial(self._builder.ways_around, plan=planned.plan),
        )

    # -- gates 6 and 7 -------------------------------------------------------------------------

    def _weighed(self, case: Case, finding: Finding, judge: Judge, budget: Budget) -> Case:
        """What a run that shows the finding depends on, and whether that can happen."""
        if not case.shown.proves:
            return case
        try:
            controlled = judge.controlled(case.shown, case.exploration.trials)
        except BudgetSpent:
            return replace(case, doubts=(Note("no-control"),))
        case = shortened(case)
        alone = self._alone(case, finding, judge, budget) if controlled else None
        if alone is not None:
            return alone
        below = case
        case, silent = self._climb(case, finding, judge, budget)
        if case.planned is not below.planned:
            case = shortened(case)

        def holds(trial: Trial) -> bool:
            shown = judge.look(trial)
            return shown is not None and shown.proves and shown.row == case.shown.row

        trial, _ = minimise(case.shown.trial, holds, budget)
        case = replace(case, shown=replace(case.shown, trial=trial))
        if case.planned is not below.planned:
            with contextlib.suppress(BudgetSpent):
                controlled = judge.controlled(case.shown, case.exploration.trials)
        passed = None
        if silent is not None and not silent.complete:
            passed = self._as_passed(case, holds, budget)
        trial, settled = passed or (trial, Settled({}))
        shown = replace(case.shown, trial=trial)
        if passed is not None:
            with contextlib.suppress(BudgetSpent):  # then the words are those of the run before
                shown = judge.look(trial) or shown
        case = replace(case, shown=shown)

        def rank(decision: Decision) -> int:
            if decision.path in settled.values:
                return LAST
            own = is_own(decision, case.planned) and not self._is_default(decision, case.planned)
            if own or is_doubtful(decision):
                # What a file holds is its user's; others may still refuse it.
                return int(reads_files(decision.path))
            return LAST

        always = self._fails_by_form(case, judge)
        known = partial(is_known, planned=case.planned)
        needed = () if always else needs(trial, holds, budget, rank, known, case.shown.precedes)
        # Nobody sets a number of rounds to have none.
        needed = tuple(need for need in needed if not is_round_count(need, case.planned))
        case = replace(case, needed=needed)
        others = (run for need in case.needed for run in need.without)
        if not controlled and not judge.is_past(others, case.shown):
            return replace(case, doubts=(Note("no-success"),))
        invented = [
            need
            for need in case.needed
            if need.decision.path not in settled.values
            and (need.decision.choice == OTHER or invents_none(need, case.planned))
        ]
        if invented:
            words = describe(invented[0], case.planned.options)
            return replace(case, doubts=(Note("input", detail=words),))
        filled = doubt_about_filling(case)
        if filled is not None:
            return replace(case, doubts=(filled,))
        doubt = None if always else self._builder.doubt_about(case.planned.function)
        if doubt is not None:
            return replace(case, doubts=(doubt,))
        refused = tuple(doubts_about(case.needed, case.shown.trial, case.planned))
        if refused:
            return replace(case, doubts=refused)
        if silent is None:
            return self._uncalled(case)
        return self._feasible(case, silent, passed[1] if passed is not None else None)

    def _alone(self, case: Case, finding: Finding, judge: Judge, budget: Budget) -> Case | None:
        """The case of a function that fails whatever is passed to it, if a caller shows it, too.

        What its callers need to come that far is no need of the failure. None for any other.
        """
        callers = self._builder.callers(case.planned.function)
        if not callers or not invents_no_scaler(case.shown.trial.result):
            return None
        replaced = self._builder.doubt_about(case.planned.function)
        if replaced is not None and replaced.kind == "stored":
            return None  # a run of a caller does not execute what other files do

        def holds(trial: Trial) -> bool:
            shown = judge.look(trial)
            return shown is not None and shown.proves and shown.row == case.shown.row

        def asks(decision: Decision) -> bool:
            is_free = len(decision.options) > 1 and is_remarkable(decision)
            return is_free and not is_data(decision.path)

        decisions = [d for d in case.shown.trial.result.decisions if asks(d)]
        holder = self._builder.function_at(case.shown.row)
        if holder is case.planned.function and self._fails_by_form(case, judge):
            decisions = []  # there is no way around that line, and no other end
        base = pinned(case.shown.trial, holds, budget) if decisions else {}
        if is_whole(base, case.shown.trial):
            decisions = [d for d in decisions if not case.shown.precedes(d)]
        if any(need(d, base, case.shown.trial, holds, budget) for d in decisions):
            return None
        if together(decisions, Question(case.shown.trial, base, holds, budget, asks)):
            return None
        is_shown = any(
            self._shows(caller, case, finding, judge, budget, left)
            for left, caller in zip(range(len(callers), 0, -1), callers)
        )
        return case if is_shown else None

    def _fails_by_form(self, case: Case, judge: Judge) -> bool:
        """Whether a function refuses the form of a call, which no value changes, in a line that
        nothing in it decides about reaching."""
        return judge.is_about_form(case.shown) and self._builder.is_straight(case.shown.row)

    def _shows(
        self,
        caller: Function,
        case: Case,
        finding: Finding,
        judge: Judge,
        budget: Budget,
        left: int,
    ) -> bool:
        """Whether a run of a caller shows a case, with no doubt but about how it comes there."""
        shown = self._asked(caller, case, finding, judge, budget, left)[1].shown
        return (
            shown is not None
            and not shown.artefact
            and all(doubt.kind in ABOUT_REACHING for doubt in shown.doubts)
        )

    def _asked(
        self,
        caller: Function,
        case: Case,
        finding: Finding,
        judge: Judge,
        budget: Budget,
        left: int,
    ) -> tuple[Planned, Exploration]:
        """What the runs of a caller give that begin with the inputs of a case.

        Args:
            left: how many callers are still to be asked, this one included.
        """
        planned, trial = self._plan(finding, caller), case.shown.trial
        chosen = trial.request.assignment
        typed = self._builder.calls.typed(
            *(case.planned.function, caller, trial.result.decisions),
            *(case.planned.options, {*chosen, *case.planned.plan.prefer}),
        )
        # Half of the time is for what follows.
        with budget.share(1 / (left + 1)):
            exploration = self._explore(
                planned,
                budget,
                judge,
                CALLER_RUNS,
                repair=trial.request.repair,
                first={**chosen, **typed},
                patience=CALLER_PATIENCE,
            )
        return planned, exploration

    def _as_passed(
        self, case: Case, holds: Callable[[Trial], bool], budget: Budget
    ) -> tuple[Trial, Settled] | None:
        """The run with what one of the calls of the function passes, if that still shows it.

        Returns:
            the run, and the inputs that this call is known to pass.
        """
        trial, planned = case.shown.trial, case.planned
        wanted = {*trial.request.assignment, *planned.plan.prefer}

        def settle(way: Way, seen: Trial) -> Settled | None:
            decisions = seen.result.decisions
            return self._builder.calls.settle(way, decisions, planned.options, wanted)

        ways = self._builder.calls.ways(planned.function)
        known = [(way, settled) for way in ways if (settled := settle(way, trial)) is not None]
        for way, settled in sorted(known, key=lambda item: -len(item[1].values)):
            found, passed = trial, settled
            for _ in range(_ADJUSTMENTS):
                made = choices(found)
                wrong = (item for item in passed.values.items() if not same(made[item[0]], item[1]))
                changed = dict(wrong)
                if not changed:
                    return found, passed
                base = pinned(found, holds, budget)
                request = replace(trial.request, assignment={**base, **changed})
                adjusted = _held(request, holds, budget)
                # It may read other inputs now.
                again = settle(way, adjusted) if adjusted is not None else None
                if adjusted is None or again is None:
                    break
                found, passed = adjusted, again
        return None

    def _climb(
        self, case: Case, finding: Finding, judge: Judge, budget: Budget
    ) -> tuple[Case, Silent | None]:
        """The outermost caller under which the finding still shows.

        Returns: its case, and what its own callers gave; None if it has none.
        """
        for _ in range(CLIMB):
            callers = self._builder.callers(case.planned.function)
            refused, reaching = 0, ""
            pending = list(callers)
            for place, caller in enumerate(pending):
                left = len(pending) - place
                planned, exploration = self._asked(caller, case, finding, judge, budget, left)
                if exploration.shown is not None and exploration.shown.proves:
                    case = Case(planned, exploration, exploration.shown)
                    break
                if not any(trial.reached for trial in exploration.trials):
                    # What it is passed itself is unknown to it, and not to its callers.
                    outer = self._builder.callers(caller)
                    pending += [one for one in outer if one not in pending][
                        : ENTRY_LIMIT - len(pending)
                    ]
                # A scaler that is built again shows in the next round, not in the line.
                in_rounds = case.shown.prediction.kind == "rebuilt"
                passes = ends_well(exploration) if in_rounds else goes_on(exploration)
                if passes or goes_by(exploration, case.planned.function):
                    reaching = reaching or caller.qualname
                    refused += exploration.exhausted and caller in callers
            else:
                silent = Silent(reaching, refused == len(callers), budget.is_spent)
                return case, silent if callers else None
        return case, None

    def _uncalled(self, case: Case) -> Case:
        """The case of a function that nobody calls, with a doubt if it needs several arguments."""
        own = set_by_hand(case)
        unknown = self._unknown_callers(case) if own else []
        if unknown:
            return replace(case, doubts=(Note("unknown-caller", unknown[0]),))
        objects = [need for need in case.needed if need.decision.path.endswith(" is None")]
        together = [*own, *(need for need in objects if own and need not in own)]
        if len(together) < 2:
            return case
        words = " and ".join(describe(need, case.planned.options) for need in together)
        return replace(case, doubts=(Note("together", detail=words),))

    def _unknown_callers(self, case: Case) -> list[str]:
        """Functions of libraries that may call the function with arguments of their own."""
        handed = self._builder.calls.handed_to(case.planned.function)
        return [name for name in handed if not is_launcher(name) and not is_observer(name)]

    def _feasible(self, case: Case, silent: Silent, settled: Settled | None) -> Case:
        """The case, with a doubt if no caller is known to produce its inputs.

        Args:
            settled: paths of inputs that one call is known to pass; None where what they are
                known to pass does not show the finding.
        """
        if silent.cut:
            return replace(case, doubts=(Note("unasked"),))
        own = [need for need in case.needed if is_own(need.decision, case.planned)]
        if not own:
            if silent.reaching:
                return replace(case, doubts=(Note("not-prevented", silent.reaching),))
            prevented = settled is None and not silent.complete
            return replace(case, doubts=(Note("prevented"),)) if prevented else case
        words = " and ".join(describe(need, case.planned.options) for need in own)
        if silent.complete:
            return replace(case, doubts=(Note("never-passed", detail=words),))
        if settled is None:
            return replace(case, doubts=(Note("passed", detail=words),))
        unknown = [
            need
            for need in own
            if need.decision.path not in settled.values
            and not self._is_default(need.decision, case.planned)
        ]
        by_user = [need for need in set_by_hand(case) if need.decision.path in settled.by_user]
        if len(by_user) > 1:
            words = " and ".join(describe(need, case.planned.options) for need in by_user)
            return replace(case, doubts=(Note("together", detail=words),))
        if not unknown:
            return case
        words = " and ".join(describe(need, case.planned.options) for need in unknown)
        return replace(case, doubts=(Note("passed", detail=words),))

    def _is_default(self, decision: Decision, planned: Planned) -> bool:
        """Whether a value is what it is if nobody sets anything."""
        leaf = decision.path.rpartition(".")[2]
        return is_default(decision) and not self._builder.is_passed(leaf, planned.function)

    # -- words ---------------------------------------------------------------------------------

    def _confirmed(self, case: Case, budget: Budget) -> Verdict:
        shown = case.shown
        if self._repairs:
            first = [Note("repaired", repair.code, repair.row) for repair in self._repairs]
            evidence = self._evidence("conditional", self._story(case), first)
            return Verdict(evidence, shown.trial, budget.used)
        evidence = self._evidence("confirmed", self._story(case))
        return Verdict(evidence, shown.trial, budget.used, shown.cure)

    def _story(self, case: Case) -> str:
        name = case.planned.function.qualname
        where = "the script" if name == "<module>" else f"`{name}`"
        story = f"ran {where} with torch {self._torch} on {self._device}: {ending_of(case.shown)}"
        inputs = [
            describe(need, case.planned.options)
            for need in case.needed
            if is_remarkable(need.decision) and need.decision.origin != "role" and need.tried
        ]
        if inputs:
            story += f"; needs {', '.join(inputs)}"
        left = sum(not need.tried for need in case.needed)
        return f"{story}; {left} more inputs were not varied" if left else story

    def _unconfirmed(
        self,
        cases: list[Case],
        searched: list[tuple[Planned, Exploration]],
        code: str,
        budget: Budget,
    ) -> Verdict:
        genuine = [case for case in cases if not case.shown.artefact]
        if genuine:
            case = min(genuine, key=lambda c: len(c.doubts) + len(c.shown.doubts))
            doubts = (*case.shown.doubts, *case.doubts)
            evidence = self._evidence("conditional", self._story(case), doubts)
            return Verdict(evidence, case.shown.trial, budget.used)
        if cases:
            shown = cases[0].shown
            detail = (
                f"{ending_of(shown)}, but the calls before it do not explain that: "
                "it may come from the values that the probe invented"
            )
            return Verdict(self._evidence("inconclusive", detail), shown.trial, budget.used)
        return self._nothing_shown(searched, code, budget)

    def _nothing_shown(
        self, searched: list[tuple[Planned, Exploration]], code: str, budget: Budget
    ) -> Verdict:
        trials = [trial for _, exploration in searched for trial in exploration.trials]
        exhausted = all(exploration.exhausted for _, exploration in searched)
        status, detail, trial = nothing_shown(trials, expectations(code), exhausted=exhausted)
        return Verdict(self._evidence(status, detail), trial, budget.used)

    def _evidence(self, status: str, detail: str, doubts: Iterable[Note] = ()) -> Evidence:
        return Evidence(status, self._device, "own-code", detail, in_words(doubts))


def _held(request: Request, holds: Callable[[Trial], bool], budget: Budget) -> Trial | None:
    """The run of a request if it shows the finding; None also where no run is left."""
    with contextlib.suppress(BudgetSpent):
        trial = Trial(request, budget.run(request))
        if holds(trial):
            return trial
    return None
