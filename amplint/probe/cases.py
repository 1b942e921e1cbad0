"""What the runs for one finding have shown so far: the nouns of the probe, and questions about one case."""

from __future__ import annotations

import ast
import os
from dataclasses import dataclass, replace

from amplint.code.module import Function
from amplint.findings import Evidence, Finding
from amplint.probe.acceptance import is_own, is_so_by_default
from amplint.probe.doubts import OWNERS, SECOND_CALL
from amplint.probe.inputs import Need, is_about, root_of
from amplint.probe.messages import Note, Omission
from amplint.probe.outcomes import passes
from amplint.probe.planning import Planned
from amplint.probe.predictions import why_not
from amplint.probe.search import Exploration, Trial, is_default
from amplint.probe.verdicts import Shown

#: Runs of an entry in which something has been shown with a doubt.
DOUBTED_RUNS = 16
#: Doubts about losses, optimizers and models, by the path at which they stand.
_PASSED_IN = frozenset({"connected", "optimizer-class", "on-gpu"})


@dataclass(frozen=True, slots=True)
class Verdict:
    """The evidence, and the run behind it.

    Args:
        evidence: for the report.
        trial: the run that shows it, else the last one; None where nothing was run.
        runs: how many there were.
        cure: what was left out so that the failure was gone, if it is confirmed that way.
    """

    evidence: Evidence
    trial: Trial | None = None
    runs: int = 0
    cure: Omission | None = None


@dataclass(frozen=True, slots=True)
class Repair:
    """A confirmed finding that ends every run, and that others may be hidden behind.

    Args:
        code, row: of the finding.
        cure: what a run leaves out to get past it.
    """

    code: str
    row: int
    cure: Omission


@dataclass(frozen=True, slots=True)
class Case:
    """A run that shows the finding, with what it depends on."""

    planned: Planned
    exploration: Exploration
    shown: Shown
    needed: tuple[Need, ...] = ()
    doubts: tuple[Note, ...] = ()

    @property
    def is_confirmed(self) -> bool:
        """Whether neither the run nor what it depends on leaves a doubt."""
        return self.shown.proves and not self.doubts


@dataclass(frozen=True, slots=True)
class Silent:
    """Callers that do not show what the function called by itself shows.

    Args:
        reaching: one that came to the line, "" if none did.
        complete: all of them came there, with all inputs that there are.
        cut: there was no time to see what they do.
    """

    reaching: str
    complete: bool
    cut: bool


def not_probed(finding: Finding) -> Verdict:
    """The verdict on a finding that no run can show, with the reason."""
    return Verdict(Evidence("not-probed", detail=why_not(finding.code)))


def shortened(case: Case) -> Case:
    """The case with a request that ends as soon as it has shown itself.

    So do all further ones that differ in an input. If that does not show it, whatever differs seems
    to be needed.
    """
    shown = case.shown
    made = len(shown.trial.result.steps)
    if shown.prediction.kind == "raises":
        most = made + 2  # a run that gets past the line does not have to train to its end
    elif shown.step is None or made <= shown.step + 1:
        return case
    else:
        most = shown.step + 1
    request = replace(shown.trial.request, most_steps=most)
    return replace(case, shown=replace(shown, trial=replace(shown.trial, request=request)))


def goes_on(exploration: Exploration) -> bool:
    """Whether a run came to the line and got past it."""
    return any(trial.reached and passes(trial) for trial in exploration.trials)


def ends_well(exploration: Exploration) -> bool:
    """Whether a run came to the line and to its end: what shows later than there was not cut off."""
    return any(
        trial.reached and trial.result.status in ("returned", "stopped")
        for trial in exploration.trials
    )


def goes_by(exploration: Exploration, function: Function) -> bool:
    """Whether a caller calls a function in every run to its end, and no run comes to the line."""
    node, trials = function.node, exploration.trials
    if isinstance(node, ast.Module):
        return False
    inside = set(range(node.lineno + 1, (node.end_lineno or node.lineno) + 1))
    return bool(trials) and all(
        not trial.reached
        and trial.result.status == "returned"
        and not trial.result.skipped
        and not inside.isdisjoint(trial.result.rows)
        for trial in trials
    )


def runs_with_cases(limit: int, planned: Planned, cases: list[Case]) -> int:
    """How many runs an entry gets when there are cases with doubts.

    What is left to callers, only they can settle. Otherwise the entry of a case may show it
    without a doubt under other inputs.
    """
    has_one = any(case.planned.function is planned.function for case in cases)
    if all(map(_is_left_to_callers, cases)):
        return 0 if has_one else limit
    return min(limit, DOUBTED_RUNS) if has_one else 0


def _is_left_to_callers(case: Case) -> bool:
    """Whether all doubts are about a loss or optimizer that is passed in, or about what happens
    between two calls: a caller that is run itself settles that."""
    if not case.shown.doubts:
        return False
    for doubt in case.shown.doubts:
        if doubt in (SECOND_CALL, OWNERS):
            continue
        # What a call returns is not passed in, only what stands at a path.
        is_path = all(part.isidentifier() for part in doubt.subject.split("."))
        if doubt.kind not in _PASSED_IN or not is_path:
            return False
        if root_of(doubt.subject) not in case.planned.plan.parameters:
            return False
    return True


def doubt_about_filling(case: Case) -> Note | None:
    """The doubt that what is shown needs a certain value for what a skipped statement binds."""
    for skipped in case.shown.trial.result.skipped:
        for name in skipped.names:
            if any(is_about(need.decision.path, name) for need in case.needed):
                return Note("skipped", row=skipped.row, detail=skipped.reason)
    return None


def set_by_hand(case: Case) -> list[Need]:
    """Needed inputs of the function itself that are not what they are by default."""
    return [
        need
        for need in case.needed
        if is_own(need.decision, case.planned)
        and not is_default(need.decision)
        and not is_so_by_default(need, case.planned)
    ]


def ending_of(shown: Shown) -> str:
    """What a case shows, in words: for an exception with the line that raised it."""
    if shown.prediction.kind == "raises":
        return f"`{shown.words}` at line {shown.row}{_elsewhere(shown)}"
    return shown.words


def _elsewhere(shown: Shown) -> str:
    """The line of another file in which it was raised."""
    raised = shown.trial.result.raised
    if raised is None or not shown.filename:
        return ""
    place = f" of {os.path.basename(shown.filename)}"
    return place if raised.row == shown.row else f", in line {raised.row}{place}"
