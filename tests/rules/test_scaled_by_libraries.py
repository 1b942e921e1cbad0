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
