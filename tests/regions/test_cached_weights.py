"""AMP304 is reported where torch's loss stands still, and nowhere else.

The programs say "cuda". They run on the CPU with their backward in a thread of its own, which is
what autograd has on a GPU.
"""

from __future__ import annotations

import ast
import threading

import pytest
import torch
from amplint.rules import load

from amplint.view import view_of

PROGRAM = """
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


class Scaled(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda")
    def forward(ctx, x):
        return 3 * x

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx, grad):
        return 3 * grad


class Plain(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 3 * x

    @staticmethod
    def backward(ctx, grad):
        return 3 * grad


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8)])

    def forward(self, x):
        return self.layers[0](x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        {fields}

    def forward(self, x):
        return {output}


def train(x, y, losses):
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        for _ in range(4):
            loss = F.mse_loss(model(x).float(), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
"""
WEIGHT = "self.w = nn.Parameter(torch.randn(8, 8))"
LAYER = "self.layer = nn.Linear(8, 8, bias=False)"
#: Name -> the module's fields, its output, whether the loss stands still.
CASES = {
    "layer": (LAYER, "self.layer(x)", True),
    "nested": ("self.inner = Inner()", "x + self.inner(x).relu() * 0 + self.inner(x)", True),
    "parameter": (WEIGHT, "x @ self.w", True),
    "functional": (WEIGHT, "F.linear(x, self.w)", True),
    "transposed": (WEIGHT, "x @ self.w.T", False),
    "product": (WEIGHT, "F.linear(x, self.w * 0.5)", False),
    "slice": (WEIGHT, "F.linear(x, self.w[:])", False),
    "custom_bwd": (LAYER, "Scaled.apply(self.layer(x))", False),
    "plain function": (LAYER, "Plain.apply(self.layer(x))", True),
    "checkpoint": (LAYER, "checkpoint(self.layer, x, use_reentrant=False)", False),
}


def losses_of(source: str, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    scope: dict = {}
    exec(source.replace('"cuda"', '"cpu"'), scope)  # noqa: S102
    run = torch.Tensor.backward

    def in_a_thread(loss: torch.Tensor) -> None:
        thread = threading.Thread(target=run, args=(loss,))
        thread.start()
        thread.join()

    monkeypatch.setattr(torch.Tensor, "backward", in_a_thread)
    torch.manual_seed(1)
    losses: list[float] = []
    scope["train"](torch.randn(16, 8), torch.randn(16, 8), losses)
    return losses


@pytest.mark.parametrize(("fields", "output", "still"), CASES.values(), ids=CASES)
def test_reported_where_the_loss_stands_still(
    fields: str, output: str, still: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = PROGRAM.replace("{fields}", fields).replace("{output}", output)
    assert (len(set(losses_of(source, monkeypatch))) == 1) is still
    view = view_of("program.py", source, ast.parse(source))
    assert bool(list(load("AMP304").check(view))) is still
    assert not list(load("AMP507").check(view))
