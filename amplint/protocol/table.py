"""The transition table of one (scaler, optimizer) pair.

A row reads: under this event, when the pair is in one of these stages and its gradients
carry one of these tags, the pair goes there, and this rule is broken. The first row that
fits wins. A raising violation leaves the pair as torch leaves it.

Checked against torch 2.13.0 (torch/amp/grad_scaler.py) by driving a real scaler through
every event word up to length 5: tests/protocol.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from amplint.protocol.states import ABSENT, Event, Gradient, Pair, Stage
from amplint.protocol.violations import VIOLATIONS, Violation

G = Gradient
ANY_STAGE = frozenset(Stage)
ANY_GRADIENT = frozenset(Gradient)
APPLIED = frozenset({G.SPENT, G.LEFTOVER})
DEFECTIVE = frozenset({G.MIXED, G.RESCALED, G.PILED})
READY = frozenset({Stage.READY})
UNSCALED = frozenset({Stage.UNSCALED})
STEPPED = frozenset({Stage.STEPPED})


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; None for `stage` or `gradient` means "unchanged"."""

    event: Event
    stages: frozenset[Stage]
    gradients: frozenset[Gradient]
    stage: Stage | None = None
    gradient: Gradient | None = None
    violation: str | None = None


class Outcome(NamedTuple):
    """Where an event leads: the pair's next state and the rule it broke, if any."""

    pair: Pair
    violation: Violation | None = None


def _tags(*tags: Gradient) -> frozenset[Gradient]:
    return frozenset(tags)


#: `scaler.scale(loss).backward()`: the strict tag is the join of old and new gradients.
SCALED_BACKWARD_ROWS = (
    Row(
        Event.SCALED_BACKWARD,
        ANY_STAGE,
        ABSENT | _tags(G.ZERO, G.SCALED),
        None,
        G.SCALED,
    ),
    Row(
        Event.SCALED_BACKWARD,
        ANY_STAGE,
        _tags(G.UNSCALED),
        None,
        G.RESCALED,
        "backward-after-unscale",
    ),
    Row(Event.SCALED_BACKWARD, ANY_STAGE, APPLIED, None, G.PILED),
    Row(Event.SCALED_BACKWARD, ANY_STAGE, _tags(G.PLAIN), None, G.MIXED),
    Row(Event.SCALED_BACKWARD, ANY_STAGE, DEFECTIVE | _tags(G.STALE)),
)

#: `loss.backward()`: right on its own scale, so it adds up with unscaled gradients.
PLAIN_BACKWARD_ROWS = (
    Row(Event.PLAIN_BACKWARD, ANY_STAGE, ABSENT | _tags(G.ZERO, G.PLAIN) | APPLIED, None, G.PLAIN),
    Row(Event.PLAIN_BACKWARD, ANY_STAGE, _tags(G.SCALED, G.STALE), None, G.MIXED),
    Row(Event.PLAIN_BACKWARD, ANY_STAGE, _tags(G.UNSCALED) | DEFECTIVE),
)

UNSCALE_ROWS = (
    Row(Event.UNSCALE, UNSCALED, ANY_GRADIENT, None, None, "unscale-twice"),
    Row(Event.UNSCALE, STEPPED, ANY_GRADIENT, None, None, "unscale-after-step"),
    Row(Event.UNSCALE, READY, _tags(G.NONE), Stage.UNSCALED, None, "unscale-without-gradient"),
    Row(Event.UNSCALE, READY, _tags(G.CLEARED), Stage.UNSCALED, None, "unscale-after-zero-grad"),
    Row(Event.UNSCALE, READY, _tags(G.ZERO), Stage.UNSCALED, None, "unscale-of-zeros"),
    Row(Event.UNSCALE, READY, _tags(G.SCALED), Stage.UNSCALED, G.UNSCALED),
    Row(Event.UNSCALE, READY, _tags(G.STALE), Stage.UNSCALED, G.UNSCALED, "stale-scale"),
    Row(Event.UNSCALE, READY, _tags(G.UNSCALED), Stage.UNSCALED, None, "unscale-again"),
    Row(Event.UNSCALE, READY, APPLIED, Stage.UNSCALED, G.UNSCALED, "step-on-spent"),
    Row(Event.UNSCALE, READY, _tags(G.PLAIN), Stage.UNSCALED, G.UNSCALED, "unscale-of-plain"),
    Row(Event.UNSCALE, READY, _tags(G.MIXED), Stage.UNSCALED, G.UNSCALED, "step-on-mixed"),
    Row(Event.UNSCALE, READY, _tags(G.RESCALED), Stage.UNSCALED, G.UNSCALED, "step-on-rescaled"),
    Row(Event.UNSCALE, READY, _tags(G.PILED), Stage.UNSCALED, G.UNSCALED, "step-on-piled"),
)

#: `scaler.step`: a READY optimizer is unscaled first, so those rows mirror UNSCALE_ROWS.
STEP_ROWS = (
    Row(Event.STEP, STEPPED, ANY_GRADIENT, None, None, "step-twice"),
    Row(Event.STEP, READY, _tags(G.NONE), Stage.UNSCALED, None, "step-without-gradient"),
    Row(Event.STEP, READY, _tags(G.CLEARED), Stage.UNSCALED, None, "step-after-zero-grad"),
    Row(Event.STEP, READY, _tags(G.ZERO), Stage.STEPPED, None, "step-on-zeros"),
    Row(Event.STEP, READY, _tags(G.SCALED), Stage.STEPPED, G.SPENT),
    Row(Event.STEP, READY, _tags(G.STALE), Stage.STEPPED, G.SPENT, "stale-scale"),
    Row(Event.STEP, READY, _tags(G.UNSCALED), Stage.STEPPED, G.SPENT, "unscale-again"),
    Row(Event.STEP, READY, APPLIED, Stage.STEPPED, G.SPENT, "step-on-spent"),
    Row(Event.STEP, READY, _tags(G.PLAIN), Stage.STEPPED, G.SPENT, "unscale-of-plain"),
    Row(Event.STEP, READY, _tags(G.MIXED), Stage.STEPPED, G.SPENT, "step-on-mixed"),
    Row(Event.STEP, READY, _tags(G.RESCALED), Stage.STEPPED, G.SPENT, "step-on-rescaled"),
    Row(Event.STEP, READY, _tags(G.PILED), Stage.STEPPED, G.SPENT, "step-on-piled"),
    # After unscale_ the gradients are applied as they are. Cleared ones are legal as
    # long as the inf check of unscale_ is on record (checked below).
    Row(Event.STEP, UNSCALED, _tags(G.UNSCALED, G.PLAIN), Stage.STEPPED, G.SPENT),
    Row(Event.STEP, UNSCALED, ABSENT | _tags(G.ZERO) | APPLIED, Stage.STEPPED, None),
    Row(Event.STEP, UNSCALED, _tags(G.MIXED), Stage.STEPPED, G.SPENT, "step-on-mixed"),
    Row(
        Event.STEP,
        UNSCALED,
        _tags(G.SCALED, G.STALE, G.RESCALED, G.PILED),
        Stage.STEPPED,
        G.SPENT,
        "step-on-rescaled",
    ),
)

UPDATE_ROWS = tuple(
    row
    for event in (Event.UPDATE, Event.SET_SCALE)
    for row in (
        Row(event, ANY_STAGE, _tags(G.SCALED), Stage.READY, G.STALE),
        Row(event, ANY_STAGE, _tags(G.SPENT), Stage.READY, G.LEFTOVER),
        Row(event, ANY_STAGE, ANY_GRADIENT, Stage.READY, None),
    )
)

ZERO_GRAD_ROWS = (
    Row(Event.ZERO_GRAD, ANY_STAGE, ABSENT | _tags(G.ZERO) | APPLIED, None, G.NONE),
    Row(Event.ZERO_GRAD, ANY_STAGE, ANY_GRADIENT, None, G.CLEARED),
    Row(Event.ZERO_GRAD_KEEP, ANY_STAGE, ABSENT),
    Row(Event.ZERO_GRAD_KEEP, ANY_STAGE, ANY_GRADIENT, None, G.ZERO),
)

CLIP_ROWS = (
    Row(
        Event.CLIP,
        ANY_STAGE,
        DEFECTIVE | _tags(G.SCALED, G.STALE),
        None,
        None,
        "clip-of-scaled",
    ),
    Row(Event.CLIP, ANY_STAGE, APPLIED, None, None, "clip-of-spent"),
    Row(Event.CLIP, ANY_STAGE, ANY_GRADIENT),
)

OPTIMIZER_STEP_ROWS = (
    Row(Event.OPTIMIZER_STEP, ANY_STAGE, ABSENT | _tags(G.ZERO)),
    Row(Event.OPTIMIZER_STEP, ANY_STAGE, _tags(G.PLAIN), None, G.SPENT),
    Row(
        Event.OPTIMIZER_STEP,
        ANY_STAGE,
        _tags(G.SCALED, G.STALE),
        None,
        G.SPENT,
        "optimizer-step-on-scaled",
    ),
    Row(Event.OPTIMIZER_STEP, ANY_STAGE, _tags(G.UNSCALED), None, G.SPENT, "optimizer-step-bypass"),
    Row(Event.OPTIMIZER_STEP, ANY_STAGE, APPLIED, None, None, "optimizer-step-twice"),
    Row(Event.OPTIMIZER_STEP, ANY_STAGE, DEFECTIVE, None, G.SPENT, "optimizer-step-on-mixed"),
)

TABLE: tuple[Row, ...] = (
    Row(Event.SCALE, ANY_STAGE, ANY_GRADIENT),
    *SCALED_BACKWARD_ROWS,
    *PLAIN_BACKWARD_ROWS,
    *UNSCALE_ROWS,
    *STEP_ROWS,
    *UPDATE_ROWS,
    *ZERO_GRAD_ROWS,
    *CLIP_ROWS,
    *OPTIMIZER_STEP_ROWS,
)

#: What each event reports when the scaler has never scaled anything (`_scale is None`).
UNINITIALISED = {
    Event.UNSCALE: "unscale-uninitialised",
    Event.STEP: "step-uninitialised",
    Event.UPDATE: "update-uninitialised",
    Event.SET_SCALE: "update-uninitialised",
}

#: What an event reports when no inf check is on record since the last update(): `step`
#: asks its own optimizer (once that is UNSCALED), `update()` asks all of them together.
UNCHECKED = {
    Event.STEP: "step-without-gradient",
    Event.UPDATE: "update-without-check",
}


@cache
def find_row(event: Event, stage: Stage, gradient: Gradient) -> Row:
    """Return the first row of the table that fits; the table covers every combination."""
    for row in TABLE:
        if row.event is event and stage in row.stages and gradient in row.gradients:
            return row
    raise LookupError(f"the protocol table has no row for {event}, {stage}, {gradient}")


@cache
def advance(pair: Pair, event: Event) -> Outcome:
    """Apply `event` to one pair of an initialised scaler.

    `update()` needs to know about the other optimizers: see `Tracker.apply`.
    """
    if pair.gradient is None:
        return _advance_unknown(pair, event)
    row = find_row(event, pair.stage, pair.gradient)
    violation = VIOLATIONS[row.violation] if row.violation else None
    unscales = event is Event.UNSCALE or event is Event.STEP
    if event is Event.STEP and pair.stage is Stage.UNSCALED and not pair.checked:
        # torch/amp/grad_scaler.py, `step`: the assertion comes before the optimizer runs,
        # and the stage stays UNSCALED, so the next iteration fails as well (S37c).
        return Outcome(pair, VIOLATIONS[UNCHECKED[event]])
    checked = pair.checked
    if unscales and pair.stage is Stage.READY:
        checked = pair.gradient not in ABSENT
    if event in (Event.UPDATE, Event.SET_SCALE):
        checked = False
    following = Pair(row.stage or pair.stage, row.gradient or pair.gradient, checked)
    return Outcome(following, violation)


def _advance_unknown(pair: Pair, event: Event) -> Outcome:
    """What is so whatever the gradients hold; that there are some is known.

    torch's own stages do not ask what they hold, so they stay exact.
    """
    outcomes = [
        advance(Pair(pair.stage, tag, pair.checked), event) for tag in Gradient if tag not in ABSENT
    ]
    tags = {outcome.pair.gradient for outcome in outcomes}
    if tags <= ABSENT:
        tags = {Gradient.NONE}  # that a step had not used them is not known
    violations = {outcome.violation for outcome in outcomes}
    first = outcomes[0].pair
    following = Pair(first.stage, tags.pop() if len(tags) == 1 else None, first.checked)
    return Outcome(following, violations.pop() if len(violations) == 1 else None)


__all__ = [
    "TABLE",
    "UNCHECKED",
    "UNINITIALISED",
    "Outcome",
    "Row",
    "advance",
    "find_row",
]
