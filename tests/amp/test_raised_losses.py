"""The losses that autocast runs in float32, each run by torch."""

from __future__ import annotations

import pytest

from amplint.amp.half_tensors import RAISED_LOSSES

torch = pytest.importorskip("torch")


def rows(*sizes: int) -> torch.Tensor:
    return torch.rand(*sizes).half()


#: What a loss is given, for those that take no two tensors of one shape.
OTHERS = {
    "CosineEmbeddingLoss": lambda: (rows(4, 3), rows(4, 3), torch.ones(4)),
    "CrossEntropyLoss": lambda: (rows(4, 3), torch.tensor([0, 1, 2, 0])),
    "MarginRankingLoss": lambda: (rows(4), rows(4), torch.ones(4)),
    "MultiMarginLoss": lambda: (rows(4, 3), torch.tensor([0, 1, 2, 0])),
    "NLLLoss": lambda: (rows(4, 3), torch.tensor([0, 1, 2, 0])),
    "TripletMarginLoss": lambda: (rows(4, 3), rows(4, 3), rows(4, 3)),
}


@pytest.mark.parametrize(("owner", "function"), RAISED_LOSSES.items())
@pytest.mark.filterwarnings("ignore:reduction")
def test_a_loss_of_half_tensors_is_float32_under_autocast(owner: str, function: str) -> None:
    given = OTHERS.get(owner, lambda: (rows(4, 3), rows(4, 3)))()
    with torch.autocast("cpu", dtype=torch.float16):
        found = (getattr(torch.nn, owner)()(*given), getattr(torch.nn.functional, function)(*given))
        lowered = torch.nn.functional.linear(rows(4, 3), rows(2, 3))
    assert [item.dtype for item in found] == [torch.float32, torch.float32]
    assert lowered.dtype == torch.float16
