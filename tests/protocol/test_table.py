"""The transition table as data: complete, without dead rows, consistent, pure Python."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys

from amplint import rules
from amplint.protocol import VIOLATIONS, Event, Gradient, Pair, Stage, Tracker, advance
from amplint.protocol.states import ABSENT
from amplint.protocol.table import TABLE, UNCHECKED, UNINITIALISED, find_row
from amplint.protocol.violations import BEYOND_THE_TABLE, code_of

COMBINATIONS = tuple(itertools.product(Event, Stage, Gradient))


def test_every_combination_has_a_row() -> None:
    for event, stage, gradient in COMBINATIONS:
        row = find_row(event, stage, gradient)
        assert row.event is event
        assert stage in row.stages
        assert gradient in row.gradients


def test_every_row_is_reachable() -> None:
    found = {find_row(*combination) for combination in COMBINATIONS}
    assert found == set(TABLE)
    assert len(found) == len(TABLE)


def test_rows_and_violations_name_each_other() -> None:
    used = {row.violation for row in TABLE if row.violation is not None}
    used |= {*UNINITIALISED.values(), *UNCHECKED.values()}
    assert used == set(VIOLATIONS)


def test_violations_are_well_formed() -> None:
    for slug, violation in VIOLATIONS.items():
        assert violation.slug == slug
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", slug)
        assert re.fullmatch(r"AMP1\d\d", violation.code)
        assert (violation.exception is None) == (violation.error is None)
        assert violation.damage
        assert violation.facts


def test_every_slug_has_one_rule() -> None:
    assert not set(VIOLATIONS) & set(BEYOND_THE_TABLE)
    codes = {slug: code_of(slug) for slug in (*VIOLATIONS, *BEYOND_THE_TABLE)}
    assert set(codes.values()) <= set(rules.TABLE)


def test_raising_events_change_only_what_torch_changes() -> None:
    """A failed step has unscaled (that is its only trace); any other failure has no trace."""
    raising = 0
    for event, stage, gradient in COMBINATIONS:
        outcome = advance(Pair(stage, gradient), event)
        if outcome.violation is None or not outcome.violation.raises:
            continue
        raising += 1
        following = Stage.UNSCALED if (event, stage) == (Event.STEP, Stage.READY) else stage
        assert outcome.pair == Pair(following, gradient)
    assert raising > 0


def test_an_inf_check_is_recorded_where_there_is_a_gradient() -> None:
    for event, gradient in itertools.product((Event.UNSCALE, Event.STEP), Gradient):
        outcome = advance(Pair(Stage.READY, gradient), event)
        assert outcome.pair.checked == (gradient not in ABSENT)


def test_zero_grad_leaves_no_broken_tag() -> None:
    for stage, gradient in itertools.product(Stage, Gradient):
        assert find_row(Event.ZERO_GRAD, stage, gradient).gradient in ABSENT
        kept = find_row(Event.ZERO_GRAD_KEEP, stage, gradient).gradient
        assert kept is (None if gradient in ABSENT else Gradient.ZERO)


def test_tracker_keeps_optimizers_apart_and_meets_new_ones() -> None:
    tracker = Tracker()
    tracker.apply(Event.SCALED_BACKWARD, "s", "a", "b")
    tracker.apply(Event.UNSCALE, "s", "a")
    assert tracker.pair("a").stage is Stage.UNSCALED
    assert tracker.pair("b").stage is Stage.READY
    violation = tracker.apply(Event.STEP, "s", "c")
    assert violation is VIOLATIONS["step-without-gradient"]


def test_unknown_gradients_break_only_what_every_gradient_breaks() -> None:
    """What is said of unknown gradients is so whatever they hold."""
    present = [tag for tag in Gradient if tag not in ABSENT]
    for event, stage, checked in itertools.product(Event, Stage, (False, True)):
        unknown = advance(Pair(stage, None, checked), event)
        known = [advance(Pair(stage, tag, checked), event) for tag in present]
        assert {outcome.pair.stage for outcome in known} == {unknown.pair.stage}
        assert {outcome.pair.checked for outcome in known} == {unknown.pair.checked}
        stops = {bool(outcome.violation and outcome.violation.raises) for outcome in known}
        assert stops == {bool(unknown.violation and unknown.violation.raises)}
        if unknown.violation is not None:
            assert {outcome.violation for outcome in known} == {unknown.violation}


def test_gradients_that_come_and_go_without_an_event() -> None:
    tracker = Tracker()
    assert not tracker.observe("a", present=True)
    assert tracker.pair("a").gradient is None
    tracker.apply(Event.SCALE, "s")
    assert tracker.apply(Event.UNSCALE, "s", "a") is None
    assert tracker.apply(Event.UNSCALE, "s", "a") is VIOLATIONS["unscale-twice"]
    assert tracker.observe("a", present=False)
    assert tracker.pair("a").gradient is Gradient.NONE
    assert not tracker.observe("a", present=False)


def test_scalers_are_kept_apart() -> None:
    """An update belongs to one scaler; the gradients that another one scaled stay as they are."""
    tracker = Tracker()
    tracker.apply(Event.SCALED_BACKWARD, "one", "a")
    tracker.apply(Event.SCALED_BACKWARD, "other", "b")
    tracker.apply(Event.UNSCALE, "other", "b")
    tracker.apply(Event.UPDATE, "other")
    assert tracker.pair("a").gradient is Gradient.SCALED
    assert tracker.apply(Event.UPDATE, "one") is VIOLATIONS["update-without-check"]
    assert tracker.apply(Event.STEP, "third", "a") is VIOLATIONS["step-uninitialised"]
    assert tracker.partner("a") == "one"
    assert tracker.apply(Event.STEP, "one", "a") is None


def test_an_update_of_another_scaler_leaves_gradients_alone() -> None:
    """An optimizer was stepped by one scaler; what lies in it now, another one has scaled."""
    tracker = Tracker()
    tracker.apply(Event.SCALED_BACKWARD, "warm-up", "a")
    tracker.apply(Event.STEP, "warm-up", "a")
    tracker.apply(Event.ZERO_GRAD, None, "a")
    tracker.apply(Event.SCALED_BACKWARD, "main", "a")
    tracker.apply(Event.UPDATE, "warm-up")
    assert tracker.pair("a", "warm-up").stage is Stage.READY
    assert tracker.pair("a").gradient is Gradient.SCALED
    tracker.apply(Event.STEP, "main", "a")
    tracker.apply(Event.UPDATE, "main")
    assert tracker.pair("a").gradient is Gradient.LEFTOVER


def test_importing_the_protocol_imports_neither_torch_nor_libcst() -> None:
    program = (
        "import sys, amplint.protocol, amplint.protocol.render\n"
        "print(sorted({name.split('.')[0] for name in sys.modules} & {'torch', 'libcst', 'numpy'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
