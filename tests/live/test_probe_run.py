"""`amplint probe --run` and `--with-check`: findings of the static analysis, met by a real run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from amplint.findings import Evidence, Finding, PathStep, Position, Severity, Span
from amplint.live.joined import CONFIRMED, UNREACHED, UNSEEN, WITHOUT, join, unforeseen
from amplint.live.merge import Process, Run, Seen
from tests.live.programs import environment, row_of, watch

TRAINING = """
import torch


def train(net, batches, optimizer, scaler):
    for number, batch in enumerate(batches, 1):
        optimizer.zero_grad()
        scaler.scale(net(batch).square().mean()).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        print(number, scaler.get_scale())


torch.manual_seed(0)
net = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
train(net, [torch.randn(4, 8)] * 50, optimizer, torch.amp.GradScaler("cpu", init_scale=64.0))
print("the end")
"""


def test_a_few_steps_of_the_real_training(tmp_path: Path) -> None:
    """It ends after three steps; the second one overflows, which is calibration and no finding."""
    (tmp_path / "train.py").write_text(TRAINING, "utf-8")
    command = ["probe", "--python", sys.executable, "--run", "train.py", "--overflow", "2"]
    done = subprocess.run(
        [sys.executable, "-m", "amplint", *command],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout == "1 64.0\n2 32.0\n3 32.0\n"
    row = row_of(TRAINING, "clip_grad_norm_")
    confirmed = [line for line in done.stderr.splitlines() if CONFIRMED in line and "AMP" in line]
    assert len(confirmed) == 1
    assert confirmed[0].startswith(f"train.py:{row}: AMP110 clip-without-unscale: confirmed")
    assert "3 steps ran, 1 findings confirmed" in done.stderr
    assert done.returncode == 1


def test_stop_on_raises_before_the_damage(tmp_path: Path) -> None:
    body = TRAINING.replace(
        "train(net, [",
        "before = net.weight.detach().clone()\ntry:\n  train(net, [",
    ).replace(
        'print("the end")',
        "except RuntimeError as error: print(type(error).__name__, bool((net.weight == before).all()))",
    )
    (tmp_path / "train.py").write_text(body, "utf-8")
    seen = watch(tmp_path, "train.py", options=("--stop-on", "error"))
    assert seen.stdout == "Misuse True\n"
    assert (seen.status, [slug for slug, _, _ in seen.told]) == (1, ["clip-of-scaled"])


# -- joining


def static(code: str, row: int, *broken: str) -> Finding:
    place = Span(Position(row, 5), Position(row, 20))
    path = tuple(PathStep("train.py", row, 5, broken=slug) for slug in broken)
    severity, evidence = Severity.ERROR, Evidence()
    return Finding(code, "a-rule", severity, "m", "h", "train.py", place, path, evidence=evidence)


def live(code: str, slug: str, row: int) -> Seen:
    return Seen(
        *(slug, code, "error", "train.py", row, ("", 0), "words", ("process 1",)),
        *(1, 0, 0, {}, (), 0.0),
    )


@pytest.mark.parametrize(
    ("finding", "verdict"),
    [
        (static("AMP110", 7), CONFIRMED),
        (static("AMP103", 9, "step-without-gradient"), CONFIRMED),
        (static("AMP110", 9), WITHOUT),
        (static("AMP110", 8), UNREACHED),
        (static("AMP801", 7), UNSEEN),
    ],
)
def test_verdicts(finding: Finding, verdict: str) -> None:
    process = Process(None, 0, "host", 1, places={("train.py", 7), ("train.py", 9)})
    seen = (live("AMP110", "clip-of-scaled", 7), live("AMP101", "step-without-gradient", 9))
    run = Run("record", (process,), seen, {})
    (joined,) = join([finding], run)
    assert joined.verdict == verdict
    left = [each.row for each in unforeseen([joined], run)]
    assert left == [row for row in (7, 9) if verdict != CONFIRMED or row != finding.span.start.row]
