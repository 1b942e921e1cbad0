"""What a clip sees where two optimizers share it: the fixtures of AMP110, run by torch."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

FIXTURES = Path(__file__).parents[2] / "fixtures" / "AMP110"


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"amp110_{name}", FIXTURES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.top = nn.Linear(3, 3), nn.Linear(3, 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.top(self.body(inputs))
        return result


def _batch() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(4, 3), torch.randn(4, 1)


def _two() -> tuple[nn.Module, nn.Module]:
    return nn.Linear(3, 3), nn.Linear(3, 1)


BAD, GOOD = _load("bad_one_of_two_unscaled"), _load("good_one_of_two_unscaled")
SCALED: dict[str, Callable[[], object]] = {
    "whole_model": lambda: BAD.whole_model(_Net(), [_batch()]),
    "pair": lambda: BAD.Pair(*_two()).step(*_batch()),
    "handed_on": lambda: BAD.handed_on(*_two(), [_batch()], 1.0),
}
UNSCALED: dict[str, Callable[[], object]] = {
    "both": lambda: GOOD.both(_Net(), [_batch()]),
    "its_own": lambda: GOOD.its_own(_Net(), [_batch()]),
    "phases": lambda: GOOD.phases_of_one_model(_Net(), [_batch()], True),
    "warm_phases": lambda: GOOD.phases_of_one_model(_Net(), [_batch()], False),
    "pair": lambda: GOOD.Pair(*_two()).step(*_batch()),
    "adversaries": lambda: GOOD.adversaries(
        nn.Linear(3, 3), nn.Linear(3, 1), [(torch.randn(4, 3), torch.randn(4, 3))]
    ),
}


def _clipped(
    run: Callable[[], object], scale: float, monkeypatch: pytest.MonkeyPatch
) -> list[float]:
    """The norms that the clips of a run see, with a loss scale."""
    norms: list[float] = []
    scaler = torch.amp.GradScaler

    def clip(parameters: Any, limit: float) -> None:
        norms.extend(float(one.grad.norm()) for one in parameters if one.grad is not None)

    with monkeypatch.context() as patch:
        patch.setattr(torch.amp, "GradScaler", lambda device: scaler(device, init_scale=scale))
        for module in (BAD, GOOD):
            patch.setattr(module, "clip_grad_norm_", clip)
        torch.manual_seed(0)
        run()
    return norms


@pytest.mark.parametrize("name", SCALED)
def test_the_clip_sees_gradients_that_nothing_has_unscaled(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, scaled = (_clipped(SCALED[name], scale, monkeypatch) for scale in (1.0, 1024.0))
    factors = {round(there / here) for here, there in zip(plain, scaled)}
    assert factors == {1, 1024}


@pytest.mark.parametrize("name", UNSCALED)
def test_the_clip_sees_gradients_of_their_own_size(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, scaled = (_clipped(UNSCALED[name], scale, monkeypatch) for scale in (1.0, 1024.0))
    assert plain and scaled == pytest.approx(plain, rel=1e-4)
