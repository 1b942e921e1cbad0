"""What a run has to show before it can confirm a finding, as its rule says (`Rule.probe`).

`Rule.unprobed` says of the others why one short run on stand-ins cannot show it.
"""

from __future__ import annotations

from amplint.expectations import Expectation
from amplint.findings import Finding
from amplint.probe.messages import Prediction
from amplint.rule import Rule
from amplint.rules import load


def expectations(code: str) -> tuple[Expectation, ...]:
    """The ways in which a finding of this code can show itself; empty where no run shows it."""
    rule: Rule = load(code).RULE
    return rule.probe


def needs_data(code: str) -> bool:
    """Whether what a finding of this code shows depends on shapes or dtypes of data."""
    return any(expected.shapes for expected in expectations(code))


def is_about_place(code: str) -> bool:
    """Whether what a finding of this code shows depends on where a line runs, and on no protocol."""
    return all(expected.relies_on == "place" for expected in expectations(code))


def is_about_calls(code: str) -> bool:
    """Whether a finding of this code may show only when its function is called again."""
    return any(expected.kind == "rebuilt" for expected in expectations(code))


def why_not(code: str) -> str:
    """Why a finding of this code is not probed, as a sentence without its full stop."""
    rule: Rule = load(code).RULE
    return rule.unprobed or "no run is known that would show it"


def predict(finding: Finding) -> tuple[Prediction, ...]:
    """What a run of the finding's code has to show; empty where none can."""
    here = rows_of(finding)
    return tuple(
        Prediction(
            expected.kind,
            expected.exception,
            expected.pattern,
            () if expected.cause or expected.anywhere else here,
            expected.cause,
        )
        for expected in expectations(finding.code)
    )


def slugs_of(code: str) -> frozenset[str]:
    """The violations of the protocol that explain a finding of this code."""
    return frozenset().union(*(expected.slugs for expected in expectations(code)))


def rows_of(finding: Finding) -> tuple[int, ...]:
    """The rows that the finding's expression covers."""
    end = finding.span.end
    last = end.row if end.column > 1 or end.row == finding.span.start.row else end.row - 1
    return tuple(range(finding.span.start.row, last + 1))
