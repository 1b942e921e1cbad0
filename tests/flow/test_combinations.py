"""One switch, from where it comes to where it is asked: every way to write that is the same program.

Each program is a correct trainer whose scaler is there, or enabled, where the switch is on. It is
put together from a row of each table. amplint says nothing of any, and tells each of them by its
right code when a call is taken away or exchanged.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from amplint.checker import check_source
from amplint.config import Settings

#: Where the switch comes from.
SOURCES = (
    'load("amp")',
    'cfg["amp"]',
    'cfg.get("amp", False)',
    'cfg["train"].get("fp16")',
    'getattr(cfg, "amp", False)',
    "cfg.amp",
    "cfg.train.amp",
    'os.environ.get("AMP") == "1"',
    'json.load(open("run.json"))["amp"]',
    "torch.cuda.is_available()",
    "cfg.amp and torch.cuda.is_available()",
    'cfg.precision == "fp16"',
    'cfg.precision in ("fp16", "mixed")',
    "int(cfg.bits) == 16",
    "not cfg.full",
    '"16" in str(cfg.precision)',
    'device.type == "cuda"',
    "dtype is torch.float16",
    "bool(int(cfg.opt_level[1:]))",
)
#: How the trainer keeps it, and how it then asks for it.
KEPT = {
    "self.amp = {switch}": "self.amp",
    "self.amp = flag": "self.amp",
    "self.cfg = cfg; self.on = {switch}": "self.on",
    "self._amp = flag": "self.amp_of_property",
    "self.full = not ({switch})": "not self.full",
    'self.mode = "half" if {switch} else "full"': 'self.mode == "half"',
    "self.kind = flag": 'self.kind == "fp16"',
    "self.bits = flag": "self.bits < 32",
    "self.kinds = flag": 'self.kinds in ("fp16", "mixed")',
}
#: How the scaler is made.
MADE = (
    'self.scaler = GradScaler("cuda") if {on} else None',
    'if {on}:\n    self.scaler = GradScaler("cuda")\nelse:\n    self.scaler = None',
    'self.scaler = None\nif {on}:\n    self.scaler = GradScaler("cuda")',
    'if {on}:\n    self.scaler = GradScaler("cuda")',
    'self.scaler = GradScaler("cuda", enabled={on})',
)
SCALED = """
self.scaler.scale(loss).backward()
self.scaler.unscale_(self.opt)
clip(self.model.parameters(), 1.0)
self.scaler.step(self.opt)
self.scaler.update()
"""
#: How a step is made, and whether None or an absent scaler is asked for instead of the switch.
USED = {
    "guarded": """
if {on}:
    self.scaler.scale(loss).backward()
    self.scaler.unscale_(self.opt)
else:
    loss.backward()
clip(self.model.parameters(), 1.0)
if {on}:
    self.scaler.step(self.opt)
    self.scaler.update()
else:
    self.opt.step()
""",
    "by the scaler": """
if self.scaler is not None:
    self.scaler.scale(loss).backward()
    self.scaler.unscale_(self.opt)
else:
    loss.backward()
clip(self.model.parameters(), 1.0)
if self.scaler:
    self.scaler.step(self.opt)
    self.scaler.update()
else:
    self.opt.step()
""",
    "by both": """
if {on}:
    self.scaler.scale(loss).backward()
else:
    loss.backward()
if self.scaler is not None:
    self.scaler.unscale_(self.opt)
clip(self.model.parameters(), 1.0)
if {on}:
    self.scaler.step(self.opt)
    self.scaler.update()
else:
    self.opt.step()
""",
    "left early": """
if not ({on}):
    loss.backward()
    clip(self.model.parameters(), 1.0)
    self.opt.step()
    return
"""
    + SCALED,
    "always": SCALED,
}
#: What is written instead, and what is then told.
BROKEN = {
    "self.scaler.unscale_(self.opt)": ("pass", "AMP110"),
    "self.scaler.update()": ("pass", "AMP105"),
    "self.scaler.step(self.opt)": ("self.opt.step()", "AMP112"),
}
HEAD = """
import json
import os

import torch
from settings import load
from torch.amp import GradScaler, autocast
from torch.nn.utils import clip_grad_norm_ as clip


class Trainer:
    def __init__(self, model, opt, cfg, device, dtype, flag=None):
        self.model = model
        self.opt = opt
"""
PROPERTY = """
    @property
    def amp_of_property(self):
        return self._amp
"""
LEARN = """
    def learn(self, batch):
        self.opt.zero_grad()
        with autocast("cuda", dtype=torch.float16, enabled=bool({on})):
            loss = self.model(batch).mean()
"""
MAIN = """

def main(model, opt, cfg, device, dtype, batches):
    trainer = Trainer(model, opt, cfg, device, dtype, {switch})
    for batch in batches:
        trainer.learn(batch)
"""


@dataclass(frozen=True)
class Combination:
    """A row of each table."""

    source: str
    kept: str
    made: str
    used: str

    @property
    def text(self) -> str:
        """The program."""
        on = KEPT[self.kept]
        stored = self.kept.format(switch=self.source)
        return (
            HEAD
            + _indented(f"{stored}\n{self.made.format(on=on)}")
            + PROPERTY
            + LEARN.format(on=on)
            + _indented(USED[self.used].format(on=on))
            + MAIN.format(switch=self.source)
        )


def _indented(text: str) -> str:
    return "".join(f"        {line}\n" for line in text.strip("\n").split("\n"))


def _combinations() -> Iterator[Combination]:
    """Every triple of ways to keep, make and use, with one source after the other."""
    sources = itertools.cycle(SOURCES)
    for kept, made, used in itertools.product(KEPT, MADE, USED):
        is_always_there, can_be_none = "enabled" in made, "None" in made
        asks_scaler = used in ("by the scaler", "by both")
        if (used == "always" and not is_always_there) or (asks_scaler and not can_be_none):
            continue
        yield Combination(next(sources), kept, made, used)


COMBINATIONS = list(_combinations())
NAMES = [f"{item.kept}, {item.made}, {item.used}" for item in COMBINATIONS]


def _codes(program: str) -> list[str]:
    result = check_source("train.py", program.encode(), Settings())
    assert not result.errors
    return [finding.code for finding in result.findings]


@pytest.mark.parametrize("item", COMBINATIONS, ids=NAMES)
def test_nothing_is_said_of_the_correct_program(item: Combination) -> None:
    assert _codes(item.text) == []


@pytest.mark.parametrize(("item", "call"), list(zip(COMBINATIONS, itertools.cycle(BROKEN))))
def test_a_mistake_is_told(item: Combination, call: str) -> None:
    other, code = BROKEN[call]
    assert _codes(item.text.replace(call, other)) == [code]
