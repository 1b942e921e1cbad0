"""Trainings that end after a few steps and keep nothing: they try out whether the code runs.

What goes wrong there without an exception hurts nobody, as nobody uses the weights. In the published
batches such findings were judged harmless (docs/survey/batch-r.md, batch-w.md, batch-x.md).
"""

from __future__ import annotations

import ast
import math

from amplint.amp.view import AmpView
from amplint.code.expressions import last_name
from amplint.code.layout import layout_of
from amplint.code.module import Function, Module
from amplint.findings import Link, Standing
from amplint.values.provenance import Firmness

#: The most steps that train nothing worth keeping.
_FEW = 10
#: Callers are asked through this many functions.
_DEPTH = 4
_DISPLAYS = (ast.List, ast.Tuple, ast.Set)
#: Words of calls that take weights somewhere: `torch.save`, `save_pretrained`, `model.state_dict`.
_KEEPING = ("save", "state_dict", "export", "push_to_hub", "dump")


def dry_run(view: AmpView, node: ast.AST, function: Function) -> Link | None:
    """Why nobody uses what is trained around a node: its script does so a few times, and keeps nothing.

    Each backward of the file counts: where the node stands says little of a scaler that is built once.
    """
    if _times(view, node, function) > _FEW or function.module.once(_keeps):
        return None
    backwards = [site for site in function.module.calls if last_name(site.node.func) == "backward"]
    if not backwards or any(_times(view, s.node, s.function) > _FEW for s in backwards):
        return None
    return Link("damage", Standing.HARMLESS, function.name, "trains weights that nobody keeps")


def _times(view: AmpView, node: ast.AST, function: Function, depth: int = _DEPTH) -> float:
    """How often a node runs at most while its script runs; infinity where that is not known."""
    layout, module = layout_of(function), function.module
    if node not in layout or not depth:
        return math.inf
    rounds = math.prod(_rounds(view, loop, function) for loop in layout.loops(node))
    if rounds > _FEW or function is module.body:
        return rounds
    sites = view.objects.every_call_of(function)
    if not sites or any(site.function.module is not module for site in sites):
        return math.inf
    return rounds * sum(_times(view, site.node, site.function, depth - 1) for site in sites)


def _rounds(view: AmpView, loop: ast.AST, function: Function) -> float:
    """How many rounds a loop has at most; infinity where that is not known."""
    over = getattr(loop, "iter", None)
    if isinstance(over, _DISPLAYS) and not any(isinstance(e, ast.Starred) for e in over.elts):
        return len(over.elts)
    if not isinstance(over, ast.Call) or last_name(over.func) != "range" or not over.args:
        return math.inf
    ends = view.values.of(over.args[len(over.args) > 1], function)
    numbers = [
        item.content
        for item in ends.values
        if isinstance(item.content, int) and item.firmness is Firmness.FIXED
    ]
    return (
        max(numbers) if ends.complete and numbers and len(numbers) == len(ends.values) else math.inf
    )


def _keeps(module: Module) -> bool:
    """Whether a file takes weights anywhere: into a file, into another model, to somebody."""
    names = (last_name(site.node.func) for site in module.calls)
    return any(word in name for name in names for word in _KEEPING)
