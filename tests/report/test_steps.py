"""The steps of a path in words, and that nothing else is needed to say them."""

from __future__ import annotations

import pytest

from amplint.findings import PathStep
from amplint.protocol import VIOLATIONS, Event
from amplint.report.steps import words_of

#: What a step is -> what is said of it, and of the state after it.
SAID = [
    ({"message": "the loss is scaled", "state": "scaled"}, ("the loss is scaled", "scaled")),
    ({"kind": "assume", "subject": "amp", "holds": True}, ("assume `amp` is true", "")),
    ({"kind": "assume", "subject": "a" * 80}, (f"assume `{'a' * 80}` is false", "")),
    ({"kind": "assume", "subject": "a" * 81}, (f"assume `{'a' * 78} …` is false", "")),
    ({"kind": "call", "subject": "finish"}, ("call of `finish`", "")),
    ({"kind": "again", "subject": "fit"}, ("`fit` is called for the next batch", "")),
    ({"kind": "again"}, ("`the function` is called for the next batch", "")),
    ({"kind": "loop"}, ("the loop goes round", "")),
    ({"kind": "leave"}, ("the loop ends", "")),
    (
        {"kind": "event", "event": Event.STEP},
        ("the scaler steps the optimizer", "stepped, update() is due"),
    ),
    (
        {"kind": "event", "event": Event.CLIP, "idle": True},
        ("there is nothing to clip", ""),
    ),
    (
        {"kind": "event", "event": Event.CLIP, "broken": "clip-of-scaled"},
        ("the gradients are clipped: wrong, and torch raises nothing", ""),
    ),
    (
        {"kind": "event", "event": Event.STEP, "broken": "foreign-scaler"},
        ("the scaler steps the optimizer", ""),
    ),
    (
        {"kind": "event", "event": Event.STEP, "broken": "unscale-of-plain"},
        ("the scaler steps the optimizer", ""),
    ),
]


@pytest.mark.parametrize(("step", "said"), SAID)
def test_words(step: dict, said: tuple[str, str]) -> None:
    assert words_of(PathStep("train.py", 1, 1, **step)) == said


@pytest.mark.parametrize("slug", [v.slug for v in VIOLATIONS.values() if v.raises])
def test_a_path_ends_in_the_error_of_torch(slug: str) -> None:
    step = PathStep("train.py", 1, 1, kind="event", event=Event.STEP, broken=slug)
    message, state = words_of(step)
    violation = VIOLATIONS[slug]
    assert message.startswith(f"torch raises `{violation.exception}: ")
    assert (violation.error or "").startswith(message.partition(": ")[2].rstrip("`"))
    assert state == ""


@pytest.mark.parametrize("event", [event for event in Event if event is not Event.SCALE])
@pytest.mark.parametrize("idle", [True, False])
def test_every_event_has_words(event: Event, idle: bool) -> None:
    """A scale whose result is dropped is no step of a path: it does nothing."""
    message, _ = words_of(PathStep("train.py", 1, 1, kind="event", event=event, idle=idle))
    assert message
