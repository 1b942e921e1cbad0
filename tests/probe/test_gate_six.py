"""Gate 6 with real torch: a caller that no run gets through, read for what it passes."""

from __future__ import annotations

from pathlib import Path

import pytest

from amplint.checker import check_paths
from amplint.config import Settings
from amplint.probe.confirmation import Limits, probe_with
from amplint.probe.process import Worker

pytest.importorskip("torch")

#: Without `update()`: raises in the second iteration, if the scaler is enabled.
TRAINER = """\
import torch


class Trainer:
    def __init__(self, model, half=False):
        self.model = model
        self.half = half
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.scaler = torch.amp.GradScaler("cuda", enabled=self.half)

    def train(self, loader):
        for inputs in loader:
            self.optimizer.zero_grad()
            self.scaler.scale(self.model(inputs).sum()).backward()
            self.scaler.step(self.optimizer)
"""
MAIN = """\
import argparse

import torch
from trainer import Trainer

parser = argparse.ArgumentParser()
parser.add_argument("--fp16", action="store_true")
args = parser.parse_args()
width = {}["width"]
trainer = Trainer(torch.nn.Linear(width, 2), {half})
trainer.train(load(args))
"""


@pytest.mark.parametrize(
    ("half", "status"),
    [
        ("half=True", "confirmed"),
        ("half=args.fp16", "confirmed"),
        ("half=False", "conditional"),
        ("", "conditional"),
        ("half=args.fp16 and supported(args)", "conditional"),
    ],
)
def test_what_a_caller_passes_decides(
    worker: Worker, tmp_path: Path, half: str, status: str
) -> None:
    path = tmp_path / "trainer.py"
    path.write_text(TRAINER)
    (tmp_path / "main.py").write_text(MAIN.replace("{half}", half))
    settings = Settings(project_root=str(tmp_path))
    findings = [f for f in check_paths([str(path)], settings).findings if f.code == "AMP105"]
    (probed,) = probe_with([worker], findings, settings, Limits(seconds=120.0))
    assert probed.verdict.evidence.status == status, probed.verdict.evidence
