"""A function that runs another one, however it gets at it, is among those that lead there.

Whether it does, Python says: the programs are run.
"""

from __future__ import annotations

import ast
import sys
import types

import pytest

from amplint.code.module import build_module
from amplint.flow.leads import leading_functions, leading_words

#: Ways from `entry` to `goal`; `other` does much the same, and never gets there.
WAYS = {
    "by name": "def entry():\n    goal()\n",
    "through another": "def middle():\n    goal()\ndef entry():\n    middle()\n",
    "under another name": "same = goal\ndef entry():\n    same()\n",
    "under two other names": "same = goal\nagain = same\ndef entry():\n    again()\n",
    "as an argument": "def run(call):\n    call()\ndef entry():\n    run(goal)\n",
    "as a default": "def run(call=goal):\n    call()\ndef entry():\n    run()\n",
    "from a table": "TABLE = {'a': goal}\ndef entry():\n    TABLE['a']()\n",
    "from a filled table": "TABLE = {}\nTABLE['a'] = goal\ndef entry():\n    TABLE['a']()\n",
    "bound": "from functools import partial\ncall = partial(goal)\ndef entry():\n    call()\n",
    "by a string": "import sys\ndef entry():\n    getattr(sys.modules[__name__], 'goal')()\n",
    "in a method": (
        "class Box:\n    def open(self):\n        goal()\ndef entry():\n    Box().open()\n"
    ),
    "in a constructor": (
        "class Box:\n    def __init__(self):\n        goal()\ndef entry():\n    Box()\n"
    ),
    "as a method": "class Box:\n    open = staticmethod(goal)\ndef entry():\n    Box.open()\n",
    "of an object that is made elsewhere": (
        "class Box:\n    def __call__(self):\n        goal()\n"
        "class Owner:\n    def __init__(self):\n        self.box = Box()\n"
        "owner = Owner()\ndef entry():\n    owner.box()\n"
    ),
    "in a decorator": (
        "def wraps(function):\n    def inner():\n        goal()\n    return inner\n"
        "@wraps\ndef entry():\n    pass\n"
    ),
    "in a nested function": "def entry():\n    def inner():\n        goal()\n    inner()\n",
    "in a lambda": "call = lambda: goal()\ndef entry():\n    call()\n",
}
GOAL = "reached = []\ndef goal():\n    reached.append(1)\n"
OTHER = "def helper():\n    print('none')\ndef other():\n    helper()\n"


@pytest.mark.parametrize("way", WAYS)
def test_what_runs_a_function_leads_to_it(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = GOAL + WAYS[way] + OTHER
    module = types.ModuleType("ways")
    monkeypatch.setitem(sys.modules, "ways", module)
    exec(compile(source, "ways.py", "exec"), module.__dict__)  # noqa: S102
    module.entry()
    assert module.reached == [1]
    module.other()
    assert module.reached == [1]

    read = build_module("ways.py", source, ast.parse(source))
    found = {item.name for item in leading_functions(read, leading_words(read, ("goal",)))}
    assert "entry" in found
    assert not {"other", "helper"} & found
