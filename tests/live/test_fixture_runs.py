"""What a run tells of the fixtures: the mistakes of the table, and nothing of good programs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from typing import Any

import pytest

from amplint.live.catalogue import UNSEEN
from tests.budget import budget
from tests.live.fixture_runs import FIXTURES, SHARES, TABLE, WHY_NOT, Outcome, share_of
from tests.live.programs import ROOT, environment

#: Good functions of which a run has something to say here, and why that is so.
TOLD_HERE = {
    # It never clears its gradients: true, and another rule's business.
    ("AMP501/good_outside.py", "behind_the_block"): {"step-on-piled"},
    # "cuda" means the CPU here, where these programs and libraries switch their scaler off.
    ("AMP204/good_device.py", "train"): {"float16-without-scaler"},
    ("AMP206/good_library.py", "train"): {"float16-without-scaler"},
    ("AMP206/good_accelerator_with_precision.py", "by_option"): {"float16-without-scaler"},
    ("AMP206/good_accelerator_with_precision.py", "by_launcher"): {"float16-without-scaler"},
    ("AMP206/good_accelerator_with_precision.py", "unsaid"): {"float16-without-scaler"},
    # They step past their scaler: true, marked there, and another rule's business.
    ("AMP206/good_helper_for_another.py", "returned"): {"optimizer-step-bypass"},
    ("AMP206/good_other_loss.py", "renamed"): {"optimizer-step-bypass"},
    # A loss that is scaled by hand: no run sees that.
    ("AMP206/good_other_loss.py", "by_hand"): {"float16-without-scaler"},
    # Called without its loop, its count stands still, and nothing is cleared.
    ("AMP116/good_window_behind_a_step.py", "ByTheLoop.round"): {"step-on-piled"},
    # A float16 region without a scaler: true, and another rule's business.
    ("AMP131/good_scale_falls.py", "without_a_scaler"): {"float16-without-scaler"},
}
#: Reasons that hold for these runs on a CPU, with these arguments.
ONLY_HERE = {
    "cuda means the CPU here, and its region inside is off",
    "no region is what a float32 program has, too",
    "one device is at hand here",
    "the backward outside the region runs in float32: nothing is lost",
    "the exception that is swallowed does not come here",
    "the guard is set as the code needs it here",
    "the guards agree as they are set here",
    "the library's own scaler is off here",
    "the new scaler begins where the old one was: nothing is lost here",
    "the program has changed the gradients by itself: unknown",
    "threads of DataParallel need several devices",
    "transformers is no part of the tests",
}
#: Torch's own words where a part of a program, a step without its backward, is called alone.
_PART = "_scale is None"


# Every third part, for the time of the suite.
@pytest.mark.parametrize("share", range(budget(2, 0), SHARES, budget(3, 1)))
def test_a_share_of_the_fixtures(share: int) -> None:
    """One process for both: what runs tell of the mistakes there, and of the good functions."""
    said = _said(share)
    _shrinks_only_on_purpose(share, said["rows"])
    _good_functions_are_silent([Outcome(**each) for each in said["good"]])


def _shrinks_only_on_purpose(share: int, rows: list[tuple[str, str, str]]) -> None:
    """What the table has said of a mark holds; of a new one it need not say anything yet.

    Write it anew with `python -m tests.live.fixture_runs table`, and read the difference.
    """
    now = {(file, mark): words for file, mark, words in rows}
    lines = (line.split("\t") for line in TABLE.read_text("utf-8").splitlines())
    table = {(file, mark): words for file, mark, words in lines if share_of(file) == share}
    changed = {key: (table[key], now[key]) for key in table.keys() & now.keys()}
    assert {key: pair for key, pair in changed.items() if pair[0] != pair[1]} == {}
    gone = {file for file, _ in table.keys() - now.keys() if (FIXTURES / file).exists()}
    assert gone <= {file for file, _ in now.keys() - table.keys()}, "a mark that is gone moved"
    assert [key for key, words in table.items() if words == "not told"] == []


def test_reports_and_documents_name_all_that_a_run_cannot_see() -> None:
    """A reason of the table is of these runs alone, or stands in each report."""
    document = (ROOT / "docs" / "live.md").read_text("utf-8")
    words = " ".join(document.split())
    assert [each for each in UNSEEN if each not in words] == []
    general = [each for each in WHY_NOT.values() if each not in ONLY_HERE]
    stems = [
        re.sub(" (is|are) (no event|not followed|not looked at)$", "", each) for each in general
    ]
    assert [each for each in stems if not any(each in entry for entry in UNSEEN)] == []
    assert set(WHY_NOT.values()) >= ONLY_HERE


def _good_functions_are_silent(outcomes: list[Outcome]) -> None:
    trained = 0
    for outcome in outcomes:
        assert outcome.defects == [], outcome
        trained += outcome.updates > 0
        if _PART in outcome.failed:
            continue
        told = {slug for _, _, slug in outcome.told}
        assert told == TOLD_HERE.get((outcome.file, outcome.function), set()), outcome
    assert trained >= 160 / SHARES / 2


def _said(share: int) -> dict[str, list[Any]]:
    """What the runs of a share say, in a process that no other test has touched."""
    if not hasattr(os, "fork"):
        pytest.skip("functions run in forked processes")
    command = [sys.executable, "-m", "tests.live.fixture_runs", "share", str(share)]
    with tempfile.TemporaryDirectory() as folder:  # for what they save
        done = subprocess.run(
            command, cwd=folder, env=environment(), stdout=subprocess.PIPE, text=True, check=True
        )
    said: dict[str, list[Any]] = json.loads(done.stdout)
    return said
