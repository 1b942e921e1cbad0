"""What calls of a function are read to pass: each case and its near miss.

Every source has a function `train` or a method `Trainer.train`; what is expected follows from
reading the call.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from amplint.config import Settings
from amplint.probe.confirmation import plan_builder
from amplint.probe.domains import options_of
from amplint.probe.messages import Decision

TRAINER = """\
class Trainer:
    def __init__(self, model, optimizer=None, fp16=False, mute=False, best="min", clip=0.0):
        self.model = model
        self.optimizer = optimizer
        self.fp16 = fp16
        self.mute = mute
        self.best = best
        self.clip = clip

    def train(self, loader, epochs=1):
        for epoch in range(epochs):
            self.train_one_epoch(loader)

    def train_one_epoch(self, loader):
        pass
"""
FUNCTION = """\
def train(model, scaler=None, fp16=False, steps=1, clip=0.0, mode="a", config=None):
    pass
"""
PARSER = """\
import argparse
import torch
from trainer import *

parser = argparse.ArgumentParser()
parser.add_argument("--fp16", action="store_true")
parser.add_argument("--half", action="store_true")
parser.add_argument("--steps", type=int, default=1)
parser.add_argument("--clip", type=float, default=0.0)
parser.add_argument("--mode", choices=["a", "b"], default="a")
parser.add_argument("--name", default=None)
args = parser.parse_args()
"""


def settled(
    folder: Path, trainer: str, main: str, function: str, **wanted: Any
) -> list[dict[str, Any] | None]:
    """What each way into the function settles; `self__x` stands for the path "self.x"."""
    (folder / "trainer.py").write_text(trainer)
    (folder / "main.py").write_text(main)
    builder = plan_builder(str(folder / "trainer.py"), Settings(project_root=str(folder)))
    assert builder is not None
    view = builder.view
    target = next(f for f in view.module.functions if f.qualname == function)
    callers = builder.calls
    ways = callers.ways(target)
    modules = {site.function.module for site in view.objects.calls_of(target)}
    modules |= {way.made.function.module for way in ways if way.made is not None}
    options = options_of([view.module, *modules])
    decisions = [Decision(_path(name), (value, "another"), value) for name, value in wanted.items()]
    paths = [decision.path for decision in decisions]
    settled = [callers.settle(way, decisions, options, paths) for way in ways]
    return [found.values if found is not None else None for found in settled]


def _path(name: str) -> str:
    path = name.replace("__is_none", " is None").replace("__", ".")
    return path


@pytest.mark.parametrize(
    ("call", "wanted", "expected"),
    [
        # left out: the default
        ("train(net)", {"fp16": False, "steps": 1}, {"fp16": False, "steps": 1}),
        ("train(net)", {"steps": 2}, {"steps": 1}),
        ("train(net)", {"scaler__is_none": False}, {"scaler is None": True}),
        # a literal, by keyword and by position
        ("train(net, fp16=True)", {"fp16": True}, {"fp16": True}),
        ("train(net, None, True)", {"fp16": True}, {"fp16": True}),
        ("train(net, fp16=False)", {"fp16": True}, {"fp16": False}),
        ("limit = 2\ntrain(net, steps=limit)", {"steps": 2}, {"steps": 2}),
        # an option, whatever it is called
        ("train(net, fp16=args.half)", {"fp16": True}, {"fp16": True}),
        ("train(net, fp16=args.half)", {"fp16": False}, {"fp16": False}),
        ("train(net, steps=args.steps)", {"steps": 3}, {"steps": 3}),
        ("train(net, clip=args.clip)", {"clip": 1}, {"clip": 1}),
        ("train(net, steps=args.steps)", {"steps": "many"}, {"steps": 1}),
        ("train(net, mode=args.mode)", {"mode": "b"}, {"mode": "b"}),
        ("train(net, mode=args.mode)", {"mode": "c"}, {"mode": "a"}),
        ("train(net, mode=args.name)", {"mode__is_none": False}, {"mode is None": False}),
        ("train(net, mode=args.name)", {"mode__is_none": True}, {"mode is None": True}),
        ("train(net, mode=args.mode)", {"mode__is_none": True}, {"mode is None": False}),
        ("train(net, config=args)", {"config__fp16": True}, {"config.fp16": True}),
        # one option cannot be two things
        (
            "train(net, fp16=args.half, steps=args.half)",
            {"fp16": True, "steps": False},
            {"fp16": True, "steps": True},
        ),
        # options that the code sets
        ("args.fp16 = False\ntrain(net, fp16=args.fp16)", {"fp16": True}, {"fp16": False}),
        (
            "if args.half:\n    args.fp16 = True\ntrain(net, fp16=args.fp16)",
            {"fp16": False},
            {"fp16": False},
        ),
        (
            "if args.half:\n    args.fp16 = True\ntrain(net, args.half, fp16=args.fp16)",
            {"scaler": True, "fp16": False},
            {"scaler": True},
        ),
        # what is made is not None
        (
            "train(net, torch.amp.GradScaler())",
            {"scaler__is_none": True},
            {"scaler is None": False},
        ),
        (
            "s = torch.amp.GradScaler() if args.fp16 else None\ntrain(net, s, args.fp16)",
            {"scaler__is_none": False, "fp16": True},
            {"scaler is None": False, "fp16": True},
        ),
        (
            "s = torch.amp.GradScaler() if args.fp16 else None\ntrain(net, s, args.fp16)",
            {"fp16": False, "scaler__is_none": False},
            {"fp16": False, "scaler is None": True},
        ),
        (
            "s = torch.amp.GradScaler(enabled=args.fp16)\ntrain(net, s, args.fp16)",
            {"scaler__enabled": True, "fp16": True},
            {"scaler.enabled": True, "fp16": True},
        ),
        (
            "s = torch.amp.GradScaler(enabled=False)\ntrain(net, s)",
            {"scaler__enabled": True},
            {"scaler.enabled": False},
        ),
        # a name that an option decides about
        (
            "limit = 1\nif args.fp16:\n    limit = 4\ntrain(net, fp16=args.fp16, steps=limit)",
            {"fp16": True, "steps": 4},
            {"fp16": True, "steps": 4},
        ),
        (
            "limit = 1\nif args.fp16:\n    limit = 4\ntrain(net, fp16=args.fp16, steps=limit)",
            {"fp16": True, "steps": 1},
            {"fp16": True, "steps": 4},
        ),
        # nobody knows
        ("train(net, steps=count())", {"steps": 1}, {}),
        ("train(net, **settings)", {"steps": 1}, {}),
        ("train(*everything)", {"steps": 1}, {}),
        ("train(net, steps=1 if count() else 2)", {"steps": 1}, {}),
        ("train(net, scaler=build())", {"scaler__is_none": False}, {}),
        # around the call
        ("if args.fp16:\n    train(net, fp16=args.fp16)", {"fp16": True}, {"fp16": True}),
        ("if args.fp16:\n    train(net, fp16=args.fp16)", {"fp16": False}, None),
        ("if not args.fp16:\n    train(net, fp16=args.fp16)", {"fp16": True}, None),
        ("if args.mode == 'b':\n    train(net)", {"fp16": False}, {"fp16": False}),
        ("if args.mode == 'b':\n    train(net, mode=args.mode)", {"mode": "a"}, None),
        ("if ready():\n    train(net)", {"fp16": False}, {"fp16": False}),
        ("if ready(args.fp16):\n    train(net, fp16=args.fp16)", {"fp16": True}, None),
        (
            (
                "if args.fp16 and args.half:\n    raise ValueError\n"
                "train(net, args.half, fp16=args.fp16)"
            ),
            {"scaler": True, "fp16": True},
            None,
        ),
        (
            "assert not (args.fp16 and args.half)\ntrain(net, args.half, fp16=args.fp16)",
            {"scaler": True, "fp16": True},
            None,
        ),
        (
            "if args.half:\n    assert args.fp16\ntrain(net, fp16=args.fp16)",
            {"fp16": False},
            {"fp16": False},
        ),
        # through another function
        (
            (
                "def main(options, fp16):\n    train(net, fp16=fp16, steps=options.steps)\n"
                "main(args, True)"
            ),
            {"fp16": True, "steps": 2},
            {"fp16": True, "steps": 2},
        ),
        (
            (
                "def main(options, fp16):\n    train(net, fp16=fp16, steps=options.steps)\n"
                "main(args, False)"
            ),
            {"fp16": True, "steps": 2},
            {"fp16": False, "steps": 2},
        ),
        (
            "def nobody_calls_it(fp16):\n    train(net, fp16=fp16, steps=fp16)",
            {"fp16": True, "steps": True},
            {"fp16": True, "steps": True},
        ),
    ],
)
def test_a_function(
    tmp_path: Path, call: str, wanted: dict[str, Any], expected: dict[str, Any] | None
) -> None:
    assert settled(tmp_path, FUNCTION, f"{PARSER}\n{call}\n", "train", **wanted) == [expected]


@pytest.mark.parametrize(
    ("calls", "wanted", "expected"),
    [
        (
            "Trainer(net, fp16=args.fp16, clip=args.clip).train(loader)",
            {"self__fp16": True, "self__clip": 1.0, "self__best": "min", "epochs": 1},
            [{"self.fp16": True, "self.clip": 1.0, "self.best": "min", "epochs": 1}],
        ),
        (
            "Trainer(net, fp16=False).train(loader)",
            {"self__fp16": True},
            [{"self.fp16": False}],
        ),
        # the object that is trained is not the one that has the values
        (
            (
                "if args.half:\n    t = Trainer(net, fp16=True)\n    t.evaluate(loader)\n"
                "else:\n    t = Trainer(net, fp16=False)\n    t.train(loader)"
            ),
            {"self__fp16": True},
            [{"self.fp16": False}],
        ),
        # all values have to come from one call
        (
            (
                "Trainer(net, fp16=True, mute=False).train(loader)\n"
                "Trainer(net, fp16=False, mute=True).train(loader)"
            ),
            {"self__fp16": True, "self__mute": True},
            [{"self.fp16": True, "self.mute": False}, {"self.fp16": False, "self.mute": True}],
        ),
        # an optimizer that somebody makes, and nothing is known about
        (
            "t = Trainer(net, lambda net: make(net))\nt.train(loader, rounds())",
            {"self__optimizer__is_none": True, "epochs": 2},
            [{"self.optimizer is None": False}],
        ),
    ],
)
@pytest.mark.parametrize("method", ["train", "train_one_epoch"])
def test_a_method(
    tmp_path: Path,
    calls: str,
    wanted: dict[str, Any],
    expected: list[dict[str, Any]],
    method: str,
) -> None:
    found = settled(tmp_path, TRAINER, f"{PARSER}\n{calls}\n", f"Trainer.{method}", **wanted)
    if method == "train_one_epoch":  # knows nothing of `epochs`
        expected = [{k: v for k, v in each.items() if k != "epochs"} for each in expected]
    assert found == expected


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ("def main(amp):\n    if amp:\n        train(net)\nmain(True)", [{"fp16": False}]),
        ("def main(amp):\n    if amp:\n        train(net)\nmain(False)", []),
        ("def main(amp):\n    if not amp:\n        return\n    train(net)\nmain(False)", []),
        ("def main(amp):\n    if amp:\n        train(net)\nmain(count())", [{"fp16": False}]),
        ("USE = False\nif USE:\n    train(net)", []),
    ],
)
def test_calls_that_never_run(tmp_path: Path, calls: str, expected: list[dict[str, Any]]) -> None:
    assert settled(tmp_path, FUNCTION, f"{PARSER}\n{calls}\n", "train", fp16=False) == expected


def test_nobody_calls_it(tmp_path: Path) -> None:
    assert settled(tmp_path, FUNCTION, "", "train", fp16=True) == [{}]


def test_a_data_file(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("clip: 0.5\nsteps: 4\n")
    main = (
        "import yaml\nfrom trainer import train\n"
        "config = yaml.safe_load(open('config.yaml'))\n"
        "train(net, clip=config['clip'], steps=config['steps'], mode=config['mode'])\n"
    )
    found = settled(tmp_path, FUNCTION, main, "train", clip=1.0, steps=4, mode="b")
    assert found == [{"clip": 0.5, "steps": 4}]


@pytest.mark.parametrize(
    ("files", "passed", "expected"),
    [
        # asked for with a default, and made a bool or a number
        ({"a.yaml": "half: true"}, 'bool(read.get("half", False))', {"fp16": True}),
        ({"a.yaml": "half: true"}, 'read.get("half", False)', {"fp16": True}),
        ({"a.yaml": "half: 1"}, 'bool(read["half"])', {"fp16": True}),
        ({"a.yaml": "half: 0"}, 'bool(read["half"])', {"fp16": False}),
        # another name, or another function of that name
        ({"a.yaml": "whole: true"}, 'bool(read.get("half", False))', {}),
        ({"a.yaml": "half: true"}, 'own(read.get("half", False))', {}),
        # a dict of settings in Python; one with few entries is none
        (
            {
                "defaults.py": (
                    'TABLE = {"net": {"half": True, "depth": 2, "width": 8}, "a": 1, "b": 2, "c": 3}'
                )
            },
            'read["half"]',
            {"fp16": True},
        ),
        ({"defaults.py": 'TABLE = {"half": True}'}, 'read["half"]', {}),
        # what a function has for itself, and what a test makes up
        (
            {
                "other.py": (
                    'def f():\n    a = {"half": True, "b": 1, "c": 2, "d": 3, "e": 4, "f": 5}'
                )
            },
            'read["half"]',
            {},
        ),
        (
            {"test_it.py": 'A = {"half": True, "b": 1, "c": 2, "d": 3, "e": 4, "f": 5}'},
            'read["half"]',
            {},
        ),
    ],
)
def test_settings_that_are_asked_for(
    tmp_path: Path, files: dict[str, str], passed: str, expected: dict[str, Any]
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text + "\n")
    main = (
        "from trainer import train\nfrom elsewhere import load, own\nread = load()\n"
        f"train(net, fp16={passed})\n"
    )
    assert settled(tmp_path, FUNCTION, main, "train", fp16=True) == [expected]


OWN = """\
class Scaler:
    def __init__(self):
        self.scaler = torch.amp.GradScaler()

    def __call__(self, loss, optimizer, update=True):
        pass
"""


def test_calls_of_an_object(tmp_path: Path) -> None:
    (tmp_path / "engine.py").write_text(
        "def train(loss_scaler, other):\n"
        "    other(1, 2)\n"
        "    loss_scaler(loss, optimizer, update=False)\n"
    )
    main = (
        "from trainer import Scaler\nfrom engine import train\n"
        "loss_scaler = Scaler()\nother = print\n"
        "loss_scaler(loss, optimizer)\nother(loss, optimizer)\ntrain(loss_scaler, other)\n"
    )
    found = settled(tmp_path, OWN, main, "Scaler.__call__", update=False)
    assert found == [{"update": True}, {"update": False}]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("Trainer(net, lambda net: torch.optim.Adam(net.parameters()))", True),
        (
            "make = lambda net: torch.optim.SGD(net.parameters())\nTrainer(net, optimizer=make)",
            True,
        ),
        ("Trainer(net, torch.optim.AdamW)", True),
        ("import functools\nTrainer(net, functools.partial(torch.optim.Adam, lr=1))", True),
        ("def make(net):\n    return torch.optim.Adam(net)\nTrainer(net, make)", True),
        ("def make(net):\n    o = torch.optim.Adam(net)\n    return o\nTrainer(net, make)", True),
        ("Trainer(net, lambda net: Lion(net.parameters()))", False),
        ("Trainer(net, lambda net: torch.optim.LBFGS(net.parameters()))", False),
        ("Trainer(net, lambda net: torch.optim.Adam(net.parameters(), fused=True))", False),
        ("Trainer(net, lambda net: torch.optim.Adam(net.parameters(), **more))", False),
        ("Trainer(net, make_it(net))", False),
        ("Trainer(net, torch.optim.Adam)\nTrainer(net, Lion)", False),
        ("def make(net):\n    return Lion(net)\nTrainer(net, make)", False),
        ("Trainer(net)", False),
    ],
)
def test_what_makes_optimizers(tmp_path: Path, call: str, expected: bool) -> None:
    (tmp_path / "trainer.py").write_text(TRAINER)
    (tmp_path / "main.py").write_text(f"{PARSER}\n{call}\n")
    builder = plan_builder(str(tmp_path / "trainer.py"), Settings(project_root=str(tmp_path)))
    assert builder is not None
    method = next(f for f in builder.view.module.functions if f.qualname == "Trainer.train")
    assert builder.calls.passes_optimizers(method, "optimizer") is expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"base.yml": "train:\n  clip_max_norm: 0.1\n"}, {"clip": 0.1}),
        ({"conf/a.json": '{"clip_max_norm": 2}'}, {"clip": 2}),
        ({"a.yaml": "clip_max_norm: 1e-1"}, {"clip": 0.1}),
        # it is switched off
        ({"base.yml": "clip_max_norm: 0"}, {"clip": 0}),
        # two files say two things: both are possible, but not the one with the other's entries
        (
            {"a.yml": "clip_max_norm: 0\nsteps: 1", "b.yml": "clip_max_norm: 1.5\nsteps: 4"},
            {"clip": 1.5, "steps": 4},
        ),
        (
            {"a.yml": "clip_max_norm: 1.5\nsteps: 1", "b.yml": "clip_max_norm: 0\nsteps: 4"},
            {"clip": 1.5, "steps": 1},
        ),
        # no file says it, or none can be read
        ({"base.yml": "max_norm: 0.1"}, {}),
        ({"base.yml": "clip_max_norm: [1, 2]"}, {}),
        ({"base.yml": "clip_max_norm: {"}, {}),
        ({"base.txt": "clip_max_norm: 0.1"}, {}),
    ],
)
def test_configuration_files(
    tmp_path: Path, files: dict[str, str], expected: dict[str, Any]
) -> None:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    main = (
        "from trainer import train\n"
        "class Solver:\n"
        "    def fit(self):\n"
        "        args = self.cfg\n"
        "        train(self.net, clip=args.clip_max_norm, steps=args['steps'])\n"
    )
    assert settled(tmp_path, FUNCTION, main, "train", clip=1.5, steps=4) == [expected]


def test_an_option_is_not_looked_up_in_files(tmp_path: Path) -> None:
    (tmp_path / "base.yml").write_text("clip: 0.5\n")
    main = f"{PARSER}\ntrain(net, clip=args.clip)\n"
    assert settled(tmp_path, FUNCTION, main, "train", clip=2.0) == [{"clip": 2.0}]


FILLED = """\
from dataclasses import dataclass
from transformers import HfArgumentParser
from trainer import train

@dataclass
class Arguments:
    fp16: bool = False
    steps: int = 1
    clip: float = make()

(args,) = HfArgumentParser((Arguments,)).parse_args_into_dataclasses()
"""


@pytest.mark.parametrize(
    ("call", "wanted", "expected"),
    [
        ("train(net, fp16=args.fp16)", {"fp16": True}, {"fp16": True}),
        ("train(net, fp16=args.fp16)", {"fp16": False}, {"fp16": False}),
        ("train(net, steps=args.steps)", {"steps": 4}, {"steps": 4}),
        ("train(net, steps=args.steps)", {"steps": "all"}, {"steps": 1}),
        ("train(net, clip=args.clip)", {"clip": 1.0}, {}),
        ("if not args.fp16:\n    train(net, fp16=args.fp16)", {"fp16": True}, None),
        ("args = Arguments()\ntrain(net, fp16=args.fp16)", {"fp16": True}, {"fp16": False}),
        ("args = Arguments(fp16=True)\ntrain(net, fp16=args.fp16)", {"fp16": True}, {"fp16": True}),
    ],
)
def test_fields_that_a_command_line_fills(
    tmp_path: Path, call: str, wanted: dict[str, Any], expected: dict[str, Any] | None
) -> None:
    assert settled(tmp_path, FUNCTION, f"{FILLED}\n{call}\n", "train", **wanted) == [expected]
