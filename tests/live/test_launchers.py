"""Processes of launchers: what each hands on decides whether they are watched, and as which rank."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from amplint.live.merge import read_run
from tests.live.programs import Watched, environment, row_of, watch

TRAIN = """
import torch

torch.set_num_threads(1)
net = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(net.parameters(), 0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=512.0)
for _ in range(3):
    optimizer.zero_grad()
    scaler.scale(net(torch.ones(4, 8)).square().mean()).backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
"""

#: As srun: each task gets the whole environment, and its place.
SRUN = """
import os, subprocess, sys

tasks = [
    subprocess.Popen(
        sys.argv[1:],
        env={**os.environ, "SLURM_PROCID": str(task), "SLURM_LOCALID": str(task)},
    )
    for task in range(2)
]
sys.exit(max(task.wait() for task in tasks))
"""

#: As deepspeed over pdsh: a shell on the node gets what was exported, and that is what begins with
#: PYTHON and little else; a second launcher there starts the ranks.
DEEPSPEED = """
import os, shlex, subprocess, sys

names = [name for name in os.environ if name.startswith(("PYTHON", "NCCL", "UCX"))]
exports = "".join(f"export {name}={shlex.quote(os.environ[name])}; " for name in names)
launch = shlex.join([sys.executable, "-u", "node.py", *sys.argv[1:]])
shell = ["env", "-i", "sh", "-c", f"{exports}cd {shlex.quote(os.getcwd())}; {launch}"]
sys.exit(subprocess.run(shell).returncode)
"""
NODE = """
import os, subprocess, sys

ranks = [
    subprocess.Popen(
        [sys.executable, "-u", *sys.argv[1:], f"--local_rank={rank}"],
        env={**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"},
    )
    for rank in range(2)
]
sys.exit(max(rank.wait() for rank in ranks))
"""


def lay_down(folder: Path) -> None:
    """The training, and what stands in for launchers."""
    texts = {"train": TRAIN, "srun": SRUN, "deepspeed": DEEPSPEED, "node": NODE}
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text, "utf-8")


def assert_two_ranks(seen: Watched) -> None:
    """Two records, one finding of both, and one rank that tells it at once."""
    assert seen.status == 1, seen.stderr
    row = row_of(TRAIN, "clip_grad_norm_")
    assert [(each["rank"], each["ended"]) for each in seen.report["processes"]] == [
        (0, True),
        (1, True),
    ]
    assert seen.updates == [3, 3]
    (found,) = seen.report["findings"]
    assert (found["slug"], found["row"], found["count"]) == ("clip-of-scaled", row, 6)
    assert found["who"] == ["rank 0", "rank 1"]
    assert seen.stderr.count(f"amplint: train.py:{row}: error: AMP110") == 1


def test_deepspeed_over_a_shell(tmp_path: Path) -> None:
    lay_down(tmp_path)
    assert_two_ranks(watch(tmp_path, sys.executable, "deepspeed.py", "train.py", options=("--",)))


def test_srun(tmp_path: Path) -> None:
    lay_down(tmp_path)
    train = (sys.executable, "train.py")
    assert_two_ranks(watch(tmp_path, sys.executable, "srun.py", *train, options=("--",)))


def test_a_parent_for_each_task_of_srun(tmp_path: Path) -> None:
    """`srun amplint run --out DIR train.py`: the records of all tasks meet in the folder."""
    lay_down(tmp_path)
    own = (sys.executable, "-m", "amplint", "run", "--python", sys.executable, "--out", "record")
    done = subprocess.run(
        [sys.executable, "srun.py", *own, "train.py"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    run = read_run(str(tmp_path / "record"))
    assert [(each.rank, each.ended) for each in run.processes] == [(0, True), (1, True)]
    (found,) = run.findings
    assert (found.slug, found.count) == ("clip-of-scaled", 6)


def test_a_cleaned_environment(tmp_path: Path) -> None:
    """As `srun --export=NONE`: nobody is watched, and the report says why."""
    lay_down(tmp_path)
    train = ("env", "-i", sys.executable, "train.py")
    seen = watch(tmp_path, *train, options=("--",))
    assert (seen.status, seen.report["processes"]) == (0, []), seen.stderr
    assert "PYTHONPATH" in seen.stderr


def test_accelerate_launch(tmp_path: Path) -> None:
    """Two processes on the CPU, gradients added by DDP over gloo."""
    pytest.importorskip("accelerate")
    lay_down(tmp_path)
    prepared = TRAIN.replace(
        "scaler = ",
        "import accelerate\n"
        "accelerator = accelerate.Accelerator(cpu=True)\n"
        "assert accelerator.num_processes == 2\n"
        "net, optimizer = accelerator.prepare(net, optimizer)\n"
        "scaler = ",
    )
    (tmp_path / "train.py").write_text(prepared + "accelerator.end_training()\n", "utf-8")
    launcher = (sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu")
    given = ("--num_processes", "2", "--main_process_port", "0", "train.py")
    seen = watch(tmp_path, *launcher, *given, options=("--",))
    assert seen.status == 1, seen.stderr
    assert [each["rank"] for each in seen.report["processes"]] == [0, 1]
    (found,) = seen.report["findings"]
    assert (found["slug"], found["who"]) == ("clip-of-scaled", ["rank 0", "rank 1"])
    assert found["row"] == row_of(prepared, "clip_grad_norm_")
