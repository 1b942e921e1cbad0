"""# overflow-keeps-scale (AMP131)

A test for gradients that are not finite skips the `update()` that would lower the scale.

## What it does
Flags a test of the scaled gradients, or of their norm, for inf, behind which `scaler.step` and every
`scaler.update()` of the function run only where the gradients are finite. Tests in helpers, flags
that a loop sets, and `any(...)` or `all(...)` over the gradients are followed. Silent where
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
is not reported, nor one that ends the loop. A loss that is not finite says nothing about the scale:
tests of it are not meant.

## References
- `torch/amp/grad_scaler.py`: `GradScaler.step`, `GradScaler.update`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.amp import links
from amplint.amp.overflows import at_overflow
from amplint.amp.reached_calls import calls_leading_to
from amplint.amp.scaler_calls import scaler_calls
from amplint.code.layout import layout_of
from amplint.code.module import CallSite
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


def _finding(view: FileView, step: CallSite, condition: Condition) -> Finding:
    assert isinstance(step.node.func, ast.Attribute)
    scaler = view.source_of(step.node.func.value)
    words = {"update": f"{scaler}.update()", "step": f"{scaler}.step"}
    rests = (
        *links.stepped(view, step),
        links.proved("damage", condition.test, "keeps an overflow from the scaler"),
    )
    path = (view.step(step.node, view.module, "runs only where the gradients are finite"),)
    message, help = MESSAGE.format_map(words), HELP.format_map(words)
    return view.finding(RULE, condition.test, message, help, path=path, links=rests)
