"""Scopes: what a name means where it is read. The judge is Python's own `symtable`."""

from __future__ import annotations

import ast
import random
import symtable
import sys
import sysconfig
import textwrap
from pathlib import Path

import pytest

from amplint.code.meanings import Scope
from amplint.code.scopes import Scopes

KINDS = {
    "module": ("f = 1\nf", ["global"]),
    "builtin": ("len", ["builtin"]),
    "nobody binds it": ("f", ["unknown"]),
    "star": ("from m import *\nf\nlen", ["unknown", "unknown"]),
    "parameter": ("def g(f):\n    f", ["local"]),
    "every kind of parameter": (
        "def g(a, /, b, *c, d, **e):\n    a, b, c, d, e",
        ["local"] * 5,
    ),
    "default, annotation, decorator": (
        "f = 1\n@f\ndef g(f: f = f) -> f: pass",
        ["global"] * 4,
    ),
    "closure": ("def g(f):\n    def h():\n        f", ["closure"]),
    "global": ("f = 1\ndef g():\n    global f\n    f", ["global"]),
    "global that only a function binds": ("def g():\n    global f\n    f = 1\nf", ["global"]),
    "global in a function around": (
        "f = 1\ndef o(f):\n    def g():\n        global f\n        def h():\n            f",
        ["global"],
    ),
    "nonlocal": (
        "f = 1\ndef g():\n    f = 2\n    def h():\n        nonlocal f\n        f = 3\n        f",
        ["closure"],
    ),
    "a class body is not seen by its methods": (
        "f = 1\nclass A:\n    f = 2\n    f\n    def g(self):\n        f",
        ["local", "global"],
    ),
    "nor by its comprehensions, but for the first iterable": (
        "f = 1\nclass A:\n    f = 2\n    [f for g in f]",
        ["global", "local"],
    ),
    "bases and keywords are read outside": (
        "f = 1\nclass A(f, metaclass=f):\n    f = 2",
        ["global", "global"],
    ),
    "comprehension": ("f = 1\n[f for f in f]", ["local", "global"]),
    "comprehension in a comprehension": (
        "def g(f):\n    [[f for h in f] for f in f]",
        ["closure", "local", "local"],
    ),
    "lambda": ("f = 1\nlambda f=f: f", ["global", "local"]),
    "walrus": ("def g(x):\n    [f := y for y in x]\n    f", ["local", "local", "local"]),
    "walrus leaves every comprehension": (
        "def g(x):\n    [[f := 1 for y in x] for z in x]\n    f",
        ["closure", "local", "local"],
    ),
    "del": ("f = 1\ndef g():\n    f\n    del f", ["local"]),
    "handler": ("def g():\n    try: pass\n    except E as f:\n        f", ["unknown", "local"]),
    "with": ("def g(x):\n    with x as (f, *h):\n        f, h", ["local"] * 3),
    "loop": ("def g(x):\n    for f, (h, k[0]) in x:\n        f", ["unknown", "local", "local"]),
    "augmented": ("f = 1\ndef g():\n    f += 1\n    f", ["local"]),
    "annotated only": ("f = 1\ndef g():\n    f: int\n    f", ["builtin", "local"]),
    "import": ("def g():\n    import f.h\n    from f import k as l\n    f, l", ["local"] * 2),
    "patterns": (
        (
            "def g(x):\n    match x:\n        case {'a': a, **r}: a, r\n"
            "        case [b, *c] | A(b, d=c): b, c\n        case str() as e if e: e"
        ),
        ["local"] * 3 + ["unknown"] + ["local"] * 2 + ["builtin"] + ["local"] * 2,
    ),
    "definitions": (
        "def g():\n    def f(): f\n    class A: A\n    f, A",
        ["closure"] * 2 + ["local"] * 2,
    ),
}


def reads(scopes: Scopes) -> list[ast.Name]:
    """Every name that is read, in source order."""
    found = [node for scope in scopes.every for node in scope.reads]
    return sorted(found, key=lambda node: (node.lineno, node.col_offset))


@pytest.mark.parametrize(("source", "kinds"), KINDS.values(), ids=KINDS)
def test_kind(source: str, kinds: list[str]) -> None:
    scopes = Scopes(ast.parse(source))
    names = sorted(reads(scopes), key=lambda node: (node.lineno, node.col_offset))
    assert [scopes.resolve(name).kind for name in names] == kinds


DOTTED = {
    "import": ("import a.b\nREAD(a.c)", "a.c"),
    "renamed module": ("import a.b as c\nREAD(c.d)", "a.b.d"),
    "from": ("from a import b as c\nREAD(c.d)", "a.b.d"),
    "relative": ("from . import b\nREAD(b)", "p.q.b"),
    "relative upwards": ("from ..r import b\nREAD(b)", "p.r.b"),
    "by name": ("import a\nREAD(getattr(a.b, 'c'))", "a.b.c"),
    "parameter": ("from a import b\ndef g(b):\n    READ(b)", None),
    "parameter of a function around": (
        "from a import b\ndef g(b):\n    def h():\n        READ(b)",
        None,
    ),
    "parameter of another function": ("from a import b\ndef g(b): pass\nREAD(b)", "a.b"),
    "lambda": ("from a import b\nlambda b: READ(b)", None),
    "comprehension": ("from a import b\n[READ(b) for b in x]", None),
    "its first iterable": ("from a import b\n[b for b in READ(b)]", "a.b"),
    "local variable": ("from a import b\ndef g(x):\n    b = x()\n    READ(b)", None),
    "class attribute": (
        "from a import b\nclass C:\n    b = 1\n    def g(self):\n        READ(b)",
        "a.b",
    ),
    "imported in another function": ("def g():\n    from a import b\nREAD(b)", None),
    "each function has its own": (
        "def g():\n    from a import b\ndef h():\n    from c import b\n    READ(b)",
        "c.b",
    ),
    "global import": (
        "def g():\n    global b\n    from a import b\ndef h():\n    READ(b)",
        "a.b",
    ),
    "in what binds it again": ("from a import b\nb = READ(b.c)", "a.b.c"),
    "bound again": ("from a import b\nb = wrap(x)\nREAD(b)", None),
    "bound again, read by a function": (
        "from a import b\nb = wrap(x)\ndef g():\n    READ(b)",
        None,
    ),
    "a loop may have bound it": ("from a import b\nfor b in x:\n    READ(b)", "a.b"),
    "defined again": ("from a import b\ndef b(): pass\nREAD(b)", None),
    "a class of the file": ("from a import b\nclass b: pass\nREAD(b)", None),
    "imported again": ("from a import b\nfrom c import b\nREAD(b)", "c.b"),
    "imported after it was None": (
        "b = None\ntry:\n    from a import b\nexcept E: pass\nREAD(b)",
        "a.b",
    ),
    "fallback function": (
        "try:\n    from a import b\nexcept ImportError:\n    def b(): pass\nREAD(b)",
        "a.b",
    ),
    "fallback class": (
        "try:\n    from a import b\nexcept ImportError:\n    class b: pass\nREAD(b)",
        "a.b",
    ),
    "fallback import": (
        "try:\n    from a import b\nexcept ImportError:\n    from c import b\nREAD(b)",
        "c.b",
    ),
    "fallback import from an older place of the package": (
        "try:\n    from a.new import b\nexcept ImportError:\n    from a.old import b\nREAD(b)",
        "a.new.b",
    ),
    "fallback import from an older place, read in a function": (
        (
            "try:\n    from a.new import b\nexcept ImportError:\n    from a.old import b\n"
            "def g():\n    READ(b)"
        ),
        "a.new.b",
    ),
    "fallback import of an older module": (
        "try:\n    import a.new as m\nexcept ImportError:\n    import a.old as m\nREAD(m.b)",
        "a.new.b",
    ),
    "import after a fallback": (
        (
            "try:\n    from a.new import b\nexcept ImportError:\n    from a.old import b\n"
            "from a.third import b\nREAD(b)"
        ),
        "a.third.b",
    ),
    "fallback None": (
        "try:\n    import b\nexcept ImportError:\n    b = None\nREAD(b.c)",
        "b.c",
    ),
    "in one branch": ("if x:\n    from a import b\nelse:\n    b = 1\nREAD(b)", "a.b"),
    "deleted at the end": ("from a import b\ndef g():\n    READ(b)\ndel b", "a.b"),
    "another name": ("import a\nc = a.b\nREAD(c.d)", "a.b.d"),
    "another name in a function": ("import a\ndef g():\n    c = a.b\n    READ(c.d)", "a.b.d"),
    "another name of another name": (
        "import a\nc = a.b\ne = c.d\ndef g():\n    READ(e)",
        "a.b.d",
    ),
    "another name, sometimes": ("import a\nc = a.b\nif x:\n    c = y\nREAD(c)", None),
    "another name of itself": ("import a\nb = a.c\nb = b\nREAD(b)", "a.c"),
    "names of each other": ("import a\ndef g():\n    READ(b)\nb = c\nc = b\nd = a", None),
    "a part of what was unpacked": ("import a\nc, d = a.b\nREAD(c)", None),
    "an attribute of something else": ("import a\ndef g(c):\n    READ(c.a)", None),
    "a call": ("import a\nREAD(a.b().c)", None),
}


@pytest.mark.parametrize(("source", "expected"), DOTTED.values(), ids=DOTTED)
def test_dotted_name(source: str, expected: str | None) -> None:
    tree = ast.parse(source)
    (read,) = [
        node.args[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "READ"
    ]
    assert Scopes(tree, "p.q").dotted(read) == expected


# -- Python is the judge ---------------------------------------------------------------------

STANDARD = (
    *("argparse", "ast", "dataclasses", "enum", "functools", "inspect", "shutil", "subprocess"),
    *("tarfile", "tempfile", "threading", "typing", "unittest/mock", "contextlib", "traceback"),
)


def standard(name: str) -> str:
    return (Path(sysconfig.get_path("stdlib")) / f"{name}.py").read_text(encoding="utf-8")


#: From 3.12 on `symtable` lists the names of a comprehension with the function around it.
judged = pytest.mark.skipif(
    sys.version_info >= (3, 12), reason="symtable tells comprehensions apart up to Python 3.11"
)


@judged
@pytest.mark.parametrize("name", STANDARD)
def test_python_agrees_about_the_standard_library(name: str) -> None:
    source = standard(name)
    assert by_python(source) == by_scopes(source)


@judged
@pytest.mark.parametrize("seed", range(60))
def test_python_agrees_about_generated_programs(seed: int) -> None:
    source = Program(random.Random(seed)).text()
    assert by_python(source) == by_scopes(source), source


@judged
@pytest.mark.parametrize("source", [source for source, _ in KINDS.values()], ids=KINDS)
def test_python_agrees_about_the_table(source: str) -> None:
    assert by_python(source) == by_scopes(source)


def by_python(source: str) -> set[tuple[str, int, str, str]]:
    """What the compiler says of each name that a scope mentions: (scope, line, name, kind)."""
    found: set[tuple[str, int, str, str]] = set()
    pending = [(symtable.symtable(source, "<judge>", "exec"), ())]
    while pending:
        table, classes = pending.pop()
        inside = (*classes, table.get_name()) if table.get_type() == "class" else classes
        pending += [(child, inside) for child in table.get_children()]
        for symbol in table.get_symbols():
            name = plain(symbol.get_name(), inside)
            if symbol.is_referenced() and name not in ("__class__", ".0"):
                found.add((table.get_name(), table.get_lineno(), name, _kind(symbol, table)))
    return found


def _kind(symbol: symtable.Symbol, table: symtable.SymbolTable) -> str:
    if symbol.is_free():
        return "closure"
    is_local = symbol.is_local() and table.get_type() != "module"
    return "local" if is_local else "global"


def plain(name: str, classes: tuple[str, ...]) -> str:
    """A private name as the source spells it."""
    for owner in classes[-1:]:
        name = (
            name.removeprefix("_" + owner.lstrip("_"))
            if f"_{owner.lstrip('_')}__" in name
            else name
        )
    return name


def by_scopes(source: str) -> set[tuple[str, int, str, str]]:
    """The same, of the scopes."""
    scopes = Scopes(ast.parse(source))
    found: set[tuple[str, int, str, str]] = set()
    for scope in scopes.every:
        for read in scope.reads:
            kind = scopes.resolve(read).kind
            kind = "global" if kind in ("unknown", "builtin") else kind
            found.add((_title(scope), _line(scope), read.id, kind))
    return found


_TITLES = {
    ast.Module: "top",
    ast.Lambda: "lambda",
    ast.ListComp: "listcomp",
    ast.SetComp: "setcomp",
    ast.DictComp: "dictcomp",
    ast.GeneratorExp: "genexpr",
}


def _title(scope: Scope) -> str:
    return _TITLES.get(type(scope.node)) or scope.node.name  # type: ignore[attr-defined]


def _line(scope: Scope) -> int:
    return 0 if scope.is_module else scope.node.lineno  # type: ignore[attr-defined]


class Program:
    """A random program over few names, so that they meet in many scopes."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.names = "abcd"

    def text(self) -> str:
        while True:
            found = "\n".join(self.block(0, function=False))
            try:
                compile(found, "<generated>", "exec")
            except SyntaxError:  # `nonlocal` without a binding, `global` after a use
                continue
            return found

    def name(self) -> str:
        return self.chance.choice(self.names)

    def block(self, depth: int, *, function: bool) -> list[str]:
        lines = []
        if function and self.chance.random() < 0.3:
            word = self.chance.choice(("global", "nonlocal") if depth > 1 else ("global",))
            lines.append(f"{word} {self.name()}")
        for _ in range(self.chance.randint(2, 4)):
            lines += self.statement(depth)
        return lines

    def statement(self, depth: int) -> list[str]:
        if depth < 4 and self.chance.random() < 0.45:
            return self.compound(depth)
        name, other = self.name(), self.name()
        forms = (
            f"{name} = {self.value()}",
            f"print({self.value()})",
            f"{name} += {other}",
            f"del {name}",
            f"import {name}.x",
            f"from m import x as {name}",
            f"for {name}, _ in {self.value()}: {other}",
            f"with {self.value()} as {name}: {other}",
        )
        return [self.chance.choice(forms)]

    def value(self) -> str:
        one, two, three = self.name(), self.name(), self.name()
        forms = (
            one,
            f"{one}.x({two})",
            f"[{one} for {two} in {three}]",
            f"{{{one}: {two} for {one} in {two} if {three} for {two} in {one}}}",
            f"(lambda {one}, {two}={two}: {one} + {three})",
            f"[({one} := x) for x in [{two}]]",
            f"sum({one} for x in {two} for {three} in {one})",
        )
        return self.chance.choice(forms)

    def compound(self, depth: int) -> list[str]:
        kind = self.chance.choice(("def", "def", "class", "if", "try", "match"))
        name, other = self.name(), self.name()
        function = kind == "def"
        inner = self.block(depth + 1 if kind in ("def", "class") else depth, function=function)
        body = textwrap.indent("\n".join(inner), "    ").split("\n")
        if kind == "def":
            return [f"def {name}({other}={self.value()}, *x) -> {other}:", *body]
        if kind == "class":
            return [f"class {name}({other}):", *body]
        if kind == "if":
            return [f"if {self.value()}:", *body]
        if kind == "try":
            return ["try:", *body, f"except {name} as {other}:", f"    {other}"]
        return [
            f"match {name}:",
            f"    case [{other}, *{name}]:",
            *(f"    {line}" for line in body),
        ]
