"""Replays of witnesses raise what the witnesses say; they run in the real worker."""

from __future__ import annotations

from pathlib import Path

from amplint.checker import check_paths
from amplint.config import Settings
from amplint.findings import Finding
from amplint.probe.process import Worker
from amplint.probe.replay import replay
from amplint.report.steps import words_of

ROOT = Path(__file__).resolve().parents[2]
CODES = ("AMP103", "AMP104", "AMP105", "AMP106", "AMP108")


def found_in(folder: Path) -> tuple[Finding, ...]:
    """The findings of every second fixture with mistakes there. Without a root the project is
    this whole repository, which is searched for callers."""
    files = [str(path) for path in sorted(folder.glob("bad_*.py"))[::2]]
    return check_paths(files, Settings(project_root=str(folder))).findings


def test_a_replay_raises_what_the_witness_predicts(worker: Worker) -> None:
    folders = [ROOT / "fixtures" / code for code in CODES]
    findings = [finding for folder in folders for finding in found_in(folder)]
    replayed = []
    for finding in findings:
        lines = Path(finding.filename).read_text().splitlines()
        found = replay(finding, lines[finding.span.start.row - 1], worker.run)
        if found is not None:
            replayed.append(finding.code)
            assert f"`{found.error}`" in words_of(finding.path[-1])[0], finding
    assert set(replayed) == set(CODES)
