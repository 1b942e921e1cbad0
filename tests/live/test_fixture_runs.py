"""What a run tells of the fixtures: the mistakes of the table, and nothing of good programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile

import pytest

from tests.live.fixture_runs import FIXTURES, TABLE, Outcome
from tests.live.programs import environment

#: Good functions of which a run has something to say here, and why that is so.
TOLD_HERE = {
    # It never clears its gradients: true, and another rule's business.
    ("AMP501/good_outside.py", "behind_the_block"): {"step-on-piled"},
    # "cuda" means the CPU here, where these programs and libraries switch their scaler off.
    ("AMP204/good_device.py", "train"): {"float16-without-scaler"},
    ("AMP206/good_library.py", "train"): {"float16-without-scaler"},
}
#: Torch's own words where a part of a program, a step without its backward, is called alone.
_PART = "_scale is None"


def test_what_is_told_shrinks_only_on_purpose() -> None:
    """What the table has said of a mark holds; of a new one it need not say anything yet.

    Write it anew with `python -m tests.live.fixture_runs table`, and read the difference.
    """
    now = {(file, mark): words for file, mark, words in map(_fields, said("rows"))}
    lines = TABLE.read_text("utf-8").splitlines()
    table = {(file, mark): words for file, mark, words in map(_fields, lines)}
    changed = {key: (table[key], now[key]) for key in table.keys() & now.keys()}
    assert {key: pair for key, pair in changed.items() if pair[0] != pair[1]} == {}
    gone = {file for file, _ in table.keys() - now.keys() if (FIXTURES / file).exists()}
    assert gone <= {file for file, _ in now.keys() - table.keys()}, "a mark that is gone moved"
    assert [key for key, words in table.items() if words == "not told"] == []


def test_good_functions_are_silent() -> None:
    trained = 0
    for outcome in (Outcome(**json.loads(line)) for line in said("good")):
        assert outcome.defects == [], outcome
        trained += outcome.updates > 0
        if _PART in outcome.failed:
            continue
        told = {slug for _, _, slug in outcome.told}
        assert told == TOLD_HERE.get((outcome.file, outcome.function), set()), outcome
    assert trained >= 160


def said(what: str) -> list[str]:
    """The lines of the runs, in a process that no other test has touched."""
    if not hasattr(os, "fork"):
        pytest.skip("functions run in forked processes")
    command = [sys.executable, "-m", "tests.live.fixture_runs", what]
    with tempfile.TemporaryDirectory() as folder:  # for what they save
        done = subprocess.run(
            command, cwd=folder, env=environment(), stdout=subprocess.PIPE, text=True, check=True
        )
    return done.stdout.splitlines()


def _fields(line: str) -> list[str]:
    return line.split("\t")
