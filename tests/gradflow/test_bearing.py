"""Statements that bear on no loss are left out, and no answer changes by that."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from amplint.code.module import Function
from amplint.gradflow import analysis, interpreter
from amplint.gradflow.analysis import cut_off
from amplint.gradflow.bearing import (
    NOWHERE,
    Bearing,
    bearing_near,
    bearing_of_callee,
    bearing_of_entry,
    place_of,
)
from amplint.view import FileView, view_of

FIXTURES = Path(__file__).parents[2] / "fixtures"
PROGRAMS = sorted(
    path
    for folder in ("AMP301", "AMP302", "AMP303", "AMP123", "AMP113")
    for path in (FIXTURES / folder).rglob("*.py")
)

CUT = {
    "a list of detached losses": """
def train(net, data):
    losses = []
    for x in data:
        losses.append(net(x).detach())
    total = torch.stack(losses).sum()
    total.backward()
""",
    "an attribute that a method stores": """
class Trainer:
    def forward(self, x):
        with torch.no_grad():
            self.loss = self.net(x).mean()

    def run(self, x):
        self.loss = self.net(x)
        self.forward(x)
        self.loss.backward()
""",
    "far before the backward": """
def train(net, x):
    with torch.no_grad():
        first = net(x)
    second = first * 2
    third = second + 1
    fourth = third.mean()
    fourth.backward()
""",
    "a name that a header binds": """
def train(net, x):
    while out := net(x).detach():
        out.mean().backward()
""",
    "a loss that is detached in place": """
def train(net, x):
    loss = net(x).mean()
    loss.detach_()
    loss.backward()
""",
    "what a loop takes": """
def train(net, x):
    with torch.no_grad():
        outs = [net(x), net(x)]
    for out in outs:
        out.mean().backward()
""",
    "a module of the optimizer, beside another": """
def train(x):
    net, head = Net(), Head()
    optimizer = torch.optim.Adam([*net.parameters(), *head.parameters()])
    with torch.no_grad():
        features = net(x)
    loss = head(features).mean()
    loss.backward()
    optimizer.step()
""",
}
REACHED = {
    "a second loss in a helper": """
def more(net, x):
    loss = net(x).mean()
    loss.backward()

def train(x):
    net, head = Net(), Head()
    optimizer = torch.optim.Adam([*net.parameters(), *head.parameters()])
    with torch.no_grad():
        features = net(x)
    loss = head(features).mean()
    loss.backward()
    more(net, x)
    optimizer.step()
""",
    "a leaf that is added far before": """
def train(net, x):
    with torch.no_grad():
        out = net(x)
    noise = torch.zeros(1)
    noise.requires_grad = True
    moved = noise * 2
    again = out + moved
    loss = again.mean()
    loss.backward()
""",
}


def view(text: str) -> FileView:
    return view_of("a.py", text, ast.parse(text))


def found(text: str) -> list[tuple[int, str, str, int]]:
    return [
        (item.backward.node.lineno, item.root, item.block.kind, item.block.node.lineno)
        for item in cut_off(view(text))
    ]


def every_statement(function: Function, *_: object, **__: object) -> Bearing:
    statements = frozenset(
        node for item in function.body for node in ast.walk(item) if isinstance(node, ast.stmt)
    )
    return Bearing(statements, statements, NOWHERE)


@pytest.mark.parametrize(
    "text", [path.read_text("utf-8") for path in PROGRAMS], ids=map(str, range(len(PROGRAMS)))
)
def test_answers_are_those_of_all_statements(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    few = found(text)
    monkeypatch.setattr(analysis, "_NEAR", None)
    monkeypatch.setattr(interpreter, "bearing_of_entry", every_statement)
    monkeypatch.setattr(interpreter, "bearing_of_callee", every_statement)
    assert found(text) == few


@pytest.mark.parametrize("text", CUT.values(), ids=CUT)
def test_what_cuts_a_loss_off_is_not_left_out(text: str) -> None:
    assert len(found("import torch\n" + text)) == 1


@pytest.mark.parametrize("text", REACHED.values(), ids=REACHED)
def test_what_connects_a_loss_is_not_left_out(text: str) -> None:
    assert not found("import torch\n" + text)


def test_logs_data_and_configurations_are_left_out() -> None:
    text = """
def train(net, args):
    config = read(args)
    logger = Logger(config)
    data = Loader(Dataset(config))
    for step, x in enumerate(data):
        loss = net(x).mean()
        logger.note(step, loss)
        loss.backward()
"""
    (function,) = view(text).module.functions[1:]
    rows = {node.lineno for node in bearing_near(function, 1).run}
    assert rows == {7, 9}
    assert {node.lineno for node in bearing_of_entry(function, NOWHERE).run} == {3, 5, 6, 7, 9}
    assert {node.lineno for node in bearing_of_callee(function, NOWHERE, NOWHERE).run} == set()


def test_places_are_names_and_attributes_of_self() -> None:
    paths = ("batch['x'].y", "batch.x", "self.net.head", "self.nets['a']", "self", "self['a'].x")
    assert [place_of(path) for path in paths] == (
        ["batch", "batch", "self.net", "self.nets", "self", "self"]
    )
