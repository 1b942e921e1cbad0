"""The cost of a file grows about as its length does, whatever there is much of in it.

Counted in calls of functions, Python's and C's, which do not depend on the machine;
benchmarks/growth.py takes the time of the same shapes.
"""

from __future__ import annotations

import ast
import cProfile
import importlib.util
import pstats
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from amplint.checker import check_paths, check_source
from amplint.config import Settings
from amplint.flow import budget, state
from amplint.gradflow.interpreter import Frame, Interpreter


def _growth() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "growth.py"
    spec = importlib.util.spec_from_file_location("benchmark_growth", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SHAPES: dict[Callable[[int], str], int] = _growth().SHAPES
EVERY_RULE = Settings(select=("ALL",))


def calls(text: str) -> int:
    """How many calls a check makes."""
    profile = cProfile.Profile()
    profile.enable()
    result = check_source("a.py", text.encode(), EVERY_RULE)
    profile.disable()
    assert not result.errors
    return pstats.Stats(profile).total_calls  # type: ignore[attr-defined]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_twice_as_many_cost_about_twice_as_much(shape: Callable[[int], str]) -> None:
    calls(shape(1))  # imports
    assert calls(shape(24)) < 2.6 * calls(shape(12))


def test_states_that_grow_end_in_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand objects make each copy of a state dear: that counts, and is told."""
    shape = next(shape for shape in SHAPES if shape.__name__ == "trainers")
    text = shape(12).encode()
    assert not check_source("a.py", text, EVERY_RULE).unfinished
    monkeypatch.setattr(budget, "FILE_LIMIT", 2_000)
    assert not check_source("a.py", text, EVERY_RULE).unfinished
    monkeypatch.setattr(state, "LIGHT", 10)
    assert "train" in check_source("a.py", text, EVERY_RULE).unfinished


TRAINER = """
import torch


class Trainer:
    def __init__(self, model, amp):
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.scaler = torch.amp.GradScaler("cuda") if amp else None

    def fit(self, loss):
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
"""
DRIVER = """
from trainer import Trainer


def drive(model, loss):
    trainer = Trainer(model, True)
    USE
"""


@pytest.mark.parametrize(
    ("use", "followed"), [("assert trainer", False), ("trainer.fit(loss)", True)]
)
def test_who_only_builds_a_trainer_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: str, followed: bool
) -> None:
    """What cannot meet an event is not begun with."""
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "trainer.py").write_text(TRAINER, "utf-8")
    driver = tmp_path / "driver.py"
    driver.write_text(DRIVER.replace("USE", use), "utf-8")
    monkeypatch.setattr(budget, "FILE_LIMIT", 0)
    report = check_paths([str(driver)], EVERY_RULE)
    assert [item.functions for item in report.incomplete] == [("drive",)] * followed


def nested(depth: int) -> str:
    """Loops inside each other, in which tensors change from round to round, around a backward."""
    lines = ["import torch", "def train(model, scaler, items):", "    h = torch.zeros(3)"]
    for level in range(depth):
        indent = "    " * (level + 1)
        lines += [f"{indent}for x{level} in items:", f"{indent}    h = model(h + x{level})"]
    return "\n".join([*lines, "    " * (depth + 1) + "scaler.scale(h.sum()).backward()", ""])


def test_rounds_of_nested_loops_do_not_multiply(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python compiles twenty of them, and no budget ends the walk along gradients."""
    monkeypatch.setattr(budget, "FILE_LIMIT", 100)
    walked: list[ast.stmt] = []
    follow = Interpreter._loop

    def counted(self: Interpreter, node: ast.For, frame: Frame) -> None:
        walked.append(node)
        follow(self, node, frame)

    monkeypatch.setattr(Interpreter, "_loop", counted)
    check_source("a.py", nested(8).encode(), EVERY_RULE)
    few = len(walked)
    check_source("a.py", nested(16).encode(), EVERY_RULE)
    assert 0 < few < len(walked) - few < 4 * few
