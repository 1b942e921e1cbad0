"""The protocol over the events of a run with several scalers and optimizers."""

from __future__ import annotations

from amplint.probe.explanation import broken_rules
from amplint.probe.messages import Event


def event(kind: str, scaler: int = 0, optimizer: int = 0, **facts: object) -> Event:
    return Event(kind, "gan.py", 1, scaler, optimizer, facts=facts)


def backward(scaler: int, *optimizers: int) -> Event:
    return event("backward", scaler, scaled=bool(scaler), optimizers=list(optimizers))


def slugs(*events: Event) -> list[str]:
    return [broken.slug for broken in broken_rules(events)]


def round_of(scaler: int, optimizer: int) -> tuple[Event, ...]:
    return (
        event("scale", scaler),
        backward(scaler, optimizer),
        event("step", scaler, optimizer),
        event("update", scaler),
        event("zero_grad", 0, optimizer),
    )


def test_a_scaler_for_each_optimizer_breaks_nothing() -> None:
    assert slugs(*round_of(1, 1), *round_of(2, 2), *round_of(1, 1)) == []


def test_one_scaler_for_two_optimizers_breaks_nothing() -> None:
    events = [event("scale", 1), backward(1, 1), event("step", 1, 1)]
    events += [event("scale", 1), backward(1, 2), event("step", 1, 2), event("update", 1)]
    assert slugs(*events) == []


def test_an_update_belongs_to_its_own_scaler() -> None:
    """The first optimizer is stepped twice; the update in between is the other scaler's."""
    first = round_of(1, 1)[:3]
    assert slugs(*first, *round_of(2, 2), *first) == ["step-twice"]


def test_an_update_without_a_check_of_its_own_scaler() -> None:
    events = (*round_of(1, 1)[:3], event("scale", 2), backward(2, 2), event("update", 2))
    assert slugs(*events) == ["update-without-check"]


def test_a_step_with_a_scaler_that_never_scaled() -> None:
    assert slugs(event("scale", 1), backward(1, 1), event("step", 2, 1)) == ["step-uninitialised"]


def test_a_plain_step_concerns_the_scaler_of_the_gradients() -> None:
    events = (event("scale", 2), backward(2, 1), event("plain-step", 0, 1))
    assert slugs(*events) == ["optimizer-step-on-scaled"]


def test_a_call_that_fails_for_another_reason_changes_nothing() -> None:
    """torch has left the stage at READY: a second `unscale_` is the first one that counts."""
    refused = event("unscale_", 1, 1, raised="ValueError")
    events = (event("scale", 1), backward(1, 1), refused, event("unscale_", 1, 1))
    assert slugs(*events) == []


def test_a_scale_that_is_set_needs_no_check() -> None:
    events = (event("scale", 1), backward(1, 1), event("update", 1, **{"new-scale": True}))
    assert slugs(*events) == []
    assert slugs(*events[:2], event("update", 1)) == ["update-without-check"]


def test_gradients_that_came_without_an_event_explain_only_the_stages() -> None:
    """A step of gradients that were set by hand does not fail, a second one does."""
    step = event("step", 1, 1, gradients=2)
    assert slugs(event("scale", 1), step) == []
    assert slugs(event("scale", 1), step, step) == ["step-twice"]
    assert slugs(event("scale", 1), event("step", 1, 1, gradients=0)) == ["step-without-gradient"]


def test_an_update_that_fails_for_another_reason_changes_nothing() -> None:
    refused = event("update", 1, raised="TypeError")
    assert slugs(*round_of(1, 1)[:3], refused, event("step", 1, 1)) == ["step-twice"]
