"""# fused-optimizer-semantics (AMP606)

Code that relies on what only unfused optimizers do under a scaler.

## What it does
Flags a step hook (`register_step_pre_hook`, `register_step_post_hook`) of an optimizer that is
built with `fused=True` and stepped by a GradScaler.

## Why is this bad?
With an unfused optimizer `scaler.step` unscales the gradients first and does not call
`optimizer.step()` at all when they hold inf or NaN. A fused optimizer is called in any case, and
its kernel unscales and skips by itself. So a post hook counts steps that changed nothing (the
example counts 3 instead of 2), and a pre hook sees, and clips, gradients that are still multiplied
by the loss scale.

## Example
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1, fused=True)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
inputs, targets = torch.randn(8, 4), torch.randn(8, 1)
counted = 0


def count(optimizer, args, kwargs):
    global counted
    counted += 1


optimizer.register_step_post_hook(count)
for factor in (1e30, 1.0, 1.0):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets) * 1e-8 * factor
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
```

## Use instead
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
inputs, targets = torch.randn(8, 4), torch.randn(8, 1)
counted = 0


def count(optimizer, args, kwargs):
    global counted
    counted += 1


optimizer.register_step_post_hook(count)
for factor in (1e30, 1.0, 1.0):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets) * 1e-8 * factor
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
```

## How it is confirmed
Executing a step that overflows: the hook runs although no parameter changed.

## Fix safety
No fix is offered: either the hook or the fused optimizer has to go.

## Known limits
Only hooks of an optimizer that every constructor call in sight builds with `fused=True`, which may
be the default of an option. A hook that asks `optimizer.found_inf` is taken to know.

## References
- `torch/amp/grad_scaler.py`: `GradScaler.step`, the branch for `_step_supports_amp_scaling`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial
from typing import Any

from amplint.amp import links
from amplint.amp.libraries import supports_amp_scaling
from amplint.amp.roles import Role
from amplint.amp.scaler_calls import scaler_calls
from amplint.authoring import Candidate, Pattern, m
from amplint.code.dataflow import receiver
from amplint.code.expressions import path_text
from amplint.code.module import CallSite
from amplint.findings import Link, Severity
from amplint.rule import Rule
from amplint.values.provenance import Origin
from amplint.view import FileView

RULE = Rule(
    code="AMP606",
    name="fused-optimizer-semantics",
    severity=Severity.WARNING,
    effect="silent",
    summary="a step hook of a fused optimizer, which is called for skipped steps, too",
    facts=("O05", "O09", "S43"),
    unprobed="it needs a fused optimizer on a GPU",
)
HOOKS = frozenset(("register_step_pre_hook", "register_step_post_hook"))

SCALED = "`{optimizer}` is fused: this hook sees gradients that are still scaled"
COUNTED = "`{optimizer}` is fused: this hook also counts the steps that are skipped"
HELP = (
    "build the optimizer without `fused=True`, or do the work of the hook after `{scaler}.update()`"
)


def hooks(view: FileView) -> Iterator[Candidate]:
    """The hooks of fused optimizers that a scaler steps."""
    if "found_inf" in view.module.source:
        return
    stepped = {
        path_text(site.node.args[0]): receiver(site.node) or "scaler"
        for site in scaler_calls(view, "step")
        if site.node.args
    }
    for site in view.module.calls:
        if site.method not in HOOKS or not isinstance(site.node.func, ast.Attribute):
            continue
        optimizer = path_text(site.node.func.value)
        fused = _fused(view, site) if optimizer in stepped else None
        if fused is not None:
            rests = (
                links.participant(view, site.node.func.value, site.function, Role.OPTIMIZER),
                links.proved("effect", site.node, "is called for skipped steps, too"),
                *fused,
            )
            yield Candidate(site.node, words={"scaler": stepped[optimizer]}, links=rests)


def _fused(view: FileView, site: CallSite) -> tuple[Link, ...] | None:
    """That every optimizer which a hook may be registered on is fused; None where one may not be."""
    optimizer = site.node.func.value  # type: ignore[attr-defined]
    found = view.values.origins.of(optimizer, site.function)
    rests = [_asked(view, origin) for origin in found.origins]
    if not found.complete or not rests or None in rests:
        return None
    return tuple(link for link in rests if link is not None)


def _asked(view: FileView, origin: Origin) -> Link | None:
    """That an optimizer was asked to be fused, and can be."""
    call = origin.expression
    if not isinstance(call, ast.Call):
        return None
    given = next((word.value for word in call.keywords if word.arg == "fused"), None)
    if given is None:
        return None
    values = view.values.of(given, origin.function, origin.activation).by_default()
    dotted = origin.function.module.resolve(call.func)
    if {item.content for item in values} != {True} or not supports_amp_scaling(dotted, fused=True):
        return None
    return links.held(values[0].firmness, ast.unparse(given), "makes it fused")


def registers(method: str, _: Candidate) -> Any:
    """`optimizer.<method>(...)`."""
    optimizer = m.SaveMatchedNode(m.DoNotCare(), "optimizer")
    return m.Call(func=m.Attribute(optimizer, m.Name(method)))


PATTERNS = (
    Pattern(partial(registers, "register_step_pre_hook"), SCALED, HELP, candidates=hooks),
    Pattern(partial(registers, "register_step_post_hook"), COUNTED, HELP, candidates=hooks),
)
