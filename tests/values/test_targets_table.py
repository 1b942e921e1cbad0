"""What calls run, in small programs: Python runs each, and says which function it was.

Every program ends in `CALL`, one call whose function returns a word of its own. The table says
which words amplint's answer may stand for; Python's word has to be one of them.
"""

from __future__ import annotations

import ast
import sys
import textwrap
from types import FrameType

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


#: Each ends in a call; Python says which functions of the program run anywhere below it.
TRACED = {
    "heir_in_a_function": """
        class Base:
            def run(self):
                return self.work()
            def work(self):
                return 0
        def test():
            class Child(Base):
                def work(self):
                    return 1
            return Child().run()
        test()
    """,
    "super_of_another_class": """
        class A:
            def __init__(self):
                self.a = 1
        class B(A):
            def __init__(self):
                super().__init__()
        class C(B):
            def __init__(self):
                super(B, self).__init__()
        C()
    """,
    "attribute_hides_method": """
        class Cache:
            def __init__(self):
                self.get = self.fast
            def get(self):
                return 0
            def fast(self):
                return 1
            def go(self):
                return self.get()
        Cache().go()
    """,
    "attribute_replaced_from_outside": """
        class Cache:
            def get(self):
                return 0
            def go(self):
                return self.get()
        def fast():
            return 1
        def main():
            cache = Cache()
            cache.get = fast
            return cache.go()
        main()
    """,
    "class_attribute_stored_later": """
        class Factory:
            kind = None
            def build(self):
                return self.kind()
        class Thing:
            def __init__(self):
                self.x = 1
        Factory.kind = Thing
        Factory().build()
    """,
    "new_and_init": """
        class Meta(type):
            def __call__(cls):
                return type.__call__(cls)
        class Thing(metaclass=Meta):
            def __new__(cls):
                return object.__new__(cls)
            def __init__(self):
                self.x = 1
        Thing()
    """,
    "class_method_makes_heirs": """
        class Base:
            @classmethod
            def build(cls):
                return cls()
            def __init__(self):
                self.x = 1
        class Child(Base):
            def __init__(self):
                self.x = 2
        Child.build()
    """,
    "made_by_new": """
        class Thing:
            @classmethod
            def build(cls):
                made = object.__new__(cls)
                return made
            def f(self):
                return 1
        def main():
            return Thing.build().f()
        main()
    """,
    "either_definition": """
        import sys
        if sys.platform == "nowhere":
            def f():
                return 1
        else:
            def f():
                return 2
        f()
    """,
    "function_that_is_a_value": """
        def apply(step):
            return step()
        def one():
            return 1
        def two():
            return 2
        def main():
            apply(one)
            return [f(two) for f in [apply]]
        main()
    """,
}


@pytest.mark.parametrize("name", TRACED)
def test_what_ran_is_in_the_answer_or_the_answer_is_open(name: str) -> None:
    text = textwrap.dedent(TRACED[name])
    project = Project()
    module = project.add("program.py", text, ast.parse(text), "")
    objects = Objects(project)
    judged = 0
    for line, ran in _ran(text).items():
        sites = [site for site in module.calls if site.node.lineno == line]
        answers = [objects.targets(site.node, site.function) for site in sites]
        known = {item.node.lineno for answer in answers for item in answer.functions}
        judged += 1
        assert ran <= known or any(answer.unknown for answer in answers), (line, ran, known)
    assert judged


#: Programs whose innermost call is only said to be open.
OPEN = {"function_that_is_a_value", "attribute_replaced_from_outside", "new_and_init"}


@pytest.mark.parametrize("name", sorted(TRACED.keys() - OPEN))
def test_what_the_innermost_call_ran_is_known(name: str) -> None:
    text = textwrap.dedent(TRACED[name])
    module = (project := Project()).add("program.py", text, ast.parse(text), "")
    objects = Objects(project)
    line, ran = list(_ran(text).items())[-1]
    sites = [site for site in module.calls if site.node.lineno == line]
    answers = [objects.targets(site.node, site.function) for site in sites]
    known = {item.node.lineno for answer in answers for item in answer.functions}
    assert ran <= known


def _ran(text: str) -> dict[int, set[int]]:
    """By the line of a call, the first lines of the functions that it ran, as Python says."""
    ran: dict[int, set[int]] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        caller = frame.f_back
        inside = caller is not None and caller.f_code.co_filename == "<traced>"
        if event != "call" or not inside or frame.f_code.co_filename != "<traced>":
            return
        code = frame.f_code
        if not code.co_name.startswith("<") and code.co_firstlineno not in classes:
            first = lines[code.co_firstlineno - 1].strip().startswith("@")
            ran.setdefault(caller.f_lineno, set()).add(code.co_firstlineno + first)

    lines = text.splitlines()
    tree = ast.parse(text)
    classes = {node.lineno for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    code = compile(text, "<traced>", "exec")
    sys.setprofile(note)
    try:
        exec(code, {"__name__": "traced"})  # noqa: S102
    finally:
        sys.setprofile(None)
    return ran
