"""Findings on a path that only the meeting of several paths has made."""

from __future__ import annotations

from pathlib import Path

import pytest

from amplint.checker import check_paths
from amplint.config import Settings
from amplint.flow.feasibility import focused, is_focused
from amplint.flow.merging import merge
from amplint.flow.state import NO_GUARDS, State

PROGRAM = """\
import torch


def divide(scaler, optimizer):
    if hasattr(optimizer, "first") and hasattr(optimizer, "second"):
        scaler.unscale_(optimizer.first)
        scaler.unscale_(optimizer.second)
    else:
        scaler.unscale_(optimizer)


def apply(scaler, optimizer, options):
    if {test}:
        scaler.step(optimizer.first)
        scaler.step(optimizer.second)
    else:
        scaler.step(optimizer)
    scaler.update()


def epoch(model, batches, optimizer, scaler, options):
{flags}    for index, inputs in enumerate(batches):
        now = (index + 1) % options.accumulate == 0
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(inputs).mean()
{parts}        if scaler is not None:
            scaler.scale(loss).backward()
        else:
            loss.backward()
        if now:
            if scaler is not None:
                divide(scaler, optimizer)
            if options.clip is not None and options.clip > 0:
                torch.nn.utils.clip_grad_norm_(model.parameters(), options.clip)
            if scaler is not None:
                apply(scaler, optimizer, options)
            else:
                optimizer.step()
            optimizer.zero_grad()
"""
SAME = 'hasattr(optimizer, "first") and hasattr(optimizer, "second")'
FLAG = "    flag{0} = options.kind{0} is not None and options.weight{0} > 0\n"
PART = "        if flag{0}:\n            loss = loss + model.part{0}(inputs)\n"


def _program(test: str, number: int) -> str:
    """A program with so many tests that have nothing to do with its optimizers."""
    flags = "".join(FLAG.format(index) for index in range(number))
    parts = "".join(PART.format(index) for index in range(number))
    return PROGRAM.format(test=test, flags=flags, parts=parts)


@pytest.mark.parametrize("number", (0, 3, 8))
@pytest.mark.parametrize(("test", "expected"), ((SAME, set()), ("options.split", {"AMP117"})))
def test_what_two_functions_ask_alike(
    test: str, expected: set[str], number: int, tmp_path: Path
) -> None:
    path = tmp_path / "loop.py"
    path.write_text(_program(test, number), "utf-8")
    report = check_paths([str(path)], Settings(jobs=1, cache=False, respect_gitignore=False))
    assert {item.code for item in report.findings if item.code == "AMP117"} == expected


ATOM = ("true", "options.split")


def _apart(truths: tuple[bool, bool]) -> list[State]:
    return [State(facts={ATOM: truth, ("true", "options.log"): truth}) for truth in truths]


def test_paths_that_differ_in_what_a_run_is_about_stay_apart() -> None:
    assert len(merge(_apart((True, False)), NO_GUARDS)) == 1
    kept = merge(focused(_apart((True, False)), frozenset({ATOM})), NO_GUARDS)
    assert sorted(state.facts[ATOM] for state in kept) == [False, True]
    assert is_focused(kept)
    assert not is_focused(_apart((True, False)))


def test_paths_that_agree_about_it_meet() -> None:
    states = focused(_apart((True, True)), frozenset({ATOM}))
    states[1].facts["true", "options.log"] = False
    (met,) = merge(states, NO_GUARDS)
    assert met.facts == {ATOM: True}
