"""The recorded incidents, end to end: confirmed before the repair, nothing confirmed after it."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path

import pytest

from amplint.checker import check_paths
from amplint.config import Settings
from amplint.findings import Evidence, Severity
from amplint.probe.confirmation import Limits, probe_findings, probe_with
from amplint.probe.predictions import expectations
from amplint.probe.process import Worker
from tests.budget import THOROUGH

ROOT = Path(__file__).resolve().parents[2]
INCIDENTS = sorted((ROOT / "fixtures" / "incidents").iterdir())
#: What torch cannot show before something else is repaired: `README.md` of the incident.
HIDDEN = {("AMP123", 63), ("AMP301", 55), ("AMP401", 80)}
HIDING = ROOT / "fixtures" / "incidents" / "4_prompt_policy"
#: Generous, because the machine may be busy; a run takes a fraction of a second.
LIMITS = Limits(seconds=60.0, runs=90)


@pytest.fixture(autouse=True)
def at_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def probe(
    worker: Worker, folder: Path, left_out: Container[str] = ()
) -> dict[tuple[str, int], Evidence]:
    """Evidence by code and row, for the findings that a run can show."""
    settings = Settings(project_root=str(folder))
    report = check_paths([str(folder)], settings)
    findings = [each for each in report.findings if each.code not in left_out]
    found = probe_with([worker], findings, settings, LIMITS)
    asked = [item.finding for item in found if expectations(item.finding.code)]
    # What a run has shown is an error, whatever reading alone makes of it.
    assert {each.severity for each in asked if each.evidence.status == "confirmed"} <= {
        Severity.ERROR
    }
    return {(each.code, each.span.start.row): each.evidence for each in asked}


@pytest.mark.parametrize(
    "incident", [each for each in INCIDENTS if each != HIDING], ids=lambda path: path.name
)
def test_before_is_confirmed(worker: Worker, incident: Path) -> None:
    for place, evidence in probe(worker, incident / "before").items():
        is_confirmed(place, evidence)


def is_confirmed(place: tuple[str, int], evidence: Evidence) -> None:
    assert evidence.status == "confirmed", (place, evidence)
    assert evidence.kind == "own-code"


def test_what_is_asked_with_others_is_answered_as_alone() -> None:
    """Two programs with a `trainer.py` each: what was read for one says nothing of the other."""
    folders = [str(incident / "before") for incident in INCIDENTS[1:3]]
    settings = Settings(project_root=str(HIDING.parent))
    found = probe_findings(check_paths(folders, settings).findings, settings, LIMITS)
    asked = [item.finding for item in found if expectations(item.finding.code)]
    assert [each.evidence.status for each in asked] == ["confirmed"] * 3


def test_what_another_failure_hides_is_shown_behind_it(worker: Worker) -> None:
    """AMP404 ends every run on the task's data; with its cast left out the next ones show.

    What no gradient reaches hangs on no data, so invented data may show that, too (AMP301).
    """
    found = probe(worker, HIDING / "before", left_out=() if THOROUGH else ("AMP301", "AMP401"))
    assert ("AMP404", 57) in found
    for place in found.keys() - HIDDEN:
        is_confirmed(place, found[place])
    repaired = ("line 57 is repaired first: AMP404 ends every run before this one",)
    behind = found["AMP123", 63]
    assert (behind.status, behind.assumptions) == ("conditional", repaired)
    if not THOROUGH:  # a hundred runs each
        return
    cut_off = found["AMP301", 55]
    assert (cut_off.status, cut_off.assumptions) in {("confirmed", ()), ("conditional", repaired)}
    assert found["AMP401", 80].status == "not-reproduced"


@pytest.mark.parametrize("incident", INCIDENTS, ids=lambda path: path.name)
def test_after_is_not(worker: Worker, incident: Path) -> None:
    for place, evidence in probe(worker, incident / "after").items():
        assert evidence.status != "confirmed", (place, evidence)
