"""Which attributes objects have, and when: what Python and torch do with each program is executed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.values.test_unpacking import is_judged_as_it_runs

torch = pytest.importorskip("torch")

FORGE = """
class Forge:
    def __init__(self, heat=3):
        self.heat = heat
        {more}
    def melt(self):
        return self.heat
{behind}
def shift():
    forge = Forge()
    {line}
    arrive()
shift()
"""
BLOCK = """
class Block(nn.Module):
    {body}
    def __init__(self, width=2):
        {lines}
        arrive()
{behind}
Block()
"""


def forge(line: str, more: str = "pass", behind: str = "") -> str:
    return FORGE.format(line=line, more=more, behind=behind)


def block(lines: str, body: str = "depth = 1", behind: str = "") -> str:
    return BLOCK.format(lines=lines.replace("\n", "\n        "), body=body, behind=behind)


ORE = "from dataclasses import dataclass\n@dataclass\nclass Ore:\n    grade: float = 0.4\n"
SMELTER = "from abc import ABC, abstractmethod\nclass Smelter({base}):\n    @abstractmethod\n    def pour(self):\n        ...\n"

#: (name, program, what cannot be; "" where a run arrives)
PROGRAMS = (
    ("a method of another name", forge("forge.smelt()"), "forge.smelt"),
    ("its method", forge("forge.melt()"), ""),
    ("its field", forge("forge.heat"), ""),
    ("asked first", forge("hasattr(forge, 'smelt') and forge.smelt()"), ""),
    ("hung on before", forge("forge.smelt = print\n    forge.smelt()"), ""),
    ("hung on the class", forge("forge.smelt()", behind="Forge.smelt = print"), ""),
    ("set by a computed name", forge("forge.smelt()", "setattr(self, 'sm' + 'elt', print)"), ""),
    (
        "set by a computed name from outside",
        forge(
            "cool(forge)\n    forge.smelt()",
            behind="def cool(x):\n    setattr(x, 'sm' + 'elt', print)",
        ),
        "",
    ),
    (
        "put into its dict from outside",
        forge(
            "cool(forge)\n    forge.smelt()",
            behind="def cool(x):\n    x.__dict__['sm' + 'elt'] = print",
        ),
        "",
    ),
    (
        "of an heir's object",
        forge(
            "forge = Blast()\n    forge.smelt()",
            behind="class Blast(Forge):\n    def smelt(self):\n        pass",
        ),
        "",
    ),
    (
        "of one of two",
        forge(
            "if len(str(forge)):\n        forge = Mill()\n    forge.grind()",
            behind="class Mill:\n    def grind(self):\n        pass",
        ),
        "",
    ),
    (
        "another object by then",
        forge("forge = str(forge)\n    forge.upper()"),
        "",
    ),
    (
        "under a decorator",
        "def strong(kind):\n    kind.smelt = lambda self: 1\n    return kind\n@strong\n"
        + forge("forge.smelt()").strip(),
        "",
    ),
    (
        "of a base out of sight",
        "from threading import local\n"
        + forge("forge.smelt = 1\n    forge.smelt").replace("class Forge:", "class Forge(local):"),
        "",
    ),
    ("a field of a dataclass", ORE + "ore = Ore()\nore.grade\narrive()\n", ""),
    ("no field of a dataclass", ORE + "ore = Ore(0.2)\nore.purity\narrive()\n", "ore.purity"),
    (
        "a method of a network of another name",
        "class Head(nn.Module):\n    pass\nhead = Head().to('cpu')\nhead.thaw()\narrive()\n",
        "head.thaw",
    ),
    (
        "torch's method",
        "class Head(nn.Module):\n    pass\nhead = Head().to('cpu')\nhead.requires_grad_()\narrive()\n",
        "",
    ),
    (
        "of what wraps a network",
        (
            "class Head(nn.Module):\n    def forward(self, x):\n        return x\n"
            "head = nn.DataParallel(Head())\nhead.module\nhead.device_ids\narrive()\n"
        ),
        "",
    ),
    (
        "read before it is set",
        (
            "class Kiln:\n    def __init__(self, tiles):\n        self.rows = len(self.tiles)\n"
            "        self.tiles = tiles\n        arrive()\nKiln([1])\n"
        ),
        "self.tiles",
    ),
    (
        "read behind",
        (
            "class Kiln:\n    def __init__(self, tiles):\n        self.tiles = tiles\n"
            "        self.rows = len(self.tiles)\n        arrive()\nKiln([1])\n"
        ),
        "",
    ),
    (
        "read before, and set by a base",
        (
            "class Oven:\n    def __init__(self):\n        self.tiles = ()\n"
            "class Kiln(Oven):\n    def __init__(self, tiles):\n        super().__init__()\n"
            "        self.rows = len(self.tiles)\n        self.tiles = tiles\n        arrive()\nKiln([1])\n"
        ),
        "",
    ),
    (
        "read before, and set by an heir",
        (
            "class Kiln:\n    def __init__(self, tiles):\n        self.rows = len(self.tiles)\n"
            "        self.tiles = tiles\n        arrive()\n"
            "class Small(Kiln):\n    def __init__(self):\n        self.tiles = ()\n"
            "        super().__init__([1])\nSmall()\n"
        ),
        "",
    ),
    (
        "read before, and set by a method",
        (
            "class Kiln:\n    def __init__(self, tiles):\n        self.clear()\n"
            "        self.rows = len(self.tiles)\n        self.tiles = tiles\n        arrive()\n"
            "    def clear(self):\n        self.tiles = ()\nKiln([1])\n"
        ),
        "",
    ),
    (
        "read before, and there for all",
        (
            "class Kiln:\n    tiles = ()\n    def __init__(self, tiles):\n"
            "        self.rows = len(self.tiles)\n        self.tiles = tiles\n        arrive()\nKiln([1])\n"
        ),
        "",
    ),
    (
        "read before in a loop that sets it",
        (
            "class Kiln:\n    def __init__(self, tiles):\n        for turn in range(2):\n"
            "            if turn:\n                print(self.tiles)\n            self.tiles = tiles\n"
            "        arrive()\nKiln([1])\n"
        ),
        "",
    ),
    (
        "a property of that name",
        (
            "class Kiln:\n    def __init__(self, tiles):\n        self.rows = len(self.tiles)\n"
            "        self.tiles = tiles\n        arrive()\n"
            "    @property\n    def tiles(self):\n        return ()\n"
            "    @tiles.setter\n    def tiles(self, given):\n        pass\nKiln([1])\n"
        ),
        "",
    ),
    ("a module too early", block("self.body = nn.Linear(2, width)"), "super().__init__()"),
    ("in time", block("super().__init__()\nself.body = nn.Linear(2, width)"), ""),
    ("in time, as of old", block("nn.Module.__init__(self)\nself.body = nn.Linear(2, width)"), ""),
    (
        "too early, and set up later",
        block("self.body = nn.Linear(2, width)\nsuper(Block, self).__init__()"),
        "super().__init__()",
    ),
    ("a number early", block("self.width = width\nsuper().__init__()"), ""),
    (
        "set up by another method",
        block(
            "self.prepare()\nself.body = nn.Linear(2, width)",
            "def prepare(self):\n        super().__init__()",
        ),
        "",
    ),
    (
        "set up by its heir",
        block(
            "self.body = nn.Linear(2, width)",
            behind="class Wide(Block):\n    def __init__(self):\n        nn.Module.__init__(self)\n"
            "        super().__init__(4)\nBlock = Wide",
        ),
        "",
    ),
    (
        "no module of torch",
        block("self.body = nn.Linear(2, width)").replace("(nn.Module)", ""),
        "",
    ),
    (
        "an object of an abstract class",
        SMELTER.format(base="ABC") + "Smelter()\narrive()\n",
        "Smelter.pour",
    ),
    (
        "an heir that leaves it abstract",
        SMELTER.format(base="ABC") + "class Small(Smelter):\n    pass\nSmall()\narrive()\n",
        "Small.pour",
    ),
    (
        "an heir that does not",
        SMELTER.format(base="ABC")
        + "class Small(Smelter):\n    def pour(self):\n        pass\nSmall()\narrive()\n",
        "",
    ),
    (
        "an heir that binds it",
        SMELTER.format(base="ABC") + "class Small(Smelter):\n    pour = print\nSmall()\narrive()\n",
        "",
    ),
    (
        "an heir that has it from another base",
        SMELTER.format(base="ABC")
        + "class Ladle:\n    def pour(self):\n        pass\n"
        + "class Small(Ladle, Smelter):\n    pass\nSmall()\narrive()\n",
        "",
    ),
    ("nobody refuses it", SMELTER.format(base="object") + "Smelter()\narrive()\n", ""),
)


@pytest.mark.parametrize(
    ("program", "why"), [row[1:] for row in PROGRAMS], ids=[r[0] for r in PROGRAMS]
)
def test_objects_have_what_python_says(program: str, why: str, tmp_path: Path) -> None:
    assert is_judged_as_it_runs(program, why, tmp_path)
