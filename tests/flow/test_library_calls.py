"""Calls of training libraries in the flow analysis, judged against runs under torch.

The libraries are not installed: a stand-in does what the library's own file does, on torch's
GradScaler. A program either raises, or trains other parameters than with scalers disabled, or it
is right; amplint has to say the same.
"""

from __future__ import annotations

import sys
import types

import pytest
import torch
from torch import nn

from amplint.amp.libraries import CLASSES, Effect, call_row
from amplint.checker import check_source
from amplint.config import Settings
from tests.fixtures_runner import expectations

HEAD = """
import torch
from torch import nn
from timm.utils import NativeScaler

def main(clip=0.1):
    torch.manual_seed(1)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss_scaler = NativeScaler("cpu")
    scaler = torch.amp.GradScaler("cpu")
    batches = [torch.randn(4, 3) for _ in range(4)]
    for index, x in enumerate(batches):
        loss = model(x).pow(2).mean()
"""
PROGRAMS = {
    "whole": """
        optimizer.zero_grad()
        loss_scaler(loss, optimizer)
    """,
    "clips": """
        optimizer.zero_grad()
        loss_scaler(loss, optimizer, clip_grad=clip, parameters=model.parameters())
    """,
    "window": """
        due = (index + 1) % 2 == 0
        loss_scaler(loss, optimizer, need_update=due)
        if due:
            optimizer.zero_grad()
    """,
    "steps again": """
        optimizer.zero_grad()
        loss_scaler(loss, optimizer)
        optimizer.step()  # AMP104
    """,
    "clips too late": """
        optimizer.zero_grad()
        loss_scaler(loss, optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), clip)  # AMP127
    """,
    "clips scaled gradients": """
        optimizer.zero_grad()
        loss_scaler(loss, optimizer, need_update=False)
        nn.utils.clip_grad_norm_(model.parameters(), clip)  # AMP110
        loss_scaler._scaler.step(optimizer)
        loss_scaler._scaler.update()
    """,
    "steps past the scaler": """
        optimizer.zero_grad()
        loss_scaler(loss, optimizer, need_update=False)
        optimizer.step()  # AMP112
    """,
}
#: A clip that is merely useless changes nothing that a run could show.
USELESS = ("clips too late",)


class NativeScaler:
    """As timm/utils/cuda.py describes it."""

    def __init__(self, device: str) -> None:
        self._scaler = torch.amp.GradScaler(device)

    def __call__(self, loss, optimizer, clip_grad=None, parameters=None, need_update=True) -> None:
        self._scaler.scale(loss).backward()
        if not need_update:
            return
        if clip_grad is not None:
            self._scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(parameters, clip_grad)
        self._scaler.step(optimizer)
        self._scaler.update()


def source_of(name: str) -> str:
    return f"{HEAD.rstrip()}{PROGRAMS[name].rstrip()}\n    return model\n"


def expected(source: str) -> list[tuple[int, str]]:
    return [(mark.row, mark.code) for mark in sorted(expectations(source).now)]


def run(source: str) -> list[torch.Tensor]:
    space: dict = {}
    exec(compile(source, "program", "exec"), space)  # noqa: S102 - a program of this file
    return [parameter.detach().clone() for parameter in space["main"]().parameters()]


@pytest.fixture
def timm(monkeypatch: pytest.MonkeyPatch) -> None:
    utils = types.ModuleType("timm.utils")
    utils.NativeScaler = NativeScaler  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "timm", types.ModuleType("timm"))
    monkeypatch.setitem(sys.modules, "timm.utils", utils)


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in USELESS])
def test_what_torch_says(name: str, timm: None, monkeypatch: pytest.MonkeyPatch) -> None:
    scaled = run(source_of(name))
    build = torch.amp.GradScaler.__init__

    def disabled(self, *arguments, **words):
        build(self, *arguments, **{**words, "enabled": False})

    monkeypatch.setattr(torch.amp.GradScaler, "__init__", disabled)
    plain = run(source_of(name))
    same = all(
        torch.allclose(one, other, rtol=2e-2, atol=2e-4) for one, other in zip(scaled, plain)
    )
    # Stepping twice is wrong with and without a scaler.
    assert same is (not expected(source_of(name)) or name == "steps again")


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_amplint_says(name: str) -> None:
    source = source_of(name)
    result = check_source("program.py", source.encode(), Settings())
    found = [(item.span.start.row, item.code) for item in result.findings]
    assert found == expected(source)


TAKEN = {
    "accelerate": (
        "from accelerate import Accelerator\naccelerator = Accelerator()",
        "accelerator.prepare(model, optimizer)",
    ),
    "fabric": (
        "from lightning.fabric import Fabric\nfabric = Fabric()",
        "fabric.setup(model, optimizer)",
    ),
    "apex": ("from apex import amp", "amp.initialize(model, optimizer)"),
    "deepspeed": ("import deepspeed", "deepspeed.initialize(model=model, optimizer=optimizer)"),
}


@pytest.mark.parametrize("library", TAKEN)
@pytest.mark.parametrize(
    "call", ["optimizer.step()", "scaler.step(optimizer)", "scaler.unscale_(optimizer)"]
)
def test_an_optimizer_that_a_library_has_taken_over(library: str, call: str) -> None:
    """Its `step` scales, or not: no finding about the order of calls, on any path."""
    imports, prepare = TAKEN[library]
    source = (
        f"import torch\n{imports}\n\n\n"
        "def train(model, loader, optimizer, distributed):\n"
        '    scaler = torch.amp.GradScaler("cuda")\n'
        f"    model, optimizer, *_ = {prepare}\n"
        "    for x in loader:\n"
        "        optimizer.zero_grad()\n"
        "        scaler.scale(model(x).mean()).backward()\n"
        f"        {call}\n"
        f"        {call}\n"
        "        scaler.update()\n"
    )
    result = check_source("program.py", source.encode(), Settings())
    about_order = {item.code for item in result.findings if item.code.startswith("AMP1")}
    assert about_order <= ({"AMP130"} if ".step(" not in call else set())  # nothing steps there


def test_a_class_whose_scaler_is_always_on_says_where_its_arguments_are() -> None:
    for row in CLASSES:
        call = call_row(f"{row.name}.__call__")
        if row.always_on and call is not None and Effect.STEP in call.effects:
            assert call.optimizer is not None
