"""Functions and classes that nothing names which runs: what Python runs is executed, not assumed."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from amplint.view import view_of

ENGINE = """\
def arrive():
    print("arrived")

class Old:
    def fit(self):
        arrive()

class New:
    def fit(self):
        print("new")
"""
MAIN = "from engine import New, Old\nNew().fit()\n"

#: (name, the project beside and instead of the two files, whether a run of `main.py` comes there)
PROJECTS = (
    ("imported alone", {}, False),
    ("built", {"main.py": "from engine import New, Old\nNew().fit()\nOld().fit()\n"}, True),
    ("built by its module", {"main.py": "import engine\nengine.New\nengine.Old().fit()\n"}, True),
    (
        "under another name",
        {"main.py": "from engine import New\nfrom engine import Old as Trainer\nTrainer().fit()\n"},
        True,
    ),
    (
        "a class that derives from it",
        {"main.py": MAIN + "class Newer(Old):\n    pass\nNewer().fit()\n"},
        True,
    ),
    ("an heir that nobody builds", {"main.py": MAIN + "class Newer(Old):\n    pass\n"}, False),
    (
        "in a function that runs",
        {
            "main.py": MAIN
            + "def main():\n    Old().fit()\nif __name__ == '__main__':\n    main()\n"
        },
        True,
    ),
    (
        "in a function that nobody calls",
        {"main.py": MAIN + "def compare():\n    Old().fit()\n"},
        False,
    ),
    (
        "two functions that call each other",
        {
            "main.py": MAIN
            + "def first():\n    second()\ndef second():\n    Old().fit()\n    first()\n"
        },
        False,
    ),
    (
        "through a file between",
        {
            "main.py": "from tools import make\nmake().fit()\n",
            "tools.py": "from engine import New, Old\nother = New\ndef make():\n    return Old()\n",
        },
        True,
    ),
    (
        "a file between that uses another",
        {
            "main.py": "from tools import make\nmake().fit()\n",
            "tools.py": (
                "from engine import New, Old\ndef make():\n    return New()\n"
                "def make_old():\n    return Old()\n"
            ),
        },
        False,
    ),
    ("a list of exports", {"main.py": MAIN + "__all__ = ['Old']\n"}, False),
    (
        "by its name",
        {"main.py": "import engine\nengine.New\ngetattr(engine, 'Old')().fit()\n"},
        True,
    ),
    (
        "by a name that is made in the run",
        {"main.py": "import engine\nengine.New\ngetattr(engine, 'O' + 'ld')().fit()\n"},
        True,
    ),
    (
        "an option, read by a name that is made in the run",
        {"main.py": MAIN + "class Options:\n    lr = 1\nprint(getattr(Options(), 'l' + 'r'))\n"},
        False,
    ),
    (
        "whatever a module holds",
        {
            "main.py": (
                "import inspect\nimport engine\nengine.New\n"
                "for name, item in inspect.getmembers(engine, inspect.isclass):\n    item().fit()\n"
            )
        },
        True,
    ),
    (
        "by a file of tests",
        {"test_engine.py": "from engine import Old\ndef test_old():\n    Old().fit()\n"},
        False,
    ),
    (
        "registered by a decorator",
        {
            "engine.py": (
                "kinds = []\ndef arrive():\n    print('arrived')\n@kinds.append\nclass Old:\n"
                "    def fit(self):\n        arrive()\nclass New:\n    pass\n"
            ),
            "main.py": "from engine import New, kinds\nNew()\nkinds[0]().fit()\n",
        },
        True,
    ),
)


def is_doubted(folder: Path, files: dict[str, str]) -> bool:
    """Whether no run comes to the call of `arrive`, by all that is in sight."""
    for name, text in {"engine.py": ENGINE, "main.py": MAIN, **files}.items():
        (folder / name).write_text(text)
    (folder / ".git").mkdir()
    path = folder / "engine.py"
    source = path.read_text()
    view = view_of(str(path), source, ast.parse(source), path=str(path))
    (site,) = (site for site in view.module.calls if site.method == "arrive")
    return view.unreached.doubt(site.node, site.function) is not None


@pytest.mark.parametrize(
    ("files", "arrives"), [row[1:] for row in PROJECTS], ids=[row[0] for row in PROJECTS]
)
def test_what_runs_names_it(files: dict[str, str], arrives: bool, tmp_path: Path) -> None:
    assert is_doubted(tmp_path, files) is not arrives
    command = [sys.executable, "main.py"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert ("arrived" in ran.stdout) is arrives


@pytest.mark.parametrize(
    "files",
    [
        {"setup.py": "from setuptools import setup\nsetup(name='engine')\n"},
        {"setup.cfg": "[metadata]\nname = engine\n"},
        {"pyproject.toml": '[project]\nname = "engine"\nversion = "1"\n'},
        {"explore.ipynb": '{"cells": [{"source": ["from engine import Old"]}]}'},
        {"main.py": "import engine\n"},
        {"main.py": "from importlib import import_module\nimport_module('eng' + 'ine').New\n"},
    ],
    ids=["setup.py", "setup.cfg", "pyproject.toml", "a notebook", "a draft", "a loaded file"],
)
def test_somebody_out_of_sight_may_use_it(files: dict[str, str], tmp_path: Path) -> None:
    assert not is_doubted(tmp_path, files)


@pytest.mark.parametrize(
    "files",
    [
        {"pyproject.toml": "[tool.ruff]\nline-length = 100\n"},
        {"explore.ipynb": '{"cells": [{"source": ["from engine import New"]}]}'},
    ],
    ids=["settings of a tool", "a notebook that uses another"],
)
def test_what_is_beside_says_nothing_of_it(files: dict[str, str], tmp_path: Path) -> None:
    assert is_doubted(tmp_path, files)


def test_a_notebook_may_call_what_names_it(tmp_path: Path) -> None:
    files = {
        "main.py": MAIN + "def compare():\n    Old().fit()\n",
        "explore.ipynb": '{"cells": [{"source": ["from main import compare"]}]}',
    }
    assert not is_doubted(tmp_path, files)
