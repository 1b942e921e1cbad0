"""What pages say of libraries that scale, executed with the real libraries and a scaler on the CPU.

Accelerate and Lightning give themselves a gradient scaler on CUDA only. Here they get one on the
CPU, in the place and by the means that their own sources have for it; all else is theirs.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")
accelerate = pytest.importorskip("accelerate")
pytest.importorskip("lightning")

from accelerate.state import AcceleratorState, GradientState, PartialState

from .page_examples import Run, execute, read_page, update_ratio


class Scaling(accelerate.Accelerator):  # type: ignore[misc]
    """What `Accelerator(mixed_precision="fp16")` is on CUDA: `native_amp`, with a scaler."""

    def __init__(self, **settings: object) -> None:
        super().__init__(**{**settings, "mixed_precision": "no", "cpu": True})
        self.state._mixed_precision = "fp16"
        self.native_amp = True
        self.scaler = torch.amp.GradScaler("cpu")


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Accelerate's states are shared by all accelerators of a process."""
    monkeypatch.setattr(accelerate, "Accelerator", Scaling)
    yield
    AcceleratorState._reset_state(True)
    GradientState._reset_state()
    PartialState._reset_state()


#: What `Trainer(precision="16-mixed")` makes of itself on CUDA.
PLUGIN = (
    "plugins=__import__('lightning.pytorch.plugins', fromlist=['x'])"
    ".MixedPrecision('16-mixed', 'cpu'), accelerator='cpu'"
)


def both(code: str) -> tuple[Run, Run]:
    """The page's bad example and its good one."""
    page, runs = read_page(code), []
    for heading in ("Example", "Use instead"):
        program = page.example(heading).replace('precision="16-mixed"', PLUGIN)
        runs.append(execute(program))
        AcceleratorState._reset_state(True)
        GradientState._reset_state()
    return runs[0], runs[1]


def test_a_plain_clip_all_but_stops_the_training() -> None:
    bad, good = both("AMP609")
    assert bad.error is None
    assert good.error is None
    assert 0 < update_ratio(bad, good) < 1e-4


def test_a_clip_on_each_micro_batch_unscales_twice() -> None:
    bad, good = both("AMP611")
    assert str(bad.error).startswith("unscale_() has already been called on this optimizer")
    assert good.error is None
    assert good.update > 0


def test_a_clip_before_the_plugin_unscales_all_but_stops_the_training() -> None:
    bad, good = both("AMP608")
    assert bad.error is None
    assert good.error is None
    assert 0 < update_ratio(bad, good) < 1e-4


def test_fabric_s_clip_raises_at_an_overflow_unless_it_is_told_not_to() -> None:
    from lightning.fabric import Fabric
    from lightning.fabric.plugins import MixedPrecision

    fabric = Fabric(accelerator="cpu", plugins=MixedPrecision("16-mixed", "cpu"))
    model = torch.nn.Linear(4, 1)
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
    fabric.backward((100 * model(torch.ones(8, 4)).float()).square().mean() * 1e30)
    with pytest.raises(RuntimeError, match="is non-finite, so it cannot be clipped"):
        fabric.clip_gradients(model, optimizer, max_norm=1.0)
    optimizer.zero_grad()
    fabric.strategy.precision.scaler.update(1e30)
    fabric.backward((100 * model(torch.ones(8, 4)).float()).square().mean())
    fabric.clip_gradients(model, optimizer, max_norm=1.0, error_if_nonfinite=False)
    before = [item.detach().clone() for item in model.parameters()]
    optimizer.step()
    assert all(torch.equal(one, two) for one, two in zip(before, model.parameters()))


def test_a_plain_backward_beside_the_accelerator_s_is_lost() -> None:
    bad, good = both("AMP612")
    assert bad.error is None
    assert good.error is None
    lost, right = (run.update_of(run.names["model"].parameters()) for run in (bad, good))
    assert 0 < lost / right < 1e-4


def test_a_plain_backward_alone_stops_at_the_step() -> None:
    program = read_page("AMP612").example("Example")
    program = program.replace("    accelerator.backward(auxiliary)\n    tuner.step()\n", "")
    assert str(execute(program).error).startswith("Attempted step but _scale is None")


@pytest.mark.parametrize(("plain", "factor"), [(True, 4.0), (False, 1.0)])
def test_a_plain_backward_does_not_divide_an_accumulation(plain: bool, factor: float) -> None:
    model = torch.nn.Linear(4, 1, bias=False)
    before = model.weight.detach().clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = accelerate.accelerator.Accelerator(cpu=True, gradient_accumulation_steps=4)
    model, optimizer = engine.prepare(model, optimizer)
    inputs = torch.ones(1, 4)
    for _ in range(4):
        with engine.accumulate(model):
            loss = model(inputs).sum()
            loss.backward() if plain else engine.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
    moved = before - model.weight.detach()
    assert torch.allclose(moved, factor * 0.1 * torch.ones_like(moved))


MANUAL = """
import torch
from lightning import LightningModule, Trainer


class Two(LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.first = torch.nn.Linear(4, 1, bias=False)
        self.second = torch.nn.Linear(4, 1, bias=False)

    def configure_optimizers(self):
        return [torch.optim.SGD(part.parameters(), lr=0.1) for part in (self.first, self.second)]

    def training_step(self, batch, index):
        one, two = self.optimizers()
        (inputs,) = batch
        self.manual_backward(self.first(inputs).float().mean())
        one.step()
        loss = self.second(inputs).float().mean()
        loss.backward()
        two.step()


model = Two()
before = [item.detach().clone() for item in model.parameters()]
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.full((4, 4), 0.5)), 4)
Trainer(
    precision="16-mixed",
    max_epochs=1,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
).fit(model, loader)
moved = [(one - other.detach()).norm().item() for one, other in zip(before, model.parameters())]
"""


def test_a_plain_backward_of_manual_optimization_is_lost() -> None:
    run = execute(MANUAL.replace('precision="16-mixed"', PLUGIN))
    assert run.error is None
    first, second = run.names["moved"]
    assert first == pytest.approx(0.1, rel=0.01)
    assert 0 < second / first < 1e-4
    alone = MANUAL.replace(
        "self.manual_backward(self.first(inputs).float().mean())\n        one.step()\n", "pass\n"
    )
    run = execute(alone.replace('precision="16-mixed"', PLUGIN))
    assert "_scale is None" in str(run.error)
