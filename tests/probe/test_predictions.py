"""The table of expectations agrees with the protocol and with the rules."""

from __future__ import annotations

import re

import pytest

from amplint import rules
from amplint.findings import Finding, Position, Severity, Span
from amplint.probe.measurements import MEASURES
from amplint.probe.predictions import (
    EXPECTATIONS,
    NOT_PROBED,
    Expectation,
    can_show,
    predict,
    rows_of,
)
from amplint.protocol import VIOLATIONS


def finding(code: str, start: int = 3, end: int = 3, column: int = 9) -> Finding:
    span = Span(Position(start, 5), Position(end, column))
    return Finding(code, "name", Severity.ERROR, "", "", "train.py", span)


def test_every_code_is_a_rule() -> None:
    assert set(EXPECTATIONS) <= set(rules.TABLE)
    assert list(EXPECTATIONS) == sorted(EXPECTATIONS)


@pytest.mark.parametrize(
    "expected",
    [
        pytest.param(item, id=f"{code}-{number}")
        for code, items in EXPECTATIONS.items()
        for number, item in enumerate(items)
    ],
)
def test_an_expectation_is_torch_s_own_error(expected: Expectation) -> None:
    for slug in expected.slugs:
        violation = VIOLATIONS[slug]
        if expected.kind == "raises":
            assert violation.exception == expected.exception
            assert re.search(expected.pattern, violation.error or "")
        else:
            assert violation.exception is None


def test_rows() -> None:
    assert rows_of(finding("AMP101")) == (3,)
    assert rows_of(finding("AMP101", 3, 5)) == (3, 4, 5)
    assert rows_of(finding("AMP101", 3, 5, column=1)) == (3, 4)


def test_a_prediction_is_about_the_finding_s_rows() -> None:
    prediction = predict(finding("AMP104"))[0]
    assert (prediction.kind, prediction.exception) == ("raises", "RuntimeError")
    assert prediction.rows == (3,)


def test_rules_that_no_run_can_show_are_not_probed() -> None:
    assert predict(finding("AMP120")) == ()


def test_every_rule_is_shown_or_says_why_not() -> None:
    for code in rules.TABLE:
        assert (code in EXPECTATIONS) != (code in NOT_PROBED) or code == "AMP502", code
    for reason in NOT_PROBED.values():
        assert not reason.endswith(".")


def test_what_needs_a_gpu_is_not_probed_without() -> None:
    assert not can_show("AMP502", "cpu")
    assert can_show("AMP502", "cuda:0")
    assert can_show("AMP101", "cpu")


def test_every_measure_exists() -> None:
    kinds = {item.kind for items in EXPECTATIONS.values() for item in items}
    assert kinds == {"raises", "gradients", *MEASURES}
