"""# no-grad-fills-autocast-cache (AMP305)

A model runs under `no_grad` and then with gradients in one autocast region: older torch loses them.

## What it does
Flags a forward with gradients behind a forward of the same model under `no_grad`, both inside one
autocast region, if the project runs on a torch before 2.10 (`target-torch`, or else its own
requirement on torch).

## Why is this bad?
Autocast keeps its half precision copy of each weight until the region ends. In older torch the copy
that the forward under `no_grad` makes has no connection to the parameter, and the next forward uses
it: the parameters get no gradient. If that is all of them, `scaler.step` raises `No inf checks were
recorded`; if it is a part, that part silently stops training.

## Example
```python
import torch

model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = [torch.randn(8, 4) for _ in range(4)]

for inputs in loader:
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with torch.no_grad():
            targets = model(inputs)
        outputs = model(inputs + 0.1)
    loss = torch.nn.functional.mse_loss(outputs.float(), targets.float())
    loss.backward()
    optimizer.step()
```

## Use instead
```python
import torch

model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = [torch.randn(8, 4) for _ in range(4)]

for inputs in loader:
    optimizer.zero_grad()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        targets = model(inputs)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = model(inputs + 0.1)
    loss = torch.nn.functional.mse_loss(outputs.float(), targets.float())
    loss.backward()
    optimizer.step()
```

## How it is confirmed
Executing the region with the project's own torch: parameters of the model have no gradient behind
the backward. In torch 2.13, where this was run, they have one: there the rule is silent.

## Fix safety
No fix is offered: the block has to be split in two.

## Known limits
Nothing is reported unless the settings or the project bound torch below 2.10. The repair was merged
after 2.9; the reports about older versions were read, not run. Both forwards have to be in one
function, in that order, and write the model the same way.

## References
- PyTorch issues 65766, 105211, 112583 and 142234; pull request 165068
- PyTorch, Automatic Mixed Precision package: `torch.autocast`, `cache_enabled`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.amp import links
from amplint.amp.grad_modes import OFF, is_off, mode_at
from amplint.amp.target_torch import target_torch
from amplint.code.expressions import last_name, path_text
from amplint.code.layout import layout_of
from amplint.code.module import Function
from amplint.expectations import measured
from amplint.findings import Finding, Severity
from amplint.regions.cached_weights import clears_cache
from amplint.regions.frozen_weights import may_be_frozen
from amplint.regions.regions import Region, opening_words
from amplint.regions.training import is_forward
from amplint.rule import Rule
from amplint.values.assumptions import may_follow
from amplint.view import FileView

RULE = Rule(
    code="AMP305",
    name="no-grad-fills-autocast-cache",
    severity=Severity.WARNING,
    effect="silent",
    summary="a forward under `no_grad` before one with gradients in one autocast region (old torch)",
    facts=("A09", "A09b", "A09c"),
    probe=measured("no-gradient", without="autocast-cache"),
)

#: The first release after the repair was merged.
REPAIRED = (2, 10)
MESSAGE = (
    "`{model}` ran under `no_grad` in this region (line {row}): it gets no gradient before "
    "torch 2.10"
)
HELP = "run the forward under `no_grad` in an autocast block of its own"


def check(view: FileView) -> Iterator[Finding]:
    """Report the first forward with gradients behind one without, for each region."""
    for region in view.regions.opened(view.module):
        pair = _pair(view, region) if region.cast.caches else None
        if pair is None:
            continue
        target = target_torch(view.project, view.module)
        if target is None or target >= REPAIRED:
            return
        first, second = pair
        module = region.function.module
        words = {"model": view.source_of(second.func), "row": view.row_of(first)}
        path = (
            view.step(region.opened, module, opening_words(view, region)),
            view.step(first, module, "casts the weights without a graph"),
            view.step(second, module, "uses these copies"),
        )
        rests = (
            links.model(view, second.func, region.function, is_run=True),
            region.link,
            links.proved("effect", first, "casts the weights without a graph"),
        )
        message = MESSAGE.format_map(words)
        yield view.finding(RULE, second, message, HELP, path=path, links=rests)


def _pair(view: FileView, region: Region) -> tuple[ast.Call, ast.Call] | None:
    """A forward without gradients and a later one with them, of one model."""
    regions = view.regions
    inside = regions.inside(region)
    if clears_cache(regions, region):
        return None
    function = region.function
    if not _trains(function) or is_off(regions.objects, function.node, function):
        return None
    called = [item for item in inside if not item.trail and path_text(item.call.func)]
    modes = {item.call: mode_at(regions.objects, item.call, function) for item in called}
    if "no_grad" not in modes.values():
        return None
    forwards = [item.call for item in called if is_forward(regions, item)]
    recorded = {call for call in forwards if modes[call] not in OFF}
    for index, first in enumerate(forwards):
        if modes[first] != "no_grad":
            continue
        if _is_filled(first, [call for call in forwards[:index] if call in recorded], function):
            continue
        for second in forwards:
            if second not in recorded or path_text(first.func) != path_text(second.func):
                continue
            if not may_follow(view.values, first, second, function, entered=region.opened):
                continue
            if may_be_frozen(regions, second, function):
                continue  # autocast does not look for kept copies of weights that require no gradient
            return first, second
    return None


def _is_filled(call: ast.Call, before: list[ast.Call], function: Function) -> bool:
    """Whether a forward with gradients has surely run before, and cast the weights with a graph."""
    layout = layout_of(function)
    around = set(layout.conditions(call))
    return any(
        path_text(other.func) == path_text(call.func)
        and layout.reaches(other, call)
        and set(layout.conditions(other)) <= around
        for other in before
    )


def _trains(function: Function) -> bool:
    """Whether a function runs a backward, or gives its loss to somebody who may."""
    layout = layout_of(function)
    return any(
        isinstance(node, ast.Call) and last_name(node.func) in ("backward", "manual_backward")
        for node in layout.nodes
    )
