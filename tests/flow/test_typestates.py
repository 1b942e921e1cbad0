"""What is on record of a path: which entries say something, and which record says less."""

from __future__ import annotations

import ast
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amplint.code.module import build_module
from amplint.flow.events import Site, Transitions
from amplint.flow.merging import Limits, merge
from amplint.flow.state import NO_GUARDS, State
from amplint.flow.typestates import EVERY, READY, UNKNOWN, says_less, telling
from amplint.protocol import Gradient, Stage

SCALERS = ("f:scaler", "f:other")
OPTIMIZERS = ("f:opt", "f:second")
BODY = build_module("a.py", "pass", ast.parse("pass")).body
NODE = ast.Name("x", ast.Load())

#: Events by name, each on one scaler and one optimizer.
EVENTS: dict[str, Callable[[Transitions, State, Site], None]] = {
    "scaled backward": Transitions.scaled_backward,
    "plain backward": Transitions.plain_backward,
    "unscale_": Transitions.unscale,
    "scaler.step": Transitions.step,
    "update": lambda to, state, site: to.update(state, site, new_scale=False),
    "zero_grad": Transitions.zero_grad,
    "optimizer.step": Transitions.optimizer_step,
    "next round": lambda to, state, site: to.back_edge(state),
    "loop": lambda to, state, site: to.enter_training_loop(state),
    "new scaler": lambda to, state, site: to.fresh_scaler(state, site.scaler),
    "new optimizer": lambda to, state, site: to.renew(state, site.optimizer),
    "unknown code": lambda to, state, site: to.havoc(state),
}
STEPS = st.lists(
    st.tuples(
        st.sampled_from(sorted(EVENTS)), st.sampled_from(SCALERS), st.sampled_from(OPTIMIZERS)
    ),
    max_size=12,
)


def follow(state: State, steps: list[tuple[str, str, str]]) -> list[tuple[int, str]]:
    """Apply events in place; what was reported, with the number of the event."""
    told: list[tuple[int, str]] = []
    for number, (event, scaler, optimizer) in enumerate(steps):
        to = Transitions(lambda slug, *_, at=number: told.append((at, slug)))
        EVENTS[event](to, state, Site(NODE, BODY, scaler, optimizer, "s", "o"))
    return told


@given(STEPS, STEPS)
@settings(max_examples=400, deadline=None)
def test_entries_that_tell_nothing_change_nothing(before: list, after: list) -> None:
    whole = State()
    follow(whole, before)
    short = State(dict(telling(whole.typestate)))
    assert says_less(short.typestate, whole.typestate)
    assert says_less(whole.typestate, short.typestate)
    assert follow(whole, after) == follow(short, after)


@given(STEPS)
@settings(max_examples=200, deadline=None)
def test_a_path_that_ends_in_unknown_code_says_less(before: list) -> None:
    known = State({("flag", "started"): True})
    follow(known, before)
    unknowing = known.copy()
    Transitions(lambda *_: None).havoc(unknowing)
    assert says_less(unknowing.typestate, known.typestate)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ({}, {("stage", "s", "o"): READY}, True),
        ({("stage", "s", "o"): READY}, {}, True),
        ({("stage", "s", "o"): (Stage.STEPPED, False)}, {}, False),
        ({("havoc", "s"): True}, {("stage", "s", "o"): (Stage.STEPPED, False)}, True),
        ({("stage", "s", "o"): (Stage.STEPPED, False)}, {("havoc", "s"): True}, False),
        ({("gradient", "o"): UNKNOWN}, {("gradient", "o"): (Gradient.SCALED, frozenset())}, True),
        ({("gradient", "o"): (Gradient.SCALED, frozenset())}, {("gradient", "o"): UNKNOWN}, False),
        ({("checked", "s"): False}, {}, False),
        ({("flag", "after"): True}, {}, False),
        ({}, {("flag", "after"): True}, False),
    ],
)
def test_which_record_says_less(one: dict, other: dict, expected: bool) -> None:
    assert says_less(one, other) is expected


def test_a_state_that_knows_less_is_dropped_only_where_states_are_many() -> None:
    known = State({("gradient", EVERY): (Gradient.SCALED, frozenset({"s"}))})
    unknowing = State({("gradient", EVERY): UNKNOWN, ("havoc", EVERY): True})
    assert len(merge([known, unknowing], NO_GUARDS)) == 2
    assert merge([known, unknowing], NO_GUARDS, Limits(0, 0)) == [known]
    assert merge([unknowing, known], NO_GUARDS, Limits(0, 0)) == [known]


def test_what_else_tells_states_apart_keeps_one_that_knows_less() -> None:
    known = State(
        {("gradient", EVERY): (Gradient.SCALED, frozenset({"s"}))}, {"f:loss": ("scaled", "s")}
    )
    unknowing = State({("gradient", EVERY): UNKNOWN, ("havoc", EVERY): True})
    assert len(merge([known, unknowing], NO_GUARDS, Limits(0, 0))) == 2


@pytest.mark.parametrize(
    ("record", "kept"),
    [
        ({("stage", "s", "o"): READY}, False),
        ({("stage", "s", "o"): READY, ("havoc", "s"): True}, True),
        ({("stage", "s", "o"): READY, ("havoc", EVERY): True}, True),
        ({("stage", "s", "o"): (Stage.STEPPED, False)}, True),
    ],
)
def test_a_pair_that_is_ready_is_told_only_where_others_are_unknown(
    record: dict, kept: bool
) -> None:
    assert (("stage", "s", "o") in dict(telling(record))) is kept


@pytest.mark.parametrize(("name", "expected"), [("opt", 2), ("model", 1)])
def test_what_a_library_has_taken_over_counts_for_what_steps(name: str, expected: int) -> None:
    guards = NO_GUARDS._replace(actors=frozenset({"opt"}))
    states = [State(values={f"f:{name}": ("foreign",)}), State()]
    assert len(merge(states, guards)) == expected
