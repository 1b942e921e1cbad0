"""A test for NaN that skips `zero_grad`: what torch does with the batches behind it (AMP131)."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch

FIXTURES = Path(__file__).parents[2] / "fixtures" / "AMP131"


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"amp131_{name}", FIXTURES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _moves_behind_nan(train: object) -> bool:
    """Whether a training changes weights again after one batch whose gradients are NaN."""
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    before = model.weight.detach().clone()
    spoiled = [(torch.full((4, 3), float("nan")), torch.zeros(4, 1))]
    clean = [(torch.randn(4, 3), torch.randn(4, 1)) for _ in range(5)]
    train(model, optimizer, spoiled + clean, scaler)  # type: ignore[operator]
    return not torch.equal(before, model.weight)


@pytest.mark.parametrize("name", ["flagged", "any_of_them"])
def test_no_batch_behind_it_counts(name: str) -> None:
    assert not _moves_behind_nan(getattr(_load("bad_gradients_that_stay"), name))


@pytest.mark.parametrize("name", ["cleared_first", "cleared_on_both_sides", "mended"])
def test_training_goes_on(name: str) -> None:
    assert _moves_behind_nan(getattr(_load("good_gradients_that_go"), name))
