"""Places that no run comes to: what Python does at each is executed, not assumed."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from amplint.view import view_of

#: (name, program, why no run comes to its call of `arrive`; "" where one does)
PROGRAMS = (
    ("plain", "def run():\n    arrive()\nrun()\n", ""),
    ("undefined", "def run():\n    lr = base_rate * 2\n    arrive(lr)\nrun()\n", "base_rate"),
    ("undefined behind", "def run():\n    arrive()\n    print(base_rate)\nrun()\n", ""),
    (
        "undefined in a branch",
        "def run(late=False):\n    if late:\n        print(base_rate)\n    arrive()\nrun()\n",
        "",
    ),
    (
        "undefined and expected",
        (
            "def run():\n    try:\n        print(base_rate)\n    except NameError:\n"
            "        pass\n    arrive()\nrun()\n"
        ),
        "",
    ),
    (
        "bound by another function",
        (
            "def prepare():\n    global base_rate\n    base_rate = 1\n"
            "def run():\n    print(base_rate)\n    arrive()\nprepare()\nrun()\n"
        ),
        "",
    ),
    (
        "bound out of sight",
        "exec('base_rate = 1')\ndef run():\n    print(base_rate)\n    arrive()\nrun()\n",
        "",
    ),
    ("an annotation", "def run():\n    rate: Rate = 1\n    arrive(rate)\nrun()\n", ""),
    ("not evaluated", "def run():\n    later = lambda: base_rate\n    arrive(later)\nrun()\n", ""),
    (
        "an argument too few",
        (
            "def load(folder, *, split):\n    return folder\n"
            "def run():\n    load('a')\n    arrive()\nrun()\n"
        ),
        "load(...)",
    ),
    (
        "an argument of another name",
        (
            "class Data:\n    def __init__(self, folder):\n        self.folder = folder\n"
            "def run():\n    Data(root='a')\n    arrive()\nrun()\n"
        ),
        "Data(...)",
    ),
    (
        "an argument that a decorator takes",
        (
            "import functools\n"
            "def rooted(function):\n"
            "    return functools.wraps(function)(lambda *given: function(*given, 'a'))\n"
            "@rooted\ndef load(folder, root):\n    return folder\n"
            "def run():\n    load('a')\n    arrive()\nrun()\n"
        ),
        "",
    ),
    (
        "arguments that are spread",
        (
            "def load(folder, root):\n    return folder\n"
            "def run(given=('a', 'b')):\n    load(*given)\n    arrive()\nrun()\n"
        ),
        "",
    ),
    (
        "another constructor",
        (
            "class Data:\n    def __new__(cls, *given):\n        return object()\n"
            "    def __init__(self):\n        pass\n"
            "def run():\n    Data('a')\n    arrive()\nrun()\n"
        ),
        "",
    ),
    (
        "a call that never ends",
        (
            "def build():\n    return make_loader(3)\n"
            "def run():\n    data = build()\n    arrive(data)\nrun()\n"
        ),
        "make_loader",
    ),
    (
        "a call that may end",
        (
            "def build(small=True):\n    if small:\n        return None\n    return make_loader(3)\n"
            "def run():\n    data = build()\n    arrive(data)\nrun()\n"
        ),
        "",
    ),
    (
        "a generator that nobody asks",
        (
            "def batches():\n    yield make_loader(3)\n"
            "def run():\n    data = batches()\n    arrive(data)\nrun()\n"
        ),
        "",
    ),
    (
        "a constructor that never ends",
        (
            "class Runner:\n    def __init__(self):\n        self.loss = MarginLoss()\n"
            "    def run(self):\n        arrive()\nRunner().run()\n"
        ),
        "MarginLoss",
    ),
    (
        "of nothing",
        (
            "class Runner:\n    def __init__(self):\n        self.net = None\n"
            "    def run(self):\n        self.net.train()\n        arrive()\nRunner().run()\n"
        ),
        "self.net",
    ),
    (
        "of what another method sets",
        (
            "class Runner:\n    def __init__(self):\n        self.net = None\n"
            "    def build(self):\n        self.net = str()\n"
            "    def run(self):\n        self.net.upper()\n        arrive()\n"
            "runner = Runner()\nrunner.build()\nrunner.run()\n"
        ),
        "",
    ),
    (
        "of what is set from outside",
        (
            "class Runner:\n    def __init__(self):\n        self.net = None\n"
            "    def run(self):\n        self.net.upper()\n        arrive()\n"
            "runner = Runner()\nrunner.net = str()\nrunner.run()\n"
        ),
        "",
    ),
    (
        "of what is set by its name",
        (
            "class Runner:\n    def __init__(self, **given):\n        self.net = None\n"
            "        for name in given:\n            setattr(self, name, given[name])\n"
            "    def run(self):\n        self.net.upper()\n        arrive()\n"
            "Runner(net='').run()\n"
        ),
        "",
    ),
    (
        "a constructor that an heir replaces",
        (
            "class Runner:\n    def __init__(self):\n        self.loss = MarginLoss()\n"
            "    def run(self):\n        arrive()\n"
            "class Small(Runner):\n    def __init__(self):\n        self.loss = None\nSmall().run()\n"
        ),
        "",
    ),
)


@pytest.mark.parametrize(
    ("program", "why"), [row[1:] for row in PROGRAMS], ids=[r[0] for r in PROGRAMS]
)
def test_a_place_is_reached_as_python_reaches_it(program: str, why: str, tmp_path: Path) -> None:
    """Whether the program prints the word of `arrive` is what Python says."""
    script = tmp_path / "train.py"
    script.write_text("def arrive(*given):\n    print('arrived')\n\n" + program)
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert ("arrived" in ran.stdout) is not bool(why)
    assert doubt_about_arriving(script) == why


#: (name, file, program, whether somebody calls `fit`)
FILES = (
    ("nobody", "exp-01.py", "def fit():\n    arrive()\n", False),
    ("a name that imports take", "exp_01.py", "def fit():\n    arrive()\n", True),
    ("its file", "exp-01.py", "def fit():\n    arrive()\nfit()\n", True),
    (
        "its file, through another",
        "exp-01.py",
        "def fit():\n    arrive()\ndef main():\n    fit()\nmain()\n",
        True,
    ),
    (
        "another that nobody calls",
        "exp-01.py",
        "def fit():\n    arrive()\ndef main():\n    fit()\n",
        False,
    ),
    (
        "by its name",
        "exp-01.py",
        "import sys\ndef fit():\n    arrive()\ngetattr(sys.modules[__name__], 'fit')()\n",
        True,
    ),
    ("a table of names", "exp-01.py", "def fit():\n    arrive()\nglobals()[input()]()\n", True),
    (
        "a decorator",
        "exp-01.py",
        "import atexit\n@atexit.register\ndef fit():\n    arrive()\n",
        True,
    ),
    (
        "an object",
        "exp-01.py",
        "class Run:\n    def fit(self):\n        arrive()\nRun().fit()\n",
        True,
    ),
    ("no object", "exp-01.py", "class Run:\n    def fit(self):\n        arrive()\n", False),
)


@pytest.mark.parametrize(
    ("file", "program", "called"), [row[1:] for row in FILES], ids=[r[0] for r in FILES]
)
def test_a_function_of_a_file_that_no_import_can_name(
    file: str, program: str, called: bool, tmp_path: Path
) -> None:
    script = tmp_path / file
    script.write_text("def arrive(*given):\n    print('arrived')\n\n" + program)
    assert (doubt_about_arriving(script) == "") is called


def test_another_file_may_load_it_by_its_path(tmp_path: Path) -> None:
    script = tmp_path / "exp-01.py"
    script.write_text("def arrive():\n    pass\n\ndef fit():\n    arrive()\n")
    loader = "import runpy\nrunpy.run_path('exp-01.py')['fit']()\n"
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "run.py").write_text(loader)
    assert doubt_about_arriving(script) == ""


def doubt_about_arriving(script: Path) -> str:
    """What `Unreached` names where the program calls `arrive`."""
    source = script.read_text()
    view = view_of(str(script), source, ast.parse(source), path=str(script))
    (site,) = (site for site in view.module.calls if site.method == "arrive")
    found = view.unreached.doubt(site.node, site.function)
    return found.subject if found is not None else ""
