"""What a Trainer of full precision does with a loss of float16 autocast, executed with Lightning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
lightning = pytest.importorskip("lightning")

#: Below the smallest number of float16, so that its gradients vanish unless they are scaled.
TINY = 1e-8


def gradient(folder: Path, **settings: Any) -> float:
    """The largest gradient of one training step, as it came back from the region."""
    seen: list[float] = []

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Linear(4, 1)

        def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
            with torch.autocast("cpu", dtype=torch.float16):
                outputs = self.net(batch)
            return TINY * outputs.float().square().mean()

        def on_after_backward(self) -> None:
            seen.append(max(float(item.grad.abs().max()) for item in self.parameters()))

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    torch.manual_seed(0)
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_steps=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        **settings,
    )
    trainer.fit(Module(), torch.utils.data.DataLoader(torch.randn(8, 4), batch_size=8))
    return seen[0]


def test_a_trainer_of_full_precision_scales_nothing(tmp_path: Path) -> None:
    from lightning.pytorch.plugins import MixedPrecision

    assert gradient(tmp_path) == 0.0
    assert gradient(tmp_path, precision="32-true") == 0.0
    scaler = torch.amp.GradScaler("cpu")
    mixed = MixedPrecision("16-mixed", "cpu", scaler)
    assert gradient(tmp_path, plugins=mixed) > 0.0
