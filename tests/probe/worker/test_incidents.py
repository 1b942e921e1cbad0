"""The incidents, each from a plan written by hand: torch raises at the row that it names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from amplint.probe.messages import Plan, Request, RunResult, Source
from amplint.probe.process import Worker

INCIDENTS = Path(__file__).resolve().parents[3] / "fixtures" / "incidents"
NO_INF_CHECKS = "No inf checks were recorded for this optimizer."


def run(worker: Worker, project: str, file: str, entry: str, **assignment: Any) -> RunResult:
    folder = INCIDENTS / project
    others = [path for path in sorted(folder.rglob("*.py")) if path != folder / file]
    sources = [Source(str(folder / file))]
    for path in others:
        dotted = ".".join(path.relative_to(folder).with_suffix("").parts)
        sources.append(Source(str(path), dotted))
    plan = Plan(tuple(sources), entry, target_rows=())
    return worker.run(Request(plan, assignment=assignment))


def row_of(project: str, file: str, text: str, occurrence: int = 0) -> int:
    lines = (INCIDENTS / project / file).read_text(encoding="utf-8").splitlines()
    return [row for row, line in enumerate(lines, 1) if text in line][occurrence]


@pytest.mark.parametrize(("batches", "occurrence"), [(8, 1), (9, 2)])
def test_leftover_flush(worker: Worker, batches: int, occurrence: int) -> None:
    # Windows of four: nothing is pending after 8 batches, and after 9 the flush runs twice.
    entry = "LanguageModelTrainer.train_epoch"
    project = "0_leftover_flush/before"
    result = run(worker, project, "trainer.py", entry, **{"len(loader)": batches})
    assert result.raised is not None, result
    assert (result.raised.type, result.raised.message) == ("AssertionError", NO_INF_CHECKS)
    assert result.raised.inside == "torch.amp"
    assert result.raised.row == row_of(project, "trainer.py", "scaler.step(", occurrence)


@pytest.mark.parametrize("batches", [8, 9])
def test_leftover_flush_repaired(worker: Worker, batches: int) -> None:
    entry = "LanguageModelTrainer.train_epoch"
    result = run(worker, "0_leftover_flush/after", "trainer.py", entry, **{"len(loader)": batches})
    assert result.status == "returned", result
    assert any(event.kind == "step" for event in result.events)


@pytest.mark.parametrize("clipping", [True, False])
def test_flush_guard(worker: Worker, clipping: bool) -> None:
    project, entry = "1_flush_guard/before", "ContinualTrainer.train_epoch"
    clip = 5.0 if clipping else 0.0
    assignment = {"len(loader)": 3, "self.config.gradient_clip": clip}
    result = run(worker, project, "trainer.py", entry, **assignment)
    assert result.raised is not None, result
    call = "unscale_" if clipping else "step"
    assert result.raised.message.startswith(f"Attempted {call} but _scale is None.")
    assert result.raised.row == row_of(project, "trainer.py", f"scaler.{call}(", 1)


def test_flush_method(worker: Worker) -> None:
    project, entry = "2_flush_method/before", "LiquidTrainer.train_epoch"
    assignment = {"self.args.mixed_precision": False, "len(loader)": 3}
    result = run(worker, project, "trainer.py", entry, **assignment)
    assert result.raised is not None, result
    assert result.raised.message.startswith("Attempted step but _scale is None.")
    assert result.raised.row == row_of(project, "trainer.py", "scaler.step(", 1)


def test_nan_gradients(worker: Worker) -> None:
    project, entry = "3_nan_gradients/before", "Trainer.train_epoch"
    file = "methods/trainer.py"
    calm = run(worker, project, file, entry)
    assert calm.status == "returned", calm
    result = run(worker, project, file, entry, **{"nan in forward 1": True})
    assert result.raised is not None, result
    assert result.raised.message == NO_INF_CHECKS
    assert result.raised.row == row_of(project, file, "scaler.step(")


def test_prompt_policy(worker: Worker) -> None:
    project = "4_prompt_policy/before"
    result = run(worker, project, "fixed.py", "train_epoch")
    assert result.raised is not None, result
    assert result.raised.message.startswith("Trying to backward through the graph a second time")
    assert result.raised.inside == "torch.autograd"
    assert result.raised.row == row_of(project, "fixed.py", "scaler.scale(loss).backward()")
