"""Clips that move to where an accumulation window ends, executed: they train as without a scaler."""

from __future__ import annotations

import pytest

from amplint.config import Settings
from amplint.fixing.fixer import Fixed, FixTask, fix
from amplint.inspection import Task
from amplint.selection import Selection
from amplint.source.reading import decode

pytest.importorskip("torch")

from tests.rules.page_examples import Run, execute

EVERY = Selection(Settings()).codes
HEAD = """\
import torch
from torch.nn.utils import clip_grad_norm_

use_amp = True
limit = 0.01
model = torch.nn.Linear(4, 1)
extra = torch.nn.Linear(4, 1)
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(6)]
"""
TRAIN = """
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
total = 0.0

for index, (inputs, targets) in enumerate(loader):
    loss = torch.nn.functional.mse_loss(model(inputs), targets) / 2
"""
IN_A_BRANCH = """\
    if use_amp:
        scaler.scale(loss).backward()
    else:
        loss.backward()
    # keep the step small
    clip_grad_norm_(model.parameters(), limit)
    total += loss.item()
    if (index + 1) % 2 == 0:
        if use_amp:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        optimizer.zero_grad()
"""
UNSCALED_TOO = """\
    if use_amp:
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
    else:
        loss.backward()
    if limit < 1.0:
        clip_grad_norm_(model.parameters(), limit)
    else:
        clip_grad_norm_(model.parameters(), 1.0)
    if (index + 1) % 2 == 0:
        if use_amp:
            scaler.step(optimizer)
            scaler.update()
        optimizer.zero_grad()
"""
ALL_OPTIMIZERS = """
optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (model, extra)]


class Trainer:
    def __init__(self, optimizers, limit):
        self.optimizers, self.limit = optimizers, limit
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)

    def step(self, loss, index):
        self.scaler.scale(loss).backward()
        if self.limit is not None:
            clip_grad_norm_(model.parameters(), self.limit)
            clip_grad_norm_(extra.parameters(), self.limit)
        if (index + 1) % 2 == 0:
            for optimizer in self.optimizers:
                self.scaler.step(optimizer)
            self.scaler.update()
            for optimizer in self.optimizers:
                optimizer.zero_grad()


trainer = Trainer(optimizers, limit)
for index, (inputs, targets) in enumerate(loader):
    trainer.step(torch.nn.functional.mse_loss(model(inputs) + extra(inputs), targets) / 2, index)
"""
FETCHED_BEHIND = """

class Trainer(torch.nn.Module):
    def __init__(self, parts, limit):
        super().__init__()
        self.parts, self.limit = parts, limit
        for index, part in enumerate(self.parts):
            optimizer = torch.optim.SGD(part.parameters(), lr=0.1)
            setattr(self, f"optimizer{index}", optimizer)
            scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
            setattr(self, f"scaler{index}", scaler)

    def scale(self, loss, number):
        scaler = getattr(self, f"scaler{number}")
        return scaler.scale(loss)

    def update(self, number):
        if self.limit is not None:
            clip_grad_norm_(self.parts[number].parameters(), self.limit)
        optimizer = getattr(self, f"optimizer{number}")
        scaler = getattr(self, f"scaler{number}")
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
"""
USING_IT = """

trainer = Trainer([model], limit)
for inputs, targets in loader:
    trainer.scale(torch.nn.functional.mse_loss(model(inputs), targets), 0).backward()
    trainer.update(0)
"""
#: What is fixed, what runs it, and the code of the mistake.
PROGRAMS = {
    "the step in a branch": (HEAD + TRAIN + IN_A_BRANCH, "", "AMP110"),
    "unscaled in each round as well": (HEAD + TRAIN + UNSCALED_TOO, "", "AMP108"),
    "a loop over optimizers": (HEAD + ALL_OPTIMIZERS, "", "AMP110"),
    "the scaler is fetched behind the clip": (HEAD + FETCHED_BEHIND, USING_IT, "AMP110"),
}


def fixed(source: str) -> Fixed:
    data = source.encode()
    return fix(FixTask(Task(decode(data, "train.py"), EVERY), EVERY, True, data))


def without_scaler(source: str) -> Run:
    """The fixed program with every scaler off: what the moved clips mean."""
    return execute(source.replace('GradScaler("cpu", ', 'GradScaler("cpu", enabled=False, '))


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_fixed_program_trains_as_without_a_scaler(name: str) -> None:
    source, using, code = PROGRAMS[name]
    outcome = fixed(source)
    assert [finding.code for finding in outcome.fixed] == [code]
    run, reference = execute(outcome.text + using), without_scaler(outcome.text + using)
    assert run.error is None and reference.error is None
    assert run.update == pytest.approx(reference.update, rel=1e-3)
    before = execute(source + using)
    assert before.error is not None or before.update != pytest.approx(reference.update, rel=0.1)


def test_comments_move_with_the_clip() -> None:
    text = fixed(HEAD + TRAIN + IN_A_BRANCH).text
    assert "# keep the step small\n        clip_grad_norm_(" in text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    clip_grad", "    norm = clip_grad"),  # what it returns is kept
        ("    total += loss.item()", "    limit = loss.item()"),  # what it reads changes
        ("    total += loss.item()", "    total += model.weight.grad.norm().item()"),
        ("    if (index + 1) % 2 == 0:", "    optimizer.step()\n    if (index + 1) % 2 == 0:"),
        (
            "        if use_amp:\n            scaler.s",
            "        if len(loader):\n            scaler.s",
        ),
    ],
)
def test_a_clip_stays_where_its_place_is_not_known(old: str, new: str) -> None:
    source = HEAD + TRAIN + IN_A_BRANCH.replace(old, new)
    assert "AMP110" not in [finding.code for finding in fixed(source).fixed]
