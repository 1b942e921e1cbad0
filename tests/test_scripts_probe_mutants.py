"""Which mutants `scripts/probe_mutants.py` counts: only those that must fail."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent

WHOLE = """\
import torch

def train(model, loader, optimizer, scaler):
    for images, labels in loader:
        optimizer.zero_grad()
        scaler.scale(model(images, labels)).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
"""
BARE = WHOLE.replace("        scaler.unscale_(optimizer)\n", "").replace(
    "        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n", ""
)
UNCLIPPED = WHOLE.replace("torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)", "pass")
#: One step for each call: whether there is a second one is not in this function.
ONE_STEP = BARE.replace("for images, labels in loader:", "if loader:")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        return importlib.import_module("probe_mutants")
    finally:
        sys.path.pop(0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (WHOLE, {"delete-unscale": 7, "delete-update": 10, "drop-scale": 6}),
        (BARE, {"delete-update": 8, "drop-scale": 6, "plain-step": 7}),
        (UNCLIPPED, {"delete-update": 10, "drop-scale": 6}),
        (ONE_STEP, {"drop-scale": 6, "plain-step": 7}),
    ],
    ids=["whole", "bare", "unclipped", "one-step"],
)
def test_what_counts(
    script: ModuleType, tmp_path: Path, text: str, expected: dict[str, int]
) -> None:
    path = tmp_path / "train.py"
    path.write_text(text)
    mutants = list(script.break_(script.Job(path, str(tmp_path))))
    assert {mutant.recipe: mutant.row for mutant in mutants} == expected
    assert all(mutant.text != text for mutant in mutants)


def test_only_the_listed_function_is_broken(script: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(BARE + BARE.replace("import torch\n", ""))
    mutants = list(script.break_(script.Job(path, str(tmp_path), 9, 16)))
    assert sorted(mutant.row for mutant in mutants) == [13, 14, 15]
