"""The table of expectations agrees with the protocol and with the rules."""

from __future__ import annotations

import re

import pytest

from amplint import rules
from amplint.expectations import Expectation
from amplint.findings import Finding, Position, Severity, Span
from amplint.probe.measurements import MEASURES
from amplint.probe.predictions import (
    expectations,
    predict,
    rows_of,
)
from amplint.protocol import VIOLATIONS


def finding(code: str, start: int = 3, end: int = 3, column: int = 9) -> Finding:
    span = Span(Position(start, 5), Position(end, column))
    return Finding(code, "name", Severity.ERROR, "", "", "train.py", span)


@pytest.mark.parametrize(
    "expected",
    [
        pytest.param(item, id=f"{code}-{number}")
        for code in rules.TABLE
        for number, item in enumerate(expectations(code))
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
        reason = rules.load(code).RULE.unprobed
        assert bool(expectations(code)) != bool(reason), code
        assert not reason.endswith(".")


def test_every_measure_exists() -> None:
    kinds = {item.kind for code in rules.TABLE for item in expectations(code)}
    assert kinds == {"raises", "gradients", *MEASURES}
