"""# training-loop-under-one-autocast (AMP304)

The optimizer steps inside an autocast region whose next forward still uses the old weights.

## What it does
Flags an optimizer or scaler step inside an autocast region if the region goes on: with the next
round of a loop that lies in the region, or with a second forward of the model whose parameters the
step changed. Regions are followed into the functions and files that they call; an inner
`autocast(enabled=False)` around the step does not end them.

## Why is this bad?
Autocast casts a float32 weight once and keeps the copy until the outermost region ends. Nothing
renews it: the optimizer changes the float32 weight, the forward goes on with the copy. In a loop
under one `with autocast` the loss has the same bits in every iteration, while the parameters drift
away along the first batch's gradients. The same holds for `load_state_dict` and averaged weights
inside a region. Nothing is raised.

## Example
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs, targets = torch.randn(8, 4), torch.randn(8, 1)
losses = []

with torch.autocast("cpu", dtype=torch.bfloat16):
    for _ in range(4):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
```

## Use instead
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs, targets = torch.randn(8, 4), torch.randn(8, 1)
losses = []

for _ in range(4):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
```

## How it is confirmed
Executing two steps on one batch: the loss before and after the first step is bit-identical although
the parameters have moved.

## Fix safety
Unsafe: every step then trains the weights as they are. Each forward of the block, with its loss, gets
a block of its own, which ends before the backward and the step: in the loop, or once for each model.
No fix where one statement runs a forward and a backward, and where the block opens more than autocast
or binds a name.

## Known limits
Without a loop, the optimizer has to be built with `model.parameters()` of the model that is called
again. Silent with `cache_enabled=False` and where something in the region empties the cache:
`torch.clear_autocast_cache`, and on a GPU a checkpoint or an autograd function with `custom_bwd`.
Where no layer or parameter is in sight that is multiplied by as it is, AMP507 reports the step; where
it is in sight that there is none (products of parameters, transposed ones), nothing is reported.
Frozen weights are not kept by autocast, which is not looked at.

## References
- PyTorch, Automatic Mixed Precision package: `torch.autocast`, `cache_enabled`
- PyTorch, Automatic Mixed Precision examples: "Typical Mixed Precision Training"
- `aten/src/ATen/autocast_mode.cpp`: `cached_cast`
"""

from __future__ import annotations

from collections.abc import Iterator

from amplint.expectations import STEPS, measured
from amplint.findings import Finding, PathStep, Severity
from amplint.fixing.blocks import narrowed
from amplint.regions.training import Stale, anchor, damage_of, optimizer_link, path_to
from amplint.rule import Rule
from amplint.view import FileView

RULE = Rule(
    code="AMP304",
    name="training-loop-under-one-autocast",
    severity=Severity.ERROR,
    effect="silent",
    summary="a step inside an autocast region whose next forward still uses the cached weights",
    facts=("A10", "A10b", "A10c"),
    fix="unsafe",
    probe=measured("stale-weights", events=STEPS),
)

LOOP = "the step runs in a loop under one autocast (line {row}): the next forward uses old weights"
ORDER = "the step runs under autocast (line {row}): `{forward}` behind it uses the old weights"
HELP = "end the `with autocast` block before `backward()`, once in each iteration"


def check(view: FileView) -> Iterator[Finding]:
    """Report one step for each region whose cached weights a later forward reads."""
    reported: set[object] = set()
    for stale in view.stale_steps:
        if stale.step.call in reported or not stale.sure:
            continue
        reported.add(stale.step.call)
        message = LOOP if stale.loop is not None else ORDER
        words = {
            "row": view.row_of(stale.region.opened),
            "forward": view.source_of(stale.forward.call.func) + "(...)",
        }
        node = anchor(view, stale.step)
        yield view.finding(
            RULE,
            node,
            message.format_map(words),
            HELP,
            path=_path(view, stale),
            fix=narrowed(view, stale.region),
            links=(
                stale.region.link,
                optimizer_link(view, view.regions, stale.step),
                damage_of(view.regions, stale),
            ),
        )


def _path(view: FileView, stale: Stale) -> tuple[PathStep, ...]:
    found = path_to(view, stale.region, stale.step, "the step changes the float32 weights")
    where = stale.forward.function.module
    message = "this forward still uses the copies that autocast has kept"
    if stale.loop is not None:
        message = f"in the next round of the loop on line {view.row_of(stale.loop)} {message}"
    return (*found, view.step(stale.forward.call, where, message))
