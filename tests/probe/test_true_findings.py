"""What kept the probe from findings that people call true, each with a correct neighbour.

Every text is a program of its own; what torch does with it was worked out by hand.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from amplint.checker import check_paths
from amplint.config import Settings
from amplint.probe.confirmation import plan_builder
from amplint.probe.messages import Domain, Plan, Request
from tests.probe.conftest import Asks

pytest.importorskip("torch")

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


def test_the_first_part_of_a_budget() -> None:
    from amplint.probe.messages import RunResult
    from amplint.probe.search import Budget

    budget = Budget(lambda request: RunResult("returned", processor=1.0), runs=90, seconds=10.0)
    request = Request(Plan((), "train", (1,)))
    with budget.first(0.3):
        while not budget.is_spent:
            budget.run_again(request)
        assert budget.used == 3
    assert not budget.is_spent
    with budget.first(0.3):
        assert budget.is_spent
    with budget.first(1.0):
        assert not budget.is_spent


# -- what is enabled by a switch, and what an unknown module holds ---------------------------------

SWITCHED = """\
import argparse
import torch
import hooks

def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steady", action="store_true")
    parser.add_argument("--amp", action="store_true")
    return parser.parse_args()

def main():
    args = parse()
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda", enabled=args.amp)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(8, 4)))
    for (inputs,) in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", enabled=args.amp):
            loss = model(inputs).square().mean()
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()

if __name__ == "__main__":
    main()
"""
CLIPPED = "torch.nn.utils.clip_grad_norm_"


def test_what_enables_the_scaler_is_tried_first(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SWITCHED, encoding="utf-8")
    settings = Settings(project_root=str(tmp_path))
    [finding] = check_paths([str(path)], settings).findings
    builder = plan_builder(str(path), settings)
    assert builder is not None
    [entry] = builder.entries(finding)
    assert builder.plan(finding, entry).plan.prefer["args.amp"] is True


def test_gradients_that_are_clipped_while_scaled(ask: Asks) -> None:
    assert ask("AMP110", CLIPPED, SWITCHED).status == "confirmed"


@pytest.mark.parametrize("table", ["hooks.__dict__.values()", "vars(hooks).values()"])
def test_an_unknown_module_may_hold_what_unscales(ask: Asks, table: str) -> None:
    hooked = SWITCHED.replace(
        "        torch.nn.utils",
        f"        for hook in {table}:\n            hook(scaler, optimizer)\n        torch.nn.utils",
    )
    assert hooked != SWITCHED
    assert ask("AMP110", CLIPPED, hooked).status != "confirmed"
