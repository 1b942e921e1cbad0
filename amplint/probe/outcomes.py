"""What is said of a finding that no run has shown: how far the runs came.

*Reached* means that what the prediction is about has happened in the line, not that the line
ran; *not reproduced* means that a run went on from there until it would have shown.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable

from amplint.probe.explanation import protocol_events
from amplint.probe.messages import Event
from amplint.probe.predictions import Expectation
from amplint.probe.search import Trial

#: Statuses of runs that say nothing about the code.
_WITHOUT_RESULT = frozenset({"timeout", "killed", "failed"})
_STEPS = frozenset({"step", "plain-step"})


class Reach(enum.IntEnum):
    """How far a run came."""

    LOST = 0
    NOT_THERE = 1
    ROW = 2  # the line ran, and nothing happened to a scaler, an optimizer or gradients
    EVENT = 3
    PAST = 4  # and the run went on until it would have shown


def reach_of(trial: Trial, expectations: Iterable[Expectation]) -> Reach:
    """How far a run came towards what a finding predicts."""
    result = trial.result
    if not trial.reached:
        return Reach.LOST if result.status in _WITHOUT_RESULT else Reach.NOT_THERE
    if not passes(trial):
        return Reach.EVENT
    if not any(expected.slugs for expected in expectations):
        return Reach.PAST
    events = protocol_events(result.events)
    here = [index for index, event in enumerate(events) if _is_at_target(event, trial)]
    if not here:
        return Reach.ROW
    if all(expected.kind == "gradients" for expected in expectations if expected.slugs):
        stepped = any(event.kind in _STEPS for event in events[here[0] :])
        return Reach.PAST if stepped else Reach.EVENT
    return Reach.PAST


def _is_at_target(event: Event, trial: Trial) -> bool:
    if event.filename == trial.plan.sources[0].filename:
        return event.row in trial.plan.target_rows
    return event.facts.get("through") in trial.plan.target_rows


def passes(trial: Trial) -> bool:
    """Whether a run got past every target row that it reached."""
    raised = trial.result.raised
    return trial.result.status in ("returned", "stopped") or (
        raised is not None
        and set(raised.rows_of(trial.plan.sources[0].filename)).isdisjoint(trial.plan.target_rows)
    )


def nothing_shown(
    trials: list[Trial], expectations: Iterable[Expectation], *, exhausted: bool
) -> tuple[str, str, Trial | None]:
    """The status and the words for runs that showed nothing, and the run that says most.

    Args:
        exhausted: no input was left to change.
    """
    expectations = tuple(expectations)
    ranked = [(reach_of(trial, expectations), trial) for trial in trials]
    last = trials[-1] if trials else None
    if not trials or all(trial.result.status in _WITHOUT_RESULT for trial in trials):
        why = f"{last.result.status}: {last.result.reason}" if last else "no time was left"
        return "inconclusive", f"no run came to an end ({why})", last
    best = max(reach for reach, _ in ranked)
    farthest = [trial for reach, trial in ranked if reach is best]
    if best <= Reach.NOT_THERE:
        return "not-reached", blocked(trials), last
    if best is Reach.ROW:
        detail = "the line runs, but on nothing that is known to be a scaler or an optimizer"
        return "not-reached", detail, farthest[-1]
    if best is Reach.EVENT:
        detail = f"the line is reached, but before it can show {blocked(farthest)}"
        return "inconclusive", detail, farthest[-1]
    number = len({trial.identity for trial in trials})
    count = f"{number} assignment{'s' if number != 1 else ''}"
    extent = "all that the probe can make" if exhausted else "not all that there are"
    detail = f"{count} tried, {extent}; the line ran without it"
    return "not-reproduced", detail, farthest[-1]


def blocked(trials: list[Trial]) -> str:
    """Which line kept the runs from going on, by the run that came farthest."""
    trial = max(trials, key=lambda trial: len(set(trial.result.rows)))
    result = trial.result
    if result.raised is not None:
        message = re.sub(r"\s+", " ", result.raised.message)[:120]
        line = f"line {result.raised.row} " if result.raised.row else ""
        refusal = next((text for text in result.remarks if text.startswith(REFUSED)), "")
        if result.raised.type == "SystemExit" and refusal:
            return f"{line}ends the program: {refusal}"
        return f"{line}raises `{result.raised.type}: {message}`"
    if result.status in _WITHOUT_RESULT:
        return f"the run ended early ({result.status}: {result.reason})"
    return "the run ends: no input was found that leads farther"


#: How a run says that the project's own parser has refused the command line.
REFUSED = "the command line is refused"
