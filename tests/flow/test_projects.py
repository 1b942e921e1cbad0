"""Trainings of several files: who an object is, who calls it, and what a call of it runs.

Each program is right as it stands, and wrong without the line that `left_out` names.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from amplint.checker import check_paths
from amplint.config import Settings

BASE = """
    import torch

    class Base:
        def __init__(self, loader):
            self.loader = loader

        def backward(self, loss):
            loss.backward()

        def after(self):
            pass

        def one(self, x):
            self.optimizer.zero_grad()
            with torch.autocast("cuda"):
                loss = self.model(x).mean()
            self.backward(loss)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.gs.step(self.optimizer)
            self.after()

        def fit(self):
            for x in self.loader:
                self.one(x)
"""
HEIR = """
    import torch
    from base import Base
    from tools import finish

    class Trainer(Base):
        def __init__(self, model, loader):
            super().__init__(loader)
            self.model = model
            self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            self.gs = torch.amp.GradScaler("cuda")

        def backward(self, loss):
            self.gs.scale(loss).backward()
            self.gs.unscale_(self.optimizer)

        def after(self):
            finish(self.gs)
"""
TOOLS = "def finish(scaler):\n    scaler.update()\n"
PARTS = """
    from collections import namedtuple
    import torch
    Parts = namedtuple("Parts", "model optimizer gs")

    def build(model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        return Parts(model, optimizer, torch.amp.GradScaler("cuda"))
"""
UNPACKED = """
    from parts import build
    from steps import learn, outer

    def train(model, loader):
        net, optim, gs = build(model)
        for x in loader:
            optim.zero_grad()
            learn(gs, net(x).mean(), optim)
            outer(gs, optim)
"""
STEPS = """
    def learn(gs, loss, optim):
        gs.scale(loss).backward()
        gs.unscale_(optim)

    def inner(gs, optim):
        gs.step(optim)
        gs.update()

    def outer(gs, optim):
        inner(gs, optim)
"""
OWNER = """
    import torch

    class Precision:
        def __init__(self):
            self._scaler = torch.amp.GradScaler("cuda")

        def apply(self, optimizer):
            self._scaler.step(optimizer)
            self._scaler.update()
"""
READS = """
    from owner import Precision

    def train(model, optimizer, loader):
        precision = Precision()
        for x in loader:
            optimizer.zero_grad()
            precision._scaler.scale(model(x).mean()).backward()
            precision.apply(optimizer)
"""
DELEGATES = """
    import torch
    from parts import build

    class Trainer:
        def __init__(self, model, loader):
            self.parts = build(model)
            self.loader = loader

        def __getattr__(self, name):
            if name == "parts":
                raise AttributeError(name)
            return getattr(self.parts, name)

        def fit(self):
            for x in self.loader:
                self.optimizer.zero_grad()
                self.gs.scale(self.model(x).mean()).backward()
                self.gs.unscale_(self.optimizer)
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.gs.step(self.optimizer)
                self.gs.update()
"""
#: Name -> the files of a project, the line that keeps it right, and what is wrong without it.
PROJECTS = {
    "methods of a class that only heirs are made of": (
        {"base.py": BASE, "heir.py": HEIR, "tools.py": TOOLS},
        "            self.gs.unscale_(self.optimizer)\n",
        {"AMP110"},
    ),
    "a named tuple taken apart": (
        {"parts.py": PARTS, "train.py": UNPACKED, "steps.py": STEPS},
        "",
        set(),
    ),
    "an attribute that another file reads": ({"owner.py": OWNER, "train.py": READS}, "", set()),
    "attributes of another object": (
        {"parts.py": PARTS, "train.py": DELEGATES},
        "                self.gs.unscale_(self.optimizer)\n",
        {"AMP110"},
    ),
}


def _codes(files: dict[str, str], left_out: str, folder: Path) -> set[str]:
    """Codes of the errors and warnings of a project, without a line."""
    (folder / "pyproject.toml").write_text("", "utf-8")
    for name, text in files.items():
        kept = text.replace(left_out, "") if left_out else text
        (folder / name).write_text(textwrap.dedent(kept), "utf-8")
    report = check_paths([str(folder)], Settings(jobs=1, cache=False, respect_gitignore=False))
    protocol = (item for item in report.findings if item.code.startswith("AMP1"))
    return {item.code for item in protocol if item.severity.value in ("error", "warning")}


@pytest.mark.parametrize("name", PROJECTS)
def test_a_project_is_read_as_one_program(name: str, tmp_path: Path) -> None:
    files, left_out, codes = PROJECTS[name]
    assert _codes(files, "", tmp_path) == set()
    if left_out:
        assert _codes(files, left_out, tmp_path) == codes
