"""What is asked first changes no answer: each question, in the order of the text and the other way round."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from amplint.code.module import Function, Module
from amplint.code.project import Project
from amplint.values.objects import Objects
from amplint.values.values import Values

FIXTURES = Path(__file__).parents[2] / "fixtures"
#: Functions that need each other's callers, parameters and results.
CIRCLES = {
    "objects that hand each other on": """
class Stage:
    def __init__(self, options, after=None):
        self.options = options
        self.after = after

    def run(self, value):
        scaled = self.step(value, self.options.scale)
        return self.after.run(scaled) if self.after else scaled

    def step(self, value, scale):
        return value * scale

class Last(Stage):
    def step(self, value, scale):
        return self.run(value) if scale else value

class Options:
    scale = 2

def build(options, count):
    inner = build(options, count - 1) if count else None
    return Last(options, inner) if count == 1 else Stage(options, inner)

def main(value):
    stage = build(Options(), 3)
    return stage.run(value)
""",
    "functions that call what they are given": """
def call(function, *rest):
    return function(*rest)

def outer(step, value=1):
    return call(step, inner, value)

def inner(step, value):
    return call(outer, step, value) if value else None

def twice(step, value):
    return step(outer, value) or step(inner, value)

outer(twice)
inner(outer, 2)
""",
}
PROGRAMS = {
    **CIRCLES,
    **{
        f"{path.parent.name}/{path.name}": path.read_text(encoding="utf-8")
        for code in ("AMP112", "AMP206", "AMP402")
        for path in sorted((FIXTURES / code).glob("*.py"))
    },
}

Question = tuple[str, ast.expr | None, Function]


def questions(module: Module) -> Iterator[Question]:
    for site in module.calls:
        yield "targets", site.node, site.function
        if isinstance(site.node.func, ast.Attribute):
            yield "kinds", site.node.func.value, site.function
        for argument in site.node.args:
            yield "values", argument, site.function
            yield "kinds", argument, site.function
    for function in module.functions:
        yield "callers", None, function


def answer(question: Question, objects: Objects, values: Values) -> object:
    kind, node, function = question
    if kind == "callers":
        known = [site.node.lineno for site in objects.calls_of(function)]
        return known, objects.may_have_other_callers(function)
    assert node is not None
    if kind == "values":
        found = values.of(node, function)
        said = sorted(repr((value.content, value.firmness)) for value in found.values)
        return said, found.complete
    if kind == "targets":
        assert isinstance(node, ast.Call)
        targets = objects.targets(node, function)
        return sorted(item.label for item in targets.functions), targets.unknown
    kinds = objects.kinds(node, function)
    return sorted(map(repr, map(type, kinds.known))), kinds.unknown


@pytest.mark.parametrize("text", PROGRAMS.values(), ids=PROGRAMS)
def test_the_order_of_questions_changes_no_answer(text: str) -> None:
    project = Project()
    module = project.add("program.py", text, ast.parse(text), "")
    asked = list(questions(module))
    objects = Objects(project)
    values = Values(objects)
    forwards = [answer(item, objects, values) for item in asked]
    objects = Objects(project)
    values = Values(objects)
    backwards = [answer(item, objects, values) for item in reversed(asked)]
    assert forwards == backwards[::-1]
    assert forwards
