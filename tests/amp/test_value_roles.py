"""What a value is for the protocol, by where it was made: Python runs each program.

A program asks about one value with `ask(...)`. Where amplint says that it knows what the value is,
every value that Python meets there has to be that, whatever its names say.
"""

from __future__ import annotations

import ast

import pytest
import torch

from amplint.amp.roles import Role
from amplint.amp.value_roles import ValueRoles
from amplint.code.project import Project
from amplint.values.objects import Objects

HEAD = """
from copy import deepcopy

import torch
from torch.amp import GradScaler
from torch.optim import SGD

weights = [torch.nn.Parameter(torch.zeros(2))]

class MinMax:
    def scale(self, rows):
        return rows

class Careful(SGD):
    pass

def built():
    return SGD(weights, lr=0.1)

def several():
    return SGD(weights, lr=0.1), GradScaler("cpu"), MinMax()

"""
SCALER, OPTIMIZER, OTHER = Role.SCALER, Role.OPTIMIZER, Role.OTHER
PROGRAMS = {
    "by_caller": (SCALER, "def f(tool):\n    ask(tool)\nf(GradScaler('cpu'))"),
    "by_keyword": (OPTIMIZER, "def f(a, *, b):\n    ask(b)\nf(1, b=SGD(weights, lr=0.1))"),
    "by_caller_of_caller": (
        SCALER,
        "def inner(x):\n    ask(x)\ndef outer(y):\n    inner(y)\nouter(GradScaler('cpu'))",
    ),
    "by_two_callers": (
        OPTIMIZER,
        "def f(it):\n    ask(it)\nf(built())\nf(Careful(weights, lr=0.1))",
    ),
    "data_scaler": (OTHER, "def f(scaler):\n    ask(scaler)\nf(MinMax())"),
    "data_scaler_of_tuple": (OTHER, "_, _, scaler = several()\nask(scaler)"),
    "optimizer_called_scaler": (OPTIMIZER, "def f(scaler):\n    ask(scaler)\nf(built())"),
    "by_attribute": (
        OPTIMIZER,
        (
            "class Ramp:\n    def __init__(self, held):\n        self.held = held\n"
            "    def go(self):\n        ask(self.held)\nRamp(built()).go()"
        ),
    ),
    "by_attribute_from_outside": (
        SCALER,
        "class Run:\n    pass\nrun = Run()\nrun.tool = GradScaler('cpu')\nask(run.tool)",
    ),
    "first_of_tuple": (OPTIMIZER, "a, b, c = several()\nask(a)"),
    "second_of_tuple": (SCALER, "a, b, c = several()\nask(b)"),
    "subclass": (OPTIMIZER, "it = Careful(weights, lr=0.1)\nask(it)"),
    "none_or_scaler": (SCALER, "it = None\nif weights:\n    it = GradScaler('cpu')\nask(it)"),
    "made_of_itself": (
        OPTIMIZER,
        "it = built()\nfor _ in range(2):\n    it = it or built()\n    ask(it)",
    ),
    "parameter_made_of_itself": (
        SCALER,
        "def f(it=None):\n    it = it or GradScaler('cpu')\n    ask(it)\nf()\nf(GradScaler('cpu'))",
    ),
    "attribute_made_of_itself": (
        OPTIMIZER,
        (
            "class Run:\n    def __init__(self):\n        self.it = None\n"
            "    def go(self):\n        self.it = self.it or built()\n        ask(self.it)\n"
            "run = Run()\nrun.go()\nrun.go()"
        ),
    ),
    "attribute_wrapped_again": (
        OPTIMIZER,
        (
            "class Run:\n    def __init__(self, it):\n        self.it = it\n"
            "    def go(self):\n        self.it = deepcopy(self.it)\n        ask(self.it)\n"
            "Run(built()).go()"
        ),
    ),
    "passed_on_to_itself": (
        OPTIMIZER,
        ("def f(it, n):\n    ask(it)\n    if n:\n        f(deepcopy(it), n - 1)\nf(built(), 2)"),
    ),
    "number": (OTHER, "def f(scaler):\n    ask(scaler)\nf(2.0)"),
    "unknown_parameter": (None, "def f(scaler):\n    ask(scaler)\nglobals()['f'](MinMax())"),
    "unknown_call": (None, "def f(scaler):\n    ask(scaler)\nf(eval('MinMax()'))"),
    "model_made_of_itself": (
        None,
        "net = torch.nn.Linear(1, 1)\nfor _ in range(2):\n    net = net.half()\n    ask(net)",
    ),
    "two_made_of_each_other": (
        None,
        "a = b = eval('MinMax()')\nfor _ in range(3):\n    a = b or a\n    b = a or b\n    ask(a)",
    ),
}


def role_when_run(program: str) -> Role:
    """What all values are that a program asks about, when Python runs it."""
    seen: set[Role] = set()

    def ask(value: object) -> None:
        if isinstance(value, torch.amp.GradScaler):
            seen.add(SCALER)
        else:
            seen.add(OPTIMIZER if isinstance(value, torch.optim.Optimizer) else OTHER)

    exec(compile(HEAD + program, "main.py", "exec"), {"ask": ask, "__name__": "m"})  # noqa: S102
    (role,) = seen
    return role


def answer(program: str) -> Role | None:
    source = HEAD + program
    project = Project()
    module = project.add("main.py", source, ast.parse(source), "main.py")
    (site,) = (site for site in module.calls if site.method == "ask")
    return ValueRoles(Objects(project)).role_of(site.node.args[0], site.function)


@pytest.mark.parametrize("name", PROGRAMS)
def test_role(name: str) -> None:
    expected, program = PROGRAMS[name]
    assert expected in (None, role_when_run(program))
    assert answer(program) == expected


def test_many_ways_to_one_value_cost_no_more_than_its_places(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rungs = 14
    steps = [f"t{n + 1} = deepcopy(t{n}) if weights else t{n}.to('cpu')" for n in range(rungs)]
    source = HEAD + "\n".join(["t0 = built()", *steps, f"ask(t{rungs})"])
    project = Project()
    module = project.add("main.py", source, ast.parse(source), "main.py")
    site = next(site for site in module.calls if site.method == "ask")
    objects = Objects(project)
    asked: list[ast.expr] = []
    find = objects.origins.of

    def count(expression: ast.expr, *where: object) -> object:
        asked.append(expression)
        return find(expression, *where)  # type: ignore[arg-type]

    monkeypatch.setattr(objects.origins, "of", count)
    assert ValueRoles(objects).role_of(site.node.args[0], site.function) is OPTIMIZER
    assert len(asked) < 20 * rungs
