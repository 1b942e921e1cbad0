"""What calls run, in small programs: Python runs each, and says which function it was.

Every program ends in `CALL`, one call whose function returns a word of its own. The table says
which words amplint's answer may stand for; Python's word has to be one of them.
"""

from __future__ import annotations

import ast
import textwrap

import pytest

from amplint.code.module import Function
from amplint.code.project import Project
from amplint.values.objects import Objects

PROGRAMS = {
    "overloads": """
        from typing import overload
        class Reader:
            @overload
            def read(self, x: int) -> str: ...
            @overload
            def read(self, x: str) -> str: ...
            def read(self, x):
                return "last"
        Reader().read(1)
    """,
    "method_defined_twice": """
        class Meter:
            def log(self):
                return "first"
            def log(self):
                return "second"
        Meter().log()
    """,
    "setter_is_no_second_definition": """
        class Gate:
            @property
            def open(self):
                return self.answer
            @open.setter
            def open(self, value):
                self.value = value
            def answer(self):
                return "answer"
        Gate().answer()
    """,
    "inherited": """
        class Base:
            def f(self):
                return "base"
        class Child(Base):
            pass
        Child().f()
    """,
    "overridden": """
        class Base:
            def f(self):
                return "base"
        class Child(Base):
            def f(self):
                return "child"
        Child().f()
    """,
    "generic_base": """
        from typing import Generic, TypeVar
        T = TypeVar("T")
        class Number(Generic[T]):
            def run(self):
                return self.to(1)
            def to(self, x):
                return "number"
            def name(self):
                return "name"
        class Whole(Number[int]):
            def to(self, x):
                return "whole"
        Whole().name()
    """,
    "called_object": """
        class Loss:
            def __call__(self):
                return "called"
        Loss()()
    """,
    "nested_shadows_global": """
        def f():
            return "outer"
        def g():
            def f():
                return "inner"
            return f()
        g()
    """,
}


def _answer(text: str) -> tuple[str, Function | None]:
    """The word that the last call returned, and the function that amplint names for it."""
    tree = ast.parse(text)
    call = tree.body[-1].value
    namespace: dict[str, object] = {}
    exec(compile(ast.Module(tree.body[:-1], []), "<program>", "exec"), namespace)  # noqa: S102
    word = eval(compile(ast.Expression(call), "<call>", "eval"), namespace)
    project = Project()
    module = project.add("program.py", text, tree, "")
    return word, Objects(project).callee(call, module.body)


def _words(function: Function) -> set[object]:
    """What a function returns as it is written, and what it calls in turn."""
    return {node.value for node in ast.walk(function.node) if isinstance(node, ast.Constant)}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_answer_is_what_python_runs(name: str) -> None:
    word, function = _answer(textwrap.dedent(PROGRAMS[name]))
    assert function is not None
    assert word in _words(function)


def test_a_property_stays_its_getter() -> None:
    text = textwrap.dedent(PROGRAMS["setter_is_no_second_definition"])
    module = Project().add("program.py", text, ast.parse(text), "")
    getter = module.classes["Gate"].methods["open"]
    assert [item.arg for item in getter.node.args.args] == ["self"]


@pytest.mark.parametrize(
    "text",
    [
        # Each ends in a call that runs the other function than the `def` in sight.
        "def f(): return 1\ng = f\nf = lambda: 2\nf()",
        "try:\n    from os import getcwd\nexcept ImportError:\n    def getcwd(): return 1\ngetcwd()",
        "def f(): return 1\nfor f in [lambda: 2]: pass\nf()",
    ],
)
def test_a_name_that_is_bound_otherwise_is_no_def(text: str) -> None:
    word, function = _answer(text)
    assert word != 1
    assert function is None or word in _words(function)


def test_an_heir_of_a_generic_class_overrides() -> None:
    text = textwrap.dedent(PROGRAMS["generic_base"])
    module = Project().add("program.py", text, ast.parse(text), "")
    number, whole = module.classes["Number"], module.classes["Whole"]
    inner = number.methods["run"]
    call = next(node for node in inner.nodes if isinstance(node, ast.Call))
    found = Objects(Project()).targets(call, inner)
    assert set(found.functions) >= {number.methods["to"], whole.methods["to"]}
