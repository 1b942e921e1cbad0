"""# missing-update (AMP105)

A path goes round the training loop with `scaler.step` and without `scaler.update()`.

## What it does
Flags the `scaler.step` or `scaler.unscale_` that the next iteration reaches while the step of
this iteration is still on record: `scaler.update()` is never called, cannot be reached, or stands
under another condition than the step.

## Why is this bad?
`scaler.update()` does two things: it adapts the loss scale, and it resets the state of every
optimizer. Without it the second iteration stops with
`RuntimeError: step() has already been called since the last update().`, or, if it unscales first,
with `RuntimeError: unscale_() is being called after step().` Where a broad `except RuntimeError`
swallows the error, only the first step of each epoch trains (1 of 5 in the measured case). A
disabled scaler hides all of this.

## Example
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

for inputs, targets in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    scaler.scale(loss).backward()
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

for inputs, targets in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
```

## How it is confirmed
Executing the function on two batches raises the `RuntimeError` in the second one.

## Fix safety
Unsafe: training goes on where it stopped. Behind the only `scaler.step` of the function goes a new
`scaler.update()` if the file has none, or the one that stands behind the loop. With several steps
only the place after the last one is right, and that can be in another function: then there is no fix.

## Known limits
Silent where an unknown function receives the scaler, because it may call `update()`. Data loops
are taken to run a second time. A loop over optimizers is not a data loop.

## References
- PyTorch, Automatic Mixed Precision examples: "Working with Multiple Models, Losses, and
  Optimizers"
- `torch/amp/grad_scaler.py`: `GradScaler.update`, `GradScaler.step`, `GradScaler.unscale_`
"""

from __future__ import annotations

from collections.abc import Iterator

from amplint.code.dataflow import arguments
from amplint.code.layout import layout_of
from amplint.expectations import breaks
from amplint.findings import Finding, Severity
from amplint.fixing.statements import calls_on, own_statement, statement_of
from amplint.fixing.verbs import Insert, Move, Repair, unsafe
from amplint.rule import Misuse, Rule
from amplint.view import FileView
from amplint.wording import report

RULE = Rule(
    code="AMP105",
    name="missing-update",
    severity=Severity.ERROR,
    effect="crash",
    summary="an iteration with `scaler.step` and without `scaler.update()`",
    facts=("S14", "S14b", "P12"),
    fix="unsafe",
    probe=breaks("step-twice", "unscale-after-step"),
)

MESSAGES = {
    "": "no `{scaler}.update()` after the step of an iteration{when}: {error}",
    "step-twice never": "`{scaler}.update()` is never called: {error}",
    "unscale-after-step": "no `{scaler}.update()` after the step of an iteration{when}: {error}",
    "unscale-after-step never": "`{scaler}.update()` is never called: {error}",
}
HELPS = {
    "": "call `{scaler}.update()` once in every iteration that steps, after the last "
    "`{scaler}.step`",
}


def check(view: FileView) -> Iterator[Finding]:
    """Report the calls that meet the step of the iteration before."""
    return report(view, RULE, MESSAGES, HELPS, _update_behind)


def _update_behind(view: FileView, misuse: Misuse) -> Repair | None:
    """Update behind the only step, with the call that stands behind the loop if there is one."""
    steps = [statement_of(site.node, misuse.function) for site in calls_on(view, misuse, "step")]
    step = steps[0] if len(steps) == 1 else None
    if step is None or own_statement(misuse, view) is None:
        return None
    updates = [site.node for site in calls_on(view, misuse, "update")]
    if not updates and misuse.details.get("never") == "yes":
        return unsafe(Insert(step, f"{misuse.scaler}.update()", after=True))
    update = statement_of(updates[0], misuse.function) if len(updates) == 1 else None
    layout = layout_of(misuse.function)
    if update is None or arguments(updates[0]) or layout.loops(update) or layout.loops(step) == []:
        return None
    return unsafe(Move(update, step, after=True))
