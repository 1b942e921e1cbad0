"""A report with one of everything, and the sources it speaks of."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from amplint.checker import Report
from amplint.findings import (
    Edit,
    FileError,
    Finding,
    Fix,
    Link,
    PathStep,
    Position,
    Severity,
    Span,
    Standing,
)

TRAIN = """\
import torch
from torch.amp import GradScaler, autocast

scaler = GradScaler("cuda")

def train(model, optimizer, loader):
    for inputs, targets in loader:
        optimizer.zero_grad()
        with autocast("cuda"):
            loss = model(inputs, targets)
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
"""

ODD = """\
def step(scaler, optimizer):
\tname = "模型 😀"; scaler.step(optimizer)
    scaler.step(
        optimizer,
    )
"""

SOURCES = {
    "train.py": TRAIN.split("\n"),
    "pkg/odd names.py": ODD.split("\n"),
    "broken.py": ["def f(:", ""],
}


def span(row: int, column: int, end_row: int, end_column: int) -> Span:
    return Span(Position(row, column), Position(end_row, end_column))


CLIP = Finding(
    code="AMP110",
    name="clip-without-unscale",
    severity=Severity.ERROR,
    message="`clip_grad_norm_` clips gradients that are still multiplied by the loss scale, so "
    "`max_norm` is about 65536 times too small",
    help="call `scaler.unscale_(optimizer)` before `clip_grad_norm_`",
    filename="train.py",
    span=span(12, 9, 12, 64),
    path=(
        PathStep("train.py", 7, 5, "the loop runs"),
        PathStep("train.py", 11, 9, "`loss` is multiplied by the loss scale"),
        PathStep("train.py", 11, 9, "backward adds to the gradients", "gradients: scaled"),
        PathStep("train.py", 12, 9, "clips the gradients of `optimizer`"),
    ),
    fix=Fix("unsafe", (Edit(span(12, 1, 12, 1), "        scaler.unscale_(optimizer)\n"),)),
    fingerprint="abc",
    links=(
        Link("object", Standing.USE, "scaler", "is the gradient scaler"),
        Link("value", Standing.OPTION, "args.clip", "is set, which is not its default"),
    ),
)

WIDE = Finding(
    code="AMP104",
    name="step-twice",
    severity=Severity.WARNING,
    message="`scaler.step(optimizer)`: second step, before update()\nand 100% wrong",
    help="remove one of the two steps",
    filename="pkg/odd names.py",
    span=span(2, 17, 2, 39),
)

BLOCK = Finding(
    code="AMP128",
    name="private-scaler-state",
    severity=Severity.INFO,
    message="a span of several lines",
    help="",
    filename="pkg/odd names.py",
    span=span(3, 5, 5, 6),
)


@pytest.fixture
def sources() -> Callable[[str], list[str] | None]:
    return SOURCES.get


@pytest.fixture
def report() -> Report:
    """Three findings, one of each severity, and one unreadable file."""
    error = FileError("broken.py", "invalid syntax", 1, 7)
    return Report((WIDE, BLOCK, CLIP), (error,), files=12, screened_out=9, seconds=0.25)


@pytest.fixture
def clip() -> Finding:
    return CLIP


@pytest.fixture
def make_report() -> Callable[..., Report]:
    """A report of the given findings, errors and counts."""

    def make(*findings: Finding, errors: tuple[FileError, ...] = (), files: int = 1) -> Report:
        return Report(tuple(findings), errors, files=files)

    return make
