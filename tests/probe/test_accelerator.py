"""Accelerate in the worker: the same steps as the library makes, and what is confirmed with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.probe.conftest import Asks
from tests.probe.worker.conftest import probe_source

torch = pytest.importorskip("torch")

__all__ = ["probe_source"]

# -- beside the library ----------------------------------------------------------------------------

SAME = """\
import torch
import accelerate

def train():
    accelerator = accelerate.Accelerator({settings})
    model = torch.nn.Linear(3, 1, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.5, -0.25, 0.125]]))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    rows = torch.tensor([[1.0, 2.0, 3.0], [2.0, -1.0, 0.5], [0.5, 0.5, 1.0], [1.5, 1.0, -1.0]])
    batches = torch.utils.data.DataLoader(torch.cat([rows, rows[:3]]), batch_size=1)
    model, optimizer, batches, schedule = accelerator.prepare(model, optimizer, batches, schedule)
    for epoch in range(2):
        for index, _ in enumerate(batches):
            with accelerator.accumulate(model):
                loss = model(rows[index % 4]).pow(2).sum()
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
"""
SETTINGS = (
    "",
    "gradient_accumulation_steps=3",
    "gradient_accumulation_steps=2, step_scheduler_with_optimizer=False",
    "mixed_precision='fp16'",
    "mixed_precision='fp16', gradient_accumulation_steps=3",
)


@pytest.fixture
def of_library(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[float, ...]]]:
    """The norms of gradients and the learning rates at the steps of the real library."""
    accelerate = pytest.importorskip("accelerate")
    from accelerate.state import AcceleratorState, GradientState, PartialState
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    class OnCpu(accelerate.Accelerator):  # type: ignore[misc, name-defined]
        """With the scaler that fp16 has on CUDA."""

        def __init__(self, mixed_precision: str = "no", **settings: object) -> None:
            super().__init__(mixed_precision="no", cpu=True, **settings)
            if mixed_precision == "fp16":
                self.state._mixed_precision = "fp16"
                self.native_amp = True
                self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

    seen: list[tuple[float, ...]] = []

    def told(optimizer: object, _args: object, _kwargs: object) -> None:
        if not isinstance(optimizer, accelerate.optimizer.AcceleratedOptimizer):
            (group,) = optimizer.param_groups  # type: ignore[attr-defined]
            seen.append(tuple(float(p.grad.norm()) for p in group["params"]))

    hook = register_optimizer_step_pre_hook(told)
    monkeypatch.setattr(accelerate, "Accelerator", OnCpu)
    yield seen
    hook.remove()
    AcceleratorState._reset_state(True)
    GradientState._reset_state()
    PartialState._reset_state()


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_steps_are_those_of_the_library(
    settings: str, probe_source: object, of_library: list[tuple[float, ...]]
) -> None:
    source = SAME.format(settings=settings)
    names: dict[str, object] = {}
    exec(source, names)  # noqa: S102 -- what the library does with it is the truth
    names["train"]()  # type: ignore[operator]
    result = probe_source(source)  # type: ignore[operator]
    assert result.status == "returned", result
    assert not result.notes and not result.opaque
    steps = [norms for _, norms in result.steps]
    assert len(steps) == len(of_library) > 1
    for ours, theirs in zip(steps, of_library):
        assert ours == pytest.approx(theirs, rel=2e-2)


# -- clips -----------------------------------------------------------------------------------------

EACH = """\
import torch
from accelerate import Accelerator

def train(model, loader):
    accelerator = Accelerator(gradient_accumulation_steps=4{precision})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for inputs in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(inputs).mean())
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
"""
HALF = ', mixed_precision="fp16"'
CLIP = "            accelerator.clip_grad_norm_(model.parameters(), 1.0)"
PLAIN = EACH.replace("gradient_accumulation_steps=4{precision}", 'mixed_precision="fp16"').replace(
    "accelerator.clip", "torch.nn.utils.clip"
)


def test_a_clip_of_each_micro_batch_is_refused_in_half_precision(ask: Asks) -> None:
    evidence = ask("AMP611", "clip_grad_norm_", EACH.format(precision=HALF))
    assert evidence.status == "confirmed"
    assert "unscale_() has already been called" in evidence.detail


def test_a_clip_of_each_micro_batch_shortens_the_early_ones(ask: Asks) -> None:
    evidence = ask("AMP611", "clip_grad_norm_", EACH.format(precision=""))
    assert evidence.status == "confirmed"
    assert "the early ones count less" in evidence.detail


ONCE = CLIP.replace("    acc", "    if accelerator.sync_gradients:\n                acc")


@pytest.mark.parametrize(
    ("precision", "old", "new"),
    [
        *(("", CLIP, ONCE), ("", "_steps=4", "_steps=1"), ("", "1.0)", 'float("inf"))')),
        *((HALF, CLIP, ONCE), (HALF, "_steps=4", "_steps=1")),
    ],
)
def test_clips_that_shorten_no_part_of_a_window(
    ask: Asks, precision: str, old: str, new: str
) -> None:
    right = EACH.format(precision=precision).replace(old, new)
    assert ask("AMP611", "clip_grad_norm_", right).status != "confirmed"


def test_a_clip_of_scaled_gradients(ask: Asks) -> None:
    assert ask("AMP609", "clip_grad_norm_", PLAIN).status == "confirmed"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"fp16"', '"bf16"'),
        (
            "            torch.nn",
            "            accelerator.unscale_gradients()\n            torch.nn",
        ),
    ],
)
def test_a_clip_of_gradients_of_their_own_size(ask: Asks, old: str, new: str) -> None:
    assert ask("AMP609", "clip_grad_norm_", PLAIN.replace(old, new)).status != "confirmed"


@pytest.mark.parametrize(
    "setting",
    ["deepspeed_plugin=find()", "fsdp_plugin=find()", "kwargs_handlers=[GradScalerKwargs()]"],
)
def test_another_library_that_trains_is_not_imitated(ask: Asks, setting: str) -> None:
    # DeepSpeed unscales by itself; the handler may have a scaler that is off.
    source = PLAIN.replace("mixed_precision=", f"{setting}, mixed_precision=")
    source = source.replace(
        "from accelerate import",
        "from accelerate.utils import GradScalerKwargs\nfrom find import find\nfrom accelerate import",
    )
    assert ask("AMP609", "clip_grad_norm_", source).status != "confirmed"


def test_an_engine_that_is_handed_a_gradient_is_none(ask: Asks) -> None:
    # Whoever passes a loss to an unknown object's backward has that make gradients.
    source = PLAIN.replace("from accelerate import", "from engines import")
    assert ask("AMP609", "clip_grad_norm_", source).status != "confirmed"


# -- weights in half precision ---------------------------------------------------------------------

LOADED = """\
import torch
from accelerate import Accelerator
from transformers import AutoModel
{more}
def train(loader):
    accelerator = Accelerator(mixed_precision="fp16")
    model = AutoModel.from_pretrained("small")
    model.to(accelerator.device, dtype=torch.{dtype})
    {handed}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for inputs in loader:
        accelerator.backward(model(inputs).loss)
        optimizer.step()
        optimizer.zero_grad()
"""


def loaded(dtype: str = "float16", more: str = "", handed: str = "pass") -> str:
    return LOADED.format(dtype=dtype, more=more, handed=handed)


def test_a_model_of_a_library_that_is_cast(ask: Asks) -> None:
    assert ask("AMP401", "model.to(", loaded()).status == "confirmed"


@pytest.mark.parametrize(
    "source",
    [
        loaded("float32"),
        loaded(handed="model.float()"),
        # What gets the model may well cast what is trained.
        loaded(more="from tuning import prepare_model", handed="model = prepare_model(model)"),
        loaded(more="from tuning import prepare_model", handed="prepare_model(model)"),
    ],
)
def test_a_model_of_a_library_that_may_be_whole(ask: Asks, source: str) -> None:
    assert ask("AMP401", "model.to(", source).status != "confirmed"


THROUGH = """\
import torch
from pieces import Bridge

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        self.bridge = Bridge()
        self.last = torch.nn.Linear(4, 1)
        self.{cast}.half()

    def forward(self, inputs):
        return self.last(self.bridge(self.first(inputs)))

def train(loader):
    scaler = torch.amp.GradScaler("cuda")
    model = Net()
    optimizer = torch.optim.AdamW(model.{owned}.parameters(), lr=1e-3)
    for inputs in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda"):
            loss = model(inputs).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
"""


def test_all_weights_are_half_whatever_the_loss_reaches(ask: Asks) -> None:
    source = THROUGH.format(cast="first", owned="first")
    assert ask("AMP401", ".half()", source).status == "confirmed"


def test_some_weights_are_half_and_the_loss_may_not_reach_them(ask: Asks) -> None:
    # An unknown module stands between them and the loss: it may detach.
    owned = "first.parameters()) + list(model.last"
    source = THROUGH.format(cast="first", owned=owned).replace("AdamW(model", "AdamW(list(model")
    source = source.replace("last.parameters(), lr", "last.parameters()), lr")
    assert ask("AMP401", ".half()", source).status == "conditional"


# -- steps that are rounded away -------------------------------------------------------------------

LOW = """\
import torch
from transformers import AutoModel

def train(loader):
    model = AutoModel.from_pretrained("small", torch_dtype=torch.{dtype})
    optimizer = torch.optim.AdamW(model.parameters(), lr={rate})
    for inputs in loader:
        loss = model(inputs).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def test_a_step_that_rounding_swallows(ask: Asks) -> None:
    evidence = ask("AMP406", "AdamW(", LOW.format(dtype="bfloat16", rate="1e-5"))
    assert evidence.status == "confirmed"
    assert "learning rate of 1e-05" in evidence.detail


@pytest.mark.parametrize(("dtype", "rate"), [("bfloat16", "1e-3"), ("float32", "1e-5")])
def test_a_step_that_counts(ask: Asks, dtype: str, rate: str) -> None:
    assert ask("AMP406", "AdamW(", LOW.format(dtype=dtype, rate=rate)).status != "confirmed"


@pytest.mark.parametrize(
    ("rate", "dtype", "least", "most"),
    [(1e-5, torch.bfloat16, 0.8, 0.95), (1e-3, torch.bfloat16, 0.0, 0.05)],
)
def test_shares_are_those_of_a_network(
    rate: float, dtype: torch.dtype, least: float, most: float
) -> None:
    """Of a network's own weights, about the usual size, as many stay as they were."""
    from amplint.probe.worker.rounding import Stepped, unmoved

    torch.manual_seed(3)
    net = torch.nn.Linear(64, 64, bias=False)
    torch.nn.init.normal_(net.weight, std=0.02)
    net.to(dtype)
    before = net.weight.detach().clone()
    optimizer = torch.optim.AdamW(net.parameters(), lr=rate)
    net(torch.randn(8, 64, dtype=dtype)).pow(2).sum().backward()
    optimizer.step()
    same = float((net.weight == before).float().mean())
    half, whole = unmoved(Stepped(torch.optim.AdamW, {"lr": rate}, dtype))
    assert least <= half <= most
    assert half == pytest.approx(same, abs=0.05)
    assert whole < 0.05


def test_two_calls_that_load_give_two_models(ask: Asks, tmp_path: Path) -> None:
    """The frozen teacher is not the student."""
    source = LOW.format(dtype="bfloat16", rate="1e-5").replace(
        "    optimizer =",
        '    teacher = AutoModel.from_pretrained("large")\n'
        "    for weight in teacher.parameters():\n        weight.requires_grad_(False)\n"
        "    optimizer =",
    )
    assert ask("AMP406", "AdamW(", source).status == "confirmed"


def test_small_layers_matter_for_gradients_only() -> None:
    from amplint.probe.predictions import expectations
    from amplint.probe.verdicts import _ignores_sizes

    assert all(map(_ignores_sizes, expectations("AMP401")))
    assert not any(map(_ignores_sizes, expectations("AMP110")))
    assert not any(map(_ignores_sizes, expectations("AMP404")))  # about shapes of data


def test_a_backward_of_an_accelerator_makes_no_gradient_by_hand(tmp_path: Path) -> None:
    from amplint.config import Settings
    from amplint.probe.confirmation import plan_builder

    path = tmp_path / "train.py"
    path.write_text(PLAIN + "\ndef other(loss, weights):\n    loss.backward(weights)\n")
    builder = plan_builder(str(path), Settings(project_root=str(tmp_path)))
    assert builder is not None
    assert builder.rows_by_hand == {len(PLAIN.splitlines()) + 3}


def test_a_setting_that_is_called_like_a_method(ask: Asks) -> None:
    """`config.train` is a section: it has parts, and nobody calls it."""
    source = """\
import torch
from settings import config

def train(model, optimizer, loader):
    scaler = torch.amp.GradScaler("cuda", enabled=config.train.amp)
    for inputs in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", enabled=scaler.is_enabled()):
            loss = model(inputs).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
"""
    evidence = ask("AMP105", "scaler.step", source)
    assert "has no attribute" not in evidence.detail
    assert "config.train.amp" in " ".join((evidence.detail, *evidence.assumptions))
