"""The order of bases: `type.__mro__` of the same statements is the judge."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amplint.code.classes import Ancestries, Ancestry, method_of
from amplint.code.module import Class, build_module


def ancestry_in(source: str, name: str) -> Ancestry:
    module = build_module("code.py", source, ast.parse(source))

    def resolve(base: ast.expr, owner: Class) -> Class | None:
        return module.classes.get(base.id) if isinstance(base, ast.Name) else None

    return Ancestries(resolve).of(module.classes[name])


def names(found: Ancestry) -> list[str]:
    return [item.name for item in found.order]


@st.composite
def hierarchies(draw: st.DrawFn) -> list[tuple[str, list[str]]]:
    """Classes, each with bases among the earlier ones, in any order."""
    found: list[tuple[str, list[str]]] = []
    for index in range(draw(st.integers(1, 7))):
        earlier = [name for name, _ in found]
        bases = draw(st.lists(st.sampled_from(earlier), unique=True, max_size=3)) if earlier else []
        found.append((f"C{index}", bases))
    return found


@settings(max_examples=400, deadline=None)
@given(hierarchies())
def test_python_agrees(hierarchy: list[tuple[str, list[str]]]) -> None:
    made: dict[str, type] = {}
    refused: set[str] = set()
    source = ""
    for name, bases in hierarchy:
        source += f"class {name}({', '.join(bases)}): pass\n"
        if refused.intersection(bases):
            refused.add(name)
            continue
        try:
            made[name] = type(name, tuple(made[base] for base in bases), {})
        except TypeError:
            refused.add(name)
    for name, _ in hierarchy:
        found = ancestry_in(source, name)
        assert found.consistent == (name not in refused)
        assert not found.unknown
        if name in made:
            assert names(found) == [item.__name__ for item in made[name].__mro__[:-1]]


@pytest.mark.parametrize(
    ("source", "order", "unknown"),
    [
        ("class A(object): pass\nclass B(A): pass\n", ["B", "A"], []),
        ("class A(nn.Module): pass\nclass B(A): pass\n", ["B", "A"], ["nn.Module"]),
        ("class B(B): pass\n", ["B"], ["B"]),
        ("class A(B): pass\nclass B(A): pass\n", ["B", "A"], ["B"]),
        ("class A(Mixin, Base): pass\nclass B(A, Base): pass\n", ["B", "A"], None),
        ("class B(make('Net')): pass\n", ["B"], ["make('Net')"]),
    ],
)
def test_bases_that_are_not_in_sight(
    source: str, order: list[str], unknown: list[str] | None
) -> None:
    found = ancestry_in(source, "B")
    assert names(found) == order
    said = [ast.unparse(item) for item in found.unknown]
    assert said == (["Base", "Mixin", "Base"] if unknown is None else unknown)


def test_a_refused_class_still_has_bases() -> None:
    """Python raises TypeError here; the nearest base is asked first."""
    source = "class A: pass\nclass B(A): pass\nclass C(A, B): pass\n"
    found = ancestry_in(source, "C")
    assert (names(found), found.consistent) == (["C", "A", "B"], False)


def test_a_method_comes_from_the_diamond_as_python_takes_it() -> None:
    """The shared base is asked last, although it is the first base of the first base."""
    source = (
        "class Base:\n    def run(self): pass\n"
        "class Left(Base): pass\n"
        "class Right(Base):\n    def run(self): pass\n"
        "class Both(Left, Right): pass\n"
    )
    space: dict[str, type] = {}
    exec(source, space)  # noqa: S102 - the text above
    method = method_of(ancestry_in(source, "Both").order, "run")
    assert method is not None
    assert method.qualname == space["Both"].run.__qualname__  # type: ignore[attr-defined]
