"""What kept the probe from findings that people call true, each with a correct neighbour.

Every text is a program of its own; what torch does with it was worked out by hand.
"""

from __future__ import annotations

import ast

import pytest

from amplint.probe.messages import Domain, Plan, Request
from tests.probe.test_unseen import Asks, ask, worker

pytest.importorskip("torch")

__all__ = ["ask", "worker"]

# -- what is about a place needs no backward around it ---------------------------------------------

VALIDATE = """\
import struct
import torch
from torch.cuda.amp import autocast

def validate(model, loader, device):
    model.eval()
    total = 0.0
    for inputs, targets in loader:
        with autocast(device_type=device):
            total += torch.nn.functional.mse_loss(model(inputs), targets).item()
    return total

def main(index, loader):
    count = struct.unpack("<I", open(index, "rb").read(4))[0]
    model = torch.nn.Linear(count, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for inputs, targets in loader:
        torch.nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    validate(model, loader, "cuda")
"""


def test_arguments_in_a_function_without_a_backward(ask: Asks) -> None:
    evidence = ask("AMP209", "with autocast", VALIDATE)
    assert evidence.status == "confirmed"
    assert "ran `validate`" in evidence.detail


def test_arguments_that_the_class_has(ask: Asks) -> None:
    right = VALIDATE.replace("torch.cuda.amp import", "torch.amp import")
    assert ask("AMP209", "with autocast", right).status != "confirmed"


# -- a scaler that is built in each call, where no caller can be run -------------------------------

EPOCH = """\
import struct
import torch

def train(model, optimizer, loader):
    scaler = torch.amp.GradScaler("cuda")
    for inputs, targets in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda"):
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

def main(index, epochs, verbose):
    count = struct.unpack("<I", open(index, "rb").read(4))[0]
    model = torch.nn.Linear(count, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(range(count))
    for epoch in range(epochs):
        train(model, optimizer, loader)
"""
RETRIES = """\
    for attempt in range(epochs):
        try:
            train(model, optimizer, loader)
            break
        except MemoryError:
            pass
"""
FIRST = """\
    for epoch in range(epochs):
        if epoch == 0:
            train(model, optimizer, loader)
"""
REBUILT = """\
    for epoch in range(epochs):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train(model, optimizer, loader)
"""
IN_PLACE = """\
    for epoch in range(epochs):
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), loader)
"""
LOOP = EPOCH[EPOCH.index("    for epoch") :]


def test_a_second_call_shows_the_second_scaler(ask: Asks) -> None:
    evidence = ask("AMP119", "scaler = ", EPOCH)
    assert evidence.status == "confirmed"
    assert "2 scalers that line 5 built stepped one optimizer" in evidence.detail


@pytest.mark.parametrize(
    "loop",
    [
        "    train(model, optimizer, loader)\n",
        "    for epoch in range(1):\n        train(model, optimizer, loader)\n",
        "    for epoch in range(epochs):\n        train(model, optimizer, loader)\n        return\n",
        FIRST,
        REBUILT,
        IN_PLACE,
        "    for fold in range(epochs):\n        train(model, optimizer, loader)\n",
        RETRIES,
    ],
    ids=["once", "one", "returns", "first", "rebuilt", "in-place", "folds", "retries"],
)
def test_a_call_that_nothing_is_seen_to_repeat(ask: Asks, loop: str) -> None:
    assert ask("AMP119", "scaler = ", EPOCH.replace(LOOP, loop)).status != "confirmed"


def test_an_optimizer_that_another_method_replaces(ask: Asks) -> None:
    source = METHOD.replace("def freeze(self):\n        pass", REPLACES)
    assert ask("AMP119", "scaler = ", METHOD).status == "confirmed"
    assert ask("AMP119", "scaler = ", source).status != "confirmed"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    for inputs", "    scaler.load_state_dict(model.scale)\n    for inputs"),
        ('("cuda")\n    for', '("cuda", init_scale=model.scale)\n    for'),
    ],
    ids=["state", "number"],
)
def test_a_scale_that_is_kept(ask: Asks, old: str, new: str) -> None:
    source = EPOCH.replace(old, new, 1)
    assert source != EPOCH
    assert ask("AMP119", "scaler = ", source).status != "confirmed"


METHOD = """\
import struct
import torch

class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def freeze(self):
        pass

    def epoch(self, loader):
        scaler = torch.amp.GradScaler("cuda")
        for inputs, targets in loader:
            self.optimizer.zero_grad()
            with torch.autocast("cuda"):
                loss = torch.nn.functional.mse_loss(self.model(inputs), targets)
            scaler.scale(loss).backward()
            scaler.step(self.optimizer)
            scaler.update()

def main(index, epochs):
    count = struct.unpack("<I", open(index, "rb").read(4))[0]
    trainer = Trainer(torch.nn.Linear(count, 1))
    loader = torch.utils.data.DataLoader(range(count))
    for number in range(epochs):
        trainer.freeze()
        trainer.epoch(loader)
"""
REPLACES = """\
def freeze(self):
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)"""

# -- float16 without a scaler ----------------------------------------------------------------------

HALF = """\
import torch

def train(model, optimizer, loader):
    for inputs, targets in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
"""
SCALED = """\
        (loss * 1024).backward()
        for parameter in model.parameters():
            parameter.grad.div_(1024)
"""
HOOKED = """\
        for parameter in model.parameters():
            parameter.register_hook(lambda gradient: gradient / 1024)
        (loss * 1024).backward()
"""


def test_unscaled_gradients_of_a_float16_region(ask: Asks) -> None:
    evidence = ask("AMP206", "with torch.autocast", HALF)
    assert evidence.status == "confirmed"
    assert "line 6 and were never scaled" in evidence.detail


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("float16", "bfloat16"),
        ("dtype=torch.float16", "dtype=torch.float16, enabled=False"),
        ("        loss.backward()\n", SCALED),
        ("        loss.backward()\n", HOOKED),
        ("        loss.backward()\n", "        loss.backward()\n        return\n"),
        ("loss.backward()", "torch.amp.GradScaler('cuda').scale(loss).backward()"),
        ("optimizer.step()", "Stepper(optimizer).step()"),
    ],
    ids=["bfloat16", "disabled", "by-hand", "hooks", "no-step", "scaler", "unknown-step"],
)
def test_gradients_that_do_not_vanish_or_are_scaled(ask: Asks, old: str, new: str) -> None:
    source = HALF.replace(old, new).replace("import torch\n", "import torch\nimport tools\n")
    source = source.replace("Stepper", "tools.Stepper")
    assert ask("AMP206", "with torch.autocast", source).status != "confirmed"


# -- what stopped runs -----------------------------------------------------------------------------


def test_an_option_is_asked_for_without_values() -> None:
    from amplint.probe.worker.decisions import Decisions

    plan = Plan(
        (),
        "train",
        (1,),
        domains=(Domain("*.mixed_precision", (False, True)),),
        prefer={"args.mixed_precision": True},
    )
    made = Decisions(Request(plan))
    assert made.choose("args.mixed_precision", ()) is True


def test_imports_of_the_future_are_not_guarded() -> None:
    from amplint.probe.worker.rewrite import Rewriter

    (statement,) = ast.parse("from __future__ import annotations").body
    rewriter = Rewriter(lambda statement: True)
    assert [type(new) for new in rewriter.rewrite(statement)] == [ast.ImportFrom]
