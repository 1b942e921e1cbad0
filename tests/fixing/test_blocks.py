"""Blocks of autocast that end earlier, executed: forwards stay under autocast, backwards do not."""

from __future__ import annotations

from typing import Any

import pytest

from amplint.config import Settings
from amplint.fixing.fixer import Fixed, FixTask, fix
from amplint.inspection import Task
from amplint.selection import Selection
from amplint.source.reading import decode

pytest.importorskip("torch")

EVERY = Selection(Settings()).codes | {"AMP501"}
HEAD = """\
import torch
import torch.nn.functional as F

forwards, backwards, steps = [], [], []


def is_on():
    return torch.is_autocast_enabled("cpu")


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)
        self.layer.weight.register_hook(lambda _: backwards.append(is_on()))

    def forward(self, inputs):
        forwards.append(is_on())
        return self.layer(inputs)


first, second = Net(), Net()
trained = [*first.parameters(), *second.parameters()]
optimizer = torch.optim.SGD(trained, lr=0.1)
optimizer.register_step_pre_hook(lambda *_: steps.append(is_on()))
inputs, targets = torch.randn(4, 8), torch.randn(4, 1)
wanted, rounds = True, 3
"""
IN_A_BRANCH = """
with torch.autocast("cpu", dtype=torch.bfloat16):
    outputs = first(inputs)
    if wanted:
        # the second one
        loss = F.mse_loss(second(inputs), outputs.detach())
        optimizer.zero_grad()
        loss.backward()  # alone
        optimizer.step()
"""
ONE_AFTER_THE_OTHER = """
with torch.autocast("cpu", dtype=torch.bfloat16):
    loss = F.mse_loss(first(inputs), targets)
    loss.backward()
    # now the other
    other = F.mse_loss(second(inputs), targets)
    other.backward()
    optimizer.step()
    print(other.item())
"""
IN_BRANCHES_OF_A_LOOP = """
for index in range(rounds):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        if index % 2:
            F.mse_loss(second(inputs), targets)
            loss = F.mse_loss(first(inputs), targets)
            loss.backward()
        else:
            loss = F.mse_loss(second(inputs), targets)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""
IN_LOOPS = """
with torch.autocast("cpu", dtype=torch.bfloat16):
    scale = 0.5
    for _ in range(rounds):
        for net in (first, second):
            loss = F.mse_loss(net(inputs), targets) * scale
            loss.backward()
        optimizer.step()
"""
CALLED_FROM_A_HELPER = """
def norm_of(parameters):
    total = 0.0
    for parameter in filter(lambda each: each.grad is not None, parameters):
        total += float(parameter.grad.data.norm(2.0)) ** 2
    return total ** (1 / 2)


with torch.autocast("cpu", dtype=torch.bfloat16):
    loss = F.mse_loss(second(first(inputs)[:, :1].expand(4, 8)), targets)
    loss.backward()
    norm = norm_of(trained)
    optimizer.step()
"""
AT_ONCE = """
with torch.autocast("cpu", dtype=torch.bfloat16):
    outputs = first(inputs)
    F.mse_loss(second(inputs), targets).backward()
"""
PROGRAMS = {
    "in a branch": IN_A_BRANCH,
    "one after the other": ONE_AFTER_THE_OTHER,
    "in branches of a loop": IN_BRANCHES_OF_A_LOOP,
    "in loops": IN_LOOPS,
    "a helper looks at the gradients": CALLED_FROM_A_HELPER,
}


def fixed(source: str) -> Fixed:
    data = source.encode()
    return fix(FixTask(Task(decode(data, "train.py"), EVERY), EVERY, True, data))


def run(source: str) -> dict[str, Any]:
    import torch

    torch.manual_seed(0)
    names: dict[str, Any] = {}
    exec(compile(source, "train.py", "exec"), names)  # noqa: S102
    return names


@pytest.mark.parametrize("name", PROGRAMS)
def test_only_forwards_are_left_under_autocast(name: str) -> None:
    source = HEAD + PROGRAMS[name]
    once = fixed(source)
    assert once.fixed and once.refused == ()
    assert fixed(once.text).fixed == ()
    before, after = run(source), run(once.text)
    assert any(before["backwards"])
    assert not any(after["backwards"]) and not any(after["steps"])
    assert all(after["forwards"]) and after["forwards"] == before["forwards"]
    assert len(after["backwards"]) == len(before["backwards"])


def test_what_only_looks_gets_no_block_of_its_own() -> None:
    after = fixed(HEAD + CALLED_FROM_A_HELPER).text
    assert after.count("with torch.autocast") == 1


def test_a_statement_that_does_both_stays() -> None:
    assert fixed(HEAD + AT_ONCE).fixed == ()
