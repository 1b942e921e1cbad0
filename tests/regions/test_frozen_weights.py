"""A second forward of frozen weights: AMP304 is reported where torch's output stands still."""

from __future__ import annotations

import ast

import pytest
import torch
from amplint.rules import load

from amplint.view import view_of

PROGRAM = """
import torch


class Critic(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, inputs):
        return self.layer(inputs)


def switch(models, wanted):
    for model in models:
        for parameter in model.parameters():
            parameter.requires_grad = wanted


def train(inputs):
    critic = Critic()
    optimizer = torch.optim.SGD(critic.parameters(), lr=1.0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        first = critic(inputs)
        with torch.autocast("cpu", enabled=False):
            first.mean().backward()
        optimizer.step()
        {between}
        again = critic(inputs)
    return first, again
"""


@pytest.mark.parametrize(
    "between",
    [
        "pass",
        "critic.eval()",
        "critic.requires_grad_(False)",
        "critic.requires_grad_(requires_grad=False)",
        "critic.requires_grad_(False); critic.requires_grad_(True)",
        "switch([critic], False)",
        "switch([critic], False); switch([critic], True)",
        "for each in critic.parameters(): each.requires_grad = False",
        "for each in critic.parameters(): each.requires_grad_(False)",
        "other = Critic(); other.requires_grad_(False)",
    ],
)
def test_frozen_weights_are_cast_anew(between: str) -> None:
    source = PROGRAM.format(between=between)
    space: dict[str, object] = {}
    exec(source, space)  # noqa: S102 - written above
    first, again = space["train"](torch.ones(1, 4))  # type: ignore[operator]
    stands_still = bool(torch.equal(first, again))
    view = view_of("train.py", source, ast.parse(source))
    assert bool(list(load("AMP304").check(view))) is stands_still
