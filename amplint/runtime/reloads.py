"""Weights that are loaded inside an autocast region, which goes on with its copies of the old ones.

Whether it does is measured where the next forward finds out by itself: of the layer that is about to
run, one column of the weight as autocast hands it out, beside the same column of what the weight holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import get_ident
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

from amplint.runtime.dynamo import has_compiled
from amplint.runtime.forwards import as_hook
from amplint.runtime.measures import is_plain

#: Layers whose forward multiplies by their weight, which autocast copies for that.
_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


def watch(
    module: nn.Module, tell: Callable[[], None], fail: Callable[[BaseException], None]
) -> Iterator[Any]:
    """Look at the first and the last layer of a module when they run next, once each.

    Args:
        tell: is told that a layer computes with an old weight, once.
        fail: is told about an error of amplint's own.

    Returns:
        What to `remove()` when the region ends.
    """
    layers = [layer for layer in module.modules() if _is_copied(layer)]
    if layers and not has_compiled():  # a hook would make other graphs
        for layer in dict.fromkeys((layers[0], layers[-1])):
            yield _Look(layer, tell, fail)


class _Look:
    """The hook of one layer."""

    def __init__(
        self, layer: Any, tell: Callable[[], None], fail: Callable[[BaseException], None]
    ) -> None:
        self._tell, self._thread = tell, get_ident()
        self._handle = layer.register_forward_pre_hook(as_hook(self._before, fail))

    def remove(self) -> None:
        """Take the hook back."""
        self._handle.remove()

    def _before(self, layer: Any, _given: Any) -> None:
        if get_ident() == self._thread:
            self.remove()
            if _is_old(layer.weight):
                self._tell()


def _is_copied(layer: Any) -> bool:
    """Whether an autocast region keeps a copy of a layer's weight."""
    weight = getattr(layer, "weight", None) if type(layer) in _LAYERS else None
    return is_plain(weight) and weight.requires_grad and weight.dtype is torch.float32


def _is_old(weight: torch.Tensor) -> bool:
    """Whether autocast hands out another weight than there is.

    The layer is about to ask for the same copy, so the question changes nothing; nor does it leave
    anything with those who count what is saved for the backward.
    """
    if not is_plain(weight):
        return False
    first = torch.zeros(weight.shape[-1], dtype=weight.dtype, device=weight.device)
    first[0] = 1.0
    with saved_tensors_hooks(_as_it_is, _as_it_is):
        used = torch.matmul(weight, first).detach()
    there = torch.matmul(weight.detach(), first)  # without a history there is no copy
    return not bool(((used == there) | used.isnan()).all())


def _as_it_is(tensor: torch.Tensor) -> torch.Tensor:
    return tensor
