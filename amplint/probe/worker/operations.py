"""Which values are float16 whatever the probe has invented, and what float16 does to numbers.

Autocast decides the dtype of a product, and a cast decides it by hand: a tensor that comes
from those is float16 in the real program, too. One that comes from a stand-in for a model, or
from an unknown function, may be anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from amplint.probe.messages import Event

if TYPE_CHECKING:
    from amplint.probe.worker.context import Run

#: Operations whose result is in autocast's lower precision, or in the one that they name.
DECIDING = frozenset(
    [
        *("linear", "matmul", "__matmul__", "__rmatmul__", "mm", "bmm", "mv", "addmm", "addbmm"),
        *("baddbmm", "addmv", "einsum", "conv1d", "conv2d", "conv3d", "conv_transpose1d"),
        *("conv_transpose2d", "conv_transpose3d", "scaled_dot_product_attention", "half", "to"),
    ]
)
_SURE = "_amp_sure_half"


def trace(name: str, args: Any, result: Any) -> None:
    """Mark a result that is float16 for sure: by its operation, or as all its arguments are."""
    if not isinstance(result, torch.Tensor):
        return
    with torch._C.DisableTorchFunction():  # reading a dtype is a function, too
        if result.dtype != torch.float16:
            return
        given = [tensor for tensor in _tensors(args) if tensor.is_floating_point()]
        if name in DECIDING or (given and all(_is_sure(tensor) for tensor in given)):
            setattr(result, _SURE, True)


def doubt(run: Run, args: Any) -> None:
    """torch has refused a dtype: remember if a stand-in may be to blame."""
    with torch._C.DisableTorchFunction():
        sure = any(_is_sure(tensor) for tensor in _tensors(args))
    if not sure:
        run.note("float16", row=run.row())


def watch(run: Run, name: str, args: Any, kwargs: Any) -> None:
    """Record an operation on float16 that is given a number which is zero there."""
    with torch._C.DisableTorchFunction():
        halves = [tensor for tensor in _tensors(args) if tensor.dtype == torch.float16]
        row = run.row() if halves else 0
        if row not in run.plan.target_rows:
            return
        for number in (*args, *kwargs.values()):
            if isinstance(number, float) and number and not _in_half(number):
                facts = {"name": name, "number": number, "sure": any(map(_is_sure, halves))}
                run.events.append(Event("operation", run.project.checked, row, facts=facts))


def _tensors(args: Any) -> Iterator[torch.Tensor]:
    for value in args:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from (entry for entry in value if isinstance(entry, torch.Tensor))


def _is_sure(tensor: torch.Tensor) -> bool:
    return tensor.dtype == torch.float16 and bool(tensor.__dict__.get(_SURE))


def _in_half(number: float) -> float:
    return float(torch.tensor(number, dtype=torch.float16))
