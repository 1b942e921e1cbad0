"""Which argument fills which parameter: Python's own calls, and `inspect`, are the judges."""

from __future__ import annotations

import ast
import functools
import inspect
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amplint.code.arguments import Bound, Kind, bind, parameters, passed
from amplint.code.module import Function, build_module

NAMES = ("a", "b", "c", "d", "e")


@dataclass(frozen=True)
class Program:
    """A definition, and a call whose stars have known contents."""

    definition: str
    call: str
    stars: dict[str, tuple[int, ...]]
    spreads: dict[str, dict[str, int]]


def function_of(source: str, qualname: str) -> Function:
    module = build_module("code.py", source, ast.parse(source))
    return next(item for item in module.functions if item.qualname == qualname)


def call_of(text: str) -> ast.Call:
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call)
    return call


@st.composite
def signatures(draw: st.DrawFn) -> str:
    names = list(draw(st.permutations(NAMES)))[: draw(st.integers(0, 5))]
    only, plain = draw(st.integers(0, 2)), draw(st.integers(0, 3))
    positional, keyword = names[: only + plain], names[only + plain :]
    required = draw(st.integers(0, len(positional)))
    parts = [
        name if index < required else f"{name}={100 + index}"
        for index, name in enumerate(positional)
    ]
    if 0 < only <= len(positional):
        parts.insert(only, "/")
    rest = draw(st.booleans())
    if rest or keyword:
        parts.append("*rest" if rest else "*")
    parts += [name + draw(st.sampled_from(["", "=200"])) for name in keyword]
    if draw(st.booleans()):
        parts.append("**words")
    return ", ".join(parts)


@st.composite
def programs(draw: st.DrawFn) -> Program:
    stars: dict[str, tuple[int, ...]] = {}
    spreads: dict[str, dict[str, int]] = {}
    parts: list[str] = []
    for index in range(draw(st.integers(0, 4))):
        if draw(st.integers(0, 3)):
            parts.append(str(index))
            continue
        contents = tuple(draw(st.lists(st.integers(10, 19), max_size=2)))
        if draw(st.booleans()):
            parts.append(f"*[{', '.join(map(str, contents))}]")
            continue
        name = f"star{len(stars)}"
        stars[name] = contents
        parts.append(f"*{name}")
    for name in draw(st.lists(st.sampled_from([*NAMES, "z"]), unique=True, max_size=3)):
        parts.append(f"{name}={300 + ord(name)}")
    if not draw(st.integers(0, 2)):
        keys = draw(st.lists(st.sampled_from([*NAMES, "y"]), unique=True, max_size=2))
        contents = {key: 400 + ord(key) for key in keys}
        if draw(st.booleans()):
            spreads["spread"] = contents
        parts.append("**spread" if spreads else f"**{contents!r}")
    return Program(draw(signatures()), f"f({', '.join(parts)})", stars, spreads)


def _define(source: str, space: dict[str, object]) -> None:
    exec(source, space)  # noqa: S102 - a program that this file generates


def executed(program: Program) -> dict[str, object] | None:
    """What the parameters are when Python makes the call; None if it refuses."""
    space: dict[str, object] = {**program.stars, **program.spreads}
    _define(f"def f({program.definition}):\n    return locals()\n", space)
    try:
        return eval(program.call, space)
    except TypeError:
        return None


def judge(found: Bound, run: dict[str, object], stars: dict[str, tuple[int, ...]]) -> None:
    """No parameter may be anything but what is said of it."""
    for name, value in {**found.given, **found.defaults}.items():
        assert value is not None
        assert run[name] == ast.literal_eval(value)
    for name in run.keys() - {"rest", "words"}:
        assert sum(name in part for part in (found.given, found.defaults, found.unknown)) == 1
    if "rest" in run and found.rest is not None:
        flat = []
        for item in found.rest:
            starred = isinstance(item, ast.Starred)
            flat += stars[item.value.id] if starred else [ast.literal_eval(item)]
        assert run["rest"] == tuple(flat)
    if "words" in run:
        words = {name: ast.literal_eval(value) for name, value in found.words.items()}
        assert words.items() <= run["words"].items()
        assert "words" in found.unknown or words == run["words"]


@settings(max_examples=400, deadline=None)
@given(programs())
def test_python_agrees(program: Program) -> None:
    function = function_of(f"def f({program.definition}): pass\n", "f")
    found = bind(call_of(program.call), function)
    run = executed(program)
    if found.refused:
        assert run is None
    if run is not None:
        judge(found, run, program.stars)
    if not program.stars and not program.spreads:
        assert bool(found.refused) == (run is None)
        assert not found.unknown


@settings(max_examples=150, deadline=None)
@given(programs())
def test_inspect_agrees(program: Program) -> None:
    """Without stars, the arguments are those of `inspect.Signature.bind`.

    Where `inspect` refuses what Python accepts (`def f(a=1, /, **words)`, `f(a=2)`: a mistake of
    older versions), Python is right.
    """
    if program.stars or program.spreads or executed(program) is None:
        return
    space: dict[str, object] = {"inspect": inspect}
    _define(f"def f({program.definition}): pass\nsignature = inspect.signature(f)\n", space)
    text = program.call.replace("f(", "signature.bind(", 1)
    try:
        judged = eval(text, space).arguments
    except TypeError:
        return
    function = function_of(f"def f({program.definition}): pass\n", "f")
    found = bind(call_of(program.call), function)
    plain = {name: value for name, value in judged.items() if name not in ("rest", "words")}
    assert {name: ast.literal_eval(value) for name, value in found.given.items()} == plain


@settings(max_examples=150, deadline=None)
@given(programs(), programs())
def test_partial_agrees(first: Program, second: Program) -> None:
    """What `functools.partial` has bound comes first, and later keywords win."""
    space: dict[str, object] = {"partial": functools.partial, **first.stars, **first.spreads}
    _define(f"def f({first.definition}):\n    return locals()\n", space)
    arguments = first.call.removeprefix("f(")
    text = f"partial(f, {arguments}"
    if second.stars.keys() & first.stars.keys():
        return
    space |= second.stars
    later = {"later": dict(*second.spreads.values())} if second.spreads else {}
    space |= later
    again = second.call.replace("**spread", "**later").replace("f(", "", 1)
    try:
        run = eval(f"{text}({again}", space)
    except TypeError:
        run = None
    function = function_of(f"def f({first.definition}): pass\n", "f")
    found = bind(passed(call_of(first.call)).then(passed(call_of(f"f({again}"))), function)
    on_the_spot = bind(call_of(f"{text}({again}"), function)
    for answer in (found, on_the_spot):
        if answer.refused:
            assert run is None
        if run is not None:
            judge(answer, run, {**first.stars, **second.stars})


METHODS = """
class Net:
    def run(net, x, y=2): ...
    def __init__(this, x): ...
    def __call__(this, x): ...
    @classmethod
    def make(kind, x): ...
    @staticmethod
    def fixed(x, y=2): ...
    def loose(*everything): ...
    def open(self, /, **words): ...
"""


@pytest.mark.parametrize(
    ("method", "call", "given", "receiver"),
    [
        ("run", "net.run(1)", {"net": "net", "x": "1"}, "net"),
        ("run", "self.net.run(y=1, x=3)", {"net": "self.net", "x": "3", "y": "1"}, "net"),
        ("run", "Net.run(other, 1)", {"net": "other", "x": "1"}, ""),
        ("run", "models.Net.run(other, x=1)", {"net": "other", "x": "1"}, ""),
        ("run", "super().run(1)", {"x": "1"}, "net"),
        ("__init__", "Net(1)", {"x": "1"}, "this"),
        ("__init__", "models.Net(x=1)", {"x": "1"}, "this"),
        ("__init__", "super().__init__(1)", {"x": "1"}, "this"),
        ("__init__", "Net.__init__(me, 1)", {"this": "me", "x": "1"}, ""),
        ("__call__", "net(1)", {"this": "net", "x": "1"}, "this"),
        ("make", "Net.make(1)", {"x": "1"}, "kind"),
        ("make", "net.make(1)", {"x": "1"}, "kind"),
        ("fixed", "Net.fixed(1)", {"x": "1"}, ""),
        ("fixed", "net.fixed(1, 5)", {"x": "1", "y": "5"}, ""),
        ("open", "net.open(self=1)", {"self": "net"}, "self"),
    ],
)
def test_receivers(method: str, call: str, given: dict[str, str], receiver: str) -> None:
    found = bind(call_of(call), function_of(METHODS, f"Net.{method}"))
    assert {name: ast.unparse(value) for name, value in found.given.items()} == given
    assert (found.receiver, found.refused) == (receiver, "")


@pytest.mark.parametrize(
    ("definition", "call", "unknown"),
    [
        ("a, b", "f(*xs, 5)", {"a": ["*xs", "5"], "b": ["*xs", "5"]}),
        ("a, b", "f(1, *xs)", {"b": ["*xs"]}),
        ("a, b=0", "f(*xs, b=1)", {"a": ["*xs"]}),
        ("a", "f(*xs, 5)", {}),
        ("a, *, b", "f(1, **kw)", {"b": ["kw"]}),
        ("a, /, b=0", "f(*xs, **kw)", {"a": ["*xs"], "b": ["*xs", "kw"]}),
        ("a, *rest, b=0", "f(*xs)", {"a": ["*xs"], "rest": ["*xs"]}),
        ("a, **words", "f(1, **kw)", {"words": ["kw"]}),
    ],
)
def test_what_stars_may_fill(definition: str, call: str, unknown: dict[str, list[str]]) -> None:
    found = bind(call_of(call), function_of(f"def f({definition}): pass\n", "f"))
    said = {name: [ast.unparse(item) for item in parts] for name, parts in found.unknown.items()}
    assert said == unknown


@pytest.mark.parametrize(
    ("definition", "call", "why"),
    [
        ("a", "f()", "`a` is missing"),
        ("a", "f(1, 2)", "too many positional arguments"),
        ("a, b=0", "f(1, a=2)", "`a` is passed twice"),
        ("a, /", "f(a=2)", "`a` is no parameter that takes a keyword"),
        ("a, *, b", "f(1, *xs)", "`b` is missing"),
        ("a", "f(a=1, **{'a': 2})", "`a` is passed twice"),
    ],
)
def test_refusals_say_why(definition: str, call: str, why: str) -> None:
    assert bind(call_of(call), function_of(f"def f({definition}): pass\n", "f")).refused == why


def test_the_object_of_a_method_cannot_be_passed_again() -> None:
    """Python refuses it even where `**words` would take the name, unless that is behind a `/`."""
    source = "class Net:\n    def run(self, **words): ...\n"
    found = bind(call_of("net.run(self=1)"), function_of(source, "Net.run"))
    assert found.refused == "`self` is passed twice"


@pytest.mark.parametrize(
    ("decorator", "refused"),
    [("contextmanager", True), ("functools.lru_cache(None)", True), ("provide_config", False)],
)
def test_a_decorator_may_explain_what_the_definition_contradicts(
    decorator: str, refused: bool
) -> None:
    function = function_of(f"@{decorator}\ndef f(a, b): pass\n", "f")
    found = bind(call_of("f(1)"), function)
    assert (bool(found.refused), dict(found.given)) == (refused, {})


def test_parameters_are_listed_as_python_lists_them() -> None:
    source = "def f(a, b: int, /, c=1, *rest: str, d, e: bool = True, **words): pass\n"
    space: dict[str, object] = {}
    _define(source, space)
    kinds = {
        inspect.Parameter.POSITIONAL_ONLY: Kind.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD: Kind.PLAIN,
        inspect.Parameter.VAR_POSITIONAL: Kind.REST,
        inspect.Parameter.KEYWORD_ONLY: Kind.KEYWORD_ONLY,
        inspect.Parameter.VAR_KEYWORD: Kind.WORDS,
    }
    judged = inspect.signature(space["f"]).parameters.values()  # type: ignore[arg-type]
    listed = parameters(function_of(source, "f")).values()
    empty = inspect.Parameter.empty
    assert [(item.name, item.kind) for item in listed] == [
        (item.name, kinds[item.kind]) for item in judged
    ]
    for item, judge_ in zip(listed, judged, strict=True):
        assert (item.default is None) == (judge_.default is empty)
        assert (item.annotation is None) == (judge_.annotation is empty)
