"""How many values something is taken apart into: what torch and Python give is executed."""

from __future__ import annotations

import ast
import contextlib
import io
import runpy
from pathlib import Path

import pytest

from amplint.values.unpacking import Unpacking
from amplint.view import view_of
from tests.values.test_unreached import doubt_about_arriving

pytest.importorskip("torch")

START = """
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, random_split

def arrive(*given):
    print('arrived')

"""
TRIPLES = """
class Rows(Dataset):
    def __init__(self, folds=False):
        self.folds = folds
    def __len__(self):
        return 4
    def __getitem__(self, index):
        if self.folds:
            return torch.zeros(2), index, index % 2
        return torch.ones(2), index, 0
"""
PAIRS = TRIPLES.replace(", index % 2", "").replace(", index, 0", ", index")
EITHER = TRIPLES.replace(", index, 0", ", index")
NET = """
class Net(nn.Module):
    def __init__(self, heads=2):
        super().__init__()
        self.body = nn.Linear(2, 2)
    def forward(self, x):
        x = self.body(x)
        return x, x.mean(), x.sum()
"""
TRAINER = """
class Trainer:
    def __init__(self, batches):
        self.batches = batches
    def epoch(self):
        for x, y in self.batches:
            arrive()
"""

#: (name, program, the targets that cannot take what they get; "" where a run arrives)
PROGRAMS = (
    ("as many", PAIRS + "for x, y in DataLoader(Rows()):\n    arrive()\n", ""),
    ("one more", TRIPLES + "for x, y in DataLoader(Rows()):\n    arrive()\n", "x, y"),
    ("one of two ways", EITHER + "for x, y in DataLoader(Rows()):\n    arrive()\n", ""),
    ("a star", TRIPLES + "for x, *y in DataLoader(Rows()):\n    arrive()\n", ""),
    (
        "a star among too many",
        TRIPLES + "for x, y, z, w, *v in DataLoader(Rows()):\n    arrive()\n",
        "x, y, z, w, *v",
    ),
    (
        "counted",
        TRIPLES + "for i, (x, y) in enumerate(DataLoader(Rows(), 2)):\n    arrive()\n",
        "i, (x, y)",
    ),
    (
        "counted, as many",
        TRIPLES + "for i, (x, y, z) in enumerate(DataLoader(Rows(), 2), 1):\n    arrive()\n",
        "",
    ),
    (
        "beside another",
        TRIPLES
        + "both = zip(DataLoader(Rows()), range(4))\nfor (x, y), i in both:\n    arrive()\n",
        "(x, y), i",
    ),
    ("a batch", TRIPLES + "for b in DataLoader(Rows()):\n    x, y = b\n    arrive()\n", "x, y"),
    (
        "the first batch",
        TRIPLES + "x, y = next(iter(DataLoader(Rows())))\narrive()\n",
        "x, y",
    ),
    (
        "a part of the data",
        TRIPLES + "for x, y in DataLoader(Subset(Rows(), [0])):\n    arrive()\n",
        "x, y",
    ),
    (
        "one part of the data",
        TRIPLES
        + "rows, rest = random_split(Rows(), [3, 1])\nfor x, y in DataLoader(rows):\n    arrive()\n",
        "x, y",
    ),
    (
        "a dict",
        TRIPLES.replace("torch.ones(2), index, 0", "{'x': 1, 'y': 2, 'z': 3}").replace(
            "torch.zeros(2), index, index % 2", "{'x': 1, 'y': 2, 'z': index}"
        )
        + "for x, y in DataLoader(Rows()):\n    arrive()\n",
        "x, y",
    ),
    (
        "a dict that grows",
        TRIPLES
        + "class Small(Rows):\n    def __getitem__(self, index):\n"
        + "        found = {'x': index}\n        found['y'] = index\n        return found\n"
        + "for x, y in DataLoader(Small()):\n    arrive()\n",
        "",
    ),
    (
        "collated otherwise",
        TRIPLES
        + "def joined(rows):\n    return torch.zeros(2), torch.zeros(2)\n"
        + "for x, y in DataLoader(Rows(), collate_fn=joined):\n    arrive()\n",
        "",
    ),
    (
        "collated otherwise, and too many",
        PAIRS
        + "for x, y in DataLoader(Rows(), 2, collate_fn=lambda rows: (rows, 1, 2)):\n    arrive()\n",
        "x, y",
    ),
    (
        "collated by a method of the data",
        TRIPLES
        + "class Joined(Rows):\n    def join(self, rows):\n        return torch.zeros(2), rows\n"
        + "rows = Joined()\n"
        + "for x, y, z in DataLoader(rows, collate_fn=rows.join):\n    arrive()\n",
        "x, y, z",
    ),
    (
        "collated by a method that fits",
        TRIPLES
        + "class Joined(Rows):\n    def join(self, rows):\n        return torch.zeros(2), rows\n"
        + "rows = Joined()\n"
        + "for x, y in DataLoader(rows, collate_fn=rows.join):\n    arrive()\n",
        "",
    ),
    (
        "a stream",
        (
            "class Rows(IterableDataset):\n    def __iter__(self):\n        for i in range(3):\n"
            "            yield torch.ones(2), i, i\n"
            "for x, y in DataLoader(Rows()):\n    arrive()\n"
        ),
        "x, y",
    ),
    (
        "through a trainer",
        TRIPLES + TRAINER + "Trainer(DataLoader(Rows(), batch_size=2)).epoch()\n",
        "x, y",
    ),
    (
        "through a trainer that gets two",
        TRIPLES
        + TRAINER
        + "for one in (DataLoader(Rows()), [(1, 2)]):\n    with __import__('contextlib')"
        + ".suppress(ValueError):\n        Trainer(one).epoch()\n",
        "",
    ),
    ("a model", NET + "loss, out = Net()(torch.ones(1, 2))\narrive()\n", "loss, out"),
    ("a model, as many", NET + "x, loss, out = Net()(torch.ones(1, 2))\narrive()\n", ""),
    (
        "a model on its device",
        NET + "net = Net().to('cpu')\nloss, out = net(torch.ones(1, 2))\narrive()\n",
        "loss, out",
    ),
    (
        "a model as an attribute",
        NET
        + "class Trainer:\n    def __init__(self, net):\n        self.net = net\n"
        + "    def step(self, x):\n        loss, out = self.net(x)\n        arrive()\n"
        + "Trainer(Net()).step(torch.ones(1, 2))\n",
        "loss, out",
    ),
    (
        "a model that gives one tensor",
        NET.replace("x, x.mean(), x.sum()", "x") + "a, b = Net()(torch.ones(2, 2))\narrive()\n",
        "",
    ),
    (
        "a function",
        "def both(x):\n    return x, x + 1, 3\na, b = both(1)\narrive()\n",
        "a, b",
    ),
    (
        "a decorated function",
        (
            "def halved(f):\n    return lambda x: f(x)[:2]\n"
            "@halved\ndef both(x):\n    return x, x + 1, 3\na, b = both(1)\narrive()\n"
        ),
        "",
    ),
    (
        "a list that grows",
        (
            "def rows():\n    found = [1]\n    found.append(2)\n    return found\n"
            "a, b = rows()\narrive()\n"
        ),
        "",
    ),
    (
        "a generator",
        "def rows():\n    yield 1, 2, 3\nfor a, b in rows():\n    arrive()\n",
        "a, b",
    ),
    (
        "a call of a class that goes on iterating",
        TRIPLES
        + "class Ahead:\n    def __init__(self, batches):\n        self.batches = batches\n"
        + "    def __iter__(self):\n        for batch in self.batches:\n            yield batch\n"
        + "for x, y in Ahead(DataLoader(Rows())):\n    arrive()\n",
        "x, y",
    ),
    (
        "a dict that grows behind its call",
        "def rows():\n    return {'x': 1}\nfound = rows()\nfound['y'] = 2\na, b = found\narrive()\n",
        "",
    ),
    (
        "a list that grows behind its call",
        "def rows():\n    return [1]\nfound = rows()\nfound.append(2)\na, b = found\narrive()\n",
        "",
    ),
    (
        "keys for tensors",
        "def rows(x):\n    return {'x': x, 'y': x}\na, b = rows(1)\na.backward()\narrive()\n",
        "a",
    ),
    (
        "keys of batches",
        TRIPLES.replace("torch.ones(2), index, 0", "{'x': 1, 'y': 2}").replace(
            "torch.zeros(2), index, index % 2", "{'x': 1, 'y': 2}"
        )
        + "for x, y in DataLoader(Rows()):\n    x = x.to('cpu')\n    arrive()\n",
        "x",
    ),
    (
        "keys times a fraction",
        "RATE = 0.5\ndef rows(x):\n    return {'x': x, 'y': x}\na, b = rows(1)\nRATE * a\narrive()\n",
        "a",
    ),
    (
        "keys as keys",
        "def rows(x):\n    return {'x': x, 'y': x}\na, b = rows(1)\na.upper(), 2 * b\narrive()\n",
        "",
    ),
    (
        "entries by their keys",
        "def rows(x):\n    return {'x': x, 'y': x}\na, b = rows(1.5).values()\na.hex()\narrive()\n",
        "",
    ),
    (
        "taken by a handler",
        "def both():\n    return 1, 2, 3\ntry:\n    a, b = both()\nexcept ValueError:\n    pass\narrive()\n",
        "",
    ),
    (
        "before a handler",
        "def both():\n    return 1, 2, 3\ntry:\n    a, b = both()\n    arrive()\nexcept ValueError:\n    pass\n",
        "a, b",
    ),
)


@pytest.mark.parametrize(
    ("program", "why"), [row[1:] for row in PROGRAMS], ids=[r[0] for r in PROGRAMS]
)
def test_values_are_counted_as_python_counts_them(program: str, why: str, tmp_path: Path) -> None:
    assert is_judged_as_it_runs(program, why, tmp_path)


def is_judged_as_it_runs(program: str, why: str, folder: Path) -> bool:
    """Whether a program comes to its call of `arrive` as amplint says, and else for that reason."""
    script = folder / "train.py"
    script.write_text(START + program)
    told = io.StringIO()
    raised = contextlib.suppress(ValueError, TypeError, AttributeError)
    with contextlib.redirect_stdout(told), raised:
        runpy.run_path(str(script), run_name="__main__")
    assert ("arrived" in told.getvalue()) is not bool(why)
    return doubt_about_arriving(script) == why


QUIET = """
def weigh(x, y=None):
    total = x * 2
    {last}
"""
HEADLESS = """
class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(2, 2)
    def forward(self, x):
        {last}
{behind}
pair = Pair()
found = pair(torch.ones(1, 2))
"""
SHELVES = "shelves = {k: DataLoader(Rows(), 2) for k in ('near', 'far')}\n"


def headless(use: str, last: str = "self.body(x)", behind: str = "") -> str:
    return HEADLESS.format(last=last, behind=behind) + use + "\narrive()\n"


def quiet(use: str, last: str = "print(total)") -> str:
    return QUIET.format(last=last) + use + "\narrive()\n"


#: (name, program, what is None, or cannot be taken apart; "" where a run arrives)
NOTHING = (
    ("an attribute of it", quiet("found = weigh(1)\nfound.real"), "found"),
    ("an attribute of a number", quiet("found = weigh(1)\nfound.real", "return total"), ""),
    ("an attribute that it has", quiet("weigh(1).__class__"), ""),
    ("a number of one way", quiet("weigh(1, 2) + 1", "if y:\n        return y"), ""),
    ("two of it", quiet("a, b = weigh(1)"), "a, b"),
    ("an entry of it", quiet("found = weigh(1)\nfound['a']"), "found"),
    ("a sum with it", quiet("1 + weigh(1)"), "weigh(1)"),
    ("in a text", quiet("'%s' % weigh(1)"), ""),
    ("unless it is None", quiet("found = weigh(1) or 2\nfound.real"), ""),
    ("told apart", quiet("found = weigh(1)\nif found is not None:\n    found.real"), ""),
    ("bound again", quiet("found = weigh(1)\nfound = 3\nfound.real"), ""),
    ("a generator", quiet("weigh(1).close()", "yield total"), ""),
    (
        "another in its place",
        quiet("import sys\nsys.modules[__name__].weigh = abs\nweigh = abs\nweigh(1).real"),
        "",
    ),
    (
        "decorated",
        "def told(function):\n    return lambda *given: 3\n@told" + quiet("weigh(1).real"),
        "",
    ),
    ("what a network gives", headless("found.mean()"), "found"),
    ("what a network returns", headless("found.mean()", "return self.body(x)"), ""),
    ("a loss of it", headless("loss = nn.MSELoss()\nloss(found, torch.ones(1))"), "loss(...)"),
    (
        "another loss of it",
        headless("torch.nn.functional.mse_loss(found, torch.ones(1))"),
        "torch.nn.functional.mse_loss(...)",
    ),
    (
        "what a hook gives instead",
        headless(
            "found = pair(torch.ones(1, 2))\nhook.remove()\nfound.mean()",
            behind=(
                "hook = nn.modules.module.register_module_forward_hook("
                "lambda m, i, o: torch.ones(1))"
            ),
        ),
        "",
    ),
    (
        "what an heir gives",
        headless(
            "found.mean()",
            behind="class Full(Pair):\n    def forward(self, x):\n        return x\nPair = Full",
        ),
        "",
    ),
    (
        "scaled",
        quiet(
            "scaler = torch.amp.GradScaler('cpu')\nloss = weigh(1)\nscaler.scale(loss).backward()"
        ),
        "scaler.scale(loss)",
    ),
    (
        "of a comprehension",
        TRIPLES + SHELVES + "for x, y in shelves['far']:\n    arrive()\n",
        "x, y",
    ),
    (
        "of a comprehension, as many",
        PAIRS + SHELVES + "for x, y in shelves['far']:\n    arrive()\n",
        "",
    ),
    (
        "of any of a display",
        TRIPLES
        + "shelves = {'near': DataLoader(Rows()), 'far': DataLoader(Rows(), 2)}\n"
        + "for name in ('near', 'far'):\n    for x, y in shelves[name]:\n        arrive()\n",
        "x, y",
    ),
    (
        "stored under computed keys since",
        TRIPLES + SHELVES + "for k in list(shelves):\n    shelves[k] = [(1, 2)]\n"
        "for x, y in shelves['far']:\n    arrive()\n",
        "",
    ),
    (
        "stored by another function since",
        TRIPLES
        + "def swap(some):\n    some['far'] = [(1, 2)]\n"
        + SHELVES
        + "swap(shelves)\nfor x, y in shelves['far']:\n    arrive()\n",
        "",
    ),
    (
        "the keys of a comprehension",
        TRIPLES + "both = {k: DataLoader(Rows()) for k in ('ab', 'cd')}\n"
        "for x, y in both:\n    arrive()\n",
        "",
    ),
    ("over a count", "for x in len([1, 2]):\n    pass\narrive()\n", "len([1, 2])"),
    ("over a number", "PASSES = 3\nfor x in PASSES:\n    pass\narrive()\n", "PASSES"),
    ("over a sum of lists", "for x in sum([[1], [2]], []):\n    pass\narrive()\n", ""),
    ("a module that is called", "import glob\nglob('*.pt')\narrive()\n", "glob"),
    ("its function that is called", "from glob import glob\nglob('*.pt')\narrive()\n", ""),
    (
        "a layer with an argument of another's",
        "nn.Conv2d(1, 1, kernel=3)\narrive()\n",
        "nn.Conv2d(...)",
    ),
    ("a layer", "nn.Conv2d(1, 1, kernel_size=3, padding='same')\narrive()\n", ""),
)


@pytest.mark.parametrize(
    ("program", "why"), [row[1:] for row in NOTHING], ids=[r[0] for r in NOTHING]
)
def test_what_is_none_or_a_number_is_used_as_python_says(
    program: str, why: str, tmp_path: Path
) -> None:
    assert is_judged_as_it_runs(program, why, tmp_path)


#: (name, how the loader is made, whether a batch of it can be None)
LOADERS = (
    ("by default", "DataLoader(Rows(), batch_size=2)", False),
    ("one by one", "DataLoader(Rows(), batch_size=None)", True),
    ("otherwise", "DataLoader(Rows(), collate_fn=lambda rows: None)", True),
)


@pytest.mark.parametrize(
    ("made", "may_be"), [row[1:] for row in LOADERS], ids=[r[0] for r in LOADERS]
)
def test_the_default_collation_refuses_none(made: str, may_be: bool, tmp_path: Path) -> None:
    program = (
        "class Rows(Dataset):\n    def __len__(self):\n        return 4\n"
        "    def __getitem__(self, index):\n        return None\n"
        f"batches = enumerate({made})\n"
        "for index, batch in batches:\n    if batch is None:\n        arrive(batch)\n"
    )
    script = tmp_path / "train.py"
    script.write_text(START + program)
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.suppress(TypeError):
        runpy.run_path(str(script), run_name="__main__")
    assert ("arrived" in told.getvalue()) is may_be
    view = view_of(str(script), script.read_text(), ast.parse(START + program), path=str(script))
    (site,) = (site for site in view.module.calls if site.method == "arrive")
    unpacking = Unpacking(view.objects)
    assert unpacking.is_batch(site.node.args[0], site.function) is not may_be
