"""Replays of witnesses raise what the witnesses say; they run in the real worker."""

from __future__ import annotations

from pathlib import Path

from amplint.checker import check_paths
from amplint.config import Settings
from amplint.probe.process import Worker
from amplint.probe.replay import replay
from amplint.report.steps import words_of

ROOT = Path(__file__).resolve().parents[2]
CODES = ("AMP103", "AMP104", "AMP105", "AMP106", "AMP108")


def test_a_replay_raises_what_the_witness_predicts(worker: Worker) -> None:
    each = (sorted((ROOT / "fixtures" / code).glob("bad_*.py"))[::2] for code in CODES)
    files = [str(path) for paths in each for path in paths]
    findings = check_paths(files, Settings()).findings
    replayed = []
    for finding in findings:
        lines = Path(finding.filename).read_text().splitlines()
        found = replay(finding, lines[finding.span.start.row - 1], worker.run)
        if found is not None:
            replayed.append(finding.code)
            assert f"`{found.error}`" in words_of(finding.path[-1])[0], finding
    assert set(replayed) == set(CODES)
