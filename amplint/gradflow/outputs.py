"""Outputs of trained models that a loss is computed from, so that gradients go back to them."""

from __future__ import annotations

import ast

from amplint.amp.losses import CUTS
from amplint.amp.roles import Role
from amplint.amp.view import AmpView
from amplint.code.dataflow import bindings_of
from amplint.code.expressions import path_text
from amplint.code.layout import Layout
from amplint.code.module import walk
from amplint.gradflow.handing import is_handed_on


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
        if path is None or not _is_whole(layout, node):
            continue
        if not is_handed_on(view, node, value, layout.function):
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
