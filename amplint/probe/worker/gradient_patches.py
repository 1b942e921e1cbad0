"""Backward and clips on losses and parameters that may be invented."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed
import torch.utils.data

from amplint.probe.worker import opaque_calls, standins, values
from amplint.probe.worker.context import current
from amplint.probe.worker.replacing import replace
from amplint.probe.worker.soft import (
    SoftTensor,
    leaves_of,
    mark_freed,
    plain,
    tensors_in,
)
from amplint.runtime.instrument import CLIPS

#: What autograd says of graphs in which tensors have other shapes than they would have.
ABOUT_SHAPES = re.compile(r"inplace operation|invalid gradient|shape|size|dimension")


#: How much of each parameter is added to an invented loss.
FELT = 0.01
#: Nodes between a scaled loss and the loss: a product, and what casts it.
MULTIPLE_DEPTH = 4


def install_backward() -> None:
    """A backward starts from one number, whatever shape the loss seems to have."""
    original = torch.autograd.backward

    def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        tensors = standins.concrete(tensors, "loss")
        with torch._C.DisableTorchFunction():
            roots = [_scalar(tensor) for tensor in tensors_in(tensors)]
            leaves = _link(roots)
            roots = _weighted(_fed(roots, leaves))
            if current().omissions.applies("freed-graphs"):
                args, kwargs = args[:1], {**kwargs, "retain_graph": True}
            try:
                original(roots, *args, **kwargs)
            except RuntimeError as error:
                if not ABOUT_SHAPES.search(str(error)):
                    raise
                roots = [_substitute(roots)]
                original(roots, *args, **kwargs)
            finally:
                current().after_backward(leaves)
            keeps = kwargs.get("retain_graph", args[1] if len(args) > 1 else False)
            for name in mark_freed(roots, frees=not keeps):
                current().note("connected", name)

    replace(torch.autograd, "backward", backward)

    def tensor_backward(
        self: Any,
        gradient: Any = None,
        retain_graph: Any = None,
        create_graph: Any = False,
        inputs: Any = None,
    ) -> None:
        gradient = None if isinstance(self, SoftTensor) else gradient
        torch.autograd.backward(
            self, gradient, bool(retain_graph), bool(create_graph), inputs=inputs
        )

    replace(torch.Tensor, "backward", tensor_backward)


def _substitute(roots: list[Any]) -> Any:
    """A loss that hangs on the same parameters, for one whose graph does not fit together."""
    leaves = [leaf for leaf in leaves_of(roots) if leaf.is_floating_point()]
    current().note("connected", "the loss")
    scale = torch.stack([root.detach().float().abs().mean() for root in roots]).sum()
    return torch.stack([leaf.float().mean() for leaf in leaves]).sum() * scale


def _link(roots: list[Any]) -> list[Any]:
    """The leaves of the graph; an optimizer that was made up may get them."""
    run = current()
    leaves = leaves_of(roots)
    known = [leaf for leaf in leaves if leaf is not run.world.ghost]
    copies = _next_to(roots)
    run.world.link([leaf for leaf in known or leaves if id(leaf) not in copies])
    if leaves and not known:
        run.note("connected", "the functions that the loss comes from")
    return leaves


def _fed(roots: list[Any], leaves: list[Any]) -> list[Any]:
    """The losses; where statements are skipped, they reach at least what somebody trains."""
    run = current()
    trained = [parameter for parameter in run.world.trained() if parameter.requires_grad]
    reached = {id(leaf) for leaf in leaves}
    if not run.request.repair or not leaves or not trained:
        return roots
    if reached.intersection(map(id, trained)):
        return roots
    run.note("connected", "the loss")
    nothing = torch.stack([parameter.float().mean() for parameter in trained]).sum() * 0
    return [roots[0] + nothing.to(roots[0].dtype), *roots[1:]]


def _weighted(roots: list[Any]) -> list[Any]:
    """The losses, smaller or larger where the run asks for that."""
    weight = current().request.loss_weight
    return roots if weight == 1.0 else [root * weight for root in roots]


def felt(loss: torch.Tensor) -> torch.Tensor:
    """An invented loss with a gradient for each parameter that it hangs on: a softmax over the
    only entry of an invented tensor, for one, has none, whatever the real one has."""
    copies = {id(current().world.ghost), *_next_to([loss])}
    with torch._C.DisableTorchFunction():
        leaves = [
            leaf.float().mean()
            for leaf in leaves_of([loss])
            if id(leaf) not in copies and leaf.is_floating_point() and leaf.numel()
        ]
        if not leaves or not torch.is_grad_enabled():
            return loss
        return loss + FELT * torch.stack(leaves).sum().to(loss.dtype)


def _next_to(roots: list[Any]) -> set[int]:
    """Leaves that are the loss itself, or that it is a multiple of: nobody trains those."""
    found = set()
    for node in (root.grad_fn for root in roots):
        for _ in range(MULTIPLE_DEPTH):
            following = [inner for inner, _ in getattr(node, "next_functions", ()) if inner]
            if len(following) != 1:
                break
            node = following[0]
            if hasattr(node, "variable"):
                found.add(id(node.variable))
    return found


def _scalar(tensor: torch.Tensor) -> torch.Tensor:
    loose = isinstance(tensor, SoftTensor)
    tensor = plain(tensor)
    return tensor.sum() if loose and tensor.numel() != 1 else tensor


def install_clips() -> None:
    """Clips take unknown parameters, limits and norms."""
    for name in CLIPS:
        clip = _clip(getattr(torch.nn.utils, name))
        setattr(torch.nn.utils, name, clip)
        setattr(torch.nn.utils.clip_grad, name, clip)


def _clip(original: Callable[..., Any]) -> Callable[..., Any]:
    def clip(parameters: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(parameters, standins.StandIn):
            current().remark("gradients of unknown parameters are clipped: those of all models")
            parameters = values.world(current()).any_model()
        limits = [standins.number(value) for value in args]
        named = {key: standins.number(value) for key, value in kwargs.items()}
        owned = list(opaque_calls.parameters_in(parameters))
        events = current().events
        with torch._C.DisableTorchFunction():
            before, seen = _length(owned), len(events)
            found = original(owned, *limits, **named)
            left = _length(owned) / before if before else 1.0
        for event in events[seen:]:
            event.facts["left"] = left
            event.facts["steps"] = len(current().steps)
        return found

    return clip


def _length(parameters: list[Any]) -> float:
    """The norm of all gradients together."""
    parts = [p.grad.float().norm() for p in parameters if p.grad is not None]
    return float(torch.stack(parts).norm()) if parts else 0.0
