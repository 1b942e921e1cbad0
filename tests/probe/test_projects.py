"""Small projects of ordinary style: nothing that is right is confirmed, and mistakes are.

What is true of them was written down before, and seen: `scripts/probe_projects.py --truth`. Some
of each kind are asked here, in time for every change; `scripts/probe_projects.py --forced` asks all.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from amplint.checker import check_paths
from amplint.config import Settings
from amplint.findings import Evidence, Finding, Position, Severity, Span
from amplint.probe.confirmation import Limits, probe_with
from amplint.probe.process import Worker

pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parents[2]
PROJECTS = Path(__file__).with_name("projects")
#: Generous: what is decided must not depend on how busy the machine is.
LIMITS = Limits(seconds=300.0, runs=120)

CLIP, UNSCALE, STEP = "clip_grad_norm_(", ".unscale_(", "scaler.step("
#: The second `unscale_` of a round, behind a test.
AGAIN = "            scaler.unscale_("
#: Project, file, code and line to ask about, and what keeps the probe from confirming it.
GATES = [
    ("hooks_by_event", "trainer.py", "AMP110", CLIP, "nobody fills"),
    ("callbacks_passed_in", "trainer.py", "AMP110", CLIP, "nobody fills"),
    ("hook_set_later", "trainer.py", "AMP110", CLIP, "nobody fills"),
    ("callback_is_passed", "engine.py", "AMP110", CLIP, "nobody fills"),
    ("hooks_are_passed", "engine.py", "AMP110", CLIP, "nobody fills"),
    ("decorator_updates", "train.py", "AMP105", STEP, "does not touch"),
    ("stop_behind_the_same_test", "train.py", "AMP110", CLIP, "neither refuses nor changes"),
    ("inherited_helper_unscales", "trainer.py", "AMP110", CLIP, "does not touch"),
    ("validate_unscales", "train.py", "AMP110", CLIP, "does not touch"),
    ("watch_patches_the_scaler", "train.py", "AMP105", STEP, "does not touch"),
    ("base_calls_update", "trainer.py", "AMP105", STEP, "between two calls"),
    ("dtype_by_capability", "train.py", "AMP402", "GradScaler(", "the machine is such"),
    ("setup_gives_a_pair", "train.py", "AMP201", UNSCALE, "behaves like torch's GradScaler"),
    ("progress_in_a_file", "train.py", "AMP110", CLIP, "has not written itself"),
    ("method_is_stored", "engine.py", "AMP110", CLIP, "some file stores another"),
    ("class_is_patched", "engine.py", "AMP110", CLIP, "some file stores another"),
    ("model_keeps_what_is_refused", "train.py", "AMP110", CLIP, "a caller passes"),
    ("kept_value_is_set_by_another", "train.py", "AMP110", CLIP, "a caller passes"),
    ("kept_value_is_set_by_a_library", "train.py", "AMP110", CLIP, "a caller passes"),
    ("kept_value_is_set_by_its_class", "train.py", "AMP110", CLIP, "a caller passes"),
    ("linked_arguments", "app.py", "AMP201", UNSCALE, "together"),
    ("conflicts_of_a_cli_library", "train.py", "AMP110", CLIP, "a caller passes"),
    ("validator_before_a_library", "engine.py", "AMP110", CLIP, "together"),
    ("guarded_stop", "train.py", "AMP110", CLIP, "neither refuses nor changes"),
    ("values_are_checked", "train.py", "AMP110", CLIP, "neither refuses nor changes"),
    ("checked_configuration", "train.py", "AMP110", CLIP, "neither refuses nor changes"),
    # What a library was given is filled later, or what it calls is registered by an import.
    ("list_filled_later", "train.py", "AMP110", CLIP, "`studio.Loop` in line 20 does not touch"),
    ("box_filled_later", "train.py", "AMP110", CLIP, "`studio.follow` in line 21 does not touch"),
    ("object_given_before_its_scaler", "trainer.py", "AMP110", CLIP, "`studio.follow` in line 9"),
    ("handler_by_decorator", "train.py", "AMP110", CLIP, "`studio.bus.emit` in line 21"),
    ("state_is_a_singleton", "loop.py", "AMP110", CLIP, "nobody fills `STATE.hooks`"),
    ("class_flag", "base.py", "AMP110", CLIP, "subclasses replace `unscales_first`"),
    # Of several unknown inputs one is enough.
    ("either_of_two_facts", "train.py", "AMP108", AGAIN, "measures()` = True or `studio.facts.c"),
    ("nested_tests", "train.py", "AMP108", AGAIN, "measured` = True or `"),
    ("number_of_sinks", "train.py", "AMP108", AGAIN, "measured` = 2 or `"),
    ("third_brings_it_back", "train.py", "AMP108", AGAIN, "measured` = True or `"),
    # What other files put in the place of what the function calls.
    ("torch_function_is_replaced", "engine.py", "AMP110", CLIP, "of `torch.nn.utils` is what"),
    ("method_by_mock", "engine.py", "AMP110", CLIP, "does not pass what prevents it"),
    ("one_implies_the_other", "engine.py", "AMP110", CLIP, "`unscale` of `Engine` is what"),
    ("class_decorator_in_a_library", "engine.py", "AMP110", CLIP, "`prepared.prepared` does not"),
    ("library_decides_the_class", "engine.py", "AMP110", CLIP, "`kit.extended` in line 12 does"),
    ("plugin_changes_a_table", "clipping.py", "AMP110", CLIP, "what `plugins.late` executes"),
    # Gradients are divided between the backward and what the optimizer applies.
    ("hook_before_the_step", "engine.py", "AMP112", "optimizer.step(", "what prevents it"),
    # Data that the program never has.
    ("losses_are_finite", "engine.py", "AMP101", STEP, "does not pass what prevents it"),
    ("shape_of_batches", "engine.py", "AMP108", "        scaler.unscale_(", "some data make"),
    ("loader_is_long", "engine.py", "AMP108", AGAIN, "does not pass what prevents it"),
]
#: What the project's own parser, class or builder refuses, or changes: no run shows it.
REFUSED = [
    ("exclusive_group_in_options", "engine.py", "AMP110", CLIP),
    ("parser_subclass", "train.py", "AMP110", CLIP),
    ("subcommands", "train.py", "AMP110", CLIP),
    ("custom_action", "train.py", "AMP201", UNSCALE),
    ("click_callback", "train.py", "AMP110", CLIP),
    ("dataclass_refuses", "trainer.py", "AMP110", CLIP),
    ("dataclass_corrects", "train.py", "AMP110", CLIP),
    ("hooks_by_import", "trainer.py", "AMP110", CLIP),
    ("given_together", "engine.py", "AMP201", UNSCALE),
    ("two_facts_of_one_machine", "train.py", "AMP101", UNSCALE),
    ("by_version", "train.py", "AMP110", CLIP),
    ("clip_later", "train.py", "AMP127", CLIP),
    ("clip_by_epoch", "engine.py", "AMP127", CLIP),
    ("environment_is_set", "train.py", "AMP110", "clip("),
    ("touched_file", "clipping.py", "AMP110", CLIP),
    ("single_dispatch", "clipping.py", "AMP110", CLIP),
    ("star_import_overrides", "clipping.py", "AMP110", CLIP),
    ("loop_at_the_top", "clipping.py", "AMP110", CLIP),
    ("accepted_kind_unscales", "train.py", "AMP110", CLIP),
    ("kept_value_decides", "train.py", "AMP110", CLIP),
    ("file_decides_before_the_clip", "train.py", "AMP110", CLIP),
    ("name_is_evaluated", "train.py", "AMP110", CLIP),
    ("error_is_suppressed", "engine.py", "AMP108", "scaler.unscale_(optimizer)  # again"),
]
#: Mistakes, and what their confirmation says.
CONFIRMED = {
    "click_scaler_is_none": "needs `amp` = False, `max_norm` = 1.0",
    "closure_by_position": "Attempted step but _scale is None",
    "default_is_refused": "needs --network = 'linear' (default 'unet')",
    "option_kept_by_the_model": "needs --outputs = 1 (default 2), --amp",
    "forward_without_gradients": "are in the graph of no loss",
    "hydra_plain_step": "`cfg.amp` = True",
    "nan_clears_and_steps": "needs a NaN in the output of forward 1",
    "registered_model": "when the loss scale is",
    "unscaled_twice_by_a_helper": "at line 21, in line 9 of utils.py",
    "no_update_with_a_schedule": "needs --fp16",
}


@pytest.fixture(scope="module")
def script() -> ModuleType:
    path = ROOT / "scripts" / "probe_projects.py"
    spec = importlib.util.spec_from_file_location("probe_projects", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def asked(folder: Path, filename: str, code: str, text: str, worker: Worker) -> Evidence:
    """What the probe says if a rule had reported the first line that holds a text."""
    path = folder / filename
    lines = path.read_text(encoding="utf-8").splitlines()
    row = next(number for number, line in enumerate(lines, 1) if text in line)
    span = Span(Position(row, 1), Position(row, 2))
    finding = Finding(code, "asked", Severity.ERROR, "", "", str(path), span)
    settings = Settings(project_root=str(folder))
    (probed,) = probe_with([worker], [finding], settings, LIMITS)
    return probed.verdict.evidence


@pytest.mark.parametrize(
    ("name", "filename", "code", "text", "words"), GATES, ids=[gate[0] for gate in GATES]
)
def test_a_doubt_keeps_it_from_being_confirmed(
    tmp_path: Path,
    script: ModuleType,
    worker: Worker,
    name: str,
    filename: str,
    code: str,
    text: str,
    words: str,
) -> None:
    folder = script.unpacked(PROJECTS / "correct" / f"{name}.txt", tmp_path)
    evidence = asked(folder, filename, code, text, worker)
    assert evidence.status == "conditional", evidence
    assert words in "; ".join(evidence.assumptions)


@pytest.mark.parametrize(
    ("name", "filename", "code", "text"), REFUSED, ids=[case[0] for case in REFUSED]
)
def test_what_the_project_refuses_is_not_confirmed(
    tmp_path: Path,
    script: ModuleType,
    worker: Worker,
    name: str,
    filename: str,
    code: str,
    text: str,
) -> None:
    folder = script.unpacked(PROJECTS / "correct" / f"{name}.txt", tmp_path)
    assert asked(folder, filename, code, text, worker).status != "confirmed"


@pytest.mark.parametrize("name", CONFIRMED)
def test_mistakes_are_confirmed(
    tmp_path: Path, script: ModuleType, worker: Worker, name: str
) -> None:
    folder = script.unpacked(PROJECTS / "wrong" / f"{name}.txt", tmp_path)
    settings = Settings(project_root=str(folder))
    findings = check_paths(sorted(map(str, folder.rglob("*.py"))), settings).findings
    probed = probe_with([worker], findings, settings, LIMITS)
    details = [
        p.verdict.evidence.detail for p in probed if p.finding.evidence.status == "confirmed"
    ]
    assert any(CONFIRMED[name] in detail for detail in details), probed
