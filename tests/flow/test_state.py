"""Merging and widening: what may be forgotten at a join, and what must stay apart."""

from __future__ import annotations

import pytest

from amplint.flow.merging import FINE, STATE_LIMIT, Limits, merge, widen
from amplint.flow.state import NO_GUARDS, Guards, State, last_part
from amplint.flow.typestates import EVERY
from amplint.flow.values import NONE
from amplint.protocol import Gradient, Stage

TAG = ("gradient", "opt")
FACT = ("true", "f:flag")


def tagged(gradient: Gradient | None, **more) -> State:
    """A state whose optimizer carries this tag."""
    return State({TAG: (gradient, frozenset())}, **more)


def test_different_typestates_stay_apart() -> None:
    states = [tagged(Gradient.SCALED), tagged(Gradient.PLAIN)]
    assert len(merge(states, NO_GUARDS)) == 2


def test_equal_typestates_are_merged_to_common_knowledge() -> None:
    first = tagged(Gradient.SCALED, values={"a": ("const", 1), "b": NONE}, facts={FACT: True})
    second = tagged(Gradient.SCALED, values={"a": ("const", 1)}, facts={FACT: False})
    [joined] = merge([first, second], NO_GUARDS)
    assert joined.typestate == first.typestate
    assert joined.values == {"a": ("const", 1)}
    assert joined.facts == {}


@pytest.mark.parametrize(
    ("value", "atom", "truth"),
    [
        (("const", False), ("true", "f:flag"), False),
        (("const", "fp16"), ("true", "f:flag"), True),
        (("const", "fp16"), ("equal", "f:flag", "fp16"), True),
        (("const", "fp16"), ("equal", "f:flag", "bf16"), False),
        (NONE, ("some", "f:flag"), False),
        (NONE, ("true", "f:flag"), False),
        (NONE, ("equal", "f:flag", "none"), False),
    ],
)
def test_what_one_has_tested_and_the_other_has_set_is_common(
    value: tuple, atom: tuple, truth: bool
) -> None:
    tested = tagged(Gradient.SCALED, facts={atom: truth})
    refuted = tagged(Gradient.SCALED, facts={atom: not truth})
    for one, other, expected in (
        (tested, tagged(Gradient.SCALED, values={"f:flag": value}), {atom: truth}),
        (refuted, tagged(Gradient.SCALED, values={"f:flag": value}), {}),
    ):
        for states in ([one, other], [other, one]):
            [joined] = merge(states, NO_GUARDS)
            assert (joined.values, joined.facts) == ({}, expected)


def test_two_falsy_values_are_false_in_common() -> None:
    first = tagged(Gradient.SCALED, values={"f:flag": ("const", False)})
    second = tagged(Gradient.SCALED, values={"f:flag": NONE})
    [joined] = merge([first, second], NO_GUARDS)
    assert joined.facts == {FACT: False}


def test_knowledge_that_tells_typestates_apart_survives() -> None:
    scaled = [tagged(Gradient.SCALED, facts={FACT: True}) for _ in range(2)]
    plain = [tagged(Gradient.PLAIN, facts={FACT: False}) for _ in range(2)]
    merged = merge([scaled[0], plain[0], scaled[1], plain[1]], NO_GUARDS)
    assert sorted((state.typestate[TAG][0].value, state.facts[FACT]) for state in merged) == [
        ("plain", False),
        ("scaled", True),
    ]


@pytest.mark.parametrize("value", [("scaled", "s"), ("scaler", "s"), ("opaque",)])
def test_values_that_correlate_with_the_typestate_stay_apart(value: tuple) -> None:
    states = [tagged(None, values={"f:loss": value}), tagged(None)]
    assert len(merge(states, NO_GUARDS)) == 2


@pytest.mark.parametrize("value", [("const", True), NONE, ("positive",)])
@pytest.mark.parametrize(("guards", "expected"), [({"flag"}, 2), ({"other"}, 1), (set(), 1)])
def test_values_that_guards_test_stay_apart(value: tuple, guards: set, expected: int) -> None:
    states = [tagged(None, values={"C.cfg.flag": value}), tagged(None)]
    assert len(merge(states, Guards(frozenset(guards), frozenset()))) == expected


@pytest.mark.parametrize(
    ("location", "name"),
    [("f:flag", "flag"), ("Trainer.cfg.amp", "amp"), ("f:cfg.amp", "amp"), ("flag", "flag")],
)
def test_guards_are_known_by_their_last_name(location: str, name: str) -> None:
    assert last_part(location) == name


def test_one_state_is_its_own_merge() -> None:
    state = tagged(Gradient.SCALED)
    assert merge([state], NO_GUARDS) == [state]
    assert merge([], NO_GUARDS) == []


def flagged(names: frozenset[str]) -> list[State]:
    """States that differ in which of these flags is set, and in another one that two share."""
    return [
        tagged(
            Gradient.SCALED,
            values={f"f:{name}": ("const", True), "f:other": ("const", number % 2 == 0)},
        )
        for number, name in enumerate(sorted(names))
    ]


@pytest.mark.parametrize("limits", [FINE, Limits(4, 16)])
def test_where_guards_tell_too_many_apart_only_those_near_events_do(limits: Limits) -> None:
    names = frozenset(f"flag{number}" for number in range(limits.guarded + 1))
    guards = Guards(names | {"other"}, frozenset({"other"}))
    assert len(merge(flagged(names)[1:], guards, limits)) == limits.guarded
    joined = merge(flagged(names), guards, limits)
    assert [state.values for state in joined] == [
        {"f:other": ("const", True)},
        {"f:other": ("const", False)},
    ]


def test_too_many_guard_values_leave_the_key_first() -> None:
    names = frozenset(f"flag{number}" for number in range(STATE_LIMIT + 1))
    [joined] = merge(flagged(names), Guards(names | {"other"}, names))
    assert joined.typestate == {TAG: (Gradient.SCALED, frozenset())}
    assert joined.values == {}


def test_too_many_typestates_are_widened_to_one_state() -> None:
    states = [
        State(
            {
                TAG: (Gradient.SCALED, frozenset()),
                ("gradient", f"o{n}"): (Gradient.PLAIN, frozenset()),
            }
        )
        for n in range(STATE_LIMIT + 1)
    ]
    [widened] = merge(states, NO_GUARDS)
    assert widened.typestate[TAG] == (Gradient.SCALED, frozenset())
    assert widened.typestate[("gradient", "o1")] == (None, frozenset())


@pytest.mark.parametrize(
    ("key", "one", "other", "expected"),
    [
        (TAG, (Gradient.SCALED, frozenset()), (Gradient.PLAIN, frozenset()), (None, frozenset())),
        (("stage", "s", "opt"), (Stage.READY, False), (Stage.STEPPED, False), (None, False)),
        (("checked", "s"), True, False, None),
        (("havoc", EVERY), True, None, True),
    ],
)
def test_widening_knows_nothing_where_states_disagree(key, one, other, expected) -> None:
    states = [State({} if held is None else {key: held}) for held in (one, other)]
    assert widen(states).typestate.get(key) == expected


def test_a_copy_shares_nothing_but_the_witness() -> None:
    state = tagged(Gradient.SCALED, values={"a": NONE}, facts={FACT: True})
    state.note("loop", None, None, None)
    copy = state.copy()
    copy.typestate.clear()
    copy.values.clear()
    copy.facts.clear()
    assert (len(state.typestate), len(state.values), len(state.facts)) == (1, 1, 1)
    assert copy.trail is state.trail


def test_what_is_off_by_a_literal_and_by_a_test_is_off() -> None:
    """Merged where nothing tells them apart: the switch is known, though not why."""
    by_literal = tagged(None, values={"f:on": ("const", False)})
    by_test = tagged(None, values={"f:on": ("formula", FACT)}, facts={FACT: False})
    untested = tagged(None, values={"f:on": ("formula", FACT)})
    [known] = merge([by_literal, by_test], NO_GUARDS)
    assert known.values == {"f:on": ("const", False)}
    [unknown] = merge([by_literal, untested], NO_GUARDS)
    assert unknown.values == {}


def test_what_is_off_by_a_test_and_by_a_whole_conjunction_is_off() -> None:
    both = ("and", (FACT, ("true", "f:other")))
    by_test = tagged(None, values={"f:on": ("formula", FACT)}, facts={FACT: False})
    remembered = {("and", frozenset(both[1])): False}
    by_both = tagged(None, values={"f:on": ("formula", both)}, facts=remembered)
    untested = tagged(None, values={"f:on": ("formula", both)})
    [known] = merge([by_test, by_both], NO_GUARDS)
    assert known.values == {"f:on": ("const", False)}
    [unknown] = merge([by_test, untested], NO_GUARDS)
    assert unknown.values == {}
