"""What a plan says about the recorded incidents."""

from __future__ import annotations

from pathlib import Path

import pytest

from amplint.checker import check_paths
from amplint.config import Settings
from amplint.findings import Finding
from amplint.probe.confirmation import plan_builder
from amplint.probe.planning import PlanBuilder

ROOT = Path(__file__).resolve().parents[2]
INCIDENTS = ROOT / "fixtures" / "incidents"


def first(folder: str, name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Finding, PlanBuilder]:
    monkeypatch.chdir(INCIDENTS / folder / "before")
    settings = Settings(project_root=".")
    builder = plan_builder(name, settings)
    assert builder is not None
    return check_paths([name], settings).findings[0], builder


def test_a_dataclass_and_a_caller_in_another_file(monkeypatch: pytest.MonkeyPatch) -> None:
    finding, builder = first("0_leftover_flush", "trainer.py", monkeypatch)
    (entry,) = builder.entries(finding)
    plan = builder.plan(finding, entry).plan
    assert plan.entry == "LanguageModelTrainer.train_epoch"
    assert plan.target_rows == (finding.span.start.row,)
    assert [source.module for source in plan.sources] == ["", "config", "model"]
    roles = {role.path: (role.kind, role.origin) for role in plan.roles}
    assert roles["self.scaler"] == ("scaler", "constructor")
    assert roles["self.optimizer"] == ("optimizer", "constructor")
    assert roles["loader"] == ("loader", "use")
    domains = {domain.path: domain for domain in plan.domains}
    assert domains["self.config.mixed_precision"].values == (True, False)
    assert domains["self.config.mixed_precision"].origin == "default"
    assert "self.scaler" not in domains, "an object is no value"
    assert "accumulated_loss" not in domains, "what the code computes is no input"
    assert plan.prefer["self.config.mixed_precision"] is True
    (caller,) = builder.callers(entry)
    assert caller.qualname == "main"
    outer = builder.plan(finding, caller).plan
    assert outer.sources[outer.entry_source].filename.endswith("main.py")
    assert outer.target_rows == plan.target_rows


def test_command_line_options(monkeypatch: pytest.MonkeyPatch) -> None:
    finding, builder = first("2_flush_method", "trainer.py", monkeypatch)
    (entry,) = builder.entries(finding)
    assert entry.name == "train_epoch", "`_flush` runs no backward; its caller does"
    planned = builder.plan(finding, entry)
    assert planned.options["mixed_precision"].flag == "--mixed-precision"
    assert planned.options["mixed_precision"].values == (False, True)
    domains = {domain.path: domain for domain in planned.plan.domains}
    assert domains["self.args.mixed_precision"].values == (False, True)
    assert domains["*.mixed_precision"].values == (False, True), "wherever the namespace goes"
    assert "*.sequences" not in domains, "large numbers make long runs"
    assert planned.plan.prefer["self.args.mixed_precision"] is False


def test_a_witness_about_nan_asks_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(INCIDENTS / "3_nan_gradients" / "before")
    settings = Settings(project_root=".")
    name = "methods/trainer.py"
    builder = plan_builder(name, settings)
    assert builder is not None
    declared = {}
    for finding in check_paths([name], settings).findings:
        plan = builder.plan(finding, builder.entries(finding)[0]).plan
        declared[finding.code] = [d.path for d in plan.domains if d.path.startswith("nan")]
    assert declared["AMP102"] == ["nan in forward 1"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("optimizer = torch.optim.AdamW(model.parameters(), fused=True)", True),
        ("settings['fused'] = use_fused", True),
        ('settings = {"fused": True}', True),
        ("optimizer._step_supports_amp_scaling = True", True),
        ("optimizer = torch.optim.AdamW(groups, **dict(fused=True))", True),
        ("fused = True", True),
        ("class Settings:\n    fused: bool = True", True),
        ("def main(settings):\n    settings.fused = True", True),
        ("def main(settings, fused):\n    return torch.optim.AdamW(settings, fused=fused)", True),
        ("def forward(left, right):\n    fused = left + right\n    return fused", False),
        ("hidden = fused_add_multiply(hidden)", False),
        ("# gradients are fused here", False),
    ],
)
def test_an_optimizer_that_may_unscale_by_itself(tmp_path: Path, line: str, expected: bool) -> None:
    path = tmp_path / "train.py"
    path.write_text(f"import torch\n{line}\n")
    builder = plan_builder(str(path), Settings())
    assert builder is not None
    assert builder.may_scale_itself is expected


def plan_of(folder: Path, source: str, code: str):
    """The plan for the first finding of a source with a code."""
    path = folder / "train.py"
    path.write_text(source)
    settings = Settings(project_root=str(folder))
    builder = plan_builder(str(path), settings)
    assert builder is not None
    found = check_paths([str(path)], settings).findings
    finding = next(finding for finding in found if finding.code == code)
    return builder.plan(finding, builder.entries(finding)[0]).plan


SOURCE = """\
import torch

def pick(device=""):
    if device == "cpu":
        return "cpu"
    return "cuda"

def train(model, optimizer, loader, scaler, config, writer, device):
    pick(device)
    for batch in loader:
        scaler.scale(model(batch).sum()).backward()
        if config.accumulation > 1 and config.mode != "plain":
            scaler.step(optimizer)
        if writer:
            writer.add_scalar("loss", 1)
"""


def test_comparisons_around_the_line_say_which_values_lead_there(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, SOURCE, "AMP105")
    assert plan.prefer["config.accumulation"] > 1
    assert plan.prefer["config.mode"] != "plain"


LONG = """\
import torch

def train(model, optimizer, loader, scaler, config):
    for batch in loader:
        scaler.scale(model(batch).sum()).backward()
        if config.number_of_accumulation_steps == 3 and config.gradient_accumulation_mode == "sum":
            optimizer.zero_grad()
        scaler.step(optimizer)
        scaler.update()
"""


def test_a_condition_of_any_length_says_which_values_lead_there(tmp_path: Path) -> None:
    """The test is not around the finding: only the path knows of it."""
    prefer = plan_of(tmp_path, LONG, "AMP102").prefer
    assert prefer["config.number_of_accumulation_steps"] == 3
    assert prefer["config.gradient_accumulation_mode"] == "sum"


def test_what_callees_are_passed_and_what_has_attributes_is_no_free_value(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, SOURCE, "AMP105")
    paths = {domain.path for domain in plan.domains}
    assert "device" not in paths, "its default in `pick` is not what `train` gets"
    assert "writer" not in paths, "an object is no truth value"
    assert {"config.accumulation", "config.mode"} <= paths


def test_an_option_may_default_to_a_list(tmp_path: Path) -> None:
    options = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--sizes", default=[1, 2], choices=[[1, 2], [3]])
"""
    assert plan_of(tmp_path, SOURCE + options, "AMP105").entry == "train"
