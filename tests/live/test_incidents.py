"""The recorded incidents under a run: what broke is told at its marked line, and nothing after it."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch

import amplint
from amplint.runtime.hooks import Hooks, Switch
from amplint.runtime.observer import Observer
from amplint.runtime.places import Territory
from tests.incidents.projects import INCIDENTS, open_project
from tests.incidents.test_incidents_run import rows_marked
from tests.live.fixture_runs import Told

#: Incident, arguments of its `main`, file, and the marked codes with the place among their rows.
#: The fifth is about gradients of modules and dtypes, of which a run sees no event.
CASES = [
    ("0_leftover_flush", (64,), "trainer.py", {("AMP103", 0)}),
    ("0_leftover_flush", (72,), "trainer.py", {("AMP103", 1)}),
    ("1_flush_guard", (), "trainer.py", {("AMP201", 0)}),
    ("2_flush_method", (), "trainer.py", {("AMP201", 0)}),
    ("3_nan_gradients", (), "methods/trainer.py", {("AMP110", 0), ("AMP102", 0)}),
]


def told(folder: Any, arguments: tuple[Any, ...]) -> set[int]:
    """The rows of all findings of a run, which may end in torch's exception."""
    seen, defects = Told(), []
    nobody = (os.path.dirname(torch.__file__), os.path.dirname(str(amplint.__file__)))
    observer = Observer(seen, Territory(nobody, (str(INCIDENTS),)))
    hooks = Hooks(observer, Switch(defects.append))
    try:
        with open_project(folder) as project:
            project.run(*arguments)
    except (AssertionError, RuntimeError):
        pass
    finally:
        hooks.undo()
    assert defects == []
    return {row for (_, (_, row)) in seen.findings}


@pytest.mark.parametrize(("name", "arguments", "file", "marks"), CASES)
def test_before_the_repair(name: str, arguments: tuple, file: str, marks: set) -> None:
    rows = {rows_marked(INCIDENTS / name / "before" / file, code)[place] for code, place in marks}
    assert rows <= told(INCIDENTS / name / "before", arguments)


@pytest.mark.parametrize(
    ("name", "arguments"), [case[:2] for case in CASES] + [("4_prompt_policy", ())]
)
def test_after_the_repair(name: str, arguments: tuple) -> None:
    assert told(INCIDENTS / name / "after", arguments) == set()
