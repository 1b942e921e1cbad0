"""Backward calls of one function: which loss they start from, and what it was computed from."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from amplint.amp.roles import Role
from amplint.amp.view import AmpView
from amplint.code.dataflow import bindings_of, constant_of
from amplint.code.expressions import last_name, path_text
from amplint.code.layout import Layout, layout_of
from amplint.code.module import Function, walk

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
#: Of them, those that cut whatever they are used for.
_TAKES_OUT = frozenset(
    (
        "detach",
        "detach_",
        "data",
        "item",
        "numpy",
        "no_grad",
        "inference_mode",
        "tensor",
        "as_tensor",
    )
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


def outputs_of(view: AmpView, layout: Layout, name: str, depth: int = 3) -> frozenset[str]:
    """Paths of trained models' outputs in the expression that a name stands for."""
    return view.once(_outputs_of, layout, name, depth)


def _outputs_of(view: AmpView, layout: Layout, name: str, depth: int) -> frozenset[str]:
    bindings = bindings_of(layout.function).get(name, [])
    if len(bindings) != 1 or bindings[0].value is None or not depth:
        return frozenset()
    value = bindings[0].value
    if _is_cut(layout, value):
        return frozenset()
    found: set[str] = set()
    for node in layout.inside(value):
        path = path_text(node) if isinstance(node, (ast.Name, ast.Attribute)) else None
        if path is None or not _is_whole(layout, node) or _is_cut_inside(view, layout, node):
            continue
        if _is_output(view, layout, path.partition(".")[0]):
            found.add(path)
        elif "." not in path and path != name:
            found |= outputs_of(view, layout, path, depth - 1)
    return frozenset(found)


def _is_whole(layout: Layout, node: ast.AST) -> bool:
    """Whether a name or attribute is the value itself, not the way to a part or a method."""
    parent = layout.parents[node]
    if isinstance(parent, ast.Call) and parent.func is node:
        return False
    if isinstance(parent, ast.Attribute):
        call = layout.parents[parent]
        return isinstance(call, ast.Call) and call.func is parent
    return not isinstance(parent, ast.Subscript)


def _is_cut_inside(view: AmpView, layout: Layout, node: ast.AST) -> bool:
    """Whether a function of the project that gets a value may take it out of the graph."""
    inner = node
    while not isinstance(inner, ast.stmt):
        outer = layout.parents[inner]
        if isinstance(outer, ast.Call) and inner is not outer.func:
            callee = view.objects.callee(outer, layout.function)
            if callee is not None and callee.once(_takes_out):
                return True
        inner = outer
    return False


def _takes_out(function: Function) -> bool:
    """Whether something in a function, or a decorator of it, cuts a graph."""
    decorators = getattr(function.node, "decorator_list", ())
    nodes = (*function.nodes, *(part for item in decorators for part in walk(item)))
    return any(getattr(node, "attr", getattr(node, "id", "")) in _TAKES_OUT for node in nodes)


def _is_cut(layout: Layout, value: ast.expr) -> bool:
    words = {getattr(node, "attr", getattr(node, "id", "")) for node in layout.inside(value)}
    around = [node for node in layout.ancestors(value) if isinstance(node, ast.With)]
    blocks = " ".join(ast.unparse(item.context_expr) for node in around for item in node.items)
    return bool(words & CUTS) or "grad" in blocks or "inference" in blocks or _mixes(layout, value)


def _mixes(layout: Layout, value: ast.expr) -> bool:
    """Whether two computed factors are multiplied: one of them may be a plain number."""
    for node in layout.inside(value):
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Div)):
            sides = [layout.inside(side) for side in (node.left, node.right)]
            if all(any(isinstance(part, ast.Call) for part in side) for side in sides):
                return True
    return False


def _is_output(view: AmpView, layout: Layout, name: str) -> bool:
    """Whether a name is bound once, to what a trained model returns."""
    bindings = bindings_of(layout.function).get(name, [])
    if len(bindings) != 1 or bindings[0].value is None or _is_cut(layout, bindings[0].value):
        return False
    trained = view.once(_trained, layout)
    return any(
        isinstance(node, ast.Call) and path_text(node.func) in trained
        for node in layout.inside(bindings[0].value)
    )


def _trained(view: AmpView, layout: Layout) -> frozenset[str | None]:
    """Models that an optimizer of the file owns, or that the function puts in train mode."""
    found = set(view.once(_owned))
    for node in layout.nodes:
        callee = node.func if isinstance(node, ast.Call) and not node.args else None
        if isinstance(callee, ast.Attribute) and callee.attr == "train":
            found.add(path_text(callee.value))
    return frozenset(found)


def _owned(view: AmpView) -> frozenset[str | None]:
    found: set[str | None] = set()
    for site in view.module.calls:
        if view.roles.role_of(site.node, site.function) is not Role.OPTIMIZER:
            continue
        for node in walk(site.node):
            if isinstance(node, ast.Attribute) and node.attr == "parameters":
                found.add(path_text(node.value))
    return frozenset(found - {None})
