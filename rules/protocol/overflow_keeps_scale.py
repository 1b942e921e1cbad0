"""# overflow-keeps-scale (AMP131)

A test for gradients that are not finite skips the `update()` that would lower the scale.

## What it does
Flags a test of the scaled gradients, or of their norm, for inf, behind which `scaler.step` and every
`scaler.update()` of the function run only where the gradients are finite. Tests in helpers, flags
that a loop sets, and `any(...)` or `all(...)` over the gradients are followed. Also a test for NaN
that skips the only `zero_grad()` of its loop: the next backward adds to NaN. Silent where
`unscale_` comes before the test: the next `unscale_` raises then, and AMP108 says so; and where
the branch does anything with the scaler.

## Why is this bad?
Gradients that are not finite are how a scaler learns that its scale is too large: `scaler.step` skips
the batch, and `scaler.update` halves the scale. A test that skips both keeps the scale as it is, so
the next batch overflows as well. In the example every batch is dropped and no parameter ever
changes, without any message. A training that begins well comes there later, because the scale
doubles every 2000 steps until gradients overflow.

## Example
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)

for _ in range(16):
    optimizer.zero_grad()
    inputs = torch.randn(8, 4)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = torch.nn.functional.mse_loss(model(inputs), 100 * inputs[:, :1])
    scaler.scale(loss).backward()
    if not all(torch.isfinite(parameter.grad).all() for parameter in model.parameters()):
        optimizer.zero_grad()
        continue
    scaler.step(optimizer)
    scaler.update()
```

## Use instead
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)

for _ in range(16):
    optimizer.zero_grad()
    inputs = torch.randn(8, 4)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = torch.nn.functional.mse_loss(model(inputs), 100 * inputs[:, :1])
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
```

## How it is confirmed
Executing the example moves no parameter, and leaves the scale at 65536. The probe does not look for
it: whether gradients overflow depends on your model and data.

## Fix safety
No fix is offered: what else the test is for only you know.

## Known limits
Step, update and test have to stand in one function, or in helpers that it calls. A test for NaN alone
is reported only where it keeps the gradients, a test that ends the loop never. A loss that is not finite says nothing about the scale:
tests of it are not meant.

## References
- `torch/amp/grad_scaler.py`: `GradScaler.step`, `GradScaler.update`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.amp import links
from amplint.amp.overflows import at_nan, at_overflow
from amplint.amp.reached_calls import calls_leading_to
from amplint.amp.scaler_calls import scaler_calls
from amplint.code.dataflow import arguments
from amplint.code.expressions import last_name
from amplint.code.layout import layout_of
from amplint.code.module import CallSite, Function
from amplint.findings import Finding, Severity
from amplint.rule import Rule
from amplint.values.conditions import conditions_at
from amplint.values.provenance import Condition
from amplint.view import FileView

RULE = Rule(
    code="AMP131",
    name="overflow-keeps-scale",
    severity=Severity.ERROR,
    effect="silent",
    summary="an overflow drops the batch and skips `scaler.update()`: the scale never falls",
    facts=("U11",),
    unprobed="whether gradients overflow depends on your model and data",
)

#: What may clear gradients is looked for this many calls deep.
_DEPTH = 3
STUCK = "NaN gradients skip `{clears}`: they stay, and every later batch is dropped as well"
STUCK_HELP = "call `{clears}` before the test, or drop the test: `{step}` skips the batch"
MESSAGE = (
    "an overflow skips `{update}`: the scale never falls, and later batches are dropped as well"
)
HELP = "drop the test: `{step}` skips the batch, `{update}` halves the scale"


def check(view: FileView) -> Iterator[Finding]:
    """Report tests that keep an overflow from the step and from the update."""
    for step in scaler_calls(view, "step"):
        for condition in conditions_at(step.node, step.function):
            if at_overflow(view, condition.test, step.function) is (not condition.side):
                if _keeps_scale(view, step, condition):
                    yield _finding(view, step, condition)
                break
            if at_nan(view, condition.test, step.function) is (not condition.side):
                clears = _kept_gradients(view, step, condition)
                if clears is not None and _goes_on(view, step, condition):
                    yield _finding(view, step, condition, clears)
                break


def _keeps_scale(view: FileView, step: CallSite, condition: Condition) -> bool:
    """Whether the batch of an overflow is dropped, and training goes on with its scale."""
    function, layout = step.function, layout_of(step.function)
    calls = {
        method: [call.node for call in calls_leading_to(view, method, function)]
        for method in ("scale", "unscale_", "update")
    }
    return (
        bool(calls["update"])
        and any(layout.reaches(call, condition.test) for call in calls["scale"])
        and all(_needs(call, condition) for call in (*calls["update"], *calls["unscale_"]))
        and _goes_on(view, step, condition)
    )


def _kept_gradients(view: FileView, step: CallSite, condition: Condition) -> ast.Call | None:
    """The `zero_grad` that a test for NaN skips, where nothing else in its loop clears gradients.

    Where `unscale_` comes before the test, its next call raises: that is told instead.
    """
    function, layout = step.function, layout_of(step.function)
    scaled = [call.node for call in calls_leading_to(view, "scale", function)]
    unscaled = [call.node for call in calls_leading_to(view, "unscale_", function)]
    loops = [
        loop
        for loop in layout.loops(condition.test)
        if any(layout.holds(loop, call) for call in scaled)
    ]
    if not loops or not all(_needs(call, condition) for call in unscaled):
        return None
    if not any(layout.reaches(call, condition.test) for call in scaled):
        return None
    clearing = [node for node in layout.inside(loops[0]) if _may_clear(view, node, step)]
    calls = [node for node in clearing if isinstance(node, ast.Call)]
    if not clearing or len(calls) < len(clearing):
        return None
    is_left_out = all(
        last_name(call.func) == "zero_grad" and _needs(call, condition) for call in calls
    )
    return calls[0] if is_left_out else None


def _may_clear(view: FileView, node: ast.AST, step: CallSite) -> bool:
    """Whether a node clears gradients, sets them, or hands the optimizer to code that may."""
    if isinstance(node, ast.Attribute):
        return node.attr == "grad" and not isinstance(node.ctx, ast.Load)
    if not isinstance(node, ast.Call) or node is step.node:
        return False
    name = last_name(node.func)
    if name == "zero_grad" or (name.endswith("_") and ".grad" in ast.unparse(node.func)):
        return True
    if _leads_to_gradients(view, node, step.function, _DEPTH):
        return True
    return any(view.roles.is_optimizer(item, step.function) for item in arguments(node)) and not (
        isinstance(node.func, ast.Attribute)
        and view.roles.is_scaler(node.func.value, step.function)
    )


def _leads_to_gradients(view: FileView, call: ast.Call, function: Function, depth: int) -> bool:
    """Whether a call runs code of the project that touches gradients, or may run such code."""
    found = view.objects.targets(call, function)
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    if found.unknown and isinstance(owner, ast.Name) and owner.id == "self":
        return True
    for callee in found.functions:
        if not depth:
            return True
        for node in callee.nodes:
            if isinstance(node, ast.Attribute) and node.attr in ("zero_grad", "grad"):
                return True
            if isinstance(node, ast.Call) and _leads_to_gradients(view, node, callee, depth - 1):
                return True
    return False


def _needs(call: ast.Call, condition: Condition) -> bool:
    """Whether a call runs only where a test comes out as it must for the step."""
    every = conditions_at(call, condition.function)
    return any(item.test is condition.test and item.side is condition.side for item in every)


def _goes_on(view: FileView, step: CallSite, condition: Condition) -> bool:
    """Whether the branch of an overflow leads to the next batch, and leaves the scaler alone."""
    layout = layout_of(step.function)
    fork = layout.parents[condition.test]
    if not isinstance(fork, ast.If):
        return False
    branch = fork.orelse if condition.side else fork.body
    nodes = [node for statement in branch for node in layout.inside(statement)]
    return not any(
        isinstance(node, (ast.Raise, ast.Break))
        or (isinstance(node, ast.Call) and _may_change_scale(view, node, step))
        for node in nodes
    )


def _may_change_scale(view: FileView, call: ast.Call, step: CallSite) -> bool:
    """Whether a call ends the program, gets the scaler, or runs what may have it."""
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    used = [*call.args, *(item.value for item in call.keywords), *([owner] if owner else [])]
    if any(view.roles.is_scaler(item, step.function) for item in used):
        return True
    callee = view.objects.callee(call, step.function)
    is_own = isinstance(owner, ast.Name) and owner.id == "self"
    return (callee is None and is_own) or any(
        view.may_reach(word, call, step.function) for word in ("update", "step", "unscale")
    )


def _finding(
    view: FileView, step: CallSite, condition: Condition, clears: ast.Call | None = None
) -> Finding:
    assert isinstance(step.node.func, ast.Attribute)
    scaler = view.source_of(step.node.func.value)
    words = {"update": f"{scaler}.update()", "step": f"{scaler}.step"}
    damage = "keeps an overflow from the scaler"
    message, help = MESSAGE, HELP
    if clears is not None:
        words["clears"] = view.source_of(clears)
        message, help, damage = STUCK, STUCK_HELP, "keeps NaN in the gradients"
    message, help = message.format_map(words), help.format_map(words)
    rests = (*links.stepped(view, step), links.proved("damage", condition.test, damage))
    path = (view.step(step.node, view.module, "runs only where the gradients are finite"),)
    return view.finding(RULE, condition.test, message, help, path=path, links=rests)
