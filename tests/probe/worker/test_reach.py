"""What kept the probe from getting to a line in real programs, each in a small program."""

from __future__ import annotations

import pytest

from .conftest import Probe

STEP = """
    scaler = torch.amp.GradScaler("cuda")
    scaler.scale(model(torch.ones(2, 3)).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
"""


def steps(result) -> int:
    return sum(event.kind == "step" for event in result.events)


def test_annotations_name_types_of_packages_that_are_not_there(probe_source: Probe) -> None:
    source = (
        """
import torch
import arrays

def count(size: int | arrays.Size, also: arrays.Size | None = None) -> arrays.Size | int:
    return 2

def train(model, optimizer):
    count(2)
"""
        + STEP
    )
    assert steps(probe_source(source)) == 3


def test_a_union_with_an_unknown_type_is_one(probe_source: Probe) -> None:
    source = (
        """
import torch
import arrays
Size = int | arrays.Size | list[int]

def train(model, optimizer):
    assert Size is not None
"""
        + STEP
    )
    assert steps(probe_source(source)) == 3


def test_an_assertion_about_invented_data_is_assumed_and_said(probe_source: Probe) -> None:
    source = (
        """
import torch

def train(model, optimizer, data):
    assert len(data.shape) == 0
"""
        + STEP
    )
    result = probe_source(source, assumes=True)
    assert steps(result) == 3
    assert "the assertion in line 5 holds" in result.notes


def test_the_wrapper_of_a_model_has_the_model_inside(probe_source: Probe) -> None:
    source = (
        """
import torch
from torch.nn.parallel import DistributedDataParallel

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)

    def forward(self, x):
        return self.layer(x)

def train(rank):
    plain = Net()
    model = DistributedDataParallel(plain, device_ids=[rank])
    assert model.module.layer is plain.layer
    optimizer = torch.optim.SGD(model.module.parameters(), lr=0.1)
"""
        + STEP
    )
    assert steps(probe_source(source)) == 3


def test_a_layer_chosen_by_an_unknown_name(probe_source: Probe) -> None:
    source = (
        """
import torch
from torch import nn

def train(config):
    model = nn.Sequential(nn.Linear(3, 1), getattr(nn, config.activation)())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=config.m, nesterov=True)
"""
        + STEP
    )
    result = probe_source(source)
    assert steps(result) == 3
    assert any(note.startswith("connected ") for note in result.notes)


@pytest.mark.parametrize(
    "call",
    ["launch(train, 2, args=(options,))", "fire.Fire(train)", "mp.spawn(train, args=(options,))"],
)
def test_a_launcher_calls_the_function(probe_source: Probe, call: str) -> None:
    source = f"""
import torch
import fire
from cluster import launch
import torch.multiprocessing as mp
options = dict(epochs=1)

def train(*options, model=torch.nn.Linear(3, 1)):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{STEP}
if __name__ == "__main__":
    {call}
"""
    result = probe_source(source, entry="<module>")
    assert steps(result) == 1
    assert "`train` is called by its launcher" in result.notes


def test_a_decorator_may_bring_arguments(probe_source: Probe) -> None:
    source = f"""
import torch
import config

@config.main(path="conf")
def main(cfg):
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=cfg.lr)
{STEP}
main()
"""
    result = probe_source(source, entry="<module>")
    assert steps(result) == 1
    assert "somebody gives `main` its cfg" in result.notes


def test_a_key_of_a_table_that_is_written_where_it_is_read(probe_source: Probe) -> None:
    source = (
        """
import torch

def train(model, config):
    kind = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[config.kind]
    optimizer = kind(model.parameters(), lr=0.1)
"""
        + STEP
    )
    assert steps(probe_source(source)) == 3


def test_a_text_made_of_unknown_things(probe_source: Probe) -> None:
    source = (
        """
import torch
from tables import table

class Meter:
    def __str__(self):
        return table(self)

def train(model, optimizer):
    print(str(Meter()))
"""
        + STEP
    )
    assert steps(probe_source(source)) == 3


def test_a_loader_that_is_called_is_a_function(probe_source: Probe) -> None:
    source = """
import torch

def train(data, model, optimizer):
    for batch in data.train_loader():
        scaler = torch.amp.GradScaler("cuda")
        scaler.scale(model(batch).sum()).backward()
        scaler.step(optimizer)
"""
    assert steps(probe_source(source)) >= 1
