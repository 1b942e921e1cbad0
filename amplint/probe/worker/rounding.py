"""What one step of an optimizer does to weights of half precision: whether rounding swallows it.

The weights of a run are few and invented. So the step is made again, by the optimizer's own class
with the settings that it had in the run, on weights of the usual size in the dtype of its own ones.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch

from amplint.runtime.monitor import parameters_of

#: The kind of prediction that is about this.
KIND = "swallowed"
#: How many weights, and their standard deviation: with which transformers are initialised.
WEIGHTS, USUAL = 4096, 0.02
#: Which kernels calculate, which changes nothing here.
_KERNELS = frozenset({"foreach", "fused", "capturable", "differentiable"})


#: Settings that each optimizer of torch takes; read before a run replaces anything.
_TAKEN: dict[Any, frozenset[str]] = {
    kind: frozenset(inspect.signature(kind).parameters) - _KERNELS
    for kind in vars(torch.optim).values()
    if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)
}


@dataclass(slots=True)
class Stepped:
    """An optimizer as it was at the step with the largest learning rate."""

    kind: Any
    settings: dict[str, Any]
    dtype: torch.dtype


def seen_at(optimizer: Any, known: Stepped | None) -> Stepped | None:
    """What a step is about to do; None where its weights are no half-precision ones, or its class
    is not torch's own."""
    if type(optimizer) not in _TAKEN:
        return None
    dtypes = {p.dtype for p in parameters_of(optimizer) if p.grad is not None}
    if len(dtypes) != 1 or not dtypes <= {torch.bfloat16, torch.float16}:
        return None
    first = optimizer.param_groups[0]
    if known is not None and known.settings.get("lr", 0.0) >= first.get("lr", 0.0):
        return known
    taken = _TAKEN[type(optimizer)]
    settings = {key: value for key, value in first.items() if key in taken and key != "params"}
    return Stepped(type(optimizer), settings, dtypes.pop())


def unmoved(stepped: Stepped) -> tuple[float, float]:
    """The shares of weights that a step leaves as they were: in their dtype, and in float32."""
    return _unmoved(stepped, stepped.dtype), _unmoved(stepped, torch.float32)


def _unmoved(stepped: Stepped, dtype: torch.dtype) -> float:
    # The quantiles of a normal distribution: no generator, which a run may have replaced.
    places = torch.arange(1, WEIGHTS + 1, dtype=torch.float64) / (WEIGHTS + 1)
    weights = (torch.special.ndtri(places) * USUAL).to(dtype)
    parameter = torch.nn.Parameter(weights.clone())
    parameter.grad = torch.cos(places * WEIGHTS).to(dtype)
    stepped.kind([parameter], **stepped.settings).step()
    return float((parameter.detach() == weights).double().mean())
