"""Optimizer steps that run through the gradient scaler of a training library."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from amplint.amp.accelerators import ACCELERATOR
from amplint.amp.library_objects import library_class_of
from amplint.amp.lightning import is_lightning_module
from amplint.amp.view import AmpView
from amplint.code.arguments import written_argument
from amplint.code.dataflow import Binding, constant_of
from amplint.code.expressions import path_text
from amplint.code.layout import layout_of
from amplint.code.module import CallSite, Class, Function, enclosing_class
from amplint.code.tree import walk
from amplint.values.conditions import conditions_at

_PREPARES = frozenset(("prepare", "prepare_optimizer"))
#: How many callers up an optimizer that is handed in is followed.
_DEPTH = 4


@dataclass(frozen=True, slots=True, eq=False)
class LibraryStep:
    """A plain `optimizer.step()` that a library's scaler runs.

    Args:
        site: the call.
        accelerator: what has prepared the optimizer; None in a LightningModule.
        function: where that is written.
        owner: the LightningModule; None beside an accelerator.
    """

    site: CallSite
    accelerator: ast.expr | None
    function: Function
    owner: Class | None = None


def optimizer_steps(view: AmpView, function: Function) -> list[CallSite]:
    """Calls of `step` on optimizers in a function, in source order."""
    return [
        site
        for site in function.module.calls
        if site.function is function
        and site.method == "step"
        and isinstance(site.node.func, ast.Attribute)
        and site.node in layout_of(function)
        and (
            view.roles.is_optimizer(site.node.func.value, function)
            or library_step(view, site) is not None
        )
    ]


def library_step(view: AmpView, site: CallSite) -> LibraryStep | None:
    """The step as one of a library, where every way to its optimizer is in sight."""
    callee = site.node.func
    if not isinstance(callee, ast.Attribute):
        return None
    owner = enclosing_class(site.function)
    if owner is not None and _is_of_lightning(view, callee.value, site, owner):
        return LibraryStep(site, None, site.function, owner)
    found = preparing(view, callee.value, site.node, site.function)
    return LibraryStep(site, *found) if found is not None else None


def _is_of_lightning(view: AmpView, optimizer: ast.expr, site: CallSite, owner: Class) -> bool:
    """Whether an optimizer is one of `self.optimizers()`, which steps through the Trainer's plugin.

    lightning, pytorch/core/optimizer.py, `LightningOptimizer.step`.
    """
    bound = view.objects.bindings(optimizer, site.function) or ()
    sources = [item.source for item in bound] or [optimizer]
    return all(map(_gives_optimizers, sources)) and is_lightning_module(view, owner)


def _gives_optimizers(source: ast.expr | None) -> bool:
    calls = [
        node
        for node in (walk(source) if source is not None else ())
        if isinstance(node, ast.Call) and path_text(node.func) == "self.optimizers"
    ]
    if len(calls) != 1:
        return False
    plain = written_argument(calls[0], "use_pl_optimizer", 0)
    return plain is None or constant_of(plain) is True


def preparing(
    view: AmpView, place: ast.expr, use: ast.AST, function: Function, depth: int = _DEPTH
) -> tuple[ast.expr, Function] | None:
    """The accelerator that surely has prepared an object before its use, and where that is written.

    Args:
        depth: how many callers up it is looked for.
    """
    bound = view.objects.bindings(place, function)
    if bound:
        return _by_binding(view, bound, use, function)
    back = view.values.origins.back(place, function, None) if depth else None
    if back is None or not back.complete:
        return None
    found = [
        preparing(view, before.expression, before.expression, before.function, depth - 1)
        for before in back.places
        if before.part is None
    ]
    if not found or len(found) != len(back.places) or None in found:
        return None
    return found[0]


def _by_binding(
    view: AmpView, bound: list[Binding], use: ast.AST, function: Function
) -> tuple[ast.expr, Function] | None:
    """By the last of the statements that give an object its place."""
    last = bound[-1]
    if len({item.function for item in bound}) > 1:
        return None
    accelerator, layout = _accelerator(view, last), layout_of(last.function)
    is_here = last.function is function and use in layout
    if is_here and not layout.dominates(last.statement, use):
        return None
    tests = conditions_at(last.statement, last.function, use if is_here else None)
    return None if accelerator is None or tests else (accelerator, last.function)


def _accelerator(view: AmpView, binding: Binding) -> ast.expr | None:
    """What prepares the value that a statement binds."""
    call = binding.source
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return None
    if call.func.attr not in _PREPARES:
        return None
    row = library_class_of(call.func.value, binding.function, view.objects)
    return call.func.value if row is not None and row.name == ACCELERATOR else None


def plain_backwards(view: AmpView, function: Function) -> Iterator[CallSite]:
    """Calls of a tensor's own `backward` in a function, on a loss that nothing in it has scaled."""
    for site in function.module.calls:
        callee = site.node.func
        if site.function is not function or site.method != "backward" or site.node.args:
            continue
        if not isinstance(callee, ast.Attribute) or site.node not in layout_of(function):
            continue
        words = {item.arg for item in site.node.keywords}
        if not words <= {"retain_graph", "create_graph"} or _is_super(callee.value):
            continue
        if view.objects.targets(site.node, function).functions:
            continue  # a method of the project
        if not _may_be_scaled(view, callee.value, function):
            yield site


def _is_super(receiver: ast.expr) -> bool:
    return isinstance(receiver, ast.Call) and path_text(receiver.func) == "super"


def _may_be_scaled(view: AmpView, loss: ast.expr, function: Function) -> bool:
    """Whether what a loss is made of in a function calls something that scales."""
    bound = view.objects.bindings(loss, function) or ()
    parts: list[ast.AST] = [loss, *(item.source for item in bound if item.source is not None)]
    calls = (node for part in parts for node in walk(part) if isinstance(node, ast.Call))
    return any("scale" in (path_text(call.func) or "").lower() for call in calls)
