"""Runs without a worker: a function from requests to results, and the files for its plans."""

from __future__ import annotations

from pathlib import Path

from amplint.checker import check_paths
from amplint.config import Settings
from amplint.findings import Finding
from amplint.probe.confirmation import plan_builder
from amplint.probe.messages import Decision, Event, Raised, Request, RunResult
from amplint.probe.planning import PlanBuilder

#: A missing `update()`: raises in the second iteration, at row 7.
SOURCE = """\
import torch

def train(model, optimizer, loader, scaler):
    for inputs in loader:
        optimizer.zero_grad()
        scaler.scale(model(inputs).sum()).backward()
        scaler.step(optimizer)
"""
ROW = 7
TWICE = "step() has already been called since the last update()."


def prepare(folder: Path, source: str = SOURCE) -> tuple[Finding, PlanBuilder, str]:
    """The only finding of a source, plans for it, and where the file lies."""
    path = folder / "train.py"
    path.write_text(source)
    report = check_paths([str(path)], Settings())
    (finding,) = report.findings
    builder = plan_builder(finding.filename, Settings())
    assert builder is not None
    return finding, builder, builder.path


def round_of(path: str, *, raises: bool = False) -> tuple[Event, ...]:
    """zero_grad, scale, backward, step: one iteration of `SOURCE`."""
    step = {"gradients": 1, "raised": "RuntimeError"} if raises else {"gradients": 1}
    return (
        Event("zero_grad", path, 5, 0, 1),
        Event("scale", path, 6, 1, 0),
        Event("backward", path, 6, 1, 1, facts={"scaled": True, "optimizers": [1]}),
        Event("step", path, ROW, 1, 1, facts=step),
    )


def missing_update(request: Request, path: str) -> RunResult:
    """What torch does with `SOURCE`; one batch only if the request says so."""
    batches = request.assignment.get("len(loader)", 2)
    decision = Decision("len(loader)", (2, 1), batches, 4)
    rows = (4, 5, 6, ROW)
    if batches < 2 or not request.enabled:
        events = round_of(path)
        return RunResult("returned", decisions=(decision,), events=events, rows=rows)
    return RunResult(
        "raised",
        raised=Raised("RuntimeError", TWICE, "torch.amp", path, ROW),
        decisions=(decision,),
        events=round_of(path) + round_of(path, raises=True),
        rows=rows,
        calls=1,
    )
