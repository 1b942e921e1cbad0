"""AMP305 is about older torch: the one that runs the tests has gradients in all parameters."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from amplint.rules.gradients.no_grad_fills_autocast_cache import REPAIRED


def test_the_installed_torch_is_repaired() -> None:
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    assert version >= REPAIRED
    model = torch.nn.Linear(4, 4)
    inputs = torch.randn(8, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with torch.no_grad():
            model(inputs)
        loss = model(inputs).float().square().mean()
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
