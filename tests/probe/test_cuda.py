"""The probe on a GPU: what only CUDA shows, and the incidents with CUDA's own scaler."""

from __future__ import annotations

from pathlib import Path

import pytest

from amplint.checker import check_paths
from amplint.config import Settings
from amplint.findings import Evidence
from amplint.probe.confirmation import Limits, probe_findings

pytestmark = pytest.mark.cuda

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "fixtures"
INCIDENTS = sorted((FIXTURES / "incidents").iterdir())
LIMITS = Limits(seconds=120.0)


@pytest.fixture(autouse=True)
def at_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def probe(path: Path, root: Path | None = None) -> dict[tuple[str, int], Evidence]:
    """Evidence by code and row."""
    settings = Settings(project_root=str(root)) if root else Settings()
    report = check_paths([str(path)], settings)
    found = probe_findings(report.findings, settings, LIMITS)
    return {
        (item.finding.code, item.finding.span.start.row): item.finding.evidence for item in found
    }


def is_on_gpu(evidence: Evidence) -> bool:
    return evidence.status == "confirmed" and str(evidence.device).startswith("cuda")


@pytest.mark.parametrize("incident", INCIDENTS[:4], ids=lambda path: path.name)
def test_incidents_are_confirmed(incident: Path) -> None:
    found = probe(incident / "before", incident / "before")
    assert found
    assert all(map(is_on_gpu, found.values())), found


@pytest.mark.parametrize("incident", INCIDENTS, ids=lambda path: path.name)
def test_repaired_incidents_are_not(incident: Path) -> None:
    found = probe(incident / "after", incident / "after")
    assert not any(evidence.status == "confirmed" for evidence in found.values()), found


def test_binary_cross_entropy_under_autocast() -> None:
    found = probe(FIXTURES / "AMP502" / "bad_in_block.py")
    shown = [evidence for (code, _), evidence in found.items() if code == "AMP502"]
    assert any(is_on_gpu(e) and "unsafe to autocast" in str(e.detail) for e in shown), shown


def test_float16_parameters() -> None:
    found = probe(FIXTURES / "AMP401" / "bad_casts.py")
    evidence = found["AMP401", 20]
    assert is_on_gpu(evidence), evidence
    assert "Attempting to unscale FP16 gradients" in str(evidence.detail)


def test_backward_under_autocast() -> None:
    assert is_on_gpu(probe(FIXTURES / "AMP501" / "bad_in_block.py")["AMP501", 13])
