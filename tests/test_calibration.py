"""Which rules make errors is what the published sheets say, not what anybody feels."""

from __future__ import annotations

import importlib
from collections import Counter, defaultdict
from pathlib import Path
from types import ModuleType

import pytest
from amplint.rules import load

from amplint.findings import Evidence, Finding, Link, Position, Severity, Span, Standing
from amplint.levels import ADVICE_UNTIL_SEEN, WARNING_UNTIL_SEEN, WEAK_UNTIL_SEEN, seen_as, unseen

ROOT = Path(__file__).resolve().parent.parent
SHEETS = sorted((ROOT / "docs" / "survey").glob("batch-*-sheet.tsv"))


#: The batches that were run with these levels.
SINCE = [sheet for sheet in SHEETS if sheet.name >= "batch-m"]


@pytest.fixture
def survey(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return importlib.import_module("survey")


def verdicts(survey: ModuleType, sheets: list[Path]) -> dict[str, Counter[str]]:
    """How often findings of each rule of severity error had which verdict, copies once."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for sheet in sheets:
        for row, verdict in survey.by_pattern(survey.settle([survey.read_sheet(sheet)])):
            if row.code and load(row.code).RULE.severity is Severity.ERROR:
                found[row.code][verdict] += 1
    return found


def test_rules_that_were_right_in_fewer_than_two_of_three_make_warnings(
    survey: ModuleType,
) -> None:
    found = verdicts(survey, SHEETS)
    wrong = {
        code
        for code, each in found.items()
        if each["true"] * 3 < (each["true"] + each["false"] + each["harmless"]) * 2
    }
    assert wrong == WARNING_UNTIL_SEEN


def test_rules_that_were_wrong_twice_as_often_as_right_make_advice(survey: ModuleType) -> None:
    found = verdicts(survey, SINCE)
    wrong = {
        code
        for code, each in found.items()
        if each.total() >= 5 and each["true"] * 3 < each.total()
    }
    assert wrong == ADVICE_UNTIL_SEEN


def test_standings_that_were_wrong_twice_as_often_as_right_make_advice(survey: ModuleType) -> None:
    found: dict[Standing, Counter[str]] = defaultdict(Counter)
    for sheet in SINCE:
        for row, verdict in survey.by_pattern(survey.settle([survey.read_sheet(sheet)])):
            standings = {link.partition(":")[2] for link in row.standing.split()}
            for standing in map(Standing, standings - {""}) if row.code else ():
                found[standing][verdict] += 1
    wrong = {
        standing
        for standing, each in found.items()
        if each.total() >= 5 and each["true"] * 3 < each.total()
    }
    assert wrong == WEAK_UNTIL_SEEN


def _finding(severity: Severity, *links: Link) -> Finding:
    place = Position(3, 1)
    return Finding(
        "AMP103", "leftover-step", severity, "m", "h", "a.py", Span(place, place), links=links
    )


@pytest.mark.parametrize(
    ("standing", "level"),
    [
        (Standing.CODE, Severity.ERROR),
        (Standing.USE, Severity.WARNING),
        (Standing.GUESS, Severity.INFO),
    ],
)
def test_a_run_makes_an_error_of_what_links_carry(standing: Standing, level: Severity) -> None:
    finding = _finding(Severity.WARNING, Link("object", standing, "scaler", "is the scaler"))
    seen = seen_as(finding, Severity.ERROR, Evidence("confirmed"))
    assert (seen.severity, seen.evidence.status) == (level, "confirmed")


@pytest.mark.parametrize("severity", list(Severity))
def test_reading_alone_makes_no_more_than_a_warning(severity: Severity) -> None:
    assert unseen("AMP103", severity).rank == min(severity.rank, Severity.WARNING.rank)
    assert unseen("AMP110", severity) is severity


def test_reading_alone_makes_advice_of_what_is_known_by_its_use() -> None:
    used = Link("object", Standing.USE, "scaler", "is the scaler")
    assert unseen("AMP110", Severity.WARNING, (used,)) is Severity.INFO
