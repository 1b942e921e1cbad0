"""Small functions, run by the worker; what is expected of each is what torch does with it."""

from __future__ import annotations

import math

import pytest

from amplint.probe.messages import Domain, Handed, Note, Role

from .conftest import Probe

LOOP = """
import torch
from torch.amp import GradScaler, autocast

def train(model, loader, optimizer, args):
    scaler = GradScaler("cuda")
    for images, labels in loader:
        optimizer.zero_grad()
        with autocast("cuda"):
            loss = torch.nn.functional.cross_entropy(model(images.cuda()), labels.cuda())
        scaler.scale(loss).backward()
        {before_step}
        scaler.step(optimizer)
        scaler.update()
"""


def norms(result):
    return [norm for _, step in result.steps for norm in step]


def test_a_correct_loop_returns(probe_source: Probe) -> None:
    result = probe_source(LOOP.format(before_step="pass"))
    assert result.status == "returned", result
    kinds = [event.kind for event in result.events]
    assert kinds.count("step") == kinds.count("update") == 2
    assert not any("violation" in event.facts for event in result.events)
    assert len(result.steps) == 2
    assert all(norm and math.isfinite(norm) for norm in norms(result))
    assert result.notes == ()
    assert result.opaque == ()


def test_gradients_of_a_correct_step_do_not_depend_on_the_scale(probe_source: Probe) -> None:
    correct = LOOP.format(before_step="scaler.unscale_(optimizer)")
    small, large = (probe_source(correct, init_scale=scale) for scale in (2.0, 64.0))
    assert norms(small) == pytest.approx(norms(large), rel=1e-3)


def test_a_step_around_the_scaler_depends_on_the_scale(probe_source: Probe) -> None:
    wrong = LOOP.format(before_step="optimizer.step()")
    small, large = (probe_source(wrong, init_scale=scale) for scale in (2.0, 64.0))
    assert norms(large)[0] == pytest.approx(32 * norms(small)[0], rel=1e-3)


def test_a_disabled_run_has_no_scaler(probe_source: Probe) -> None:
    result = probe_source(LOOP.format(before_step="optimizer.zero_grad()"), enabled=False)
    assert result.status == "returned"
    assert {event.kind for event in result.events} & {"step", "scale"} == set()
    broken = probe_source(LOOP.format(before_step="optimizer.zero_grad()"))
    assert broken.raised is not None
    assert broken.raised.message == "No inf checks were recorded for this optimizer."


def test_no_grad_is_real(probe_source: Probe) -> None:
    source = LOOP.format(before_step="pass").replace("def train", "@torch.no_grad()\ndef train")
    result = probe_source(source)
    assert result.raised is not None
    assert result.raised.inside == "torch.autograd"
    assert "does not require grad" in result.raised.message


def test_half_precision_weights_of_the_users_model(probe_source: Probe) -> None:
    source = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width=8, dtype="float16"):
        super().__init__()
        self.layer = nn.Linear(width, width, dtype=getattr(torch, dtype))

    def forward(self, x):
        return self.layer(x.view(3, 5, 7).flatten(1)).mean()

def train(loader):
    model = Net().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.cuda.amp.GradScaler()
    for batch in loader:
        scaler.scale(model(batch)).backward()
        scaler.step(optimizer)
        scaler.update()
"""
    result = probe_source(source)
    assert result.raised is not None
    assert (result.raised.type, result.raised.inside) == ("ValueError", "torch.amp")
    assert result.raised.message == "Attempting to unscale FP16 gradients."


def test_dtypes_are_those_of_autocast(probe_source: Probe) -> None:
    source = """
import torch
from torch import nn

def train(x):
    layer, norm = nn.Linear(3, 4), nn.LayerNorm(9)
    with torch.autocast("cuda"):
        hidden = layer(x.view(2, 99))
        assert hidden.dtype == torch.float16, hidden.dtype
        assert norm(hidden).dtype == torch.float32
        assert nn.functional.cross_entropy(hidden, x.long()).dtype == torch.float32
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16
    with torch.autocast("cuda", enabled=False):
        assert layer(x).dtype == torch.float32
    assert hidden.argmax(dim=7).requires_grad is False
    assert hidden.requires_grad is True
"""
    result = probe_source(source)
    assert result.status == "returned", result


def test_one_path_has_one_value(probe_source: Probe) -> None:
    source = """
def train(args, model, loader):
    first = 1 if args.amp else 0
    for _ in loader:
        assert bool(args.amp) == bool(first)
    if args.clip > 0.5 and args.mode == "fast" and args.amp:
        raise LookupError
"""
    domains = (Domain("args.clip", (1.0, 0.0), "default"), Domain("args.mode", ("slow", "fast")))
    plan = {"domains": domains}
    usual = probe_source(source, plan=plan)
    assert usual.status == "returned"
    made = {decision.path: decision for decision in usual.decisions}
    assert made["args.clip"].origin == "default"
    assert made["args.mode"].choice == "slow"
    assert made["args.amp"].options == (True, False)
    other = probe_source(source, plan=plan, assignment={"args.mode": "fast"})
    assert other.raised is not None and other.raised.type == "LookupError"
    preferred = probe_source(source, plan={**plan, "prefer": {"args.mode": "fast"}})
    assert preferred.raised is not None


def test_tuples_keys_and_none_are_learned_from_use(probe_source: Probe) -> None:
    source = """
def train(model, loader, ema=None, clip=None):
    for index, (images, (labels, weights), meta) in enumerate(loader):
        out, (hidden, cell), *rest = model(images)
        batch, _, height, width = out.shape
        names = [part.float() for part in labels]
        a, b, c, d = names
        assert "mask" in meta or True
        total = {key: value.sum() for key, value in meta.items()}
        total["boxes"].backward
        meta["boxes"].to("cuda")
    if ema is not None:
        ema.update(model)
        raise LookupError
"""
    result = probe_source(source)
    assert result.status == "returned", result
    other = probe_source(source, assignment={"ema is None": False})
    assert other.raised is not None and other.raised.type == "LookupError"
    assert [call.name for call in other.opaque] == ["ema.update"]


def test_options_of_argparse_keep_their_defaults(probe_source: Probe) -> None:
    source = """
import argparse

def train():
    parser = argparse.ArgumentParser()
    parser.add_argument("--amp", action="store_true")
    parser.add_argument("--accum-iter", default=1, type=int)
    parser.add_argument("--epochs", default=300, type=int)
    args = parser.parse_args()
    if args.amp and args.accum_iter > 1:
        raise LookupError
    assert args.epochs == 300
"""
    assert probe_source(source).status == "returned"
    wanted = {"args.amp": True, "args.accum_iter": 2}
    assert probe_source(source, assignment=wanted).raised.type == "LookupError"


def test_modules_of_the_project_are_sliced(probe_source: Probe) -> None:
    files = {
        "pkg/__init__.py": "from .losses import *\nraise RuntimeError('imported for real')",
        "pkg/losses.py": "print('x')\nSCALE = 3\ndef loss_of(x):\n    return x.mean() * SCALE\n",
        "settings.py": "import subprocess\nsubprocess.run(['false'], check=True)\nAMP = True\n",
    }
    source = """
import settings
from pkg import loss_of
from pkg.losses import SCALE

launch_missiles()

def train(model, x):
    assert SCALE == 3 and settings.AMP is True
    loss_of(model(x)).backward()
    assert next(model.parameters()).grad is not None
"""
    result = probe_source(source, files=files)
    assert result.status == "returned", result


def test_nothing_outside_is_touched(probe_source: Probe, tmp_path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("here")
    source = f"""
import os, shutil, subprocess, socket
from pathlib import Path
import torch

def train(model):
    os.remove({str(victim)!r})
    shutil.rmtree({str(tmp_path)!r})
    Path({str(victim)!r}).unlink()
    open({str(victim)!r}, "w").write("gone")
    torch.save(model.state_dict(), {str(victim)!r})
    subprocess.check_call(["rm", {str(victim)!r}])
    socket.create_connection(("localhost", 1))
"""
    result = probe_source(source)
    assert result.status == "returned", result
    assert victim.read_text() == "here"


def test_repair_skips_everything_but_what_touches_scalers_and_gradients(
    probe_source: Probe,
) -> None:
    source = """
import torch

def train(model, x, optimizer, scaler):
    table = {}
    table["missing"].append(1)
    loss = model(x)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""
    plan = {"slice_rows": (4, 7, 8, 9, 10)}
    stopped = probe_source(source, plan=plan)
    assert stopped.raised is not None and stopped.raised.type == "KeyError"
    repaired = probe_source(source, plan=plan, repair=True)
    assert repaired.status == "returned", repaired
    assert [s.row for s in repaired.skipped] == [6]
    inside = {"slice_rows": (4, 6, 7, 8, 9, 10)}
    assert [s.row for s in probe_source(source, plan=inside, repair=True).skipped] == [6]
    target = {"slice_rows": (), "target_rows": (6,)}
    assert probe_source(source, plan=target, repair=True).raised.type == "KeyError"


def test_repair_never_skips_an_event(probe_source: Probe) -> None:
    source = """
def train(model, x, optimizer, scaler):
    table = {}
    scaler.scale(table["missing"]).backward()
"""
    result = probe_source(source, plan={"slice_rows": (3, 4)}, repair=True)
    assert result.raised is not None and result.raised.type == "KeyError"


def test_a_script_runs_its_loop_although_a_function_reads_what_it_binds(
    probe_source: Probe,
) -> None:
    source = """
import torch

def rate():
    return 0.1 * epoch

rate()
if __name__ == "__main__":
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate())
    for epoch in range(3):
        model(torch.ones(1, 1)).sum().backward()
        optimizer.step()
"""
    result = probe_source(source, entry="<module>")
    assert result.status == "returned", result
    assert len(result.steps) == 3


def test_repair_never_hides_a_failure_of_amp(probe_source: Probe) -> None:
    source = LOOP.format(before_step="optimizer.zero_grad()")
    result = probe_source(source, repair=True)
    assert result.raised is not None
    assert result.raised.inside == "torch.amp"


def test_loops_end(probe_source: Probe) -> None:
    source = """
def train(model, loader, queue):
    while True:
        for step in range(10_000):
            value = step
            value = step
        if queue.done == "never":
            break
"""
    result = probe_source(source)
    assert result.status == "returned", result
    assert any(note.kind.startswith("loop") for note in result.notes)


def test_a_run_that_takes_too_long_is_ended(probe_source: Probe) -> None:
    source = "def train():\n    list(iter(int, 1))\n"
    result = probe_source(source, seconds=0.5)
    assert result.status == "timeout"
    source = "import math\ndef train():\n    math.factorial(10**8)\n"
    result = probe_source(source, seconds=0.5)
    assert result.status in ("timeout", "killed")


def test_what_stands_for_unknown_classes_is_noted(probe_source: Probe) -> None:
    source = """
import torch
from apex.optimizers import FusedAdam
from fairscale.optim import ShardedGradScaler

def train(model, loader):
    optimizer = FusedAdam(model.parameters(), lr=1e-3)
    scaler = ShardedGradScaler()
    for x in loader:
        scaler.scale(model(x)).backward()
        scaler.step(optimizer)
        scaler.update()
"""
    result = probe_source(source)
    assert result.status == "returned", result
    assert Note("optimizer-class", "apex.optimizers.FusedAdam") in result.notes
    assert Note("scaler-class", "fairscale.optim.ShardedGradScaler") in result.notes


def test_unknown_functions_that_get_optimizers_are_noted(probe_source: Probe) -> None:
    source = """
from helpers import adjust, reweight

def train(model, x, optimizer):
    adjust(optimizer)
    loss = reweight(model(x))
    loss.backward()
    optimizer.step()
"""
    result = probe_source(source)
    assert result.status == "returned", result
    assert Handed("helpers.adjust", 5, ("optimizer",)) in result.opaque
    assert Note("connected", "helpers.reweight") in result.notes


def test_roles_of_the_plan_come_before_names(probe_source: Probe) -> None:
    source = """
def train(net, x, thing, other):
    other.scale(net(x)).backward()
    other.step(thing)
    other.update()
"""
    roles = (Role("thing", "optimizer", "caller"), Role("other", "scaler", "caller"))
    result = probe_source(source, plan={"roles": roles})
    assert result.status == "returned", result
    assert [event.kind for event in result.events if event.kind == "step"]


def test_methods_run_on_an_object_whose_init_ran(probe_source: Probe) -> None:
    source = """
import torch
from lightning import LightningModule

class Trainer(LightningModule):
    def __init__(self, config, model):
        super().__init__()
        self.config = config
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=config.lr)
        self.scaler = torch.amp.GradScaler("cuda", enabled=config.amp)
        self.calls = 0

    def step(self, batch):
        self.calls += 1
        with torch.autocast("cuda", enabled=self.config.amp):
            loss = self.criterion(self.model(batch["x"]), batch["y"])
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        if self.calls == 3:
            raise LookupError
"""
    result = probe_source(source, "Trainer.step")
    assert result.raised is not None and result.raised.type == "LookupError"
    assert [event.kind for event in result.events].count("update") == 3
    assert "self.config.amp" in {decision.path for decision in result.decisions}


def test_a_script_runs_as_a_whole(probe_source: Probe) -> None:
    source = """
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x in torch.utils.data.DataLoader([1, 2, 3], batch_size=1):
    scaler.scale(model(x).mean()).backward()
    scaler.step(optimizer)
"""
    result = probe_source(source, "<module>")
    assert result.raised is not None
    assert result.raised.message == "step() has already been called since the last update()."


def test_entries_that_cannot_be_called(probe_source: Probe) -> None:
    assert probe_source("x = 1\n").status == "failed"
    assert probe_source("def train(:\n").status == "failed"
    assert "no function" in probe_source("class A: pass\n", "A.train").reason


def test_a_function_called_loss_is_no_loss(probe_source: Probe) -> None:
    source = """
def train(model, loader, optimizer, scaler, focal_loss):
    for images, labels in loader:
        optimizer.zero_grad()
        loss = focal_loss(model(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
"""
    result = probe_source(source)
    assert result.status == "returned", result
    assert [event.kind for event in result.events].count("step") == 2
    assert result.notes == ()


def test_attributes_that_another_method_sets_are_there(probe_source: Probe) -> None:
    source = """
class Trainer:
    def __init__(self, net):
        self.net = net
        self.optimizer = None
        self.scaler = None

    def set_optimizer(self, optimizer, scaler):
        self.optimizer, self.scaler = optimizer, scaler

    def step(self, x, schedule):
        for group in self.optimizer.param_groups:
            group["lr"] = schedule[0]
        self.scaler.scale(self.net(x)).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
"""
    result = probe_source(source, "Trainer.step")
    assert result.status == "returned", result
    assert [event.kind for event in result.events].count("step") == 1


FORWARD = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)

    def forward(self, inputs):
        sizes = {}
        width = sizes["width"]
        return self.layer(inputs)
"""


@pytest.mark.parametrize(
    "mention",
    ["", "# beside the GradScaler\n", "# a StandardScaler\n"],
    ids=["plain", "scaler", "data"],
)
def test_what_is_skipped_in_a_forward_is_about_gradients(probe_source: Probe, mention: str) -> None:
    source = (
        "from net import Net\n"
        "def train(inputs, optimizer, scaler):\n"
        "    model = Net()\n"
        "    scaler.scale(model(inputs).sum()).backward()\n"
    )
    files = {"net.py": FORWARD + mention}
    result = probe_source(source, files=files, plan={"slice_rows": (4,)}, repair=True)
    assert result.status == "returned", result
    beside = "GradScaler" in mention
    assert bool(result.skipped) == beside
    notes = [note for note in result.notes if note.kind.endswith("-in-part")]
    assert bool(notes) != beside


@pytest.mark.parametrize(
    ("test", "matters"),
    [
        ("len(loss.shape) == 7", False),
        ("loss.dim() > 3", False),
        ("loss.shape[0] == 0 and config.flag == 'x'", True),
        ("loss.requires_grad == 7", True),
    ],
)
def test_an_assertion_about_shapes_is_no_doubt(
    probe_source: Probe, test: str, matters: bool
) -> None:
    source = f"def train(model, inputs, config):\n    loss = model(inputs)\n    assert {test}\n"
    result = probe_source(source, assumes=True)
    assert result.status == "returned", result
    assert any(note.kind == "assertion" for note in result.notes) == matters


def test_an_empty_text_that_is_used_as_an_object_is_one(probe_source: Probe) -> None:
    source = """
class Task:
    def __init__(self):
        self.config = ""
        self.title = ""

    def train(self, model, inputs):
        assert self.title.upper() == ""
        if self.config.run.distributed:
            model.sync()
        return model(inputs)
"""
    result = probe_source(source, entry="Task.train")
    assert result.status == "returned", result


def test_an_average_of_parameters_is_no_generator(probe_source: Probe) -> None:
    source = """
from averages import ExponentialMovingAverage
from tqdm import tqdm

def train(model, loader):
    average = ExponentialMovingAverage(model.parameters(), decay=0.9)
    for index, inputs in tqdm(enumerate(loader)):
        average.update()
"""
    result = probe_source(source)
    assert result.status == "returned", result
    assert 8 in result.rows


@pytest.mark.parametrize("name", ["max", "min", "median", "sort", "topk", "kthvalue"])
def test_values_come_with_indices(probe_source: Probe, name: str) -> None:
    rest = "1, 1" if name in ("topk", "kthvalue") else "1"
    source = f"""
import torch
def train(model, images, labels):
    found = model(images).{name}({rest})
    hits = found.indices.eq(labels).sum()
    values, indices = torch.{name}(model(images), {rest})
    assert values.requires_grad and not indices.requires_grad
    assert indices.dtype == torch.int64
"""
    result = probe_source(source)
    assert result.status == "returned", result
    assert not result.notes


def test_a_loss_may_look_at_the_model_but_not_at_the_optimizer(probe_source: Probe) -> None:
    source = """
def train(model, images, optimizer, criterion):
    criterion(model(images), model)
    criterion(model(images), optimizer)
    criterion.loss_step(model(images), model)
"""
    calls = [(call.name, call.row, call.kinds) for call in probe_source(source).opaque]
    assert calls == [
        ("criterion", 4, ("loss", "optimizer")),
        ("criterion.loss_step", 5, ("loss", "model")),
    ]


def test_an_unknown_setting_of_a_backend_changes_nothing(probe_source: Probe) -> None:
    source = """
import torch
import torch.backends.cudnn as cudnn
def train(cfg):
    before = cudnn.benchmark
    cudnn.benchmark = cfg.CUDNN.BENCHMARK
    assert cudnn.benchmark is before
    torch.backends.cudnn.benchmark = not before
    assert cudnn.benchmark is not before
"""
    result = probe_source(source)
    assert result.status == "returned", result
    assert not result.notes


def test_a_merged_mapping_has_every_key(probe_source: Probe) -> None:
    source = """
def train(batch):
    output = {"logits": 1}
    merged = {**batch, **output}
    assert merged["logits"] == 1
    merged["masks_1"].sum()
    try:
        {**output}["masks_1"]
    except KeyError:
        return
    raise LookupError
"""
    assert probe_source(source).status == "returned"


def test_what_is_skipped_without_a_doubt_is_apart(probe_source: Probe) -> None:
    source = """
from steps import tidy
def train(table, optimizer, loss):
    width = {}["width"]
    limit = {}["limit"]
    scaler = {}["scaler"]
    {}["call in the slice"]
    {}["call beside it"]
    raise ValueError
    tidy()
    rounds = {}["rounds"](scaler)
    scaler.step(optimizer)
"""
    steps = (
        "def tidy():\n    depth = {}['depth']\n    {}['call']\n    raise ValueError\n"
        "    return {}['result']\n"
    )
    plan = {"slice_rows": (5, 6, 7, 11, 12), "call_rows": (11, 12)}
    result = probe_source(source, files={"steps.py": steps}, plan=plan, repair=True)
    assert [(s.row, s.apart, s.names) for s in result.skipped] == [
        (4, True, ("width",)),
        (5, True, ("limit",)),
        (6, False, ("scaler",)),
        (7, False, ()),
        (8, True, ()),
        (9, False, ()),
        (2, True, ("depth",)),
        (3, False, ()),
        (4, False, ()),
        (5, True, ("result",)),
        (11, False, ("rounds",)),
    ]


def test_what_ends_a_function_with_calls_of_a_scaler_is_not_apart(probe_source: Probe) -> None:
    source = """
import contextlib
from steps import measure
def finish(scaler, optimizer):
    with [][1]:
        scaler.step(optimizer)
        scaler.update()
    return 1
def train(scaler, optimizer, inputs):
    norm = finish(scaler, optimizer)
    width = measure(inputs)
"""
    steps = "def measure(inputs):\n    with [][1]:\n        return 1\n"
    plan = {"slice_rows": (5, 6, 7, 10)}
    result = probe_source(source, files={"steps.py": steps}, plan=plan, repair=True)
    skipped = {s.names: s.apart for s in result.skipped}
    assert skipped == {("norm",): False, ("width",): True}, result


def test_a_device_is_what_the_code_asks_for(probe_source: Probe) -> None:
    source = """
import torch
def train(inputs, loader):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    assert device.type == "cuda"
    model = torch.nn.Linear(3, 1).to(device)
    model(torch.zeros(2, 3, device=device)).sum().backward()
    model.cuda(device)(torch.zeros(2, 3).to(device)).sum().backward()
    torch.Generator(device=device).manual_seed(1)
    state = {"w": torch.zeros(2).to(device.type)}
    with torch.autocast(device.type):
        model(torch.zeros(2, 3, device=torch.device("cuda", 0)))
"""
    result = probe_source(source)
    assert result.status == "returned", result


def test_no_driver_is_asked_for_the_accelerator(probe_source: Probe) -> None:
    """Adam asks for its stream in a torch that was built for CUDA; so may the code itself."""
    source = """
import torch
def train(inputs):
    model = torch.nn.Linear(3, 1).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.zeros(2, 3).cuda()).sum().backward()
    optimizer.step()
    torch.accelerator.synchronize()
    with torch.accelerator.current_stream():
        optimizer.step()
"""
    result = probe_source(source)
    assert result.status == "returned", result


def test_dimensions_are_as_many_as_asked_for(probe_source: Probe) -> None:
    source = """
def train(model, loader):
    images = model(next(iter(loader)))
    assert images.ndim == 4
    if images.ndim != 3 or images.ndim not in (5, 6):
        raise SystemExit
"""
    assert probe_source(source).status == "returned"


@pytest.mark.parametrize("repair", [False, True])
def test_a_loss_reaches_what_is_trained_where_parts_are_skipped(
    probe_source: Probe, repair: bool
) -> None:
    source = """
import torch
def train(inputs, scaler):
    model, other = torch.nn.Linear(3, 1), torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler.scale(other(torch.ones(2, 3)).sum()).backward()
    scaler.step(optimizer)
    scaler.update()  # the next call's optimizer may lie where this one did
"""
    result = probe_source(source, plan={"slice_rows": (6, 7, 8)}, repair=repair)
    assert (result.raised is None) == repair
    assert (Note("connected", "the loss") in result.notes) == repair


def test_globals_hold_what_nothing_has_read_yet(probe_source: Probe) -> None:
    source = """
def rate_cos(epoch):
    return 0.5

def train(policy="cos"):
    assert "rate_" + policy in globals()
    assert "rate_exp" not in globals()
    assert globals()["rate_" + policy](1) == 0.5
"""
    assert probe_source(source).status == "returned"


def test_a_configuration_has_the_defaults_of_its_module(probe_source: Probe) -> None:
    files = {
        "config.py": "from yacs.config import CfgNode\n_C = CfgNode()\ncfg = _C\n"
        "_C.OPTIM = CfgNode()\n_C.OPTIM.POLICY = 'cos'\n_C.AMP = False\n_C.SIZE = 224\n"
        "_C.NAMES = ['a', 'b']\n"
    }
    source = """
from config import cfg
def train():
    assert "rate_" + cfg.OPTIM.POLICY == "rate_cos"
    assert cfg.SIZE == 224 and cfg.NAMES == ["a", "b"]
    if cfg.AMP:
        raise LookupError
"""
    result = probe_source(source, files=files)
    assert result.status == "returned", result
    (asked,) = [decision for decision in result.decisions if decision.path.endswith(".AMP")]
    assert (asked.options, asked.origin) == ((False, True), "default")
    other = probe_source(source, files=files, assignment={asked.path: True})
    assert other.raised is not None and other.raised.type == "LookupError"


def test_a_loader_has_a_sampler(probe_source: Probe) -> None:
    source = """
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler
def train(dataset, mine):
    sampler = DataLoader(dataset).sampler
    assert isinstance(sampler, (RandomSampler, DistributedSampler))
    sampler.set_epoch(1)
    assert DataLoader(dataset, sampler=mine).sampler is mine
"""
    assert probe_source(source).status == "returned"


@pytest.mark.parametrize(
    "hands",
    [
        "engine.scaler = scaler",
        "engine.run({'scaler': scaler})",
        "engine.run(scaler.step)",
        "engine.attach(lambda: scaler.step(1))",
        "engine.on('step')(lambda: scaler.step(1))",
        "engine.run(state=dict(inner=scaler))",
        "engine.run(holder)",
        "engine.attach(holder.finish)",
        "engine.attach(lambda: holder.finish())",
    ],
)
def test_who_holds_a_scaler_may_use_it(probe_source: Probe, hands: str) -> None:
    source = f"""
import torch
from somewhere import engine
class Holder:
    def finish(self):
        self.scaler.step(1)
def train():
    holder = Holder()
    holder.scaler = scaler = torch.amp.GradScaler("cuda")
    {hands}
"""
    result = probe_source(source)
    assert result.status == "returned", result
    assert any("scaler" in call.kinds for call in result.opaque), result.opaque
