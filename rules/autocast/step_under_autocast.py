"""# step-under-autocast (AMP507)

An optimizer steps inside an autocast region.

## What it does
Flags `optimizer.step()` and `scaler.step(optimizer)` inside an autocast region, also where the
region calls a function, of this or another file, that runs it. An inner `autocast(enabled=False)`
is respected.

## Why is this bad?
Autocast is for the forward. An optimizer that multiplies matrices (Shampoo, Muon, K-FAC, LBFGS with
its closure) does so in half precision inside the region: in the example the update misses the
float32 one by more than rounding. And autocast keeps its copies of the weights until the region
ends, so whatever runs in the region behind the step still uses the old ones.

## Example
```python
import torch


class Whitened(torch.optim.SGD):
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                covariance = parameter.grad @ parameter.grad.T
                scaled = covariance.float() @ parameter.grad
                parameter.data.add_(scaled.float(), alpha=-group["lr"])


model = torch.nn.Linear(64, 64, bias=False)
optimizer = Whitened(model.parameters(), lr=10.0)
inputs, targets = torch.randn(8, 64), torch.randn(8, 64)

with torch.autocast("cpu", dtype=torch.bfloat16):
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
with torch.autocast("cpu", enabled=False):
    loss.backward()
with torch.autocast("cpu", dtype=torch.bfloat16):
    optimizer.step()
```

## Use instead
```python
import torch


class Whitened(torch.optim.SGD):
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                covariance = parameter.grad @ parameter.grad.T
                scaled = covariance.float() @ parameter.grad
                parameter.data.add_(scaled.float(), alpha=-group["lr"])


model = torch.nn.Linear(64, 64, bias=False)
optimizer = Whitened(model.parameters(), lr=10.0)
inputs, targets = torch.randn(8, 64), torch.randn(8, 64)

with torch.autocast("cpu", dtype=torch.bfloat16):
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
loss.backward()
optimizer.step()
```

## How it is confirmed
Executing the step: `torch.is_autocast_enabled` is true for the device while the optimizer's `step`
runs.

## Fix safety
Unsafe: what autocast has computed in half precision then changes. The step leaves the block with
what follows it, up to the next forward, which gets a block of its own; a block that begins with the
step is dissolved. No fix where one statement runs both, and where the block opens more than autocast.

## Known limits
Silent where the region also holds a backward pass (AMP501 reports the region) or a later forward that
surely uses the same weights (AMP304); of a model that is not in sight it may, and is reported here. For an optimizer that works element by element (SGD, Adam) the step itself
is not changed.

## References
- PyTorch, Automatic Mixed Precision examples: "Typical Mixed Precision Training"
- PyTorch, Automatic Mixed Precision package: "Autocast Op Reference"
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.amp import links
from amplint.expectations import STEPS, measured
from amplint.findings import Finding, Severity
from amplint.fixing.blocks import narrowed
from amplint.regions.training import (
    Stale,
    anchor,
    backwards,
    damage_of,
    ending_words,
    optimizer_link,
    path_to,
    steps,
)
from amplint.rule import Rule
from amplint.view import FileView

RULE = Rule(
    code="AMP507",
    name="step-under-autocast",
    severity=Severity.WARNING,
    effect="silent",
    summary="an optimizer or scaler step inside an autocast region",
    facts=("S41", "A10"),
    fix="unsafe",
    probe=measured("in-region", "place", events=STEPS),
)

MESSAGE = "the step runs under the autocast of line {row}, which goes on with the weights before it"
#: Autocast that is off around the step keeps the copies of the region around.
ENDS = "end the `with autocast` block before `{}`"
STALE = "the step runs under autocast (line {row}): `{forward}(...)` may go on with the old weights"


def check(view: FileView) -> Iterator[Finding]:
    """Report the first step of each region without a backward pass, or with stale weights."""
    regions = view.regions
    reported: set[ast.Call] = set()
    for stale in view.stale_steps:
        if not stale.sure and stale.step.call not in reported:
            yield _stale(view, stale)
        reported.add(stale.step.call)
    found = [(region, steps(regions, region)) for region in view.regions.opened(view.module)]
    for region, items in found:
        if backwards(regions, region):
            reported |= {item.call for item in items}
    for region, items in found:
        fresh = [item for item in items if item.call not in reported]
        reported |= {item.call for item in items}
        if not fresh:
            continue
        node = anchor(view, fresh[0])
        yield view.finding(
            RULE,
            node,
            MESSAGE.format(row=view.row_of(region.opened)),
            ending_words(view, region, node, fresh[0]),
            path=path_to(view, region, fresh[0], "the optimizer steps with autocast still on"),
            links=(
                region.link,
                optimizer_link(view, regions, fresh[0]),
                links.proved("effect", fresh[0].call, "runs inside"),
            ),
            fix=narrowed(view, region),
        )


def _stale(view: FileView, stale: Stale) -> Finding:
    """A step behind which a model that is not in sight runs once more."""
    node = anchor(view, stale.step)
    forward = view.source_of(stale.forward.call.func)
    message = STALE.format(row=view.row_of(stale.region.opened), forward=forward)
    steps = path_to(view, stale.region, stale.step, "the step changes the float32 weights")
    module = stale.forward.function.module
    again = view.step(stale.forward.call, module, "this forward runs in the same region again")
    help, fix = ENDS.format(view.source_of(node)), narrowed(view, stale.region)
    rests = (
        stale.region.link,
        optimizer_link(view, view.regions, stale.step),
        links.proved("effect", stale.step.call, "runs inside"),
        damage_of(view.regions, stale),
    )
    return view.finding(RULE, node, message, help, path=(*steps, again), links=rests, fix=fix)
