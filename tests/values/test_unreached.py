"""Places that no run comes to: what Python does at each is executed, not assumed."""

from __future__ import annotations

import ast
import subprocess
import sys
import textwrap
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
    (
        "undefined beside the names of an object",
        (
            "class Options:\n    pass\ndef run():\n    vars(Options)\n    print(base_rate)\n"
            "    arrive()\nrun()\n"
        ),
        "base_rate",
    ),
    (
        "bound among the names of the file",
        "vars()['base_rate'] = 1\ndef run():\n    print(base_rate)\n    arrive()\nrun()\n",
        "",
    ),
    (
        "undefined beside an expression in a text",
        "def run():\n    eval('1 + 1')\n    print(base_rate)\n    arrive()\nrun()\n",
        "base_rate",
    ),
    ("items of a number", "def run(mask=()):\n    0[mask]\n    arrive()\nrun()\n", "0"),
    ("items of a text", "def run():\n    'ab'[1]\n    arrive()\nrun()\n", ""),
    (
        "in a context of the standard library",
        (
            "from contextlib import nullcontext\ndef run(name='a'):\n"
            "    around = nullcontext if name else nullcontext\n"
            "    with around():\n        print(base_rate)\n    arrive()\nrun()\n"
        ),
        "base_rate",
    ),
    (
        "in a context that swallows it",
        (
            "from contextlib import nullcontext, suppress\ndef run():\n"
            "    with nullcontext(), suppress(NameError):\n        print(base_rate)\n"
            "    arrive()\nrun()\n"
        ),
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
        "its call has an argument too many",
        "def run(lr):\n    arrive(lr)\nrun(1, 2)\n",
        "run(...)",
    ),
    (
        "one of its calls has an argument too many",
        (
            "def run(lr):\n    arrive(lr)\nrun(1)\n"
            "try:\n    run(1, 2)\nexcept TypeError:\n    pass\n"
        ),
        "",
    ),
    (
        "an argument of its call is undefined",
        "def run(lr):\n    arrive(lr)\nrun(base_rate)\n",
        "base_rate",
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
        "an argument too few of a method of a class",
        (
            "class Data:\n    @classmethod\n    def load(cls, folder, root):\n        return folder\n"
            "def run():\n    Data.load('a')\n    arrive()\nrun()\n"
        ),
        "Data.load(...)",
    ),
    (
        "arguments of a method of a class",
        (
            "class Data:\n    @classmethod\n    def load(cls, folder):\n        return folder\n"
            "    @staticmethod\n    def store(folder):\n        return folder\n"
            "def run():\n    Data.load('a')\n    Data().load('a')\n    Data.store('a')\n"
            "    Data().store('a')\n    arrive()\nrun()\n"
        ),
        "",
    ),
    (
        "an argument too few of a method of an object",
        (
            "class Data:\n    def load(self, folder, root):\n        return folder\n"
            "def run(data):\n    data.load('a')\n    arrive()\nrun(Data())\n"
        ),
        "data.load(...)",
    ),
    (
        "an argument too few of an object",
        (
            "class Data:\n    def __call__(self, folder, root):\n        return folder\n"
            "def run(data):\n    data('a')\n    arrive()\nrun(Data())\n"
        ),
        "data(...)",
    ),
    (
        "an argument that was bound before",
        (
            "from functools import partial\ndef load(folder, root):\n    return folder\n"
            "def run(data):\n    data('a')\n    arrive()\nrun(partial(load, 'b'))\n"
        ),
        "",
    ),
    (
        "an argument that was bound to a method before",
        (
            "from functools import partial\nclass Data:\n    def __init__(self):\n"
            "        self.load = partial(self.load, 'b')\n    def load(self, folder, root):\n"
            "        return folder\ndef run(data):\n    data.load('a')\n    arrive()\nrun(Data())\n"
        ),
        "",
    ),
    (
        "a method that never ends",
        (
            "class Runner:\n    def epoch(self):\n        print(base_rate)\n"
            "    def run(self):\n        self.epoch()\n        arrive()\nRunner().run()\n"
        ),
        "base_rate",
    ),
    (
        "a method that another one replaces",
        (
            "class Runner:\n    def epoch(self):\n        print(base_rate)\n"
            "    def run(self):\n        self.epoch()\n        arrive()\n"
            "class Small(Runner):\n    def epoch(self):\n        pass\nSmall().run()\n"
        ),
        "",
    ),
    (
        "numbers that do not fit",
        (
            "class Attention:\n    def __init__(self, dim, heads, width=4):\n"
            "        assert dim == heads * width, 'no'\n"
            "def run(dim=16):\n    size = 16\n    Attention(size, 8)\n    arrive()\nrun()\n"
        ),
        "Attention(...)",
    ),
    (
        "numbers that fit",
        (
            "class Attention:\n    def __init__(self, dim, heads, width=4):\n"
            "        assert dim == heads * width, 'no'\n"
            "def run(dim=16):\n    size = 16\n    Attention(size, 4)\n    arrive()\nrun()\n"
        ),
        "",
    ),
    (
        "numbers that may fit",
        (
            "class Attention:\n    def __init__(self, dim, heads, width=4):\n"
            "        assert dim == heads * width, 'no'\n"
            "def run(dim=12):\n    Attention(dim, 4)\n    arrive()\nrun(16)\n"
        ),
        "",
    ),
    (
        "a parameter that nobody passes",
        (
            "class Finder:\n    def __init__(self, rate, early=False):\n        self.early = early\n"
            "    def run(self):\n        if self.early and id(self) > 0:\n            arrive()\n"
            "Finder(1).run()\n"
        ),
        "self.early and id(self) > 0",
    ),
    (
        "a parameter that somebody passes",
        (
            "class Finder:\n    def __init__(self, rate, early=False):\n        self.early = early\n"
            "    def run(self):\n        if self.early and id(self) > 0:\n            arrive()\n"
            "Finder(1).run()\nFinder(1, True).run()\n"
        ),
        "",
    ),
    (
        "a keyword that a builtin does not take",
        (
            "def run():\n    for turn, item in enumerate('ab', desc='training'):\n"
            "        arrive(turn, item)\nrun()\n"
        ),
        "enumerate(...)",
    ),
    (
        "a keyword that a builtin takes",
        (
            "def run():\n    for turn, item in enumerate('ab', start=3):\n"
            "        arrive(turn, item)\nrun()\n"
        ),
        "",
    ),
    (
        "a keyword of a function that has the name of a builtin",
        (
            "def enumerate(items, desc):\n    return [(desc, item) for item in items]\n"
            "def run():\n    for turn, item in enumerate('ab', desc='training'):\n"
            "        arrive(turn, item)\nrun()\n"
        ),
        "",
    ),
    (
        "a number where a constructor goes through names",
        (
            "class Reader:\n    def __init__(self, folder, names=('a',)):\n"
            "        for name in names:\n            print(name)\n"
            "def run():\n    Reader('data', 22050)\n    arrive()\n    Reader('data', ('b',))\nrun()\n"
        ),
        "Reader(...)",
    ),
    (
        "a number that a constructor hands on",
        (
            "class Parts:\n    def __init__(self, names):\n        self.found = []\n"
            "        for name in names:\n            self.found.append(name)\n"
            "class Reader:\n    def __init__(self, folder, names=('a',), rate=1):\n"
            "        self.rate = rate\n        self.parts = Parts(names)\n"
            "def run():\n    Reader('data', 22050)\n    arrive()\n    Reader('data', ('b',))\nrun()\n"
        ),
        "Reader(...)",
    ),
    (
        "a number that a constructor hands on where it may",
        (
            "class Parts:\n    def __init__(self, names):\n        self.found = []\n"
            "        for name in names:\n            self.found.append(name)\n"
            "class Reader:\n    def __init__(self, folder, names=('a',), rate=1):\n"
            "        if isinstance(names, tuple):\n            self.parts = Parts(names)\n"
            "def run():\n    Reader('data', 22050)\n    arrive()\nrun()\n"
        ),
        "",
    ),
    (
        "a number that a constructor makes a list of",
        (
            "class Parts:\n    def __init__(self, names):\n"
            "        names = [names] if isinstance(names, int) else names\n"
            "        for name in names:\n            print(name)\n"
            "def run():\n    Parts(22050)\n    arrive()\nrun()\n"
        ),
        "",
    ),
    (
        "a name that is refused",
        (
            "def loss_of(kind):\n    if kind not in ('ce', 'bce'):\n        raise ValueError(kind)\n"
            "    return kind\ndef run():\n    loss_of('mse')\n    arrive()\nrun()\n"
        ),
        "loss_of(...)",
    ),
    (
        "a name that is refused where nothing else has returned",
        (
            "def loss_of(kind, known):\n    if kind in known:\n        return kind\n"
            "    if kind != 'ce':\n        raise ValueError(kind)\n    return kind\n"
            "def run(known):\n    loss_of('mse', known)\n    arrive()\nrun({'mse'})\n"
        ),
        "",
    ),
    (
        "a name that a generator would refuse",
        (
            "def losses_of(kind):\n    assert kind == 'ce'\n    yield kind\n"
            "def run():\n    losses_of('mse')\n    arrive()\nrun()\n"
        ),
        "",
    ),
    (
        "a name that is mended before",
        (
            "def loss_of(kind):\n    kind = kind.strip()\n    if kind not in ('ce', 'bce'):\n"
            "        raise ValueError(kind)\n    return kind\n"
            "def run():\n    loss_of(' ce')\n    arrive()\nrun()\n"
        ),
        "",
    ),
    (
        "nothing where something is needed",
        (
            "def loss_of(kind=None):\n    assert kind is not None\n    return kind\n"
            "def run():\n    loss_of()\n    arrive()\nrun()\n"
        ),
        "loss_of(...)",
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
    (
        "an attribute that nothing sets",
        (
            "class Runner:\n    def __init__(self):\n        self.net = 1\n"
            "    def run(self):\n        self.sampler.shuffle()\n        arrive()\nRunner().run()\n"
        ),
        "self.sampler",
    ),
    (
        "a method that nothing defines",
        (
            "class Runner:\n    def run(self):\n        self.prepare()\n        arrive()\n"
            "Runner().run()\n"
        ),
        "self.prepare",
    ),
    (
        "an attribute that nothing sets, of a class that is noted where it is made",
        (
            "def note(kind):\n    print(kind.__name__)\n"
            "class Noted(type):\n    def __new__(mcs, name, bases, body):\n"
            "        made = super().__new__(mcs, name, bases, body)\n        note(made)\n"
            "        return made\n"
            "class Runner(metaclass=Noted):\n    def run(self):\n        self.sampler\n"
            "        arrive()\nRunner().run()\n"
        ),
        "self.sampler",
    ),
    (
        "an attribute that a metaclass sets",
        (
            "class Sampling(type):\n    def __init__(cls, name, bases, body):\n"
            "        super().__init__(name, bases, body)\n        setattr(cls, 'sam' + 'pler', 1)\n"
            "class Runner(metaclass=Sampling):\n    def run(self):\n        self.sampler\n"
            "        arrive()\nRunner().run()\n"
        ),
        "",
    ),
    (
        "an attribute of an heir",
        (
            "class Runner:\n    def run(self):\n        self.prepare()\n        arrive()\n"
            "class Small(Runner):\n    def prepare(self):\n        pass\nSmall().run()\n"
        ),
        "",
    ),
    (
        "an attribute of what an heir has beside it",
        (
            "class Runner:\n    def run(self):\n        self.prepare()\n        arrive()\n"
            "class Prepared:\n    prepare = print\n"
            "class Small(Runner, Prepared):\n    pass\nSmall().run()\n"
        ),
        "",
    ),
    (
        "an attribute that is set by its name",
        (
            "class Runner:\n    def run(self):\n        self.prepare()\n        arrive()\n"
            "runner = Runner()\nsetattr(runner, 'prepare', print)\nrunner.run()\n"
        ),
        "",
    ),
    (
        "an attribute of a thread",
        (
            "import threading\nclass Runner(threading.Thread):\n"
            "    def run(self):\n        print(self.ident)\n        arrive()\n"
            "runner = Runner()\nrunner.start()\nrunner.join()\n"
        ),
        "",
    ),
    (
        "an attribute of what comes first",
        (
            "import types\nclass Runner:\n    def run(options):\n        print(options.rate)\n"
            "        arrive()\nRunner.run(types.SimpleNamespace(**{'ra' + 'te': 1}))\n"
        ),
        "",
    ),
    (
        "an attribute of a module",
        (
            "class Runner:\n    def __getattr__(self, name):\n        return print\n"
            "    def run(self):\n        self.prepare()\n        arrive()\nRunner().run()\n"
        ),
        "",
    ),
    (
        "a call behind what raises",
        ("def fit():\n    arrive()\ndef main():\n    lr = base_rate\n    fit()\nmain()\n"),
        "base_rate",
    ),
    (
        "one call of two behind what raises",
        (
            "def fit():\n    arrive()\n"
            "def main():\n    lr = base_rate\n    fit()\n"
            "try:\n    main()\nexcept NameError:\n    fit()\n"
        ),
        "",
    ),
    (
        "a function that somebody takes along",
        (
            "def fit():\n    arrive()\n"
            "def main():\n    lr = base_rate\n    fit()\n"
            "{'fit': fit}['fit']()\nmain()\n"
        ),
        "",
    ),
    (
        "functions that call each other",
        (
            "def fit(left=2):\n    arrive()\n    again(left - 1)\n"
            "def again(left):\n    if left:\n        fit(left)\nfit()\n"
        ),
        "",
    ),
    ("a file that raises", "def fit():\n    arrive()\nrate = base_rate\nfit()\n", "base_rate"),
    (
        "a file that may raise",
        "import sys\nif sys.argv[9:]:\n    rate = base_rate\ndef fit():\n    arrive()\nfit()\n",
        "",
    ),
    ("a file that raises at last", "def fit():\n    arrive()\nfit()\nrate = base_rate\n", ""),
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


def test_a_setting_is_changed_where_it_stands(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "class Settings:\n    early = False\n\ndef arrive():\n    pass\n\n"
        "def run():\n    if Settings.early:\n        arrive()\nrun()\n"
    )
    assert doubt_about_arriving(script) == ""


#: (name, what the file `losses.py` holds, how it is imported, what no run comes behind)
IMPORTS = (
    ("a name that is there", "class Margin:\n    pass\n", "from losses import Margin", ""),
    ("a name that is not", "class Margin:\n    pass\n", "from losses import Angle", "Angle"),
    ("one of two", "class Margin:\n    pass\n", "from losses import Margin, Angle", "Angle"),
    ("a name in a branch", "if True:\n    Angle = 1\n", "from losses import Angle", ""),
    ("a name that is imported", "from math import sin as Angle\n", "from losses import Angle", ""),
    ("a name from a star", "from math import *\n", "from losses import sin", ""),
    (
        "a name that a function gives",
        "def __getattr__(name):\n    return 1\n",
        "from losses import Angle",
        "",
    ),
    (
        "a name that may be missing",
        "Margin = 1\n",
        "try:\n    from losses import Angle\nexcept ImportError:\n    pass",
        "",
    ),
    ("a module", "Margin = 1\n", "import losses", ""),
)


@pytest.mark.parametrize(
    ("losses", "line", "why"), [row[1:] for row in IMPORTS], ids=[r[0] for r in IMPORTS]
)
@pytest.mark.parametrize("is_inside", [False, True], ids=["at the top", "in a function"])
def test_an_import_of_a_name_that_its_module_lacks_raises(
    losses: str, line: str, why: str, is_inside: bool, tmp_path: Path
) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "losses.py").write_text(losses)
    script = tmp_path / "train.py"
    if is_inside:
        line = textwrap.indent(line, "    ")
        body = f"def fit():\n{line}\n    arrive()\nfit()\n"
    else:
        body = f"{line}\ndef fit():\n    arrive()\nfit()\n"
    script.write_text("def arrive():\n    print('arrived')\n\n" + body)
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert ("arrived" in ran.stdout) is not bool(why)
    assert doubt_about_arriving(script) == why


#: (name, files beside it, import, what is done with it, why no run comes behind it)
PACKAGES = (
    ("what it lacks", {"__init__.py": "Margin = 1\n"}, "Angle", "Angle()", "Angle"),
    ("a base that it lacks", {"__init__.py": ""}, "Angle", "class Wide(Angle): pass", "Angle"),
    ("what it has", {"__init__.py": "Angle = float\n"}, "Angle", "Angle()", ""),
    ("renamed", {"__init__.py": ""}, "Angle as Other", "Other()", "Angle"),
    ("a module", {"__init__.py": "", "angle.py": ""}, "angle", "angle.__name__", ""),
    (
        "by a star",
        {"__init__.py": "from .angle import *\n", "angle.py": "Angle = float\n"},
        "Angle",
        "Angle()",
        "",
    ),
    (
        "on demand",
        {"__init__.py": "def __getattr__(name):\n    return float\n"},
        "Angle",
        "Angle()",
        "",
    ),
)


@pytest.mark.parametrize(
    ("files", "name", "use", "why"), [row[1:] for row in PACKAGES], ids=[r[0] for r in PACKAGES]
)
def test_a_package_has_what_its_text_says(
    files: dict[str, str], name: str, use: str, why: str, tmp_path: Path
) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "losses").mkdir()
    for file, text in files.items():
        (tmp_path / "losses" / file).write_text(text)
    script = tmp_path / "train.py"
    script.write_text(
        f"from losses import {name}\ndef arrive():\n    print('arrived')\n"
        f"def fit():\n    {use}\n    arrive()\nfit()\n"
    )
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert ("arrived" in ran.stdout) is not bool(why)
    assert doubt_about_arriving(script) == why


def test_a_package_may_hold_a_compiled_module(tmp_path: Path) -> None:
    """What is only read of a name may be a module that no text shows."""
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "losses").mkdir()
    (tmp_path / "losses" / "__init__.py").write_text("")
    script = tmp_path / "train.py"
    script.write_text("from losses import _C\n_C.angle()\narrive()\n")
    assert doubt_about_arriving(script) == ""


#: (name, files beside it, program): a run comes to its call of `arrive`
PROJECTS = (
    (
        "a module of a package",
        {"losses/__init__.py": "", "losses/angle.py": ""},
        "from losses import angle\ndef fit():\n    arrive()\nfit()\n",
    ),
    (
        "an attribute that another file sets",
        {"setup.py": "def prepare(runner):\n    runner.sampler = str()\n"},
        (
            "import setup\nclass Runner:\n    def run(self):\n        self.sampler.upper()\n"
            "        arrive()\nrunner = Runner()\nsetup.prepare(runner)\nrunner.run()\n"
        ),
    ),
    (
        "an attribute of what an heir has beside it",
        {"beside.py": "class Prepared:\n    def prepare(self):\n        pass\n"},
        (
            "from beside import Prepared as Ready\nclass Runner:\n    def run(self):\n"
            "        self.prepare()\n        arrive()\n"
            "class Small(Runner, Ready):\n    pass\nSmall().run()\n"
        ),
    ),
)


@pytest.mark.parametrize(
    ("files", "program"), [row[1:] for row in PROJECTS], ids=[r[0] for r in PROJECTS]
)
def test_other_files_have_their_part_in_it(
    files: dict[str, str], program: str, tmp_path: Path
) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    script = tmp_path / "train.py"
    script.write_text("def arrive():\n    print('arrived')\n\n" + program)
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert "arrived" in ran.stdout
    assert doubt_about_arriving(script) == ""


def test_a_module_of_that_name_may_be_another_one(tmp_path: Path) -> None:
    """Which folder comes first is decided where the script is started."""
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "old").mkdir()
    (tmp_path / "losses.py").write_text("Margin = 1\n")
    (tmp_path / "old" / "losses.py").write_text("Angle = 1\n")
    script = tmp_path / "train.py"
    script.write_text("from losses import Angle\ndef fit(arrive):\n    arrive()\nfit(print)\n")
    assert doubt_about_arriving(script) == ""


RELATIVE = "from .tools import rate\n\ndef fit():\n    arrive(rate)\n\ndef arrive(_):\n    print('arrived')\n"

#: (name, how it is started, files beside src/train.py and src/tools.py, whether a run arrives)
PACKAGES = (
    ("by its folder", ["src/main.py"], {"src/main.py": "from train import fit\nfit()\n"}, False),
    ("as a module", ["src/main.py"], {"src/main.py": "import train\ntrain.fit()\n"}, False),
    (
        "by its package",
        ["main.py"],
        {"main.py": "from src.train import fit\nfit()\n"},
        True,
    ),
    (
        "from its package",
        ["-m", "src.main"],
        {"src/main.py": "from .train import fit\nfit()\n"},
        True,
    ),
    (
        "by both",
        ["main.py"],
        {
            "main.py": "from src import train\ntrain.fit()\n",
            "src/other.py": "from train import fit\nfit()\n",
        },
        True,
    ),
)


@pytest.mark.parametrize(
    ("started", "files", "arrives"), [row[1:] for row in PACKAGES], ids=[r[0] for r in PACKAGES]
)
def test_a_relative_import_needs_a_package(
    started: list[str], files: dict[str, str], arrives: bool, tmp_path: Path
) -> None:
    files = {"pyproject.toml": "", "src/tools.py": "rate = 1\n", "src/train.py": RELATIVE, **files}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    command = [sys.executable, *started]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ("arrived" in ran.stdout) is arrives
    assert bool(doubt_about_arriving(tmp_path / "src" / "train.py")) is not arrives


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
    (
        "a script that calls another one",
        "exp_01.py",
        (
            "def fit():\n    arrive()\ndef test():\n    pass\n"
            "if __name__ == '__main__':\n    test()\n"
        ),
        False,
    ),
    (
        "a script that calls it",
        "exp_01.py",
        "def fit():\n    arrive()\nif __name__ == '__main__':\n    fit()\n",
        True,
    ),
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


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ("from exp_01 import fit\nfit()\n", ""),
        ("import exp_01\nexp_01.fit()\n", ""),
        ("import exp_01\nprint(exp_01)\n", "fit"),
    ],
)
def test_another_file_may_take_what_a_script_does_not_call(
    other: str, why: str, tmp_path: Path
) -> None:
    script = tmp_path / "exp_01.py"
    script.write_text(
        "def arrive():\n    pass\n\ndef fit():\n    arrive()\n"
        "if __name__ == '__main__':\n    print('done')\n"
    )
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "run.py").write_text(other)
    assert doubt_about_arriving(script) == why


def doubt_about_arriving(script: Path) -> str:
    """What `Unreached` names where the program calls `arrive`."""
    source = script.read_text()
    view = view_of(str(script), source, ast.parse(source), path=str(script))
    (site,) = (site for site in view.module.calls if site.method == "arrive")
    found = view.unreached.doubt(site.node, site.function)
    return found.subject if found is not None else ""


#: (name, body of a loop around a call of `arrive`, why there is no second round)
ROUNDS = (
    ("plain", "arrive()", ""),
    ("raises behind", "arrive()\n        print(base_rate)", "base_rate"),
    ("raises before", "print(base_rate)\n        arrive()", "base_rate"),
    ("may raise", "arrive()\n        if turn > 5:\n            print(base_rate)", ""),
    ("raises in its first round only", "arrive()\n        turn or print(base_rate)", ""),
    (
        "raises where it is expected",
        (
            "arrive()\n        try:\n            print(base_rate)\n        except NameError:\n"
            "            pass"
        ),
        "",
    ),
)


@pytest.mark.parametrize(("body", "why"), [row[1:] for row in ROUNDS], ids=[r[0] for r in ROUNDS])
def test_a_loop_goes_round_as_python_does(body: str, why: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "def arrive():\n    print('arrived')\n\n"
        f"def run():\n    for turn in (1, 2):\n        {body}\nrun()\n"
    )
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert (ran.stdout.count("arrived") < 2) is bool(why)
    source = script.read_text()
    view = view_of(str(script), source, ast.parse(source), path=str(script))
    (site,) = (site for site in view.module.calls if site.method == "arrive")
    loop = next(node for node in site.function.nodes if isinstance(node, ast.For))
    found = view.unreached.no_second_round(loop, site.function)
    assert (found.subject if found is not None else "") == why
