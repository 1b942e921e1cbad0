"""`amplint probe` and `check --probe`: what they refuse, print and return."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

MISSING_UPDATE = """\
import torch

def train(model, optimizer, loader, scaler):
    for inputs in loader:
        optimizer.zero_grad()
        scaler.scale(model(inputs).sum()).backward()
        scaler.step(optimizer)
"""
FIXED = MISSING_UPDATE + "        scaler.update()\n"


@pytest.fixture
def train(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(MISSING_UPDATE)
    return path


def test_confirmed_needs_the_probe(run: Callable[..., Any], train: Path) -> None:
    done = run("check", "--fail-on", "confirmed", "train.py")
    assert done.exit_code == 2
    assert "needs the probe" in done.stderr
    assert "--probe" in done.stderr


def test_an_interpreter_without_torch(run: Callable[..., Any], train: Path, tmp_path: Path) -> None:
    done = run("check", "--probe", "--python", str(tmp_path / "nowhere"), "train.py")
    assert done.exit_code == 2
    assert "there is no such file" in done.stderr
    assert "--python PATH" in done.stderr


def test_nothing_to_probe_starts_nothing(run: Callable[..., Any], train: Path) -> None:
    train.write_text(FIXED)
    done = run("check", "--probe", "--python", "/nowhere", "train.py")
    assert done.exit_code == 0, done.stderr


@pytest.mark.parametrize("explain", ["AMP105", "AMP105:x", "105:7"])
def test_a_malformed_place(run: Callable[..., Any], train: Path, explain: str) -> None:
    done = run("probe", "train.py", "--explain", explain)
    assert done.exit_code == 2
    assert "RULE:LINE" in done.stderr


def test_a_finding_that_is_not_there(run: Callable[..., Any], train: Path) -> None:
    done = run("probe", "train.py", "--explain", "AMP105:3")
    assert done.exit_code == 2
    assert "no finding `AMP105:3`" in done.stderr


def test_a_function_without_findings(run: Callable[..., Any], train: Path) -> None:
    train.write_text(MISSING_UPDATE + "\ndef other():\n    pass\n")
    done = run("probe", "train.py::other")
    assert (done.exit_code, done.stdout) == (
        0,
        "No finding in `other`, but 1 elsewhere in train.py; no other file was checked.\n",
    )


def test_a_function_whose_findings_are_in_another_file(
    run: Callable[..., Any], train: Path
) -> None:
    """Nobody may read that all is well."""
    calling = "from train import train\ndef main(*args):\n    train(*args)\n"
    train.with_name("main.py").write_text(calling)
    done = run("probe", "main.py::main")
    assert (done.exit_code, done.stdout) == (
        0,
        "No finding in `main`, nor elsewhere in main.py; no other file was checked.\n",
    )


@pytest.mark.parametrize("name", ["tain", "train.", "Trainer", "<module>x"])
def test_a_function_that_is_not_there(run: Callable[..., Any], train: Path, name: str) -> None:
    done = run("probe", f"train.py::{name}")
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"there is no function or class `{name}` in train.py" in done.stderr


IN_A_HELPER = """\
import torch

def finish(model, scaler, optimizer):
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()

def train(model, optimizer, loader, scaler):
    for inputs in loader:
        optimizer.zero_grad()
        scaler.scale(model(inputs).sum()).backward()
        finish(model, scaler, optimizer)

def report():
    print("done")
"""


def test_a_finding_in_what_the_function_calls(run: Callable[..., Any], train: Path) -> None:
    """It happens when `train` runs, so it is a finding of `train`, too."""
    train.write_text(IN_A_HELPER)
    for name in ("train", "finish"):
        done = run("probe", f"train.py::{name}", "--probe-timeout", "60")
        assert "warning[AMP110]" in done.stdout, done.stderr  # nobody in sight builds the scaler
    assert run("probe", "train.py::report").stdout.startswith("No finding in `report`, but 1 ")


def test_evidence_in_json(run: Callable[..., Any], train: Path) -> None:
    done = run(
        *("check", "--probe", "--probe-timeout", "60", "--fail-on", "confirmed"),
        *("--output-format", "json", "train.py"),
    )
    assert done.exit_code == 1, done.stderr
    (finding,) = json.loads(done.stdout)["findings"]
    evidence = finding["evidence"]
    assert evidence["status"] == "confirmed"
    assert evidence["kind"] == "own-code"
    assert evidence["device"] in ("cpu", "cuda:0")
    assert "step() has already been called" in evidence["detail"]
    assert evidence["assumptions"] == []


def test_explain_tells_the_run(run: Callable[..., Any], train: Path) -> None:
    done = run("probe", "train.py::train", "--explain", "AMP105:7", "--probe-timeout", "60")
    assert done.exit_code == 1, done.stderr
    assert "1 finding: 1 confirmed." in done.stdout
    lines = done.stdout.splitlines()
    (first,) = [line for line in lines if line.startswith("This run: `train`, torch ")]
    story = lines[lines.index(first) :]
    assert any("len(loader) = " in line and "invented" in line for line in story)
    assert [line for line in story if "scaler.step(optimizer)" in line][-1].startswith("  > line 7")
    assert "RuntimeError: step() has already been called" in story[-1]
