"""# leftover-step (AMP103)

The flush after a gradient accumulation loop steps when nothing is pending.

## What it does
Flags the `scaler.step` (or `unscale_`) after an accumulation loop that is meant to apply the
incomplete last window, when a feasible path reaches it with no pending gradient: its guard stays
true after the step inside the loop, the block is there twice, or it has no `scaler.update()`.

## Why is this bad?
When the number of batches is a multiple of the window, the last step inside the loop has already
applied and cleared everything. The flush then stops the epoch with
`AssertionError: No inf checks were recorded for this optimizer.` With another batch size or
dataset the same script works, so the crash looks random. A flush without `scaler.update()` stops
the first step of the next epoch instead:
`RuntimeError: step() has already been called since the last update().`

## Example
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

accumulated_loss = 0.0
for i, (inputs, targets) in enumerate(loader):
    loss = torch.nn.functional.mse_loss(model(inputs), targets) / 2
    scaler.scale(loss).backward()
    accumulated_loss += loss.item()
    if (i + 1) % 2 == 0:
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
if accumulated_loss > 0:
    scaler.step(optimizer)
    scaler.update()
```

## Use instead
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

for i, (inputs, targets) in enumerate(loader):
    loss = torch.nn.functional.mse_loss(model(inputs), targets) / 2
    scaler.scale(loss).backward()
    if (i + 1) % 2 == 0:
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
if len(loader) % 2 != 0:
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
```

## How it is confirmed
Executing the function with a number of batches that the window divides raises the
`AssertionError` at the flush.

## Fix safety
No fix is offered: the right guard depends on what the loop counts.

## Known limits
The loop is taken to run at least once. A boundary that an unknown function computes is not tied
to the guard of the flush, and then nothing is reported.

## References
- PyTorch, Automatic Mixed Precision examples: "Gradient accumulation"
- `torch/amp/grad_scaler.py`: `GradScaler.step`, `GradScaler.update`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from amplint.expectations import NO_GRADIENT, breaks
from amplint.findings import Finding, Severity
from amplint.rule import Misuse, Rule
from amplint.view import FileView
from amplint.wording import report

RULE = Rule(
    code="AMP103",
    name="leftover-step",
    severity=Severity.ERROR,
    effect="crash",
    summary="the flush after an accumulation loop runs with nothing pending",
    facts=("S07", "S13", "S14"),
    probe=breaks(
        *("step-uninitialised", "unscale-uninitialised", *NO_GRADIENT, "step-on-spent"),
        *("unscale-without-gradient", "unscale-after-zero-grad", "step-twice"),
        *("unscale-twice", "unscale-after-step"),
    ),
)

MESSAGES = {
    "": (
        "nothing is pending at this flush{when}: it raises `AssertionError: No inf checks "
        "were recorded…`"
    ),
    "step-twice": "this flush has no `{scaler}.update()`: the next step{at} raises {error}",
    "unscale-after-step": (
        "this flush has no `{scaler}.update()`: the next `unscale_`{at} raises {error}"
    ),
    "step-on-spent": (
        "nothing is pending at this flush{when}: it applies gradients{at} a second time"
    ),
    "unscale-uninitialised": (
        "`{scaler}` has scaled no loss before this flush{when}: it raises {error}"
    ),
    "step-uninitialised": (
        "`{scaler}` has scaled no loss before this flush{when}: it raises {error}"
    ),
}
HELPS = {
    "": "flush only an incomplete window: reset what the guard reads where the loop steps",
    "remainder": "apply each window once: drop this flush, or what applies the incomplete window{at}",
    "step-twice": "call `{scaler}.update()` after this `{method}`",
    "unscale-after-step": "call `{scaler}.update()` after this `{method}`",
}


def check(view: FileView) -> Iterator[Finding]:
    """Report the flushes that run although the last window is complete."""
    return report(view, RULE, MESSAGES, HELPS, misuses=map(_noting_guard, view.misuses(RULE.code)))


def _noting_guard(misuse: Misuse) -> Misuse:
    """The misuse, with a detail where its guard is the one that the help would advise."""
    slug = misuse.violation.slug if misuse.violation is not None else ""
    if slug in HELPS or not _tests_remainder(misuse.details.get("guard", "")):
        return misuse
    return replace(misuse, details={**misuse.details, "remainder": "yes"})


def _tests_remainder(guard: str) -> bool:
    """Whether a condition asks whether something is left of a division."""
    try:
        test = ast.parse(guard, mode="eval")
    except SyntaxError:
        return False
    return any(
        isinstance(node, ast.Compare)
        and isinstance(node.left, ast.BinOp)
        and isinstance(node.left.op, ast.Mod)
        and isinstance(node.ops[0], (ast.NotEq, ast.Gt))
        for node in ast.walk(test)
    )
