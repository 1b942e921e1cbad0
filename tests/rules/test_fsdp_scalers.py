"""What AMP604 says about two ranks: a plain scaler lets them drift apart under FSDP1."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

SCRIPT = Path(__file__).with_name("one_rank.py")
NEEDS_POSIX = pytest.mark.skipif(sys.platform == "win32", reason="gloo over a file needs POSIX")


def two_ranks(folder: Path, kind: str) -> list[list[object]]:
    """[whether it stepped, its scale afterwards] of each rank, after an overflow on rank 1."""
    address = (folder / "rendezvous").as_uri()
    ranks = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), str(rank), address, kind],
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    try:
        outputs = [process.communicate(timeout=240)[0] for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    return [json.loads(output.splitlines()[-1]) for output in outputs]


@NEEDS_POSIX
def test_a_plain_scaler_lets_the_ranks_drift_apart(tmp_path: Path) -> None:
    assert two_ranks(tmp_path, "plain") == [[True, 65536.0], [False, 32768.0]]


@NEEDS_POSIX
def test_a_sharded_scaler_keeps_them_together(tmp_path: Path) -> None:
    assert two_ranks(tmp_path, "sharded") == [[False, 32768.0], [False, 32768.0]]
