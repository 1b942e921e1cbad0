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
from amplint.flow import budget, companions, engine, state
from amplint.gradflow.frame import Frame
from amplint.gradflow.interpreter import Interpreter
from amplint.values.raising import Raising


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


def terms(count: int) -> str:
    """A loss that is one expression of so many runs of a model."""
    return (
        "import torch\n"
        "def train(model, optimizer, loader):\n"
        "    scaler = torch.amp.GradScaler('cuda')\n"
        "    for x in loader:\n"
        "        optimizer.zero_grad()\n"
        "        with torch.autocast('cuda'):\n"
        f"            loss = {' * '.join(['model(x).sum()'] * count)}\n"
        "        scaler.scale(loss).backward()\n"
        "        scaler.step(optimizer)\n"
        "        scaler.update()\n"
    )


def chain(count: int) -> str:
    """A loop in a chain of so many functions, each of which calls the next two, and a clip."""
    functions = "".join(
        f"def f{number}(scaler, optimizer):\n"
        f"    f{number + 1}(scaler, optimizer)\n    f{number + 2}(scaler, optimizer)\n"
        for number in range(count)
    )
    last = "".join(
        f"def f{number}(scaler, optimizer):\n    scaler.get_scale()\n"
        for number in (count, count + 1)
    )
    return (
        f"import torch\n{functions}{last}"
        "def train(model, optimizer, loader):\n"
        "    scaler = torch.amp.GradScaler('cuda')\n"
        "    for x in loader:\n"
        "        scaler.scale(model(x).mean()).backward()\n"
        "        f0(scaler, optimizer)\n"
        "        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
        "        scaler.step(optimizer)\n"
        "        scaler.update()\n"
        "        optimizer.zero_grad()\n"
    )


def test_a_long_expression_costs_about_what_its_parts_do() -> None:
    calls(terms(1))  # imports
    assert calls(terms(400)) < 2.6 * calls(terms(200))


def test_functions_that_refuse_nothing_are_asked_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not once for each way that leads to them, of which a chain has twice as many at each step."""
    asked: list[object] = []
    raises = Raising._raises_inside
    monkeypatch.setattr(Raising, "_raises_inside", lambda *given: asked.append(0) or raises(*given))
    assert check_source("a.py", chain(50).encode(), EVERY_RULE).findings
    assert not asked
    picky = chain(50).replace("scaler.get_scale()", "assert scaler")
    assert check_source("a.py", picky.encode(), EVERY_RULE).findings
    assert asked


def counted(count: int) -> str:
    """A loop that counts its rounds itself, with windows of several lengths."""
    lines = [
        "import torch",
        "def train(model, optimizer, loader):",
        "    scaler = torch.amp.GradScaler('cuda')",
        "    rounds = 0",
        "    for index, x in enumerate(loader):",
        "        scaler.scale(model(x)).backward()",
    ]
    for number in range(count):
        lines += [
            f"        if rounds % {number + 2} == 0:",
            "            scaler.step(optimizer)",
            "            scaler.update()",
            "            optimizer.zero_grad()",
        ]
    return "\n".join([*lines, "        rounds += 1", ""])


def test_what_counts_rounds_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test of a counter asks, in each state: that must not walk over the loop each time."""
    walks: list[ast.AST] = []
    walk = companions.walk
    monkeypatch.setattr(companions, "walk", lambda node: walks.append(node) or walk(node))
    result = check_source("a.py", counted(4).encode(), EVERY_RULE)
    assert result.findings
    assert 0 < len(walks) < 50


def test_following_findings_again_has_one_budget_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    spent: list[int] = []
    spend = budget.Budget.spend

    def counts(self: budget.Budget, visits: int) -> None:
        spent.append(visits)
        spend(self, visits)

    monkeypatch.setattr(budget.Budget, "spend", counts)
    monkeypatch.setattr(budget, "FILE_LIMIT", 200)
    monkeypatch.setattr(budget, "AGAIN_LIMIT", 200)
    result = check_source("a.py", counted(4).encode(), EVERY_RULE)
    assert len(result.findings) > 3 and not result.unfinished
    assert sum(spent) <= 2 * 200 + 2 * max(spent)


def test_a_finding_that_is_followed_again_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the other findings on its paths nothing is asked again: each would be, for each."""
    asked: list[object] = []
    links_of = engine.links_of
    monkeypatch.setattr(engine, "links_of", lambda *given: asked.append(0) or links_of(*given))
    numbers = []
    for count in (4, 8):
        asked.clear()
        assert len(check_source("a.py", counted(count).encode(), EVERY_RULE).findings) >= count
        numbers.append(len(asked))
    assert numbers[1] < 12 * numbers[0]


def test_states_that_grow_end_in_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand objects make each copy of a state dear: that counts, and is told."""
    shape = next(shape for shape in SHAPES if shape.__name__ == "trainers")
    text = shape(12).encode()
    assert not check_source("a.py", text, EVERY_RULE).unfinished
    monkeypatch.setattr(budget, "FILE_LIMIT", 2_000)
    assert not check_source("a.py", text, EVERY_RULE).unfinished
    monkeypatch.setattr(state, "LIGHT", 10)
    assert "train" in check_source("a.py", text, EVERY_RULE).unfinished


def test_a_longer_file_may_cost_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same function ends in the budget of a short file, and not in that of a long one."""
    monkeypatch.setattr(budget, "LEAST", 10)
    monkeypatch.setattr(budget, "PER_LINE", 1)
    short = counted(3)
    long = short + "# nothing but a comment\n" * 2_000
    assert check_source("a.py", short.encode(), EVERY_RULE).unfinished == ("train",)
    assert not check_source("a.py", long.encode(), EVERY_RULE).unfinished
    assert budget.limit_of(10**6) == budget.FILE_LIMIT


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
