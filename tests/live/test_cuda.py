"""A run on a GPU: nothing waits that did not wait before, graphs that are captured, the record."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.live.programs import row_of, watch
from tests.runtime.test_hooks import watching

pytestmark = pytest.mark.cuda

TRAIN = """
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(8, 1, device="cuda")
optimizer = torch.optim.SGD(net.parameters(), 0.01)
scaler = torch.amp.GradScaler("cuda", init_scale=512.0)
for _ in range(6):
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = net(torch.ones(4, 8, device="cuda")).float().square().mean()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
"""


def waits(steps: int) -> int:
    """How often the host waits for the device in a healthy loop."""
    net = nn.Linear(8, 1, device="cuda")
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    scaler = torch.amp.GradScaler("cuda", init_scale=512.0)
    inputs = torch.ones(4, 8, device="cuda")
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            for _ in range(steps):
                optimizer.zero_grad()
                scaler.scale(net(inputs).square().mean()).backward()
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return sum("synchroniz" in str(each.message) for each in found)


def test_nothing_waits_for_the_device() -> None:
    waits(3)
    plain = waits(20)
    with watching() as told:
        watched = waits(20)
    assert watched == plain
    assert told.slugs == set()
    assert len(told.rounds) == 20


@pytest.mark.parametrize("options", [(), ("--sample", "2")])
def test_misuse_and_its_absence(tmp_path: Path, options: tuple[str, ...]) -> None:
    train = (sys.executable, "train.py")
    (tmp_path / "train.py").write_text(TRAIN, "utf-8")
    seen = watch(tmp_path, *train, options=(*options, "--"))
    assert (seen.status, seen.told, seen.updates) == (0, [], [6]), seen.stderr
    broken = TRAIN.replace("    scaler.unscale_(optimizer)\n", "")
    (tmp_path / "train.py").write_text(broken, "utf-8")
    seen = watch(tmp_path, *train, options=("--out", str(tmp_path / "second"), *options, "--"))
    row = row_of(broken, "clip_grad_norm_")
    assert seen.told == [("clip-of-scaled", "train.py", row)]
    assert seen.report["findings"][0]["facts"]["scale"] == 512.0


def test_a_backward_that_is_captured_and_replayed() -> None:
    """Torch's own recipe: forward and backward are a graph, the scaler works outside of it."""
    with watching() as told:
        net = nn.Linear(8, 1, device="cuda")
        optimizer = torch.optim.SGD(net.parameters(), 0.01)
        scaler = torch.amp.GradScaler("cuda", init_scale=512.0)
        inputs = torch.ones(4, 8, device="cuda")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                optimizer.zero_grad()
                scaler.scale(net(inputs).square().mean()).backward()
                scaler.step(optimizer)
                scaler.update()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        optimizer.zero_grad()
        with torch.cuda.graph(graph):
            scaler.scale(net(inputs).square().mean()).backward()
        for _ in range(5):
            graph.replay()
            scaler.step(optimizer)
            scaler.update()
    assert told.slugs == set()
    assert len(told.rounds) == 8
