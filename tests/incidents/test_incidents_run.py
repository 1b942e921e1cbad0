"""The recorded incidents under real torch: the reported error, or the measured damage.

amplint is not involved: this is the evidence that the fixtures are what they claim to be.
The rows that torch stops at are compared with the rows marked in the fixtures.
"""

from __future__ import annotations

import copy
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.incidents.projects import INCIDENTS, Project, open_project

NO_INF_CHECKS = "No inf checks were recorded for this optimizer."
NEVER_SCALED = "Attempted {} but _scale is None."


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def rows_marked(file: Path, code: str) -> list[int]:
    """1-based rows of a fixture file whose trailing comment names `code`."""
    pattern = re.compile(rf"#.*\b{code}\b")
    lines = file.read_text(encoding="utf-8").splitlines()
    return [row for row, line in enumerate(lines, start=1) if pattern.search(line)]


def parameters_of(module: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().float().flatten() for p in module.parameters()])


def run_and_fail(
    project: Project,
    exception: type[BaseException],
    message: str,
    *args: object,
    **keywords: object,
) -> tuple[str, int, str]:
    """Run the project, expect exactly this exception, return the project's line it came from."""
    with pytest.raises(exception) as caught:
        project.run(*args, **keywords)
    assert type(caught.value) is exception
    assert str(caught.value).startswith(message)
    return project.failing_line(caught.value)


# 0: the flush after the loop runs although nothing is pending


@pytest.mark.parametrize(
    ("num_windows", "block"),
    [
        pytest.param(64, 0, id="8 batches: nothing is pending at the first flush"),
        pytest.param(72, 1, id="9 batches: the first flush is right, its copy is not"),
    ],
)
def test_leftover_flush_stops_at_the_step(num_windows: int, block: int) -> None:
    before = INCIDENTS / "0_leftover_flush" / "before"
    with open_project(before) as project:
        file, row, text = run_and_fail(project, AssertionError, NO_INF_CHECKS, num_windows)
    assert (file, row) == ("trainer.py", rows_marked(before / "trainer.py", "AMP103")[block])
    assert text.startswith("self.scaler.step(self.optimizer)")


def test_leftover_flush_is_invisible_without_mixed_precision() -> None:
    with open_project(INCIDENTS / "0_leftover_flush" / "before") as project:
        trainer = project.run(64, mixed_precision=False)
    # 2 epochs of 2 windows, and both flushes of both epochs on top.
    assert trainer.optimizer_steps == 8


@pytest.mark.parametrize(("num_windows", "steps"), [(64, 4), (72, 6)])
def test_leftover_flush_after(num_windows: int, steps: int) -> None:
    with open_project(INCIDENTS / "0_leftover_flush" / "after") as project:
        trainer = project.run(num_windows)
        reference = project.run(num_windows, mixed_precision=False)
    assert trainer.optimizer_steps == steps
    assert trainer.scaler.get_scale() == 65536.0
    torch.testing.assert_close(
        parameters_of(trainer.model), parameters_of(reference.model), atol=5e-3, rtol=0
    )


# 1: the flush asks for the scaler, the backward for the setting


def test_flush_guard_stops_at_unscale() -> None:
    before = INCIDENTS / "1_flush_guard" / "before"
    with open_project(before) as project:
        file, row, text = run_and_fail(project, AssertionError, NEVER_SCALED.format("unscale_"))
    assert (file, row) == ("trainer.py", rows_marked(before / "trainer.py", "AMP201")[0])
    assert text.startswith("self.scaler.unscale_(self.optimizer)")


def test_flush_guard_stops_at_the_step_without_clipping() -> None:
    with open_project(INCIDENTS / "1_flush_guard" / "before") as project:
        config = project.module("config").ContinualConfig(gradient_clip=0.0)
        project.module("main").preset = lambda name: config
        file, _, text = run_and_fail(project, AssertionError, NEVER_SCALED.format("step"))
    assert (file, text) == ("trainer.py", "self.scaler.step(self.optimizer)")


def test_replay_flush_stops_at_the_step() -> None:
    before = INCIDENTS / "1_flush_guard" / "before"
    with open_project(before) as project:
        config = project.module("config").ContinualConfig()
        trainer = project.module("trainer").ContinualTrainer(config, torch.device("cpu"))
        trainer.memory.add(torch.randn(8, config.num_features), torch.zeros(8, dtype=torch.long))
        with pytest.raises(AssertionError, match=re.escape(NEVER_SCALED.format("step"))) as caught:
            trainer.replay_epoch()
        file, row, _ = project.failing_line(caught.value)
    assert (file, row) == ("trainer.py", rows_marked(before / "trainer.py", "AMP201")[1])


def flush_update(trainer, features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """How far one incomplete window (a single batch) moves the parameters."""
    start = parameters_of(trainer.model)
    trainer.train_epoch([(features, labels)], epoch=0)
    return parameters_of(trainer.model) - start


@pytest.mark.parametrize(("version", "ratio"), [("before", 1 / 65536), ("after", 1.0)])
def test_flush_guard_shrinks_the_update_once_the_scaler_has_scaled(
    version: str, ratio: float
) -> None:
    """A first task in mixed precision initialises the scaler; the second one runs without."""
    torch.manual_seed(0)
    with open_project(INCIDENTS / "1_flush_guard" / version) as project:
        config = project.module("config").ContinualConfig(
            mixed_precision=True, gradient_clip=0.0, num_tasks=1, learning_rate=100.0
        )
        trainer = project.module("trainer").ContinualTrainer(config, torch.device("cpu"))
        features = torch.randn(8, config.num_features)
        labels = torch.arange(8) % config.num_classes
        trainer.scaler.scale(torch.ones(()))
        config.mixed_precision = False
        reference = copy.copy(trainer)
        reference.model = copy.deepcopy(trainer.model)
        reference.optimizer = torch.optim.SGD(reference.model.parameters(), lr=config.learning_rate)
        reference.scaler = None
        expected = flush_update(reference, features, labels)
        measured = flush_update(trainer, features, labels)
    assert expected.norm() > 0
    assert (measured.norm() / expected.norm()).item() == pytest.approx(ratio, rel=0.05)


@pytest.mark.parametrize("preset", ["default", "fast"])
def test_flush_guard_after(preset: str) -> None:
    with open_project(INCIDENTS / "1_flush_guard" / "after") as project:
        trainer = project.run(preset)
    assert trainer.completed_tasks == 2
    assert torch.isfinite(parameters_of(trainer.model)).all()


# 2: the same mistake, one method per phase


def test_flush_method_stops_at_the_step() -> None:
    before = INCIDENTS / "2_flush_method" / "before"
    with open_project(before) as project:
        file, row, text = run_and_fail(project, AssertionError, NEVER_SCALED.format("step"))
    assert (file, row) == ("trainer.py", rows_marked(before / "trainer.py", "AMP201")[0])
    assert text.startswith("self.scaler.step(self.optimizer)")


@pytest.mark.parametrize("version", ["before", "after"])
def test_flush_method_is_right_with_mixed_precision(version: str) -> None:
    with open_project(INCIDENTS / "2_flush_method" / version) as project:
        trainer = project.run(["--mixed-precision"])
    assert trainer.global_step == 6


def test_flush_method_after() -> None:
    with open_project(INCIDENTS / "2_flush_method" / "after") as project:
        trainer = project.run()
    assert trainer.global_step == 6
    assert trainer.pending == 0


# 3: the guard against NaN gradients clears them and steps


def test_nan_guard_stops_at_the_step() -> None:
    before = INCIDENTS / "3_nan_gradients" / "before"
    with open_project(before) as project:
        file, row, text = run_and_fail(project, AssertionError, NO_INF_CHECKS)
    assert (file, row) == ("methods/trainer.py", rows_marked(before / file, "AMP102")[0])
    assert text.startswith("self.scaler.step(self.optimizer)")


def test_nan_guard_clips_scaled_gradients() -> None:
    """Same weights, same batch: the norm that the trainer sees is that of scaled gradients."""
    seen = {version: first_norm(version) for version in ("before", "after")}
    assert seen["before"] / seen["after"] == pytest.approx(65536, rel=1e-2)


def first_norm(version: str) -> float:
    """The first gradient norm that clipping returns to the trainer, without any NaN about."""
    norms: list[float] = []
    clip = torch.nn.utils.clip_grad_norm_

    def record(*args, **keywords):
        norm = clip(*args, **keywords)
        norms.append(norm.item())
        return norm

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.utils, "clip_grad_norm_", record)
        with open_project(INCIDENTS / "3_nan_gradients" / version) as project:
            train, _ = project.module("dataset").build_loaders(dropout_at=None)
            torch.manual_seed(0)
            forecaster = project.module("methods.forecaster").Forecaster()
            project.module("methods.trainer").Trainer(forecaster).train_epoch(train)
    return norms[0]


def test_zero_grad_after_unscale_raises_nothing() -> None:
    """What the report says fails, does not: the inf check of unscale_ is on record."""
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    start = parameters_of(model)
    scaler.scale(model(torch.full((2, 3), float("nan"))).sum()).backward()
    scaler.unscale_(optimizer)
    optimizer.zero_grad()
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(parameters_of(model), start)
    assert scaler.get_scale() == 32768.0


def test_update_alone_needs_the_unscale() -> None:
    """The published repair of the NaN branch, without the `unscale_` that makes it legal."""
    model = torch.nn.Linear(3, 1)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(model(torch.full((2, 3), float("nan"))).sum()).backward()
    with pytest.raises(AssertionError, match="No inf checks were recorded prior to update."):
        scaler.update()


def test_nan_guard_after() -> None:
    with open_project(INCIDENTS / "3_nan_gradients" / "after") as project:
        trainer = project.run()
    assert trainer.skipped_batches == 2
    assert trainer.scaler.get_scale() == 65536.0 / 4
    assert torch.isfinite(parameters_of(trainer.model)).all()


def test_nan_guard_after_does_not_catch_the_error_it_names() -> None:
    """Its `except RuntimeError` asks for a message that torch raises as AssertionError."""
    after = INCIDENTS / "3_nan_gradients" / "after"
    with open_project(after) as project:
        trainer = project.module("methods.trainer").Trainer(
            project.module("methods.forecaster").Forecaster()
        )
        train, _ = project.module("dataset").build_loaders(dropout_at=None)
        frozen = torch.nn.Parameter(torch.zeros(1))
        trainer.optimizer = torch.optim.SGD([frozen], lr=0.1)
        scaler = trainer.scaler
        with pytest.raises(AssertionError, match=re.escape(NO_INF_CHECKS)) as caught:
            trainer.train_epoch(train)
        file, row, _ = project.failing_line(caught.value)
    assert trainer.scaler is scaler
    (marked,) = rows_marked(after / "methods" / "trainer.py", "AMP122")
    assert file == "methods/trainer.py"
    assert row == marked - 2


# 4: six repairs, one after the other

CLASS_INDICES = ("fixed.py", "out.float()", "out.long()")
FORWARD = "            logits = agent("
DETACH = "            rl_info = {name: tensor.detach() for name, tensor in rl_info.items()}\n"
DETACHED = ("fixed.py", FORWARD, DETACH + FORWARD)
NO_GRAD_REMOVED = ("policy_refined.py", "    @torch.no_grad()", "   ")
FLOAT32_WEIGHTS = ("prompt_model.py", 'dtype: str = "float16"', 'dtype: str = "float32"')
NO_UNSCALE = ("fixed.py", "        scaler.unscale_(optimizer)\n", "")
NO_CLIP = ("fixed.py", "        nn.utils.clip_grad_norm_(models.parameters(), args.clip)\n", "")
NO_AUTOCAST = (
    "fixed.py",
    "with autocast(device_type=device.type, dtype=torch.float16):",
    "if True:",
)
UPDATE_CALL = "        policy_loss = policy.update(rl_info, reward.detach())\n"
UPDATE_REMOVED = ("fixed.py", UPDATE_CALL, "")
UPDATE_AFTER_STEP = (
    "fixed.py",
    "        scaler.update()\n",
    "        scaler.update()\n" + UPDATE_CALL,
)

Repair = tuple[str, str, str]


def repaired(tmp_path: Path, *repairs: Repair) -> Path:
    """A copy of the fifth incident with some of its lines repaired."""
    copied = tmp_path / "project"
    shutil.copytree(INCIDENTS / "4_prompt_policy" / "before", copied)
    for name, old, new in repairs:
        text = (copied / name).read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{name}: {old!r}"
        (copied / name).write_text(text.replace(old, new), encoding="utf-8")
    return copied


FREED_GRAPH = "Trying to backward through the graph a second time"
HALF_GRADIENTS = "Attempting to unscale FP16 gradients."


@pytest.mark.parametrize(
    ("repairs", "exception", "message", "file", "text"),
    [
        pytest.param(
            (),
            RuntimeError,
            "The size of tensor a",
            "loss_function.py",
            "risk = F.kl_div(",
            id="as found: class indices as floats",
        ),
        pytest.param(
            (CLASS_INDICES,),
            RuntimeError,
            FREED_GRAPH,
            "fixed.py",
            "scaler.scale(loss).backward()",
            id="then: the policy update has freed the graph",
        ),
        pytest.param(
            (CLASS_INDICES, UPDATE_REMOVED, UPDATE_AFTER_STEP),
            RuntimeError,
            FREED_GRAPH,
            "policy_refined.py",
            "loss.backward()",
            id="the first attempt: the policy update after the step",
        ),
        pytest.param(
            (CLASS_INDICES, DETACHED, NO_GRAD_REMOVED),
            ValueError,
            HALF_GRADIENTS,
            "fixed.py",
            "scaler.unscale_(optimizer)",
            id="then: float16 weights, visible only without no_grad",
        ),
        pytest.param(
            (CLASS_INDICES, DETACHED, NO_GRAD_REMOVED, NO_UNSCALE, NO_CLIP),
            ValueError,
            HALF_GRADIENTS,
            "fixed.py",
            "scaler.step(optimizer)",
            id="unscale_ was not the cause: without it the step raises the same",
        ),
        pytest.param(
            (CLASS_INDICES, DETACHED, NO_GRAD_REMOVED, NO_AUTOCAST),
            ValueError,
            HALF_GRADIENTS,
            "fixed.py",
            "scaler.unscale_(optimizer)",
            id="autocast was not the cause: without it unscale_ raises the same",
        ),
    ],
)
def test_prompt_policy_stops(
    tmp_path: Path,
    repairs: tuple[Repair, ...],
    exception: type[Exception],
    message: str,
    file: str,
    text: str,
) -> None:
    with open_project(repaired(tmp_path, *repairs)) as project:
        where, _, line = run_and_fail(project, exception, message)
    assert where == file
    assert line.startswith(text)


def test_prompt_policy_marks_the_backward() -> None:
    before = INCIDENTS / "4_prompt_policy" / "before" / "fixed.py"
    (row,) = rows_marked(before, "AMP123")
    assert "scaler.scale(loss).backward()" in before.read_text().splitlines()[row - 1]


def test_prompt_model_is_frozen_by_no_grad(tmp_path: Path) -> None:
    with open_project(repaired(tmp_path, CLASS_INDICES, DETACHED)) as project:
        models, metrics = project.run()
        start = project.module("prompt_model").PromptModel(
            8, project.module("prompt_model").PromptModelConfig()
        )
    assert metrics["prompt_grad"] == 0.0
    assert all(p.grad is None for p in models["prompt_model"].parameters())
    trained = models["prompt_model"]
    assert torch.equal(trained.embedding.weight, start.embedding.weight)
    assert torch.equal(trained.body.weight, start.body.weight)


@pytest.mark.parametrize("extra", [(), (NO_UNSCALE, NO_CLIP), (NO_AUTOCAST,)])
def test_prompt_policy_runs_after_four_repairs(tmp_path: Path, extra: tuple[Repair, ...]) -> None:
    """Autocast, unscale_ and clipping may stay: they were suspected, not guilty."""
    repairs = (CLASS_INDICES, DETACHED, NO_GRAD_REMOVED, FLOAT32_WEIGHTS, *extra)
    with open_project(repaired(tmp_path, *repairs)) as project:
        _, metrics = project.run()
    assert metrics["prompt_grad"] > 0


def test_prompt_policy_after() -> None:
    with open_project(INCIDENTS / "4_prompt_policy" / "after") as project:
        models, metrics = project.run()
    assert metrics["prompt_grad"] > 0
    assert all(p.dtype is torch.float32 for p in models.parameters())
    assert torch.isfinite(parameters_of(models)).all()
