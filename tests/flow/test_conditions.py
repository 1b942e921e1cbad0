"""Conditions: truth tables, assuming, negating, settling; checked against full valuations."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplint.flow.conditions import (
    Formula,
    advanced,
    assume,
    conjoin,
    disjoin,
    evaluate,
    forget,
    is_volatile,
    mentions,
    negate,
    settle,
)
from amplint.flow.state import State
from amplint.flow.values import NONE, OPAQUE, POSITIVE
from amplint.protocol import Gradient

A, B, C = (("other", name, frozenset({name})) for name in "abc")
ATOMS = (A, B, C)


def formulas(*, volatile: bool = False) -> st.SearchStrategy[Formula]:
    """Formulas over three independent atoms, built the way the reader builds them."""
    leaves: list[st.SearchStrategy] = [st.sampled_from(ATOMS), st.booleans()]
    if volatile:
        leaves.append(st.none())
    return st.recursive(
        st.one_of(leaves),
        lambda inner: st.one_of(
            inner.map(negate),
            st.lists(inner, min_size=1, max_size=3).map(conjoin),
            st.lists(inner, min_size=1, max_size=3).map(disjoin),
        ),
        max_leaves=8,
    )


def valuations() -> Iterator[dict]:
    """Every assignment of truth to the atoms."""
    for truths in itertools.product((True, False), repeat=len(ATOMS)):
        yield dict(zip(ATOMS, truths, strict=True))


def meaning(formula: Formula, valuation: dict) -> bool:
    """Classical truth; independent of `evaluate`."""
    if isinstance(formula, bool):
        return formula
    if formula in valuation:
        return valuation[formula]
    kind, operand = formula[:2]
    if kind == "not":
        return not meaning(operand, valuation)
    results = [meaning(part, valuation) for part in operand]
    return all(results) if kind == "and" else any(results)


def allows(state: State, valuation: dict) -> bool:
    """Whether what a state assumed of single atoms agrees with a full valuation."""
    return all(valuation[atom] == truth for atom, truth in state.facts.items() if atom in valuation)


# -- properties over random formulas -----------------------------------------------------


@given(formulas())
def test_assuming_splits_all_valuations_without_overlap(formula: Formula) -> None:
    for truth in (True, False):
        states = assume(formula, truth, State())
        for valuation in valuations():
            matching = sum(allows(state, valuation) for state in states)
            assert matching == (meaning(formula, valuation) is truth)


@given(formulas(), formulas())
def test_assuming_one_after_the_other_is_a_conjunction(first: Formula, second: Formula) -> None:
    states = [
        after for state in assume(first, True, State()) for after in assume(second, True, state)
    ]
    for valuation in valuations():
        expected = meaning(first, valuation) and meaning(second, valuation)
        assert any(allows(state, valuation) for state in states) == expected


@given(formulas())
def test_what_was_assumed_is_true_afterwards(formula: Formula) -> None:
    for truth in (True, False):
        for state in assume(formula, truth, State()):
            assert evaluate(formula, state) is truth
            assert evaluate(negate(formula), state) is (not truth)
            assert assume(formula, not truth, state) == []


@given(formulas(), st.dictionaries(st.sampled_from(ATOMS), st.booleans()))
def test_evaluation_never_contradicts_a_completion(formula: Formula, known: dict) -> None:
    judged = evaluate(formula, State(facts=dict(known)))
    for valuation in valuations():
        if judged is not None and all(valuation[atom] == truth for atom, truth in known.items()):
            assert meaning(formula, valuation) is judged


@given(formulas())
def test_full_knowledge_decides_everything(formula: Formula) -> None:
    for valuation in valuations():
        assert evaluate(formula, State(facts=dict(valuation))) is meaning(formula, valuation)


@given(formulas(volatile=True))
def test_negation_is_an_involution(formula: Formula) -> None:
    assert negate(negate(formula)) == formula
    assert is_volatile(negate(formula)) == is_volatile(formula)


@given(formulas())
def test_negation_means_the_opposite(formula: Formula) -> None:
    for valuation in valuations():
        assert meaning(negate(formula), valuation) is not meaning(formula, valuation)


@given(formulas(volatile=True))
def test_volatile_parts_leave_every_outcome_open_that_they_could_bring(formula: Formula) -> None:
    """An outcome is impossible only if no truth of the volatile parts can bring it."""
    for truth in (True, False):
        states = assume(formula, truth, State())
        for valuation in valuations():
            possible = truth in _outcomes(formula, valuation)
            assert possible <= any(allows(state, valuation) for state in states)


def _outcomes(formula: Formula, valuation: dict) -> set[bool]:
    """Truths that a formula may take when each volatile part answers anew."""
    if formula is None:
        return {True, False}
    if isinstance(formula, bool) or formula in valuation:
        return {meaning(formula, valuation)}
    kind, operand = formula[:2]
    if kind == "not":
        return {not outcome for outcome in _outcomes(operand, valuation)}
    results = [_outcomes(part, valuation) for part in operand]
    stop = kind == "or"
    outcomes = {stop} if any(stop in result for result in results) else set()
    return outcomes | ({not stop} if all(not stop in result for result in results) else set())


@given(formulas())
def test_mentions_are_the_atoms_locations(formula: Formula) -> None:
    assert mentions(formula) == {atom[1] for atom in ATOMS if repr(atom) in repr(formula)}


# -- connectives -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "parts", "expected"),
    [
        (conjoin, [True, A], A),
        (conjoin, [A, False], False),
        (conjoin, [True, True], True),
        (conjoin, [A, B], ("and", (A, B))),
        (conjoin, [A, None], ("and", (A, None))),
        (conjoin, [None, False], False),
        (disjoin, [False, A], A),
        (disjoin, [A, True], True),
        (disjoin, [False, False], False),
        (disjoin, [A, B], ("or", (A, B))),
        (disjoin, [None, True], True),
    ],
)
def test_constants_fold(build, parts: list[Formula], expected: Formula) -> None:
    assert build(parts) == expected


# -- atoms and values ----------------------------------------------------------------------

SOME, TRUE = ("some", "x"), ("true", "x")
FP16, BF16 = ("equal", "x", "fp16"), ("equal", "x", "bf16")
POSITIVE_X = ("positive", "x")


@pytest.mark.parametrize(
    ("atom", "value", "expected"),
    [
        (SOME, NONE, False),
        (SOME, ("const", 0), True),
        (SOME, ("scaler", "s"), True),
        (SOME, ("path", "y"), None),
        (SOME, OPAQUE, None),
        (TRUE, NONE, False),
        (TRUE, ("const", 0), False),
        (TRUE, ("const", "fp16"), True),
        (TRUE, ("scaler", "s"), True),
        (TRUE, ("scaled", "s"), None),
        (TRUE, ("tuple", ()), False),
        (TRUE, ("formula", A), None),
        (FP16, ("const", "fp16"), True),
        (FP16, ("const", "fp32"), False),
        (FP16, NONE, False),
        (POSITIVE_X, POSITIVE, True),
        (POSITIVE_X, ("const", 0), False),
        (POSITIVE_X, ("const", 0.5), True),
        (POSITIVE_X, ("const", -1), False),
        (POSITIVE_X, None, None),
    ],
)
def test_a_known_value_decides_an_atom(atom: tuple, value: tuple, expected: bool | None) -> None:
    values = {} if value is None else {"x": value}
    assert evaluate(atom, State(values=values)) is expected


@pytest.mark.parametrize(
    ("assumed", "truth", "asked", "expected"),
    [
        (TRUE, True, SOME, True),
        (TRUE, False, SOME, None),
        (SOME, False, TRUE, False),
        (SOME, True, TRUE, None),
        (FP16, True, BF16, False),
        (FP16, False, BF16, None),
        (FP16, True, FP16, True),
    ],
)
def test_one_atom_decides_another(
    assumed: tuple, truth: bool, asked: tuple, expected: bool | None
) -> None:
    [state] = assume(assumed, truth, State())
    assert evaluate(asked, state) is expected


def test_a_place_that_is_none_holds_none() -> None:
    [state] = assume(SOME, False, State())
    assert state.values["x"] == NONE


def test_the_first_iteration_opens_a_window() -> None:
    opens, closes = ("boundary", "i", "k", False), ("boundary", "i", "k", True)
    first = State(facts={("first", "i"): True})
    assert evaluate(opens, first) is True
    assert evaluate(closes, first) is None
    assert evaluate(opens, State(facts={("first", "i"): False})) is None


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ([], None),
        ([Gradient.NONE], False),
        ([Gradient.CLEARED], False),
        ([Gradient.ZERO], True),
        ([Gradient.SCALED], True),
        ([None], None),
        ([Gradient.SCALED, Gradient.NONE], None),
        ([Gradient.NONE, Gradient.CLEARED], False),
    ],
)
def test_whether_there_is_a_gradient(tags: list, expected: bool | None) -> None:
    state = State({("gradient", f"o{i}"): (tag, frozenset()) for i, tag in enumerate(tags)})
    assert evaluate(("gradient",), state) is expected


def test_assuming_does_not_touch_its_argument() -> None:
    state = State()
    assume(("and", (SOME, A)), True, state)
    assume(SOME, False, state)
    assert (state.facts, state.values) == ({}, {})


# -- assignments ---------------------------------------------------------------------------


@pytest.mark.parametrize("location", ["x", "x.y", "x['k']", "x.y.z"])
def test_assigning_forgets_the_place_and_its_parts(location: str) -> None:
    state = State(values={location: ("const", 1)}, facts={("true", location): True})
    forget("x", state)
    assert (state.values, state.facts) == ({}, {})


@pytest.mark.parametrize("location", ["xy", "y.x", "y"])
def test_assigning_keeps_other_places(location: str) -> None:
    state = State(values={location: ("const", 1)}, facts={("true", location): True})
    forget("x", state)
    assert state.values == {location: ("const", 1)}
    assert state.facts == {("true", location): True}


def test_a_stored_condition_keeps_the_truth_it_had() -> None:
    state = State(values={"flag": ("formula", A)}, facts={A: True})
    forget("a", state)
    assert state.values == {"flag": ("const", True)}
    assert A not in state.facts


def test_a_stored_condition_of_unknown_truth_is_lost() -> None:
    state = State(values={"flag": ("formula", ("and", (A, B)))})
    forget("a", state)
    assert state.values == {}


@pytest.mark.parametrize(
    ("value", "facts", "expected"),
    [
        (("path", "a"), {}, None),
        (("path", "a.b"), {}, None),
        (("path", "b"), {}, ("path", "b")),
        (("formula", B), {}, ("formula", B)),
        (("formula", A), {A: False}, ("const", False)),
        (("formula", A), {}, None),
        (("const", 1), {}, ("const", 1)),
        (None, {}, None),
    ],
)
def test_settling_a_value_before_an_assignment(value, facts: dict, expected) -> None:
    assert settle(value, "a", State(facts=facts)) == expected


NEXT, NOW = ("boundary", "i", "k", "next"), ("boundary", "i", "k", "now")


@pytest.mark.parametrize(
    ("formula", "counter", "expected"),
    [
        (NEXT, "i", NOW),
        (negate(NEXT), "i", negate(NOW)),
        (NOW, "i", None),
        (NEXT, "j", None),
        (A, "a", None),
        (True, "i", None),
    ],
)
def test_what_held_for_the_next_number_holds_after_counting(formula, counter, expected) -> None:
    assert advanced(formula, counter) == expected
