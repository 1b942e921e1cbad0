"""What a run hands on to other programs: metrics, a trace, findings with evidence; callbacks."""

from __future__ import annotations

import importlib.util
import json
import re
from itertools import pairwise
from pathlib import Path

import pytest

from amplint.live import exports, scalars
from amplint.live.merge import read_run
from tests.live.programs import plain, printed, row_of, watch
from tests.live.test_programs import LIGHTNING
from tests.live.test_record import process, run, seen
from tests.live.test_run import LOOP

#: A line of OpenMetrics that holds a sample.
_SAMPLE = re.compile(r'([a-z_]+)(?:\{(?:[a-z]+="[^"]*",?)*\})? (-?[0-9.e+]+)')


def test_metrics() -> None:
    made = run(process(0, 8.0, 4.0, skipped=(2,)), process(None, 16.0), findings=(seen(),))
    lines = list(exports.metrics(made))
    assert lines[-1] == "# EOF"
    types = dict(line.split()[2:4] for line in lines if line.startswith("# TYPE"))
    for line in lines:
        if line.startswith("#"):
            continue
        found = _SAMPLE.fullmatch(line)
        assert found is not None, line
        name = found[1].removesuffix("_total")
        assert (types[name] == "counter") is found[1].endswith("_total")
    assert 'amplint_findings{level="error"} 1' in lines
    labels = '{host="host",pid="100",rank="0",scaler="1"}'
    assert f"amplint_skipped_steps_total{labels} 1" in lines
    assert f"amplint_loss_scale{labels} 4" in lines


def test_calls_and_a_trace(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LOOP, "utf-8")
    options = ("--every", "3", "--fail-on", "never")
    watch(tmp_path, "train.py", "unscale", "7", "0", options=options)
    read = read_run(str(tmp_path / "record"))
    kinds = [kind for _, kind, *_ in read.processes[0].calls]
    assert kinds == ["scale", "backward", "unscale_", "clip", "step"] * 3
    row = row_of(LOOP, "scaler.step(optimizer)")
    assert {row for _, kind, _, _, row in read.processes[0].calls if kind == "step"} == {row}
    events = json.loads(exports.trace(read))["traceEvents"]
    updates = [event for event in events if event["ph"] == "X"]
    assert [event["name"] for event in updates] == [f"update {n}" for n in range(1, 8)]
    assert all(a["ts"] + a["dur"] <= b["ts"] + 1 for a, b in pairwise(updates))
    assert len([event for event in events if event["ph"] == "i"]) == 15
    assert {"C", "M"} <= {event["ph"] for event in events}


def test_a_confirmed_finding_of_the_check(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LOOP, "utf-8")
    found = watch(tmp_path, "train.py", "forget", "2", "0", options=("--with-check",))
    confirmed = [each for each in found.report["check"] if each["verdict"] == "confirmed"]
    (finding,) = (each for each in confirmed if each["code"] == "AMP110")
    assert finding["location"]["row"] == row_of(LOOP, "clip_grad_norm_")
    assert (finding["evidence"]["status"], finding["evidence"]["kind"]) == ("observed", "live")
    assert "(512)" in finding["evidence"]["detail"]


@pytest.mark.parametrize("options", [(), ("--with-check",)])
def test_sarif_says_what_was_seen(tmp_path: Path, options: tuple[str, ...]) -> None:
    """With the check a finding keeps its path and gets the run's evidence; without, its row."""
    (tmp_path / "train.py").write_text(LOOP, "utf-8")
    watch(tmp_path, "train.py", "forget", "3", "0", options=(*options, "--sarif", "run.sarif"))
    (run,) = json.loads((tmp_path / "run.sarif").read_text("utf-8"))["runs"]
    (found,) = (each for each in run["results"] if each["ruleId"] == "AMP110")
    place = found["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "train.py"
    assert place["region"]["startLine"] == row_of(LOOP, "clip_grad_norm_")
    assert (found["properties"]["evidence"]["status"], found["level"]) == ("observed", "error")
    assert "(3 times)" in found["message"]["text"]
    assert ("codeFlows" in found) is bool(options)


def test_a_finding_of_the_check_that_did_not_happen(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LOOP, "utf-8")
    again = watch(tmp_path, "train.py", "unscale", "2", "0", options=("--with-check",))
    (other,) = (each for each in again.report["check"] if each["code"] == "AMP110")
    assert (other["verdict"], other["evidence"]["status"]) == ("ran without it", "static")


@pytest.mark.parametrize("is_command", [False, True])
def test_the_callback_of_lightning(tmp_path: Path, is_command: bool) -> None:
    """It watches each fit; under `amplint run` it leaves everything as it is."""
    if importlib.util.find_spec("lightning") is None:
        pytest.skip("lightning is not installed")
    body = LIGHTNING.replace(
        "plugins=[precision]",
        "plugins=[precision], callbacks=[Watching(folder=f'own-{manual}', sample=2)]",
    ).replace("import logging,", "from amplint.live.lightning import Watching\nimport logging,")
    (tmp_path / "train.py").write_text(body, "utf-8")
    done = watch(tmp_path, "train.py") if is_command else plain(tmp_path, "train.py")
    assert done.stdout == printed(LIGHTNING), done.stderr
    folders = [tmp_path / f"own-{manual}" for manual in (False, True)]
    if is_command:
        assert not any(folder.exists() for folder in folders)
        return
    runs = [read_run(str(folder)) for folder in folders]
    assert [len(made.processes[0].rounds[1]) for made in runs] == [4, 8]
    assert [made.findings for made in runs] == [(), ()]
    assert all(made.processes[0].ended and made.processes[0].samples.looks for made in runs)


def test_curves_for_other_tools() -> None:
    made = process(0, 64.0, 32.0, skipped=(2,))
    made.samples.take({"k": "sample", "s": 1, "u": 2, "n": [80.0, 2.5], "m": {}})
    found = [(each.name, each.update, each.value) for each in scalars.scalars(run(made))]
    assert found == [
        ("rank 0/scaler 1/loss scale", 1, 64.0),
        ("rank 0/scaler 1/skipped", 1, 0.0),
        ("rank 0/scaler 1/gradient norm", 2, 2.5),
        ("rank 0/scaler 1/loss scale", 2, 32.0),
        ("rank 0/scaler 1/skipped", 2, 1.0),
    ]


def test_tensorboard_reads_them_back(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    scalars.to_tensorboard(run(process(0, 64.0, 32.0)), str(tmp_path))
    read = EventAccumulator(str(tmp_path))
    read.Reload()
    curve = read.Scalars("amplint/rank 0/scaler 1/loss scale")
    assert [(each.step, each.value) for each in curve] == [(1, 64.0), (2, 32.0)]


def test_wandb_logs_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Offline: nothing leaves this machine."""
    pytest.importorskip("wandb", reason="wandb is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_SILENT", "true")
    scalars.to_wandb(run(process(0, 64.0, 32.0)), "project")
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))
