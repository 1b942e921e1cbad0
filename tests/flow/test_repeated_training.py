"""A training that its caller runs again and again: what it leaves behind, and what it costs."""

from __future__ import annotations

from pathlib import Path

import pytest

from amplint.checker import check_paths, check_source
from amplint.config import Settings
from amplint.inspection import FileResult

RULES = Settings(select=("AMP1",), jobs=1, cache=False)


def program(flags: int, behind: str, returned: str = "None") -> str:
    """Trials of a training with so many optional parts, and what stands behind them."""
    head = "".join(
        f"    part{number} = cfg.part{number} if cfg.on{number} else None\n"
        for number in range(flags)
    )
    inner = "".join(
        f"            if part{number} is not None:\n"
        f"                print(part{number})\n"
        f"                if cfg.stop{number}:\n"
        "                    break\n"
        for number in range(flags)
    )
    return (
        "import torch\n"
        "def train(cfg, loader):\n"
        "    model = torch.nn.Linear(4, 4).cuda()\n"
        "    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "    scaler = torch.amp.GradScaler('cuda', enabled=cfg.amp)\n"
        f"{head}"
        "    for epoch in range(cfg.epochs):\n"
        "        for x in loader:\n"
        f"{inner}"
        "            optimizer.zero_grad()\n"
        "            with torch.autocast('cuda', enabled=cfg.amp):\n"
        "                loss = model(x).mean()\n"
        "            scaler.scale(loss).backward()\n"
        "            if cfg.clip:\n"
        "                scaler.unscale_(optimizer)\n"
        "                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
        "            scaler.step(optimizer)\n"
        "            scaler.update()\n"
        f"    return {returned}\n"
        "def main(cfg, loader):\n"
        "    if cfg.first:\n"
        "        cfg.mode = True\n"
        "    for trial in range(cfg.trials):\n"
        "        left = train(cfg, loader)\n"
        "        if cfg.rest:\n"
        "            break\n"
        f"{behind}"
    )


def checked(text: str) -> FileResult:
    return check_source("a.py", text.encode(), RULES)


def told(text: str) -> list[tuple[str, str]]:
    """The codes of what is found, each with its line."""
    lines = text.splitlines()
    return [(item.code, lines[item.span.start.row - 1].strip()) for item in checked(text).findings]


@pytest.mark.parametrize("flags", [2, 24])
def test_a_new_scaler_behind_the_trials_has_no_record(flags: int) -> None:
    """torch/amp/grad_scaler.py, `update`: "No inf checks were recorded prior to update."."""
    behind = "    other = torch.amp.GradScaler('cuda')\n    other.update()\n"
    text = program(flags, behind)
    assert told(text) == [("AMP106", "other.update()")]
    assert not checked(text).unfinished


def test_a_scaler_that_a_training_returns_keeps_its_record() -> None:
    assert told(program(2, "    left.update()\n", "scaler")) == [("AMP106", "left.update()")]


def test_trials_that_are_right_are_silent() -> None:
    assert told(program(24, "    return left\n")) == []


TRAINER = """
import torch

class Trainer:
    def __init__(self, model, amp):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.scaler = torch.amp.GradScaler("cuda") if amp else None

    def fit(self, loader):
        for x in loader:
            self.optimizer.zero_grad()
            with torch.autocast("cuda"):
                loss = self.model(x).mean()
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
"""
RUN = """
from trainer import Trainer

def {name}(model, loader):
    trainer = Trainer(model, amp=False)
    trainer.fit(loader)
"""
OWN = RUN + "    trainer.scaler.update()\n"


@pytest.mark.parametrize(
    ("filename", "text", "expected"),
    [
        ("main.py", RUN.format(name="main"), ["AMP202"]),
        ("test_trainer.py", RUN.format(name="test_fit"), []),
        ("test_trainer.py", OWN.format(name="test_fit"), ["AMP202"]),
    ],
    ids=["a script", "a test", "a test that works on the scaler itself"],
)
def test_a_test_that_only_lets_another_file_train_is_no_entry(
    tmp_path: Path, filename: str, text: str, expected: list[str]
) -> None:
    """What a test sets up is nobody's training, unless it does a part of it itself."""
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "trainer.py").write_text(TRAINER)
    (tmp_path / filename).write_text(text)
    settings = Settings(select=("AMP2",), jobs=1, cache=False)
    report = check_paths([str(tmp_path / filename)], settings)
    assert sorted({item.code for item in report.findings}) == expected
