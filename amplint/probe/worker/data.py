"""Batches of the user's own data sets, for findings that depend on shapes and dtypes of data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from amplint.probe.worker import standins
from amplint.probe.worker.context import current
from amplint.probe.worker.soft import SoftTensor

#: Samples of a batch, where the code does not say how many.
SAMPLES = 2
#: Samples that are made at most.
MOST = 64


def batches(dataset: Any, size: Any, count: int) -> list[Any]:
    """So many batches, as torch collates them; none where a sample is not entirely real."""
    if not current().plan.real_data or isinstance(dataset, (standins.StandIn, SoftTensor)):
        return []
    size = size if type(size) is int and 0 < size <= MOST else SAMPLES
    try:
        found = [
            torch.utils.data.default_collate(
                [dataset[(batch * size + index) % len(dataset)] for index in range(size)]
            )
            for batch in range(min(count, MOST // size))
        ]
    except Exception as error:  # noqa: BLE001 -- whatever the user's own class raises
        current().remark(f"no data were made: {type(error).__name__}: {error}"[:120])
        return []
    leaves = [leaf for batch in found for leaf in _leaves(batch)]
    real = bool(leaves) and all(type(leaf) in (torch.Tensor, str) for leaf in leaves)
    return found if real else []


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for entry in value.values():
            yield from _leaves(entry)
    elif isinstance(value, (list, tuple)):
        for entry in value:
            yield from _leaves(entry)
    else:
        yield value
