"""What happens to a run from outside: kills, disks, several nodes, children that are spawned."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from amplint.live.merge import read_run
from amplint.live.ranks import disagreements
from tests.budget import THOROUGH
from tests.live.programs import environment, plain, row_of, watch

STEPS = """
import os, sys, torch

torch.set_num_threads(1)


def train(rounds, after):
    torch.manual_seed(0)
    net = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=512.0)
    for step in range(1, rounds + 1):
        optimizer.zero_grad()
        scaler.scale(net(torch.ones(4, 8)).square().mean()).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update(after(step))
    print(net.weight.sum().item().hex(), flush=True)
"""

NODE = (
    STEPS
    + """
import socket

first = int(sys.argv[1])
socket.gethostname = lambda: f"node{first}"
for local in range(2):
    if os.fork() == 0:
        rank = first + local
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(local), WORLD_SIZE="4")
        train(8, lambda step: 16.0 if rank == 3 and step == 5 else None)
        sys.exit()
sys.exit(any([os.wait()[1], os.wait()[1]]))
"""
)


def command(folder: Path, *words: str) -> subprocess.Popen[str]:
    """`amplint run` in a folder, in the background."""
    given = ("--python", sys.executable, "--out", str(folder / "record"), "--fail-on", "never")
    return subprocess.Popen(
        [sys.executable, "-m", "amplint", "run", *given, *words],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_two_nodes_and_one_folder(tmp_path: Path) -> None:
    """Two parents, two ranks each: one report of all four, which names the rank that differs."""
    (tmp_path / "train.py").write_text(NODE, "utf-8")
    nodes = [command(tmp_path, "train.py", first) for first in ("0", "2")]
    ends = [(*node.communicate(timeout=300), node.returncode) for node in nodes]
    assert [status for *_, status in ends] == [0, 0], ends
    run = read_run(str(tmp_path / "record"))
    assert [(each.rank, each.host, each.ended) for each in run.processes] == [
        (0, "node0", True),
        (1, "node0", True),
        (2, "node2", True),
        (3, "node2", True),
    ]
    assert [len(each.rounds[1]) for each in run.processes] == [8] * 4
    (found,) = run.findings
    assert (found.slug, found.count) == ("clip-of-scaled", 32)
    assert found.who == ("rank 0", "rank 1", "rank 2", "rank 3")
    (apart,) = disagreements(run.processes)
    assert (apart.what, apart.update) == ("loss scale", 5)
    assert "rank 3: 16, the other 3: 512" in apart.words()
    # Each node's first rank tells what it finds; the parent of the second sees its rank differ.
    for _, stderr, _ in ends:
        assert stderr.count(": error: AMP110") >= 1
    assert "rank 3: 16" in ends[1][1]


KILLED = (
    STEPS
    + """
import pathlib
import signal
import time

there = pathlib.Path("there")


def after(step):
    if step == 4 and os.environ["RANK"] == "1":
        while not there.exists():  # a launcher ends the other rank wherever that one is
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    if step == 6:
        there.touch()
        signal.pause()  # the launcher ends this rank when it has seen that the other one died


train(8, after)
"""
)


def test_a_rank_that_is_killed_under_a_launcher(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(KILLED, "utf-8")
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone")
    launcher += ("--nproc-per-node", "2")
    seen = watch(tmp_path, *launcher, "train.py", options=("--",))
    assert seen.status == 1
    assert seen.updates == [5, 3]
    assert [process["ended"] for process in seen.report["processes"]] == [False, False]
    assert seen.report["disagreements"] == []
    (finding,) = seen.report["findings"]
    assert (finding["slug"], finding["who"]) == ("clip-of-scaled", ["rank 0", "rank 1"])


PARENTLESS = (
    STEPS + "\nprint('ready', flush=True)\nsys.stdin.readline()\ntrain(5, lambda _: None)\n"
)


def test_amplint_itself_is_killed(tmp_path: Path) -> None:
    """The training goes on, and its record is whole."""
    (tmp_path / "train.py").write_text(PARENTLESS, "utf-8")
    reader, writer = os.pipe()
    given = ("--python", sys.executable, "--out", str(tmp_path / "record"), "train.py")
    parent = subprocess.Popen(
        [sys.executable, "-m", "amplint", "run", *given],
        cwd=tmp_path,
        env=environment(),
        stdin=reader,
        stdout=subprocess.PIPE,
        text=True,
    )
    os.close(reader)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "ready\n"
    parent.send_signal(signal.SIGKILL)
    assert parent.wait(60) == -signal.SIGKILL
    os.write(writer, b"go on\n")
    os.close(writer)
    assert parent.stdout.read().startswith(("0x", "-0x"))  # until the training has ended
    parent.stdout.close()
    (made,) = read_run(str(tmp_path / "record")).processes
    assert (len(made.rounds[1]), made.ended) == (5, True)


ALONE = STEPS + "\ntrain(40, lambda _: None)\nsys.exit(int(sys.argv[1]))\n"
GONE = (
    STEPS
    + """
import shutil

train(3, lambda _: None)
shutil.rmtree("record", ignore_errors=True)
sys.exit(int(sys.argv[1]))
"""
)


@pytest.mark.parametrize("what", ["full", "gone", "closed"] if THOROUGH else ["full"])
def test_a_record_that_cannot_be_kept(tmp_path: Path, what: str) -> None:
    """A full disk, a folder that is removed, one that cannot be made: the training is as without."""
    (tmp_path / "train.py").write_text(GONE if what == "gone" else ALONE, "utf-8")
    without = plain(tmp_path, "train.py", "3")
    train = (sys.executable, "train.py", "3")
    if what == "full":  # no file of the training's may grow beyond a kilobyte
        train = ("sh", "-c", 'ulimit -f 1; exec "$0" "$@"', *train)
    if what != "closed":
        seen = watch(tmp_path, *train, options=("--",))
        status, stdout, stderr = seen.status, seen.stdout, seen.stderr
    else:
        (tmp_path / "amplint-runs").write_text("", "utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "amplint", "run", "--", *train],
            cwd=tmp_path,
            env=environment(TMPDIR=str(tmp_path)),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        status, stdout, stderr = done.returncode, done.stdout, done.stderr
        assert f"The record is in {tmp_path / 'amplint-run-'}" in stderr
    assert (status, stdout) == (3, without.stdout), stderr
    assert f"train.py:{row_of(STEPS, 'clip_grad_norm_')}: error: AMP110" in stderr
    assert stderr.count("cannot write the record") == (what == "full")
    assert stderr.count("the record is gone") == (what == "gone")


SPAWNED = """
import multiprocessing, sys


def work(number):
    import steps
    steps.train(3 + number, lambda _: None)


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=work, args=(number,)) for number in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    sys.exit(max(worker.exitcode for worker in workers))
"""


def test_children_that_are_spawned(tmp_path: Path) -> None:
    """The parent never imports torch, and leaves no record."""
    (tmp_path / "steps.py").write_text(STEPS, "utf-8")
    (tmp_path / "train.py").write_text(SPAWNED, "utf-8")
    seen = watch(tmp_path, "train.py", options=("--fail-on", "never"))
    assert (seen.status, sorted(seen.updates)) == (0, [3, 4]), seen.stderr
    assert [process["ended"] for process in seen.report["processes"]] == [True, True]
    assert seen.told == [("clip-of-scaled", "steps.py", row_of(STEPS, "clip_grad_norm_"))]
    assert json.loads((tmp_path / "record" / "run.json").read_text("utf-8"))["status"] == 0
