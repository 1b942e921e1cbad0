"""Inputs in words."""

from __future__ import annotations

import pytest

from amplint.probe.domains import Option
from amplint.probe.inputs import Need, against_data, describe, is_about, is_surroundings, root_of
from amplint.probe.messages import Decision

OPTIONS = {
    "amp": Option("--amp", (False, True)),
    "steps": Option("--accumulation-steps", (1,)),
}


@pytest.mark.parametrize(
    ("decision", "holding", "words"),
    [
        (Decision("args.amp", (False, True), True), (True,), "--amp"),
        (Decision("args.amp", (False, True), False), (False,), "no --amp"),
        (
            Decision("args.steps", (1, 2, 3), 2),
            (2, 3),
            "--accumulation-steps >= 2 (default 1)",
        ),
        (Decision("steps", (1, 2, 3), 2), (2,), "`steps` = 2"),
        (
            Decision("cfg.clip", (1.0, 0.0), 1.0, 3, "default"),
            (1.0,),
            "`cfg.clip` = 1.0 (its default)",
        ),
        (
            Decision("cfg.clip", (1.0, 0.0), 0.0, 3, "default"),
            (0.0,),
            "`cfg.clip` = 0.0 (default 1.0)",
        ),
        (Decision("len(loader)", (4, 3, 1), 3), (3,), "3 batches"),
        (Decision("len(loader)", (4, 3, 1, 2), 4), (4, 3, 2), "at least 2 batches"),
        (Decision("len(loader)", (4, 3, 1, 2), 4), (4, 2), "4 batches"),
        (Decision("len(loader)", (4, 3, 1), 1), (1,), "1 batch"),
        (Decision("scaler is None", (False, True), True), (True,), "`scaler` = None"),
        (
            Decision("data@195", (False, True), True, 195),
            (True,),
            "data for which the test in line 195 is true",
        ),
        (
            Decision("nan in forward 2", (False, True), True),
            (True,),
            "a NaN in the output of forward 2",
        ),
    ],
)
def test_describe(decision: Decision, holding: tuple[object, ...], words: str) -> None:
    assert describe(Need(decision, holding), OPTIONS) == words


@pytest.mark.parametrize(
    ("path", "root", "surroundings"),
    [
        ("args.amp", "args", False),
        ("scaler is None", "scaler", False),
        ("hasattr(args, 'amp')", "args", False),
        ("isinstance(model, DDP)", "model", False),
        ("scalers['G'].enabled", "scalers", False),
        ("len(loader)", "loader", True),
        ("nan in forward 1", "nan", True),
        ("data@12", "data", True),
        ("os.path.exists@4", "os", True),
    ],
)
def test_roots(path: str, root: str, surroundings: bool) -> None:
    assert root_of(path) == root
    assert is_surroundings(path) == surroundings


def test_against_data() -> None:
    assert against_data(Decision("data@12", (True, False), True)) == 0
    assert against_data(Decision("data@12", (True, False), False)) == 12
    assert against_data(Decision("args.amp", (True, False), False)) == 0


@pytest.mark.parametrize(
    ("path", "name", "about"),
    [
        ("width", "width", True),
        ("len(width.parts)", "width", True),
        ("self.width is None", "self.width", True),
        ("widths", "width", False),
        ("self.width", "width", False),
    ],
)
def test_is_about(path: str, name: str, about: bool) -> None:
    assert is_about(path, name) == about
