"""Backward passes, optimizer steps and forwards inside autocast regions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from amplint.amp.roles import Role, optimizer_name, roles_of, scaler_name
from amplint.amp.view import AmpView
from amplint.code.expressions import last_name, path_text
from amplint.code.layout import layout_of
from amplint.code.module import Class, Function, Module
from amplint.findings import PathStep
from amplint.regions.regions import (
    Inside,
    Region,
    Regions,
    call_words,
    opening_words,
)

#: Callees that run a trained module or compute a loss from it, by name.
_FORWARD = re.compile(
    r"model|net(?:$|_|[A-Z\d])|forward|module|loss|criterion|encod|decod|generat|discrim|student"
    r"|policy|critic|actor|backbone|head|classif|logits",
    re.IGNORECASE,
)
_NO_FORWARDS = frozenset(
    ("parameters", "named_parameters", "state_dict", "load_state_dict", "train", "eval", "append")
    + ("modules", "named_modules", "no_sync", "zero_grad", "requires_grad_", "to", "cuda", "item")
)
#: Calls that empty autocast's cache of weights.
CLEARS_CACHE = frozenset(("clear_autocast_cache", "autocast_decrement_nesting"))
_BACKWARDS = frozenset(("backward", "manual_backward"))


@dataclass(frozen=True, slots=True, eq=False)
class Stale:
    """An optimizer step in a region whose cached weights the next forward reads again.

    Args:
        step: the step.
        forward: a forward in the region behind it, or in the next round of `loop`.
        loop: the loop inside the region that repeats both; None where they are in order.
    """

    region: Region
    step: Inside
    forward: Inside
    loop: ast.AST | None = None


def is_backward(regions: Regions, item: Inside) -> bool:
    """Whether a call runs a backward pass; one that the project defines is looked into instead."""
    callee = item.call.func
    name = last_name(callee)
    if name not in _BACKWARDS or not isinstance(callee, ast.Attribute):
        return False
    dotted = item.function.module.resolve(callee)
    if dotted is not None and dotted.startswith("torch."):
        return dotted == "torch.autograd.backward"
    receiver = callee.value
    if isinstance(receiver, ast.Call) and last_name(receiver.func) == "super":
        return False
    if isinstance(regions.objects.symbol(receiver, item.function), Class):
        return False  # `Function.backward(ctx, grad)`
    return regions.objects.callee(item.call, item.function) is None


def stepped_optimizer(regions: Regions, item: Inside) -> ast.expr | None:
    """The optimizer that a call of `optimizer.step` or `scaler.step` steps, else None."""
    callee = item.call.func
    if not isinstance(callee, ast.Attribute) or callee.attr != "step":
        return None
    role = _role(regions, callee.value, item.function)
    name = last_name(callee.value)
    if item.call.args and (role is Role.SCALER or (role is None and scaler_name(name))):
        return item.call.args[0]
    if role is Role.OPTIMIZER or (role is None and optimizer_name(name)):
        return callee.value
    return None


def _role(regions: Regions, expression: ast.expr, function: Function) -> Role | None:
    return roles_of(function.module).role_of(expression, function)


def backwards(regions: Regions, region: Region) -> list[Inside]:
    """The backward passes inside a region, those of its own function first."""
    return [item for item in regions.inside(region) if is_backward(regions, item)]


def steps(regions: Regions, region: Region) -> list[Inside]:
    """The optimizer steps inside a region, those of its own function first."""
    return [item for item in regions.inside(region) if stepped_optimizer(regions, item) is not None]


# -- steps whose effect the region's weight cache hides ------------------------------------------


def stale_steps(regions: Regions, module: Module) -> Iterator[Stale]:
    """One step for each region of a module in which weights are stale behind it."""
    for region in regions.opened(module):
        if not region.cast.caches or region.cast.dtypes == frozenset(("float32",)):
            continue
        if any(last_name(item.call.func) in CLEARS_CACHE for item in regions.inside(region)):
            continue
        stale = _repeated(regions, region) or _in_order(regions, region)
        if stale is not None:
            yield stale


def _repeated(regions: Regions, region: Region) -> Stale | None:
    """A step in a loop inside the region that also holds a forward and a backward."""
    inside = regions.inside(region)
    passes = backwards(regions, region)
    for step in steps(regions, region):
        for loop in _loops(region, step):
            if not any(loop in _loops(region, item) for item in passes):
                continue
            for item in inside:
                if loop in _loops(region, item) and is_forward(regions, item):
                    return Stale(region, step, item, loop)
    return None


def _loops(region: Region, item: Inside) -> list[ast.AST]:
    """The loops inside the region that repeat a call, innermost first."""
    found: list[ast.AST] = []
    for call, function in ((item.call, item.function), *reversed(item.trail)):
        layout = layout_of(function)
        loops = layout.loops(call) if call in layout else []
        if function is region.function:
            loops = [one for one in loops if any(layout.holds(p, one) for p in region.parts)]
        found += loops
    return found


def is_forward(regions: Regions, item: Inside) -> bool:
    """Whether a call runs a module: by its definition, or else by its name."""
    name = last_name(item.call.func)
    if name in _NO_FORWARDS or is_backward(regions, item):
        return False
    if stepped_optimizer(regions, item) is not None:
        return False
    known = regions.objects.callee(item.call, item.function)
    if known is not None:
        return known.name == "forward"
    return bool(_FORWARD.search(name)) and not name[:1].isupper()


def _in_order(regions: Regions, region: Region) -> Stale | None:
    """A step, and behind it a second forward of the model whose parameters it changed."""
    inside = regions.inside(region)
    for step in steps(regions, region):
        owned = _owned(regions, step)
        if not owned:
            continue
        layout = layout_of(step.function)
        calls = [
            item
            for item in inside
            if item.function is step.function and _model_path(item.call.func) in owned
        ]
        for later in calls:
            path = _model_path(later.call.func)
            earlier = (
                item
                for item in calls
                if _model_path(item.call.func) == path and layout.reaches(item.call, step.call)
            )
            if layout.reaches(step.call, later.call) and next(earlier, None) is not None:
                return Stale(region, step, later)
    return None


def _owned(regions: Regions, step: Inside) -> set[str]:
    """Paths of the models whose `parameters()` the stepped optimizer was built with."""
    optimizer = stepped_optimizer(regions, step)
    found: set[str] = set()
    for binding in regions.objects.bindings(optimizer, step.function) or () if optimizer else ():
        for node in ast.walk(binding.value) if binding.value is not None else ():
            if isinstance(node, ast.Attribute) and node.attr == "parameters":
                found.add(_model_path(node.value))
    return found - {""}


def _model_path(expression: ast.expr) -> str:
    path = path_text(expression) or ""
    return path.removesuffix(".module")


# -- where a finding stands, and its path --------------------------------------------------------


def anchor(view: AmpView, item: Inside) -> ast.Call:
    """The call of the checked file that a finding about `item` stands at."""
    if item.function.module is view.module:
        return item.call
    found = item.trail[0][0]
    for call, function in item.trail:
        if function.module is not view.module:
            break
        found = call
    return found


def path_to(view: AmpView, region: Region, item: Inside, message: str) -> tuple[PathStep, ...]:
    """From the region's opening along the calls to `item`."""
    found = [view.step(region.opened, region.function.module, opening_words(view, region))]
    for call, function in item.trail:
        found.append(view.step(call, function.module, f"{call_words(call)} runs inside"))
    found.append(view.step(item.call, item.function.module, message))
    return tuple(found)


def ending_words(view: AmpView, region: Region, node: ast.Call, target: Inside) -> str:
    """What to type so that a call no longer runs inside the region."""
    text = view.source_of(node)
    if region.opened in getattr(region.function.node, "decorator_list", ()):
        return f"replace the decorator by a `with autocast` block that ends before `{text}`"
    if target.trail:
        return f"end the `with autocast` block before `{text}`, or switch autocast off in there"
    return f"end the `with autocast` block before `{text}`"
