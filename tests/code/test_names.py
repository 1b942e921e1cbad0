"""Names lead to the functions and classes of the project that Python would find.

Each project is imported and run: Python itself says what the name stands for.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from amplint.code.project import Project

TOOLS = {"tools.py": "def limit(): pass\nclass Box:\n    def open(self): pass\n"}
PACKAGE = {
    "pack/__init__.py": "from .inner import limit as shorten, Box\nfrom . import inner\n",
    "pack/inner.py": "def limit(): pass\nclass Box:\n    def open(self): pass\n",
}
CASES = {
    "from": (TOOLS, "from tools import limit\nREAD(limit)"),
    "renamed": (TOOLS, "from tools import limit as cut\nREAD(cut)"),
    "module attribute": (TOOLS, "import tools\nREAD(tools.limit)"),
    "renamed module": (TOOLS, "import tools as t\nREAD(t.Box)"),
    "method of a class": (TOOLS, "import tools\nREAD(tools.Box.open)"),
    "module under another name": (TOOLS, "import tools\nt = tools\nREAD(t.limit)"),
    "function under another name": (TOOLS, "import tools\ncut = tools.limit\nREAD(cut)"),
    "own function under another name": (TOOLS, "def f(): pass\ng = f\nREAD(g)"),
    "star": (TOOLS, "from tools import *\nREAD(limit)"),
    "submodule": (PACKAGE, "import pack.inner\nREAD(pack.inner.limit)"),
    "submodule, renamed": (PACKAGE, "import pack.inner as p\nREAD(p.limit)"),
    "submodule from the package": (PACKAGE, "from pack import inner\nREAD(inner.Box)"),
    "re-export": (PACKAGE, "from pack import shorten\nREAD(shorten)"),
    "re-export as attribute": (PACKAGE, "import pack\nREAD(pack.Box)"),
    "re-export of a re-export": (
        {**PACKAGE, "more.py": "from pack import shorten as less\n"},
        "import more\nREAD(more.less)",
    ),
    "re-exported module": (
        {**PACKAGE, "more.py": "from pack import inner as m\n"},
        "import more\nREAD(more.m.limit)",
    ),
    "re-export by assignment": (
        {**TOOLS, "more.py": "import tools\ncut = tools.limit\n"},
        "from more import cut\nREAD(cut)",
    ),
    "star of a star": (
        {**TOOLS, "more.py": "from tools import *\n"},
        "from more import *\nREAD(Box)",
    ),
    "star after `__all__`": (
        {
            "one.py": "__all__ = ['other']\ndef limit(): pass\ndef other(): pass\n",
            "two.py": "def limit(): pass\n",
        },
        "from two import *\nfrom one import *\nREAD(limit)",
    ),
    "star gives no private names": (
        {"one.py": "def _limit(): pass\n", "two.py": "from one import _limit\n"},
        "from one import *\nfrom two import _limit\nREAD(_limit)",
    ),
    "the last star wins": (
        {**TOOLS, "two.py": "def limit(): pass\n"},
        "from tools import *\nfrom two import *\nREAD(limit)",
    ),
    "own class of an imported name": (TOOLS, "from tools import Box\nclass Box: pass\nREAD(Box)"),
    "imported after an own function": (
        TOOLS,
        "def limit(): pass\nfrom tools import limit\nREAD(limit)",
    ),
    "in a function": (TOOLS, "def f():\n    import tools\n    READ(tools.limit)\nf()"),
    "nested": ({}, "def f():\n    def g(): pass\n    READ(g)\nf()"),
    "nested hides the module's": (
        {},
        "def g(): pass\ndef f():\n    def g(): pass\n    READ(g)\nf()",
    ),
    "method does not see the class body": (
        TOOLS,
        (
            "from tools import limit\nclass A:\n    def limit(self): pass\n"
            "    def f(self):\n        READ(limit)\nA().f()"
        ),
    ),
    "class body sees its own": ({}, "class A:\n    def f(self): pass\n    READ(f)"),
    "conditional import": (
        TOOLS,
        "try:\n    from tools import limit\nexcept ImportError:\n    limit = None\nREAD(limit)",
    ),
}
FALLBACK = (
    "try:\n    from tools import limit\nexcept ImportError:\n    def limit(): pass\nREAD(limit)"
)


@pytest.mark.parametrize(("files", "source"), CASES.values(), ids=CASES)
def test_python_finds_the_same(files: dict[str, str], source: str, tmp_path: Path) -> None:
    write(tmp_path, {**files, "run.py": source})
    assert asked(tmp_path) == executed(tmp_path)


UNKNOWN = {
    "parameter": "from tools import limit\ndef f(limit=print):\n    READ(limit)",
    "loop variable": "from tools import limit\ndef f(x):\n    for limit in x:\n        READ(limit)",
    "one of two": "def f(x):\n    if x:\n        def g(): pass\n    else:\n        def g(): ...\n    READ(g)",
    "bound again": "from tools import limit\nlimit = print(limit)\nREAD(limit)",
    "builtin": "READ(print)",
    "another library": "import json\nREAD(json.dumps)",
    "fallback function": FALLBACK,
    "nothing": "READ(limit)",
}


@pytest.mark.parametrize("source", UNKNOWN.values(), ids=UNKNOWN)
def test_nothing_that_may_be_something_else(source: str, tmp_path: Path) -> None:
    write(tmp_path, {**TOOLS, "run.py": source})
    assert asked(tmp_path) is None


def test_a_fallback_is_one_of_two(tmp_path: Path) -> None:
    write(tmp_path, {**TOOLS, "run.py": FALLBACK})
    project = Project(str(tmp_path))
    module = project.add("run.py", FALLBACK, ast.parse(FALLBACK), str(tmp_path / "run.py"))
    (site,) = [site for site in module.calls if site.method == "READ"]
    name = site.node.args[0]
    assert isinstance(name, ast.Name)
    found = {item.module.name for item in project.choices(name, site.function)}
    assert found == {"tools", "run"}
    assert executed(tmp_path).startswith("tools.")


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def asked(folder: Path) -> str | None:
    """What amplint says of the argument of READ: module and qualified name."""
    path = folder / "run.py"
    source = path.read_text(encoding="utf-8")
    project = Project(str(folder))
    module = project.add("run.py", source, ast.parse(source), str(path))
    (site,) = [site for site in module.calls if site.method == "READ"]
    found = project.named(site.node.args[0], site.function)
    return f"{found.module.name}.{found.qualname}" if found is not None else None


def executed(folder: Path) -> str:
    """What Python says."""
    source = (folder / "run.py").read_text(encoding="utf-8")
    reader = """
        def READ(value):
            name = value.__qualname__.replace(".<locals>", "")
            print(f"{value.__module__}.{name}")
    """
    (folder / "judge.py").write_text(textwrap.dedent(reader) + source, encoding="utf-8")
    command = [sys.executable, "judge.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.split()[-1].replace("__main__", "run")
