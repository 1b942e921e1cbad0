"""How it is known what an expression is, program by program."""

from __future__ import annotations

import ast

import pytest

from amplint.amp.roles import Role
from amplint.amp.value_roles import ValueRoles
from amplint.code.project import Project
from amplint.findings import Standing
from amplint.values.objects import Objects

HEAD = "import torch\nfrom torch.amp import GradScaler\nfrom torch.optim import SGD\n"
SCALER, OPTIMIZER = Role.SCALER, Role.OPTIMIZER
CODE, USE, GUESS = Standing.CODE, Standing.USE, Standing.GUESS
#: name -> (role, standing, program); the program holds `ask(it)` about the value in question.
PROGRAMS = {
    "built_here": (SCALER, CODE, "it = GradScaler()\nask(it)"),
    "built_on_one_path": (SCALER, CODE, "it = GradScaler() if fast else None\nask(it)"),
    "in_an_attribute": (
        SCALER,
        CODE,
        (
            "class A:\n  def __init__(self):\n    self.it = GradScaler()\n"
            "  def go(self):\n    ask(self.it)"
        ),
    ),
    "passed_by_a_caller": (SCALER, CODE, "def f(it):\n  ask(it)\nf(GradScaler())"),
    "made_by_a_factory": (
        OPTIMIZER,
        CODE,
        "def make():\n  return SGD(p, lr=1)\nit = make()\nask(it)",
    ),
    "an_annotation_alone": (SCALER, GUESS, "def f(it: GradScaler):\n  ask(it)\n  it.update()"),
    "a_name_alone": (SCALER, GUESS, "def f(scaler):\n  ask(scaler)"),
    "one_method_of_a_scaler": (SCALER, GUESS, "def f(it, x):\n  ask(it)\n  it.step(x)"),
    "two_methods_of_a_scaler": (
        SCALER,
        USE,
        "def f(it, x):\n  ask(it)\n  it.step(x)\n  it.update()",
    ),
    "a_method_that_no_scaler_has": (
        SCALER,
        GUESS,
        "def f(it, x):\n  ask(it)\n  it.scale_loss(x).backward()\n  it.step(x)\n  it.update()",
    ),
    "whatever_else_a_scaler_has": (
        SCALER,
        USE,
        "def f(it, x):\n  ask(it)\n  it.get_scale()\n  it.step(x)\n  it.update()",
    ),
    "the_same_method_twice": (
        SCALER,
        GUESS,
        "def f(it, x):\n  ask(it)\n  it.step(x)\n  it.step(x)",
    ),
    "two_methods_in_two_functions": (
        SCALER,
        GUESS,
        "def f(it, x):\n  ask(it)\n  it.step(x)\ndef g(it):\n  it.update()",
    ),
    "two_methods_in_two_methods": (
        SCALER,
        USE,
        (
            "class A:\n  def f(self, x):\n    ask(self.it)\n    self.it.step(x)\n"
            "  def g(self):\n    self.it.update()"
        ),
    ),
    "scaled_backward": (SCALER, USE, "def f(it, x):\n  ask(it)\n  it.scale(x).backward()"),
    "stepped_by_a_scaler": (
        OPTIMIZER,
        USE,
        "def f(s, it, x):\n  s.scale(x).backward()\n  s.step(it)\n  ask(it)",
    ),
    "stepped_by_anything": (OPTIMIZER, GUESS, "def f(env, it):\n  env.step(it)\n  ask(it)"),
    "methods_of_an_optimizer": (
        OPTIMIZER,
        USE,
        "def f(it):\n  it.zero_grad()\n  it.step()\n  ask(it)",
    ),
    "a_schedulers_step": (OPTIMIZER, GUESS, "def f(it):\n  it.step()\n  ask(it)"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_standing(name: str) -> None:
    role, expected, program = PROGRAMS[name]
    source = HEAD + program
    project = Project()
    module = project.add("main.py", source, ast.parse(source), "")
    (site,) = [site for site in module.calls if site.method == "ask"]
    roles = ValueRoles(Objects(project)).of(module)
    assert roles.standing_of(site.node.args[0], site.function, role) is expected
