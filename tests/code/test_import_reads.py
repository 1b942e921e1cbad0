"""Which import a name reads, by Python's rules of scope."""

from __future__ import annotations

import ast

import pytest

from amplint.code.scopes import Scopes

CASES = {
    "module": ("from m import f\nf()", [2]),
    "function": ("from m import f\ndef g():\n    f()", [3]),
    "parameter": ("from m import f\ndef g(f):\n    f()", []),
    "local": ("from m import f\ndef g():\n    f = 1\n    f()", []),
    "default and annotation": ("from m import f\ndef g(a: f = f) -> f:\n    pass", [2, 2, 2]),
    "decorator": ("from m import f\n@f\ndef g():\n    pass", [2]),
    "method": ("from m import f\nclass A:\n    f = 1\n    def g(self):\n        f()", [5]),
    "class body": ("from m import f\nclass A(f):\n    f = 1\n    x = f", [2]),
    "lambda": ("from m import f\nlambda f: f\nlambda g: f", [3]),
    "comprehension": ("from m import f\n[f for f in f]\n[f for g in x]", [2, 3]),
    "walrus in a comprehension": ("from m import f\n[(g := f) for h in x]\ng", [2]),
    "global": ("from m import f\ndef g():\n    global f\n    f()", [4]),
    "nested": ("from m import f\ndef g():\n    def h():\n        f()\n    return h", [4]),
    "nonlocal": (
        "from m import f\ndef g():\n    f = 1\n    def h():\n        nonlocal f\n        f()",
        [],
    ),
    "handler": ("from m import f\ntry:\n    f()\nexcept E as e:\n    f(e)", [3, 5]),
    "match": ("from m import f\nmatch x:\n    case {'a': a, **r}:\n        f(a, r)", [4]),
    "attribute": ("from m import f\nf.f.f", [2]),
}


def imported_f(source: str) -> tuple[Scopes, list[int]]:
    scopes = Scopes(ast.parse(source))
    (found,) = [each for each in scopes.imports if each.name == "f"]
    assert found.dotted == "m.f"
    return scopes, sorted(node.lineno for node in scopes.reads(found))


@pytest.mark.parametrize(("source", "rows"), CASES.values(), ids=CASES)
def test_where_an_import_is_read(source: str, rows: list[int]) -> None:
    assert imported_f(source)[1] == rows


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("from m import f", 0),
        ("from m import f\nf = 1", 1),
        ("from m import f\ndef f(): ...", 1),
        ("from m import f\ndel f", 1),
        ("from m import f\ndef g():\n    global f\n    f = 1", 1),
        ("from m import f\ndef g():\n    f = 1", 0),
        ("from m import f\nfor f in x: ...", 1),
        ("from m import f\nwith x as (f, g): ...", 1),
        ("from m import f\ntry: ...\nexcept E as f: ...", 1),
        ("from m import f\nmatch x:\n    case f: ...", 1),
        ("from m import f\n[f for f in x]", 0),
        ("from m import f\n[f := 1 for g in x]", 1),
        ("from m import f\nimport f.g", 1),
    ],
)
def test_what_else_binds_the_name(source: str, count: int) -> None:
    scopes = Scopes(ast.parse(source))
    found = next(each for each in scopes.imports if each.dotted == "m.f")
    assert len(scopes.rivals(found)) == count


def test_forms_of_imports() -> None:
    source = "import a.b\nimport a.b as c\nfrom a.b import d as e\nfrom . import g\nfrom h import *"
    found = {each.name: each.dotted for each in Scopes(ast.parse(source), "p").imports}
    assert found == {"a": "a", "c": "a.b", "e": "a.b.d", "g": "p.g"}


def test_only_the_module_is_seen_by_other_files() -> None:
    source = "from m import f\ndef g():\n    from m import h"
    scopes = Scopes(ast.parse(source))
    seen = {each.name: scopes.is_global(each) for each in scopes.imports}
    assert seen == {"f": True, "h": False}
