"""What outlives a function: records of scalers and optimizers that something still leads to."""

from __future__ import annotations

import ast

import pytest

from amplint.code.module import build_module
from amplint.flow.leaving import handed_back
from amplint.flow.state import SWITCH, State
from amplint.flow.typestates import EVERY, UNKNOWN
from amplint.flow.values import Value
from amplint.protocol import Gradient, Stage

PLAIN = build_module("a.py", "", ast.parse("def train():\n    pass\n")).functions[1]
CLOSED = build_module(
    "a.py", "", ast.parse("def train():\n    return lambda: scaler.update()\n")
).functions[1]
SCALER: Value = ("scaler", "train:scaler")
SCALED = (Gradient.SCALED, frozenset({"train:scaler"}))


def after_training(**more: Value) -> State:
    """A state at the end of a function that has built a scaler and an optimizer."""
    return State(
        {
            ("stage", "train:scaler", "train:opt"): (Stage.STEPPED, False),
            ("checked", "train:scaler"): True,
            ("gradient", "train:opt"): SCALED,
            ("gradient", EVERY): SCALED,
            ("checked", EVERY): False,
            ("flag", "started"): True,
            ("flag", "after"): True,
        },
        {
            "train:scaler": SCALER,
            "train:opt": ("optimizer", "train:opt"),
            f"train:scaler{SWITCH}": ("const", True),
            **more,
        },
    )


def test_records_of_what_nothing_leads_to_are_dropped() -> None:
    state, _ = handed_back(after_training(), None, PLAIN)
    assert state.typestate == {("gradient", EVERY): UNKNOWN, ("flag", "started"): True}
    assert state.values == {}


@pytest.mark.parametrize(
    ("state", "value", "function"),
    [
        (after_training(), SCALER, PLAIN),
        (after_training(), ("tuple", (SCALER, None)), PLAIN),
        (after_training(**{"Trainer@1+0.scaler": SCALER}), None, PLAIN),
        (after_training(), None, CLOSED),
    ],
    ids=["returned", "returned in a tuple", "kept by an object", "read by a function inside"],
)
def test_records_of_a_scaler_that_lives_on_are_kept(
    state: State, value: Value, function: object
) -> None:
    after, _ = handed_back(state, value, function)  # type: ignore[arg-type]
    assert after.typestate["checked", "train:scaler"] is True
    assert ("stage", "train:scaler", "train:opt") in after.typestate
    assert f"train:scaler{SWITCH}" in after.values
    assert after.typestate["gradient", EVERY] == SCALED


def test_the_gradients_of_an_outer_optimizer_stay_known() -> None:
    state = after_training(**{"main:opt": ("optimizer", "main:opt")})
    state.typestate["gradient", "main:opt"] = SCALED
    after, _ = handed_back(state, None, PLAIN)
    assert after.typestate["gradient", "main:opt"] == SCALED
    assert after.typestate["gradient", EVERY] == SCALED
    assert ("gradient", "train:opt") not in after.typestate
