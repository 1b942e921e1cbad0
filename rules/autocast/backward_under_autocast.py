"""# backward-under-autocast (AMP501)

A backward pass runs inside an autocast region.

## What it does
Flags `loss.backward()`, `scaler.scale(loss).backward()`, `torch.autograd.backward(...)` and the
backward of training libraries inside an autocast region, also where the region calls a function, of
this or another file, that runs it. An inner `autocast(enabled=False)` is respected.

It is a warning where something that computes in float32 is in sight: products of the model under
`autocast(enabled=False)`, a layer that runs before the region, an autograd function with products in
a backward without `custom_bwd`, or one of torch's own such as `torch.cdist`. Else it is `info`.

## Why is this bad?
Autograd runs each operation's backward in the dtype of its forward by itself. With autocast on, the
backward formulas are cast once more: layers that were kept in float32 on purpose get half precision
matrix products in their gradients (relative error 2.5e-3 in the measured model), and so do custom
autograd functions. Layers that ran under autocast get the same gradients, bit for bit, so nothing
looks wrong until somebody adds such a layer. PyTorch's documentation says that backward passes under
autocast are not recommended.

## Example
```python
import torch

backbone = torch.nn.Linear(4, 64)
head = torch.nn.Linear(64, 64)
parameters = [*backbone.parameters(), *head.parameters()]
optimizer = torch.optim.SGD(parameters, lr=0.1)
loader = [(torch.randn(8, 4), torch.randn(8, 64)) for _ in range(1)]

for inputs, targets in loader:
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        features = backbone(inputs)
        with torch.autocast("cpu", enabled=False):
            outputs = head(features.float())
        loss = torch.nn.functional.mse_loss(outputs, targets)
        loss.backward()
    optimizer.step()
```

## Use instead
```python
import torch

backbone = torch.nn.Linear(4, 64)
head = torch.nn.Linear(64, 64)
parameters = [*backbone.parameters(), *head.parameters()]
optimizer = torch.optim.SGD(parameters, lr=0.1)
loader = [(torch.randn(8, 4), torch.randn(8, 64)) for _ in range(1)]

for inputs, targets in loader:
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        features = backbone(inputs)
        with torch.autocast("cpu", enabled=False):
            outputs = head(features.float())
        loss = torch.nn.functional.mse_loss(outputs, targets)
    loss.backward()
    optimizer.step()
```

## How it is confirmed
Executing the step: during `backward`, `torch.is_autocast_enabled` is true for the device, and the
gradients of layers whose forward ran in float32 differ from those of a backward behind the region.

## Fix safety
Unsafe: what autocast has computed in half precision then changes. The backward leaves the block with
what follows it, up to the next forward (a call of a model, a product of matrices, a function of
torch). That one gets a block of its own, and so does a forward beside the backward in a branch or a
loop of the block; what stands in front of it there leaves the block, too. No fix where one statement
runs both, and where the block opens more than autocast.

## Known limits
One finding for each region, at its first backward. Callees that cannot be resolved are not looked
into. A region that AMP304 reports is left to it.

## References
- PyTorch, Automatic Mixed Precision package: "Autocasting" (backward passes under autocast are not
  recommended)
- PyTorch, Automatic Mixed Precision examples: "Typical Mixed Precision Training"
"""

from __future__ import annotations

from collections.abc import Iterator

from amplint.amp import links
from amplint.expectations import measured
from amplint.findings import Finding, Link, PathStep, Severity, Standing
from amplint.fixing.blocks import narrowed
from amplint.regions.islands import Island, island_of
from amplint.regions.regions import Inside, Region
from amplint.regions.training import anchor, backwards, ending_words, path_to
from amplint.rule import Rule
from amplint.view import FileView

RULE = Rule(
    code="AMP501",
    name="backward-under-autocast",
    severity=Severity.WARNING,
    effect="silent",
    summary="`backward()` inside an autocast region",
    facts=("B16", "B16b"),
    fix="unsafe",
    probe=measured("in-region", "place", events=frozenset({"backward"})),
)

SUFFERS = "the backward runs under autocast (line {row}): `{island}` {words}, its gradients are not"
HARMLESS = (
    "the backward runs under the autocast of line {row}: harmless here, as far as can be seen"
)


def check(view: FileView) -> Iterator[Finding]:
    """Report the first backward pass of each region."""
    regions = view.regions
    known = {stale.region.opened for stale in view.stale_steps}
    found = [(region, backwards(regions, region)) for region in view.regions.opened(view.module)]
    found = [(region, items) for region, items in found if items]
    reported = {item.call for region, items in found for item in items if region.opened in known}
    for region, items in sorted(found, key=_nearest):
        fresh = [item for item in items if item.call not in reported]
        reported |= {item.call for item in items}
        if fresh:
            yield _finding(view, region, fresh)


def _nearest(pair: tuple[Region, list[Inside]]) -> tuple[int, int]:
    """Regions whose own function runs the backward first; inner regions before outer ones."""
    region, items = pair
    return len(items[0].trail), -region.opened.lineno


def _finding(view: FileView, region: Region, items: list[Inside]) -> Finding:
    first = items[0]
    node = anchor(view, first)
    island = island_of(view.regions, region, first)
    message = HARMLESS.format(row=view.row_of(region.opened))
    if island is not None:
        words = {"island": view.source_of(island.node), "words": island.words}
        message = SUFFERS.format(row=view.row_of(region.opened), **words)
    return view.finding(
        RULE,
        node,
        message,
        ending_words(view, region, node, first),
        path=_path(view, region, items, island),
        fix=narrowed(view, region),
        links=(
            region.link,
            links.proved("object", first.call.func, "runs the backward pass"),
            _damage(view, region, island),
        ),
    )


def _damage(view: FileView, region: Region, island: Island | None) -> Link:
    if island is not None:
        return Link("damage", Standing.CODE, view.source_of(island.node), island.words)
    opened = view.source_of(region.opened)
    return Link("damage", Standing.HARMLESS, opened, "holds nothing in sight that differs")


def _path(
    view: FileView, region: Region, items: list[Inside], island: Island | None
) -> tuple[PathStep, ...]:
    found = path_to(view, region, items[0], "the backward pass runs with autocast still on")
    if island is not None:
        step = view.step(island.node, island.function.module, f"this {island.words}")
        found = (*found[:1], step, *found[1:])
    others = (item for item in items[1:] if not item.trail and not items[0].trail)
    again = (
        view.step(item.call, item.function.module, "another backward pass of the region")
        for item in others
    )
    return (*found, *again)
