"""Healthy trainings under `amplint run`: no finding, and what they print stays bit for bit."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from amplint.live.merge import read_run
from tests.live.programs import plain, watch

ALONE = """
import threading, torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.set_num_threads(1)


def train(seed, kind):
    made = torch.Generator().manual_seed(seed)
    first, second = nn.Linear(8, 16), nn.Linear(16, 1)
    weights = [*first.parameters(), *second.parameters()]
    for weight in weights:
        weight.data = torch.randn(weight.shape, generator=made) / 4
    optimizer = {
        "lbfgs": lambda: torch.optim.LBFGS(weights, max_iter=4, line_search_fn="strong_wolfe"),
        "fused": lambda: torch.optim.AdamW(weights, 0.01, fused=True),
        "foreach": lambda: torch.optim.AdamW(weights, 0.01, foreach=True),
        "checkpointed": lambda: torch.optim.SGD(weights, 0.01),
    }[kind]()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12, growth_interval=3)
    losses = []
    for step in range(6):
        inputs = torch.randn(4, 8, generator=made)

        def forward():
            with torch.autocast("cpu", dtype=torch.float16):
                hidden = torch.relu(first(inputs))
                if kind == "checkpointed":
                    return checkpoint(second, hidden, use_reentrant=bool(step % 2)).float()
                return second(hidden).float()

        def closure():
            optimizer.zero_grad()
            loss = (forward() - 1).square().mean()
            loss.backward()
            return loss

        if kind == "lbfgs":
            loss = optimizer.step(closure)
        else:
            optimizer.zero_grad()
            loss = (forward() - 1).square().mean() * (float("inf") if step == 4 else 1.0)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(weights, 1.0)
            scaler.step(optimizer)
            scaler.update()
        losses.append(loss.item().hex())
    return [*losses, *(weight.sum().item().hex() for weight in weights)]


def at_once(kinds):
    found = {}
    workers = [
        threading.Thread(target=lambda n=n, k=k: found.update({n: train(n, k)}))
        for n, k in enumerate(kinds)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for number in sorted(found):
        print(number, *found[number])


for kind in ("lbfgs", "fused", "foreach", "checkpointed"):
    print(kind, *train(0, kind))
at_once(["checkpointed"] * 2)
at_once(["foreach"] * 4)
"""


def test_trainings_of_one_process_and_its_threads(tmp_path: Path) -> None:
    """Different kinds one after the other, then two and four threads that train at once."""
    (tmp_path / "train.py").write_text(ALONE, "utf-8")
    seen = watch(tmp_path, "train.py")
    assert (seen.status, seen.told, seen.updates) == (0, [], [6] * 9), seen.stderr
    assert seen.stdout == plain(tmp_path, "train.py").stdout
    assert len(seen.stdout.splitlines()) == 10


RANKS = """
import os, sys, torch, torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, fully_shard
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
DTYPES = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)


def train(kind, rank, file):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    scaler = torch.amp.GradScaler("cpu", init_scale=512.0)
    if kind == "ddp":
        net = DistributedDataParallel(net)
        net.register_comm_hook(None, fp16_compress_hook)
    elif kind == "fsdp":
        net = FullyShardedDataParallel(net, device_id=torch.device("cpu"), mixed_precision=DTYPES)
        scaler = ShardedGradScaler("cpu", init_scale=512.0, process_group=dist.group.WORLD)
    else:
        fully_shard(net, mesh=torch.distributed.device_mesh.init_device_mesh("cpu", (2,)))
    optimizer = torch.optim.AdamW(net.parameters(), 0.05)
    torch.manual_seed(rank)
    for step in range(6):
        loss = net(torch.randn(4, 8)).float().square().mean()
        if step == 3:
            loss = loss * float("inf")  # skipped on every rank
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        if kind == "fsdp":
            net.clip_grad_norm_(1.0)
        else:
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        print(kind, loss.item().hex(), file=file)


def work(rank):
    os.environ["RANK"] = str(rank)
    dist.init_process_group("gloo", f"file://{os.path.abspath(sys.argv[1])}", None, 2, rank)
    with open(f"{sys.argv[1]}{rank}", "w") as file:
        for kind in ("ddp", "fsdp", "fsdp2"):
            train(kind, rank, file)
    dist.barrier()
    os._exit(0)  # tearing gloo down aborts now and then, with amplint and without


for rank in range(2):
    if os.fork() == 0:
        work(rank)
sys.exit(any([os.wait()[1], os.wait()[1]]))
"""


def test_two_ranks_of_models_that_are_spread(tmp_path: Path) -> None:
    """DDP and both kinds of FSDP on gloo, without a launcher's time to start."""
    (tmp_path / "train.py").write_text(RANKS, "utf-8")
    seen = watch(tmp_path, "train.py", "with", options=("--sample", "2"))
    assert (seen.status, seen.told, seen.updates) == (0, [], [6] * 6), seen.stderr
    assert seen.report["disagreements"] == []
    modules = seen.report["processes"][0]["samples"]["modules"]
    # On Python 3.13 the network before lives on, and the last one needs its class before its names.
    last = "0" if "0" in modules else "FSDPSequential.0"
    wrapped = {"ddp": "module.0", "fsdp": "_fsdp_wrapped_module.0", "fsdp2": last}
    assert {kind: modules[name]["reduction"] for kind, name in wrapped.items()} == {
        "ddp": "fp16_compress_hook",
        "fsdp": "torch.float32",
        "fsdp2": "torch.float32",
    }
    assert plain(tmp_path, "train.py", "without").returncode == 0
    for rank in "01":
        losses = [(tmp_path / f"{what}{rank}").read_text("utf-8") for what in ("with", "without")]
        assert losses[0] == losses[1]
        assert losses[0].count("\n") == 18


TRANSFORMERS = """
import torch
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

torch.manual_seed(0)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(8, 1)

    def forward(self, x, y):
        out = self.net(x).float()
        return {"loss": torch.nn.functional.mse_loss(out, y), "logits": out}


class Show(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **more):
        if "loss" in logs:
            print(float(logs["loss"]).hex(), float(logs["grad_norm"]).hex())


class Scaled(Trainer):
    def create_accelerator_and_postprocess(self):
        super().create_accelerator_and_postprocess()
        self.accelerator.scaler, self.accelerator.native_amp = torch.amp.GradScaler("cpu"), True
        self.accelerator.state._mixed_precision = "fp16"


data = [{"x": torch.randn(8), "y": torch.randn(1)} for _ in range(32)]
args = TrainingArguments(
    "out", per_device_train_batch_size=8, num_train_epochs=3, use_cpu=True, logging_steps=1,
    report_to=[], save_strategy="no", disable_tqdm=True, gradient_accumulation_steps=2,
    max_grad_norm=0.5,
)
trainer = Scaled(Net(), args, train_dataset=data, callbacks=[Show()])
trainer.remove_callback(PrinterCallback)  # it prints how long training took
trainer.train()
"""


def test_the_trainer_of_transformers_and_its_callback(tmp_path: Path) -> None:
    """Under `amplint run`, and with amplint's callback alone."""
    if importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed")
    with_callback = TRANSFORMERS.replace("[Show()]", "[Show(), Watching(folder='own')]").replace(
        "import torch", "import torch\nfrom amplint.live.transformers import Watching", 1
    )
    (tmp_path / "train.py").write_text(TRANSFORMERS, "utf-8")
    (tmp_path / "called.py").write_text(with_callback, "utf-8")
    without = plain(tmp_path, "train.py").stdout
    assert len(without.splitlines()) == 6
    seen = watch(tmp_path, "train.py")
    assert (seen.status, seen.told, seen.updates) == (0, [], [6]), seen.stderr
    assert seen.stdout == without
    called = plain(tmp_path, "called.py")
    assert called.stdout == without, called.stderr
    (process,) = read_run(str(tmp_path / "own")).processes
    assert (len(process.rounds[1]), process.ended, process.findings) == (6, True, {})
