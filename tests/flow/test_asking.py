"""What other files are asked about a finding, and what half an answer is worth."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from amplint.findings import Standing
from amplint.flow import budget
from amplint.view import FileView, view_of

#: Right or wrong by what `clips` is: only a caller can tell.
STEP = """\
import torch
def train_one(model, optimizer, scaler, batch, clips, unscales):
    optimizer.zero_grad()
    scaler.scale(model(batch).mean()).backward()
    if unscales:
        scaler.unscale_(optimizer)
    if clips:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
"""
CALLER = """\
import torch
from steps import train_one
def train(model, optimizer, loader):
    scaler = torch.amp.GradScaler("cuda")
    for batch in loader:
        train_one(model, optimizer, scaler, batch, True, {unscales})
"""
#: Large, of the caller's file, and without a word that leads to `train_one`.
APART = """
def apart(model, optimizer, loader, flags):
    scaler = torch.amp.GradScaler("cuda")
    for batch in loader:
""" + "".join(
    f"        if flags.f{number}:\n            optimizer.zero_grad()\n"
    "            scaler.scale(model(batch).mean()).backward()\n"
    "            scaler.step(optimizer)\n            scaler.update()\n"
    for number in range(12)
)


def look(folder: Path, **files: str) -> FileView:
    """The view of `steps.py`, beside other files."""
    (folder / "pyproject.toml").write_text("")
    for name, text in {"steps": STEP, **files}.items():
        (folder / f"{name}.py").write_text(text)
    return view_of("steps.py", STEP, ast.parse(STEP), path=str(folder / "steps.py"))


def codes(view: FileView) -> list[str]:
    return [misuse.code for misuse in view.flow_misuses]


@pytest.mark.parametrize(("unscales", "expected"), [(True, []), (False, ["AMP110"])])
def test_callers_decide(tmp_path: Path, unscales: bool, expected: list[str]) -> None:
    assert codes(look(tmp_path, main=CALLER.format(unscales=unscales))) == expected


@pytest.mark.parametrize(("unscales", "expected"), [(True, []), (False, ["AMP110"])])
def test_half_an_answer_shows_what_it_holds(
    tmp_path: Path, unscales: bool, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller is cut before its end: what is found by then was seen in part, and no more is said."""
    view = look(tmp_path, main=CALLER.format(unscales=unscales))
    codes(view)
    monkeypatch.setattr(budget, "FILE_LIMIT", view.program.work.budget.spent - 1)
    cut = look(tmp_path, main=CALLER.format(unscales=unscales))
    assert codes(cut) == expected
    claims = [
        link.claim
        for found in cut.flow_misuses
        for link in found.links
        if link.standing is Standing.OPEN
    ]
    assert claims == ["was followed in part"] * len(expected)
    assert [name.rpartition("/")[2] for name in cut.unfinished] == ["main.py:train"]


@pytest.mark.parametrize(("right", "wrong"), ["ab", "ba"])
def test_one_caller_that_is_wrong_is_enough(tmp_path: Path, right: str, wrong: str) -> None:
    callers = {right: CALLER.format(unscales=True), wrong: CALLER.format(unscales=False)}
    assert codes(look(tmp_path, **callers)) == ["AMP110"]


def test_what_does_not_lead_to_the_function_is_not_followed(tmp_path: Path) -> None:
    caller = CALLER.format(unscales=True)
    alone = look(tmp_path, main=caller)
    codes(alone)
    beside = look(tmp_path, main=caller + APART)
    assert codes(beside) == []
    assert beside.program.work.budget.spent == alone.program.work.budget.spent
