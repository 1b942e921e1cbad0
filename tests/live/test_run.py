"""`amplint run` from the outside: injection, output, status and report."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.live.programs import environment, plain, row_of, watch

LOOP = """
import sys, torch
torch.manual_seed(0)
net = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=512.0)
for step in range(int(sys.argv[2])):
    optimizer.zero_grad()
    loss = net(torch.randn(4, 8)).pow(2).mean()
    scaler.scale(loss).backward()
    if sys.argv[1] == "unscale":
        scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    print(loss.item().hex())
sys.exit(int(sys.argv[3]))
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(LOOP, "utf-8")
    return path


def test_a_healthy_run_is_unchanged_and_silent(tmp_path: Path, script: Path) -> None:
    seen = watch(tmp_path, "train.py", "unscale", "6", "0")
    without = plain(tmp_path, "train.py", "unscale", "6", "0")
    assert seen.stdout == without.stdout
    assert (seen.status, seen.told, seen.updates) == (0, [], [6])
    assert "no misuse seen" in seen.stderr


def test_a_mistake_is_told_at_its_line_with_the_measured_scale(
    tmp_path: Path, script: Path
) -> None:
    seen = watch(tmp_path, "train.py", "forget", "5", "0")
    row = row_of(LOOP, "clip_grad_norm_")
    assert seen.told == [("clip-of-scaled", "train.py", row)]
    finding = seen.report["findings"][0]
    assert (finding["code"], finding["count"], finding["first"], finding["last"]) == (
        "AMP110",
        5,
        0,
        4,
    )
    assert "(512): the threshold of 1 acts as 0.00195312" in finding["words"]
    assert finding["evidence"] == {"status": "observed", "kind": "live"}
    assert seen.status == 1
    assert seen.stdout == plain(tmp_path, "train.py", "forget", "5", "0").stdout
    told_at_once = [line for line in seen.stderr.splitlines() if line.startswith("amplint: train")]
    assert len(told_at_once) == 1


@pytest.mark.parametrize(
    ("options", "asked", "status"),
    [
        ((), "3", 3),
        (("--fail-on", "never"), "0", 0),
        (("--quiet",), "0", 1),
    ],
)
def test_exit_status(
    tmp_path: Path, script: Path, options: tuple[str, ...], asked: str, status: int
) -> None:
    seen = watch(tmp_path, "train.py", "forget", "1", asked, options=options)
    assert seen.status == status
    assert ("amplint: train.py" in seen.stderr) is ("--quiet" not in options)


def test_modules_children_and_other_peoples_sitecustomize(tmp_path: Path, script: Path) -> None:
    """A module that starts a child; behind our `sitecustomize` stands one of the user's."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("", "utf-8")
    body = (
        "import subprocess, sys, user_was_here\n"
        "sys.exit(subprocess.call([sys.executable, 'train.py', *sys.argv[1:]]))\n"
    )
    (package / "main.py").write_text(body, "utf-8")
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text(
        "import sys, types\nsys.modules['user_was_here'] = types.ModuleType('x')\n", "utf-8"
    )
    path = os.pathsep.join((environment()["PYTHONPATH"], str(own)))
    seen = watch(
        tmp_path,
        *("package.main", "forget", "2", "0"),
        options=("-m",),
        env=environment(PYTHONPATH=path),
    )
    assert (seen.status, [slug for slug, _, _ in seen.told]) == (1, ["clip-of-scaled"])
    assert len(seen.report["processes"]) == 1


def test_a_program_without_torch_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "hello.py").write_text("import sys\nprint('hello', len(sys.argv))\n", "utf-8")
    seen = watch(tmp_path, "hello.py", "a", "--b")
    assert (seen.status, seen.stdout) == (0, "hello 3\n")
    assert seen.report["processes"] == []
    assert "no process used torch" in seen.stderr


def test_a_command_that_cannot_be_started(tmp_path: Path) -> None:
    seen = watch(tmp_path, "no-such-command", options=("--",))
    assert seen.status == 2
    assert "cannot run no-such-command" in seen.stderr


KILLED = """
import os, signal, torch
weight = torch.nn.Parameter(torch.ones(2))
optimizer = torch.optim.SGD([weight], lr=0.01)
scaler = torch.amp.GradScaler("cpu")
for step in range(1000):
    scaler.scale(weight.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    if step == 6:
        print("seven", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_was_seen_survives_sigkill(tmp_path: Path) -> None:
    """The loop never clears its gradients, which is told; seven updates ended."""
    (tmp_path / "train.py").write_text(KILLED, "utf-8")
    seen = watch(tmp_path, "train.py")
    assert seen.status == 128 + signal.SIGKILL
    assert seen.stdout == "seven\n"
    assert seen.updates == [7]
    assert [slug for slug, _, _ in seen.told] == ["step-on-piled"]
    assert seen.report["processes"][0]["ended"] is False
    assert "did not end by itself" in seen.stderr


def test_a_signal_reaches_the_training(tmp_path: Path) -> None:
    body = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "print('ready', flush=True)\ntime.sleep(60)\n"
    )
    (tmp_path / "wait.py").write_text(body, "utf-8")
    out = str(tmp_path / "record")
    command = ["-m", "amplint", "run", "--python", sys.executable, "--out", out, "wait.py"]
    child = subprocess.Popen(
        [sys.executable, *command], cwd=tmp_path, env=environment(), stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    time.sleep(0.1)
    child.send_signal(signal.SIGTERM)
    assert child.wait(60) == 7
    child.stdout.close()


def test_a_broken_record_is_read_as_far_as_it_goes(tmp_path: Path, script: Path) -> None:
    from amplint.live.merge import read_run

    watch(tmp_path, "train.py", "forget", "3", "0")
    (record,) = (tmp_path / "record").glob("*.jsonl")
    whole = record.read_bytes()
    ends = [place for place, byte in enumerate(whole) if byte == 10]
    for length in (*range(0, len(whole), 37), *ends):
        record.write_bytes(whole[:length])
        run = read_run(str(tmp_path / "record"))
        rounds = sum(len(r) for p in run.processes for r in p.rounds.values())
        assert rounds == sum(map(_is_round, whole[:length].split(b"\n")))


def _is_round(line: bytes) -> bool:
    """Whether a line of a record is a whole round; only the newline may be missing."""
    try:
        return json.loads(line)["k"] == "r"
    except ValueError:
        return False
