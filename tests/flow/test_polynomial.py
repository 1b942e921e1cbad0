"""The cost of a function grows with its length, not with the number of its paths.

Counted in statement visits, which do not depend on the machine; benchmarks/check.py takes
the time of the same shapes.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest

from amplint.flow import budget
from amplint.flow.budget import BudgetExceeded
from amplint.flow.interpreter import BESIDE_LIMIT, VISIT_LIMIT, Interpreter
from amplint.flow.state import State
from amplint.view import view_of

SHAPES_FILE = Path(__file__).parents[2] / "benchmarks" / "shapes.py"


def _shapes() -> dict[str, Callable[[int], str]]:
    spec = importlib.util.spec_from_file_location("benchmark_shapes", SHAPES_FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.SHAPES


SHAPES = _shapes()
#: Followed to their end. Twenty flags that are stored first and tested later are not: their
#: values are told apart until there are too many of them, and the budget ends the rest.
FOLLOWED = sorted(SHAPES.keys() - {"independent"})


@pytest.fixture
def visits(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], tuple[int, list[str]]]:
    """Count the visits of an analysis: (visits of its largest entry, codes found)."""
    started: list[Interpreter] = []
    run = Interpreter.run

    def recording(self: Interpreter, *arguments):
        started.append(self)
        return run(self, *arguments)

    monkeypatch.setattr(Interpreter, "run", recording)

    def count(source: str) -> tuple[int, list[str]]:
        started.clear()
        misuses = view_of("train.py", source, ast.parse(source)).flow_misuses
        return max(item.visits for item in started), [misuse.code for misuse in misuses]

    return count


@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_twice_the_tests_cost_at_most_four_times_as_much(shape: str, visits) -> None:
    short, _ = visits(SHAPES[shape](20))
    long, _ = visits(SHAPES[shape](40))
    assert 20 < short < long <= 4 * short


@pytest.mark.parametrize("shape", FOLLOWED)
def test_no_limit_is_hit(shape: str, visits) -> None:
    most, found = visits(SHAPES[shape](40))
    assert most <= VISIT_LIMIT
    assert found == []


@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_a_mistake_behind_many_tests_is_found(shape: str, visits) -> None:
    source = SHAPES[shape](40).replace("scaler.update()", "pass")
    assert "AMP105" in visits(source)[1]


def test_what_was_found_before_the_limit_stands(visits, monkeypatch: pytest.MonkeyPatch) -> None:
    """The budget ends the analysis of an entry; it neither fails nor takes back a finding."""
    exceeded: list[int] = []

    def count(self: Interpreter, states: list[State]) -> None:
        self.visits += len(states)
        if self.visits > 400:
            exceeded.append(self.visits)
            raise BudgetExceeded

    monkeypatch.setattr(Interpreter, "_count", count)
    source = (
        "import torch\n"
        "def train(model, optimizer, loader):\n"
        "    scaler = torch.amp.GradScaler('cuda')\n"
        "    for batch in loader:\n"
        "        loss = model(batch)\n"
        "        scaler.scale(loss).backward()\n"
        "        scaler.step(optimizer)\n"
        "        scaler.step(optimizer)\n"
        "        scaler.update()\n" + "        optimizer.zero_grad()\n" * 500
    )
    _, found = visits(source)
    assert exceeded
    assert found == ["AMP104"]


#: A data set whose constructor is too large to be followed for what it stores.
DATA_SET = (
    "import torch\n"
    "class Images:\n"
    "    def __init__(self, options):\n"
    + "".join(
        f"        self.flag{number} = False\n"
        f"        if options.flag{number}:\n"
        f"            self.flag{number} = True\n"
        for number in range(20)
    )
    + "        self.flag0 = self.flag1\n" * 3_500
    + "        options.twice = True\n"
)
TRAIN = (
    "def train(model, loader, options):\n"
    "    options.twice = False\n"
    "    data = Images(options)\n"
    "    held_out = Images(options)\n"
    + "".join(f"    if data.flag{number}:\n        print({number})\n" for number in range(20))
    + "    optimizer = torch.optim.SGD(model.parameters())\n"
    "    scaler = torch.amp.GradScaler('cuda')\n"
    "    for batch in loader:\n"
    "        optimizer.zero_grad()\n"
    "        scaler.scale(model(batch)).backward()\n"
    "        scaler.step(optimizer)\n"
    "        if options.twice:\n"
    "            scaler.step(optimizer)\n"
    "        scaler.update()\n"
)


FUNCTION = """def fit_{number}(model, optimizer, loader, scaler):
    for batch in loader:
        scaler.scale(model(batch)).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
"""


def test_all_functions_of_a_file_share_one_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every function alone is small; together they are more than a file may cost."""
    functions = [FUNCTION.format(number=number) for number in range(4)]
    source = "\n".join(functions)
    view = view_of("train.py", source, ast.parse(source))
    assert view.flow_misuses == ()
    assert view.unfinished == ()
    monkeypatch.setattr(budget, "FILE_LIMIT", view.program.work.budget.spent // 2)
    view = view_of("train.py", source, ast.parse(source))
    assert view.flow_misuses == ()
    assert view.unfinished == ("fit_2", "fit_3")


def test_a_large_data_set_leaves_enough_for_the_training(visits) -> None:
    most, found = visits(DATA_SET + TRAIN.replace("if options.twice", "if True"))
    assert BESIDE_LIMIT < most < VISIT_LIMIT
    assert found == ["AMP104"]


def test_what_a_large_data_set_may_have_stored_is_forgotten(visits) -> None:
    assert visits(DATA_SET + TRAIN)[1] == ["AMP104"]
    assert visits(TRAIN)[1] == []


def test_a_large_data_set_is_begun_by_one_entry_of_a_file() -> None:
    program = DATA_SET + TRAIN.replace("if options.twice", "if True")
    spent = []
    for source in (program, program + TRAIN.replace("def train", "def fit")):
        view = view_of("train.py", source, ast.parse(source))
        assert {misuse.code for misuse in view.flow_misuses} == {"AMP104"}
        spent.append(view.program.work.budget.spent)
    assert BESIDE_LIMIT < spent[0] < spent[1] < spent[0] + BESIDE_LIMIT // 2
