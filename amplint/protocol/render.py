"""The protocol for people (`amplint protocol`) and for programs (`--output-format json`)."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from functools import cache

from amplint.protocol.states import Event, Gradient, Stage
from amplint.protocol.table import TABLE, UNCHECKED, UNINITIALISED, Row, find_row
from amplint.protocol.violations import VIOLATIONS, Violation

WIDTH = 100
INDENT = "  "
#: Widths of the columns "stage" and "gradients"; the rest of a line is the broken rule.
COLUMNS = (21, 44)
#: Width of the names in front of the meanings.
NAME = 10

INTRODUCTION = """\
What may happen to one optimizer of a GradScaler, in which order, and what each wrong order does.
A row reads: if the optimizer is in this stage and its gradients are of this kind, they become what
stands behind the arrow, and this rule is broken.

torch itself keeps the stage, and whether an inf check is on record: unscale_ records one if it
finds a gradient (step calls it where you did not), update() forgets it. torch knows nothing about
the gradients. Their kind is amplint's own bookkeeping; it is what makes silent mistakes visible.

Errors and damage are those of torch 2.13.0 with an initial scale of 65536. The update ratio is the
size of the parameter change divided by that of the correct step, with SGD unless said otherwise.
"""
NEVER_SCALED = "Before the scaler has scaled anything, these stop the program, whatever the state:"
NOT_CHECKED = """\
With no inf check on record, these stop it as well. A step asks for the check of its own optimizer,
after unscaling it; update() is content with the check of any optimizer.
"""


def render_text() -> Iterator[str]:
    """Yield the protocol line by line, without newlines, at most 100 columns wide."""
    yield from _title("The GradScaler protocol", "=")
    yield from INTRODUCTION.splitlines()
    yield from _meanings("Stages", Stage)
    yield from _meanings("Gradients", Gradient)
    yield from _needs()
    for event in Event:
        yield from _event(event)


def render_json() -> dict[str, object]:
    """The protocol as plain lists and dicts; names are those of the enums' values.

    `stages` and `gradients` of a row are what it really applies to, so rows of one event
    never overlap. A `next_stage` or `next_gradient` of null means unchanged.
    """
    return {
        "stages": [{"name": stage.value, "meaning": stage.meaning} for stage in Stage],
        "gradients": [{"name": tag.value, "meaning": tag.meaning} for tag in Gradient],
        "events": [{"name": event.name.lower(), "code": event.value} for event in Event],
        "rows": [_row_json(row) for row in TABLE],
        "uninitialised": {event.name.lower(): slug for event, slug in UNINITIALISED.items()},
        "unchecked": {event.name.lower(): slug for event, slug in UNCHECKED.items()},
        "violations": [_violation_json(violation) for violation in VIOLATIONS.values()],
    }


@cache
def scope(row: Row) -> tuple[tuple[Stage, ...], tuple[Gradient, ...]]:
    """The stages and gradients for which `row` is the first that fits."""
    fits = [
        (stage, gradient)
        for stage in Stage
        for gradient in Gradient
        if find_row(row.event, stage, gradient) is row
    ]
    stages = tuple(stage for stage in Stage if any(stage is fit[0] for fit in fits))
    gradients = tuple(tag for tag in Gradient if any(tag is fit[1] for fit in fits))
    return stages, gradients


def _title(text: str, underline: str) -> Iterator[str]:
    yield text
    yield underline * len(text)
    yield ""


def _meanings(title: str, states: Iterable[Stage] | Iterable[Gradient]) -> Iterator[str]:
    yield ""
    yield from _title(title, "-")
    for state in states:
        yield f"{INDENT}{state.value:<{NAME}}{state.meaning}"


def _needs() -> Iterator[str]:
    yield ""
    yield from _title("What the scaler needs", "-")
    yield NEVER_SCALED
    for event, slug in UNINITIALISED.items():
        yield from _breach(event.value, VIOLATIONS[slug])
    yield ""
    yield from NOT_CHECKED.splitlines()
    for event, slug in UNCHECKED.items():
        yield from _breach(event.value, VIOLATIONS[slug])


def _breach(subject: str, violation: Violation) -> Iterator[str]:
    yield f"{INDENT}{subject:<{sum(COLUMNS)}}{_rule(violation)}"
    yield from _consequence(violation)


def _event(event: Event) -> Iterator[str]:
    yield ""
    yield from _title(event.value, "-")
    yield _line("stage", "gradients", "broken rule")
    rows = [row for row in TABLE if row.event is event]
    # Scopes do not overlap, so any order is right; people expect a step's own order.
    for row in sorted(rows, key=lambda row: list(Stage).index(scope(row)[0][0])):
        yield from _row(row)


def _row(row: Row) -> Iterator[str]:
    stages, gradients = scope(row)
    violation = VIOLATIONS[row.violation] if row.violation else None
    rule = _rule(violation) if violation else "-"
    first, *others = textwrap.wrap(_change(gradients, row.gradient), COLUMNS[1] - 2)
    yield _line(_change(stages, row.stage), first, rule)
    for other in others:
        yield _line("", other, "")
    if violation is not None:
        yield from _consequence(violation)


def _line(*cells: str) -> str:
    widths = (*COLUMNS, 0)
    return (INDENT + "".join(f"{cell:<{width}}" for cell, width in zip(cells, widths))).rstrip()


def _change(states: Sequence[Enum], following: Enum | None) -> str:
    """Name what states become: "any", "a, b -> c", "any but a -> c" where that is shorter."""
    others = [state.value for state in type(states[0]) if state not in states]
    names = ", ".join(state.value for state in states)
    if len(others) < len(states) - 2:
        names = "any but " + ", ".join(others)
    if not others:
        names = "any"
    return f"{names} -> {following.value}" if following else names


def _rule(violation: Violation) -> str:
    return f"{violation.code} {violation.slug}"


def _consequence(violation: Violation) -> Iterator[str]:
    """What torch says, or what the silent mistake does, below its row."""
    text = f"silent: {violation.damage}"
    if violation.raises:
        text = f"{violation.exception}: {violation.error}"
    yield from textwrap.wrap(
        text,
        WIDTH,
        initial_indent=INDENT * 3,
        subsequent_indent=INDENT * 4,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _row_json(row: Row) -> dict[str, object]:
    stages, gradients = scope(row)
    return {
        "event": row.event.name.lower(),
        "stages": [stage.value for stage in stages],
        "gradients": [gradient.value for gradient in gradients],
        "next_stage": row.stage.value if row.stage else None,
        "next_gradient": row.gradient.value if row.gradient else None,
        "violation": row.violation,
    }


def _violation_json(violation: Violation) -> dict[str, object]:
    return {
        "name": violation.slug,
        "code": violation.code,
        "exception": violation.exception,
        "error": violation.error,
        "damage": violation.damage,
    }
