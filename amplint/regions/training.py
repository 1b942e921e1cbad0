"""Backward passes, optimizer steps and forwards inside autocast regions."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from amplint.amp.grad_modes import is_off
from amplint.amp.links import participant
from amplint.amp.roles import Role
from amplint.amp.view import AmpView
from amplint.code.dataflow import bindings_of
from amplint.code.expressions import last_name, path_text
from amplint.code.layout import layout_of
from amplint.code.looking import only_looks
from amplint.code.module import Class, Function, Module
from amplint.findings import Link, PathStep, Standing
from amplint.regions.cached_weights import clears_cache, keeps_weights
from amplint.regions.frozen_weights import may_be_frozen
from amplint.regions.regions import (
    Inside,
    Region,
    Regions,
    Trail,
    call_words,
    opening_words,
)
from amplint.values.assumptions import may_follow
from amplint.values.wrappers import SAME_OBJECT

#: Methods of tensors, modules and optimizers that run no forward.
_NO_FORWARDS = SAME_OBJECT | frozenset(
    ("parameters", "named_parameters", "state_dict", "load_state_dict", "append", "zero_grad")
    + ("modules", "named_modules", "no_sync", "item", "scale", "detach", "mean", "sum", "view")
    + ("reshape", "backward", "next", "filter", "update")
)
#: Packages that have no autograd functions of their own, beside the standard library.
_PLAIN = sys.stdlib_module_names | {"torch", "numpy", "einops"}
_BACKWARDS = frozenset(("backward", "manual_backward"))


@dataclass(frozen=True, slots=True, eq=False)
class Stale:
    """An optimizer step in a region whose cached weights the next forward reads again.

    Args:
        step: the step.
        forward: a forward in the region behind it, or in the next round of `loop`.
        loop: the loop inside the region that repeats both; None where they are in order.
        sure: whether the forward is known to use weights that autocast keeps.
    """

    region: Region
    step: Inside
    forward: Inside
    loop: ast.AST | None = None
    sure: bool = True


def damage_of(regions: Regions, stale: Stale) -> Link:
    """That a stale forward trains: what only measures gives old numbers, and no worse weights."""
    forward = stale.forward
    ways = (*forward.trail, (forward.call, forward.function))
    measures = any(is_off(regions.objects, call, function) for call, function in ways)
    standing = Standing.GUESS if measures else Standing.CODE
    subject = ast.unparse(forward.call)
    return Link("damage", standing, subject, "trains with the weights of before the step")


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
    return not regions.objects.targets(item.call, item.function).functions


def stepped_optimizer(regions: Regions, item: Inside) -> ast.expr | None:
    """The optimizer that a call of `optimizer.step` or `scaler.step` steps, else None."""
    callee = item.call.func
    if not isinstance(callee, ast.Attribute) or callee.attr != "step":
        return None
    roles = regions.roles.of(item.function.module)
    if item.call.args and roles.is_scaler(callee.value, item.function):
        return item.call.args[0]
    return callee.value if roles.is_optimizer(callee.value, item.function) else None


def optimizer_link(view: AmpView, regions: Regions, step: Inside) -> Link:
    """That what a step steps is an optimizer, and how that is known."""
    optimizer = stepped_optimizer(regions, step)
    assert optimizer is not None
    return participant(view, optimizer, step.function, Role.OPTIMIZER)


def backwards(regions: Regions, region: Region) -> list[Inside]:
    """The backward passes inside a region, those of its own function first."""
    return [item for item in regions.inside(region) if is_backward(regions, item)]


def steps(regions: Regions, region: Region) -> list[Inside]:
    """The optimizer steps inside a region, those of its own function first."""
    return [item for item in regions.inside(region) if stepped_optimizer(regions, item) is not None]


# -- steps whose effect the region's weight cache hides ------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Loop:
    """A loop inside a region.

    Args:
        trail: the calls that lead from the region to its function.
    """

    node: ast.AST
    function: Function
    trail: Trail


def _steps_until_end(regions: Regions, region: Region) -> list[Inside]:
    """The optimizer steps before a region ends, those with autocast off around them, too."""
    held = regions.until_end(region)
    return [item for item in held if stepped_optimizer(regions, item) is not None]


def stale_steps(regions: Regions, module: Module) -> Iterator[Stale]:
    """One step for each region of a module in which weights are stale behind it."""
    for region in regions.opened(module):
        if not region.cast.caches or region.cast.dtypes == frozenset(("float32",)):
            continue
        if clears_cache(regions, region):
            continue
        stale = _repeated(regions, region) or _in_order(regions, region)
        if stale is not None:
            yield replace(stale, sure=stale.sure and not _may_clear(regions, region))


def _may_clear(regions: Regions, region: Region) -> bool:
    """Whether a loss is computed by a library whose backward may empty the cache, on a GPU."""
    return region.cast.devices != frozenset({"cpu"}) and any(
        (dotted := item.function.module.resolve(item.call.func)) is not None
        and dotted.partition(".")[0] not in _PLAIN
        and not regions.objects.targets(item.call, item.function).functions
        and item.call in _loss_calls(item.function)
        for item in regions.until_end(region)
    )


def _repeated(regions: Regions, region: Region) -> Stale | None:
    """A step in a loop inside the region that also holds a forward and a backward."""
    for step in _steps_until_end(regions, region):
        for loop in _loops(regions, region, step):
            rounds, trail = regions.part(region, loop.node, loop.function), loop.trail
            if not any(is_backward(regions, item) for item in regions.until_end(rounds, trail)):
                continue
            stale = _read_again(regions, region, step, regions.inside(rounds, trail))
            if stale is not None:
                return replace(stale, loop=loop.node)
    return None


def _read_again(
    regions: Regions, region: Region, step: Inside, within: list[Inside]
) -> Stale | None:
    """The forward of a loop that reads kept weights; one that may, if none is known to."""
    possible: Stale | None = None
    owned = _owned(regions, step)
    for item in within:
        if not is_forward(regions, item) or _is_none_of(owned, item, step):
            continue
        if may_be_frozen(regions, item.call, item.function):
            continue
        kept = keeps_weights(regions, item.call.func, item.function)
        if kept:
            return Stale(region, step, item)
        if kept is None and possible is None:
            possible = Stale(region, step, item, sure=False)
    return possible


def _is_none_of(owned: set[str], item: Inside, step: Inside) -> bool:
    """Whether a call beside a step is of none of the models whose weights the step changes."""
    is_beside = item.function is step.function
    return bool(owned) and is_beside and _model_path(item.call.func) not in owned


def _loops(regions: Regions, region: Region, item: Inside) -> list[_Loop]:
    """The loops inside the region that repeat a call, innermost first."""
    found: list[_Loop] = []
    ways = [*item.trail, (item.call, item.function)]
    for index, (call, function) in reversed([*enumerate(ways)]):
        layout = layout_of(function)
        loops = regions.objects.loops(call, function)
        if function is region.function:
            loops = [one for one in loops if any(layout.holds(p, one) for p in region.parts)]
        found += (_Loop(one, function, item.trail[:index]) for one in loops)
    return found


def is_forward(regions: Regions, item: Inside) -> bool:
    """Whether a call runs a module, or may: by its definition, or in what the loss comes from."""
    callee = item.call.func
    dotted = item.function.module.resolve(callee) or ""
    if last_name(callee) in _NO_FORWARDS or dotted.startswith("torch."):
        return False
    if is_backward(regions, item) or _is_of_gradient(callee):
        return False
    if only_looks(item.call, item.function):
        return False
    if stepped_optimizer(regions, item) is not None:
        return False
    known = regions.objects.callee(item.call, item.function)
    if known is not None:
        return known.name == "forward"
    if keeps_weights(regions, callee, item.function):
        return True
    given = (*item.call.args, *(keyword.value for keyword in item.call.keywords))
    if all(isinstance(value, ast.Constant) for value in given):
        return (
            False  # what is out of sight, and given no data, is no forward: `settings.get("x", 1)`
        )
    return path_text(callee) is not None and item.call in _loss_calls(item.function)


def _is_of_gradient(callee: ast.expr) -> bool:
    """Whether a method is called on a gradient (`weight.grad.norm`), which is a tensor."""
    while isinstance(callee, ast.Attribute):
        callee = callee.value
        if isinstance(callee, ast.Attribute) and callee.attr == "grad":
            return True
    return False


@lru_cache(maxsize=64)
def _loss_calls(function: Function) -> frozenset[ast.AST]:
    """The calls that the losses of a function, or what it returns, are computed by."""
    layout = layout_of(function)
    pending: list[ast.AST] = [
        node
        for node in layout.nodes
        if isinstance(node, ast.Return)
        or (isinstance(node, ast.Call) and last_name(node.func) in _BACKWARDS)
    ]
    found: set[ast.AST] = set()
    paths: set[str | None] = {None}
    while pending:
        for part in layout.inside(pending.pop()):
            if part in found:
                continue
            found.add(part)
            path = path_text(part)
            if path not in paths:  # what binds it is looked at once
                paths.add(path)
                bindings = bindings_of(function).get(path or "", ())
                pending += (item.statement for item in bindings if item.statement in layout)
    return frozenset(part for part in found if isinstance(part, ast.Call))


def _in_order(regions: Regions, region: Region) -> Stale | None:
    """A step, and behind it a second forward of the model whose parameters it changed."""
    inside = regions.inside(region)
    for step in _steps_until_end(regions, region):
        owned = _owned(regions, step)
        if not owned:
            continue
        follows = partial(_follows, regions, region, step.function)
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
                if _model_path(item.call.func) == path and follows(item.call, step.call)
            )
            if may_be_frozen(regions, later.call, later.function):
                continue
            if follows(step.call, later.call) and next(earlier, None) is not None:
                kept = keeps_weights(regions, later.call.func, later.function)
                if kept is not False:
                    return Stale(region, step, later, sure=bool(kept))
    return None


def _follows(
    regions: Regions, region: Region, function: Function, first: ast.Call, second: ast.Call
) -> bool:
    """Whether one call may run behind another in a region, which may be another function's."""
    entered = region.opened if region.opened in layout_of(function) else None
    return may_follow(regions.values, first, second, function, entered)


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
