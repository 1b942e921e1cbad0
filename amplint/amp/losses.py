"""Backward calls of one function, the losses they start from, and words that cut a loss off."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from amplint.amp.view import AmpView
from amplint.code.dataflow import bindings_of, constant_of
from amplint.code.expressions import last_name
from amplint.code.layout import layout_of
from amplint.code.module import Function

#: What cuts the graph between an output and a loss, or makes the question undecidable.
CUTS = frozenset(
    ("detach", "data", "item", "no_grad", "inference_mode", "numpy", "tolist", "argmax", "tensor")
    + ("requires_grad", "requires_grad_", "as_tensor", "long", "int", "bool", "max", "topk", "len")
    + (
        "size",
        "shape",
        "numel",
        "dim",
        "ndim",
        "device",
        "dtype",
        "eq",
        "gt",
        "lt",
        "sign",
        "round",
    )
    + ("zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "new_zeros", "new_ones")
)


@dataclass(frozen=True, slots=True, eq=False)
class Backward:
    """One backward call and the name of the loss it starts from.

    Args:
        keeps: whether it keeps the graph, or may.
    """

    call: ast.Call
    loss: str
    keeps: bool


def backwards_of(view: AmpView, function: Function) -> Iterator[Backward]:
    """The backward calls of a function that start from a named loss, in source order."""
    for node in layout_of(function).nodes:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr != "backward" or node.args:
            continue
        loss = _loss(view, function, node.func.value)
        if loss:
            options = [item.value for item in node.keywords if item.arg != "inputs"]
            yield Backward(node, loss, any(constant_of(value) is not False for value in options))


def _loss(view: AmpView, function: Function, expression: ast.expr) -> str:
    """The name of the unscaled loss of `scaler.scale(loss)`, `loss` or a name for the former."""
    if isinstance(expression, ast.Name):
        bindings = bindings_of(function).get(expression.id, [])
        value = bindings[0].value if len(bindings) == 1 else None
        scaled = _scaled_name(view, function, value) if value is not None else ""
        return scaled or expression.id
    return _scaled_name(view, function, expression)


def _scaled_name(view: AmpView, function: Function, value: ast.expr) -> str:
    if not isinstance(value, ast.Call) or last_name(value.func) != "scale" or not value.args:
        return ""
    callee, loss = value.func, value.args[0]
    if not isinstance(callee, ast.Attribute) or not isinstance(loss, ast.Name):
        return ""
    return loss.id if view.roles.is_scaler(callee.value, function) else ""
