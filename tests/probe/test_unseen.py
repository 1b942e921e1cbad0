"""What kept the probe from code that it had not seen, each with a correct neighbour.

Every text is a program of its own; what torch does with it was worked out by hand.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.probe.conftest import Asks

pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parents[2]


# -- binary cross entropy, which only CUDA's autocast refuses --------------------------------------

BCE = """\
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)
        self.norm = nn.BatchNorm1d(1)

    def forward(self, x):
        return torch.sigmoid(self.norm(self.layer(x)))

def train(loader):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.cuda.amp.GradScaler()
    loss_fn = nn.BCELoss()
    for x, y in loader:
        optimizer.zero_grad()
        with torch.cuda.amp.autocast():
            out = model(x.to(device))
            loss = loss_fn(out, y.to(device))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
"""
CALL = "loss = loss_fn(out, y.to(device))"


def test_a_refused_loss_is_confirmed_without_a_gpu(ask: Asks) -> None:
    evidence = ask("AMP502", CALL, BCE)
    assert evidence.status == "confirmed", evidence
    assert "unsafe to autocast" in str(evidence.detail)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("model(x.to(device))", "model(x.to(device)).cpu()"),
        ("model(x.to(device))", 'model(x.to(device)).to("cpu")'),
        ("Net().to(device)", "Net()"),
        ("Net().to(device)", "Net().to(device).cpu()"),
        ("def train(loader):\n", "def train(loader, where):\n    place = where\n"),
        ("torch.cuda.amp.autocast()", 'torch.autocast("cpu", dtype=torch.bfloat16)'),
        ("torch.cuda.amp.autocast()", "torch.cuda.amp.autocast(enabled=False)"),
        (CALL, f'with torch.autocast("cuda", enabled=False):\n                {CALL}'),
    ],
)
def test_where_nothing_refuses_it_none_is(ask: Asks, before: str, after: str) -> None:
    assert before in BCE
    source = BCE.replace(before, after)
    if "where" in after:  # which may be the CPU
        source = source.replace('"cuda" if torch.cuda.is_available() else "cpu"', "place")
    assert ask("AMP502", CALL, source).status != "confirmed"


# -- who can reach a scaler ------------------------------------------------------------------------

LEFT_OUT = """\
import torch
from somewhere import Diffusion, log_with

def train(model, optimizer, loader):
    scaler = torch.amp.GradScaler("cuda")
    diffusion = Diffusion(steps=100)
    for x, y in loader:
        optimizer.zero_grad()
        loss = diffusion.training_losses(model, x)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
"""
STEP = "scaler.step(optimizer)"


def test_what_never_got_a_scaler_calls_none(ask: Asks) -> None:
    assert ask("AMP105", STEP, LEFT_OUT).status == "confirmed"


@pytest.mark.parametrize(
    "handed",
    [
        "diffusion.scaler = scaler",
        'diffusion["scaler"] = scaler',
        "diffusion.attach({'amp': [scaler]})",
        "diffusion.on_end(lambda: scaler.update())",
        "diffusion.end = Ends(scaler).update",
        "diffusion.attach(Ends(Ends(scaler)))",
        "diffusion.attach([lambda: scaler.update()])",
        "diffusion.attach(ends=partial(finish, scaler))",
        "diffusion.attach({'end': Ends(scaler).update})",
    ],
)
def test_what_got_one_may_call_it(ask: Asks, handed: str) -> None:
    ends = """\
from functools import partial

def finish(scaler):
    scaler.update()

class Ends:
    def __init__(self, scaler):
        self.inner = scaler

    def update(self):
        self.inner.update()

"""
    source = LEFT_OUT.replace("def train", f"{ends}def train")
    source = source.replace("    for x", f"    {handed}\n    for x")
    assert ask("AMP105", STEP, source).status != "confirmed"


GLOBAL = """\
import torch
from somewhere import Engine

scaler = torch.amp.GradScaler("cuda")

def finish():
    scaler.update()

def train(model, optimizer, loader):
    engine = Engine()
    engine.at_the_end(finish)
    for x, y in loader:
        optimizer.zero_grad()
        scaler.scale(engine.train_loss(model, x)).backward()
        scaler.step(optimizer)
"""


CLASS = "class Last:\n    def end(self):\n        scaler.update()\n\ndef finish"


@pytest.mark.parametrize("handed", ["finish", "[finish]", "Last", "Last()", "[Last()]"])
def test_what_was_handed_over_has_its_globals(ask: Asks, handed: str) -> None:
    source = GLOBAL.replace("(finish)", f"({handed})").replace("def finish", CLASS)
    assert ask("AMP105", STEP, source).status != "confirmed"


# -- what a model keeps for torch ------------------------------------------------------------------

TRAINER = """\
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x):
        return self.layer(x)

class Trainer:
    def __init__(self):
        self.net = Net()
        self.hooks = []
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.scaler = torch.amp.GradScaler("cuda")

    def train(self, loader):
        self.net.to("cuda")
        for x, y in loader:
            self.optimizer.zero_grad()
            with torch.autocast("cuda"):
                loss = nn.functional.mse_loss(self.net(x), y)
            self.scaler.scale(loss).backward()
            self.before_clip()
            nn.utils.clip_grad_norm_(self.net.parameters(), 5.0)
            self.scaler.step(self.optimizer)
            self.scaler.update()

    def before_clip(self):
        pass
"""
CLIP = "nn.utils.clip_grad_norm_("


def test_nobody_fills_the_buffers_of_a_module(ask: Asks) -> None:
    assert ask("AMP110", CLIP, TRAINER).status == "confirmed"


def test_somebody_may_fill_a_list_of_hooks(ask: Asks) -> None:
    source = TRAINER.replace(
        "        pass\n", "        for hook in self.hooks:\n            hook()\n"
    )
    evidence = ask("AMP110", CLIP, source)
    assert evidence.status == "conditional", evidence
    assert any("nobody fills" in words for words in evidence.assumptions)


# -- sizes of gradients ----------------------------------------------------------------------------


@pytest.mark.parametrize("limit", ["50.0", "1000.0"])
def test_a_limit_far_above_invented_gradients_is_reached(ask: Asks, limit: str) -> None:
    assert ask("AMP110", CLIP, TRAINER.replace("5.0", limit)).status == "confirmed"


def test_a_loss_without_gradient_on_invented_data_has_some(ask: Asks) -> None:
    loss = "(self.net(x).softmax(-1) * y).sum()"
    source = TRAINER.replace("nn.functional.mse_loss(self.net(x), y)", loss)
    source = source.replace("nn.Linear(4, 2)", "nn.Linear(4, 1)")
    assert ask("AMP110", CLIP, source).status == "confirmed"


def test_no_scale_changes_what_is_unscaled_before(ask: Asks) -> None:
    source = TRAINER.replace("pass", "self.scaler.unscale_(self.optimizer)").replace("5.0", "50.0")
    assert ask("AMP110", CLIP, source).status != "confirmed"


# -- what unknown functions return -----------------------------------------------------------------

COMPUTED = """\
import math
import torch
from library import Teacher, read_table

def prepare(table):
    weights = table.counts.map(lambda count: 1 / count)
    return weights.max()

def normal(features):
    features = features / features.norm(p=2, dim=-1, keepdim=True)
    return features.reshape(features.shape[0], -1)

def train(model, optimizer, loader):
    scaler = torch.amp.GradScaler("cuda")
    teacher = Teacher()
    scale = math.sqrt(prepare(read_table("a.csv")) * 2)
    batches = iter(loader)
    for _ in range(len(batches)):
        x, y = next(batches)
        optimizer.zero_grad()
        wanted = torch.clamp((normal(teacher.encode(x)) + 1) * 127.5, 0, 255)
        scaler.scale(((model(x) - wanted) ** 2).mean() * scale).backward()
        scaler.step(optimizer)
"""


def test_a_number_that_is_used_as_a_tensor_is_one(ask: Asks) -> None:
    assert ask("AMP105", STEP, COMPUTED).status == "confirmed"


def test_a_number_that_becomes_a_tensor_may_be_trained(ask: Asks) -> None:
    """A loss that is computed from an unknown function's result may hang on parameters."""
    source = """\
import torch
from library import distance

def train(model, optimizer, loader):
    for x, y in loader:
        optimizer.zero_grad()
        with torch.no_grad():
            model.eval()
        loss = (1 - distance(model.table)).mean()
        loss.backward()
        optimizer.step()
"""
    assert ask("AMP301", "torch.no_grad()", source).status != "confirmed"


CONFIGURED = """\
import torch
from ml_collections import ConfigDict

def read(path):
    return ConfigDict({"model": {"dim": 4}})

def train(loader):
    config = read("a.yaml")
    model = torch.nn.Linear(config["model"]["dim"], 2)
    state = torch.load("last.pt")
    if state.get("frozen"):
        return
    optimizer = torch.optim.SGD(model.parameters(), lr=config["training"]["lr"])
    scaler = torch.amp.GradScaler("cuda")
    for x, y in loader:
        optimizer.zero_grad()
        scaler.scale(((model(x) - y) ** 2).mean()).backward()
        scaler.step(optimizer)
"""


def test_what_a_checkpoint_holds_is_no_fact_of_the_machine(ask: Asks) -> None:
    evidence = ask("AMP105", STEP, CONFIGURED)
    assert not any("machine" in words for words in evidence.assumptions), evidence


def test_a_setting_that_is_read_by_its_key_is_there(ask: Asks) -> None:
    source = CONFIGURED.replace('    if state.get("frozen"):\n        return\n', "")
    evidence = ask("AMP105", STEP, source)
    assert evidence.status == "confirmed", evidence


# -- what torch refuses whatever the values are ----------------------------------------------------

FORM = """\
import torch
from torch.cuda.amp import autocast

def train(loader, path, optimizer):
    state = torch.load(path)
    if state["in"] not in (2, 4):
        print("an unusual size")
    model = torch.nn.Linear(state["in"], state["out"])
    for x, y in loader:
        with autocast(device_type="cuda"):
            loss = model(x).mean()
        loss.backward()
        optimizer.step()
"""
REGION = "with autocast("


def test_names_of_arguments_need_no_values(ask: Asks) -> None:
    evidence = ask("AMP209", REGION, FORM)
    assert evidence.status == "confirmed", evidence
    assert "needs" not in str(evidence.detail)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('print("an unusual size")', "return"),
        ('device_type="cuda"', "**torch.load(path)"),
        (REGION, f'if state["new"]:\n            pass\n        {REGION}'),
    ],
)
def test_values_that_decide_are_told(ask: Asks, before: str, after: str) -> None:
    assert before in FORM
    source = FORM.replace(before, after)
    if after.startswith("if "):
        source = source.replace("            pass\n        with", "            with")
        source = source.replace("            loss =", "                loss =")
    evidence = ask("AMP209", REGION, source)
    assert evidence.status != "confirmed" or "needs" in str(evidence.detail), evidence


TEXT = """\
import torch
from torch.cuda.amp import GradScaler
from torch.utils.tensorboard import SummaryWriter

def train(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = GradScaler("cuda")
    record = SummaryWriter(log_dir="/records")
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda"):
            loss = torch.nn.functional.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        record.add_scalar("loss", loss.item())
"""


def test_a_text_is_no_scale(ask: Asks) -> None:
    """The first `scale` raises, far from the constructor; a record of the training is no part of it."""
    evidence = ask("AMP209", 'GradScaler("cuda")', TEXT)
    assert evidence.status == "confirmed", evidence
    assert "must be Number, not str" in str(evidence.detail)


def test_a_text_that_nobody_scales_with_shows_nothing(ask: Asks) -> None:
    source = TEXT.replace("scaler.scale(loss)", "loss").replace("scaler.step(optimizer)", "pass")
    source = source.replace("        scaler.update()\n", "")
    assert ask("AMP209", 'GradScaler("cuda")', source).status != "confirmed"


WINDOW = """\
import torch

def train(model, loader, args):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cuda")
    for index, (x, y) in enumerate(loader):
        with torch.autocast("cuda"):
            loss = torch.nn.functional.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        if (index + 1) % args.every != 0:
            continue
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

def main():
    import argparse
    parser = argparse.ArgumentParser()
    parser.add_argument("--every", type=int, default=1)
    train(torch.nn.Linear(4, 1), load(), parser.parse_args())
"""


def test_a_window_of_several_batches_is_tried(ask: Asks) -> None:
    evidence = ask("AMP108", "scaler.unscale_(optimizer)", WINDOW)
    assert evidence.status == "confirmed", evidence
    assert "--every" in str(evidence.detail)


KIND = """\
import numpy
import torch

def train(model, loader, path):
    found = numpy.load(path)["seen"].astype(numpy.float32)
    weight = found.shape[0]
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cuda")
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda"):
            loss = torch.nn.functional.mse_loss(model(x), y) * weight
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
"""


def test_a_builtin_that_is_handed_over_is_decorated_by_nobody(ask: Asks) -> None:
    evidence = ask("AMP110", "torch.nn.utils.clip_grad_norm_(", KIND)
    assert evidence.status == "confirmed", evidence


MEMBER = """\
import torch

def train(config, model, loader, optimizer):
    scaler = torch.amp.GradScaler("cuda")
    for x, y in loader:
        optimizer.zero_grad()
        scaler.scale(model(x, y)).backward()
        scaler.step(optimizer)
        if "twice" in config.steps:
            again = scaler.step(optimizer)
        scaler.update()
"""


def test_a_membership_that_the_path_asks_for_is_tried_first(ask: Asks) -> None:
    evidence = ask("AMP104", "again =", MEMBER)
    assert evidence.status == "confirmed", evidence
    assert "needs `'twice' in config.steps`" in str(evidence.detail)
