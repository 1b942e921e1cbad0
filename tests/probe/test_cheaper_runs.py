"""What a finding does not depend on, and runs that are short: each with a neighbour that does.

Every text is a program of its own; what torch does with it was worked out by hand.
"""

from __future__ import annotations

import pytest

from tests.probe.conftest import Asks

pytest.importorskip("torch")

# -- assertions about shapes, with a way around ----------------------------------------------------

OVERLAP = """\
import torch
from torch.cuda.amp import GradScaler, autocast

def overlap(found, wanted, whole_batch=False):
    assert found.dim() == 3 or not whole_batch
    return 1.0 - (found * wanted).sum()

def train(net, optimizer, batches):
    scaler = GradScaler()
    for images, masks in batches:
        optimizer.zero_grad()
        with autocast():
            loss = overlap(net(images), masks, whole_batch=True)
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
"""


def test_an_assertion_that_a_shape_is_enough_for(ask: Asks) -> None:
    assert ask("AMP110", "clip_grad_norm_", OVERLAP).status == "confirmed"


def test_an_assertion_that_a_shape_is_not_enough_for(ask: Asks) -> None:
    never = OVERLAP.replace("or not whole_batch", "and not whole_batch")
    assert ask("AMP110", "clip_grad_norm_", never).status != "confirmed"


# -- what comes after the step in which it shows ---------------------------------------------------

JUDGED = """\
import torch
from torch.cuda.amp import GradScaler, autocast
from measures import grade

def train(net, optimizer, batches):
    scaler = GradScaler()
    for images, targets in batches:
        optimizer.zero_grad()
        with autocast():
            loss = torch.nn.functional.mse_loss(net(images), targets)
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        mark = grade(images)
        assert mark.kind == "fine"
        if mark.best > 7:
            raise ValueError(mark)
"""


def test_an_assertion_after_the_step(ask: Asks) -> None:
    assert ask("AMP110", "clip_grad_norm_", JUDGED).status == "confirmed"


def test_an_assertion_before_the_step(ask: Asks) -> None:
    checks = """\
        mark = grade(images)
        assert mark.kind == "fine"
"""
    before = JUDGED.replace(checks, "").replace(
        "        scaler.scale(loss)", f"{checks}        scaler.scale(loss)"
    )
    assert ask("AMP110", "clip_grad_norm_", before).status == "conditional"


# -- how many numbers there are between two bounds -------------------------------------------------

DEPTHS = """\
import torch
from torch.cuda.amp import GradScaler, autocast

class Net(torch.nn.Module):
    def __init__(self, rate, depths):
        super().__init__()
        rates = [each.item() for each in torch.linspace(0, rate, sum(depths))]
        self.last = torch.nn.Dropout(rates[sum(depths) - 1])
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, inputs):
        return self.last(self.layer(inputs))

def train(batches, rate):
    net = Net(rate, [2, 3])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = GradScaler()
    for images, targets in batches:
        optimizer.zero_grad()
        with autocast():
            loss = torch.nn.functional.mse_loss(net(images), targets)
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
"""


def test_as_many_rates_as_layers(ask: Asks) -> None:
    assert ask("AMP110", "clip_grad_norm_", DEPTHS).status == "confirmed"


def test_as_many_rates_as_layers_beside_an_unscale(ask: Asks) -> None:
    right = DEPTHS.replace(
        "        torch.nn.utils.clip",
        "        scaler.unscale_(optimizer)\n        torch.nn.utils.clip",
    )
    assert ask("AMP110", "clip_grad_norm_", right).status != "confirmed"


# -- files that are there, all of them -------------------------------------------------------------

FOLDERS = """\
import os
import torch
from torch.cuda.amp import GradScaler, autocast

def names(folder):
    found = [name for name in os.listdir(folder) if os.path.isfile(os.path.join(folder, name))]
    if not found:
        raise RuntimeError(f"nothing in {folder}")
    return found

def train(net, optimizer, batches):
    images = names("images")
    masks = names("masks")
    if not os.path.exists("weights"):
        raise RuntimeError("no weights")
    scaler = GradScaler()
    for inputs, targets in batches:
        optimizer.zero_grad()
        with autocast():
            loss = torch.nn.functional.mse_loss(net(inputs), targets)
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
"""


def test_several_folders_with_files(ask: Asks) -> None:
    assert ask("AMP110", "clip_grad_norm_", FOLDERS).status == "confirmed"


def test_a_folder_that_has_to_be_empty_as_well(ask: Asks) -> None:
    never = FOLDERS.replace(
        "    scaler = GradScaler()",
        '    if names("images"):\n        return\n    scaler = GradScaler()',
    )
    assert ask("AMP110", "clip_grad_norm_", never).status != "confirmed"


# -- arguments that torch refuses, beside what needs much time -------------------------------------

REFUSED = """\
import torch
from settings import read

def train(net, optimizer, batches, rate, kind, limit):
    for inputs, targets in batches:
        with torch.cuda.amp.autocast(device="cuda"):
            loss = torch.nn.functional.mse_loss(net(inputs), targets)
        loss.backward()
        if kind == "one" and limit > 3 and rate.first:
            optimizer.step()

def main():
    net = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    train(net, optimizer, torch.utils.data.DataLoader(read("x")), read("r"), read("k"), read("l"))
"""


def test_arguments_that_are_refused_whatever_is_passed(ask: Asks) -> None:
    assert ask("AMP209", "autocast(device", REFUSED).status == "confirmed"


def test_arguments_that_are_refused_behind_a_test(ask: Asks) -> None:
    guarded = REFUSED.replace(
        "    for inputs", "    if kind != 'old':\n        return\n    for inputs"
    )
    assert ask("AMP209", "autocast(device", guarded).status != "confirmed"
