"""What AMP604 says about two ranks: a plain scaler lets them drift apart under FSDP1."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

SCRIPT = Path(__file__).with_name("ranks.py")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="ranks are forked")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the ranks of both kinds of scalers have written."""
    folder = tmp_path_factory.mktemp("ranks")
    subprocess.run([sys.executable, str(SCRIPT), str(folder)], check=True, timeout=240)
    return folder


def two_ranks(folder: Path, kind: str) -> list[list[object]]:
    """[whether it stepped, its scale afterwards] of each rank, after an overflow on rank 1."""
    return [json.loads((folder / f"{kind}-{rank}").read_text()) for rank in (0, 1)]


def test_a_plain_scaler_lets_the_ranks_drift_apart(folder: Path) -> None:
    assert two_ranks(folder, "plain") == [[True, 65536.0], [False, 32768.0]]


def test_a_sharded_scaler_keeps_them_together(folder: Path) -> None:
    assert two_ranks(folder, "sharded") == [[False, 32768.0], [False, 32768.0]]
