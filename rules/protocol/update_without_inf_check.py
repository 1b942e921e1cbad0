"""# update-without-inf-check (AMP106)

`scaler.update()` runs although nothing was unscaled or stepped since the last one.

## What it does
Flags `scaler.update()` without an argument when a feasible path reaches it with no
`scaler.step` and no `scaler.unscale_` since the last `update()`: once per micro-batch while the
step waits for the end of the window, twice in a row, or after a plain `optimizer.step()`.

## Why is this bad?
`update()` decides from the recorded inf checks whether the loss scale grows or shrinks. With none
on record torch stops with `AssertionError: No inf checks were recorded prior to update.`, or with
`AssertionError: Attempted update but _scale is None.` if nothing was ever scaled. A disabled
scaler hides it.

`scaler.update(new_scale)` sets the scale by hand and needs no check.

## Example
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
        optimizer.zero_grad()
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
```

## How it is confirmed
Executing the function raises the `AssertionError` at the reported `update()`.

## Fix safety
Unsafe: training goes on where it stopped. The `update()` moves behind the only `scaler.step` of the
function where that stands in an `if` before it, in the same block, and nothing unscales. Elsewhere the
step may be what is missing.

## Known limits
One check of any optimizer is enough for torch, so with several optimizers the rule is silent
unless none of them was unscaled or stepped.

## References
- PyTorch, Automatic Mixed Precision examples: "Gradient accumulation"
- `torch/amp/grad_scaler.py`: `GradScaler.update`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.code.layout import layout_of
from amplint.expectations import breaks
from amplint.findings import Finding, Severity
from amplint.fixing.statements import beside, calls_on, own_statement, statement_of
from amplint.fixing.verbs import Move, Repair, unsafe
from amplint.rule import Misuse, Rule
from amplint.view import FileView
from amplint.wording import report

RULE = Rule(
    code="AMP106",
    name="update-without-inf-check",
    severity=Severity.ERROR,
    effect="crash",
    summary="`scaler.update()` with nothing unscaled or stepped since the last one",
    facts=("P01", "P04", "P06", "P09b", "P10", "S36b", "S16"),
    fix="unsafe",
    probe=breaks("update-without-check", "update-uninitialised"),
)

MESSAGES = {
    "": (
        "nothing was stepped since the last `update()`{when}: `AssertionError: No inf checks "
        "were recorded…`"
    ),
    "update-uninitialised": "`{scaler}` has scaled no loss before this `update()`{when}: {error}",
}
HELPS = {
    "": "call `{scaler}.update()` once after `{scaler}.step`, under the same condition",
    "update-uninitialised": "backward through `{scaler}.scale({loss})` and step with "
    "`{scaler}.step`, or skip `{scaler}.update()` where AMP is off",
}


def check(view: FileView) -> Iterator[Finding]:
    """Report the updates that have no inf check to look at."""
    return report(view, RULE, MESSAGES, HELPS, _where_it_steps)


def _where_it_steps(view: FileView, misuse: Misuse) -> Repair | None:
    """Move the update behind the only step, into the `if` before it that holds this step."""
    statement = own_statement(misuse, view)
    if statement is None or any(calls_on(view, misuse, "unscale_")):
        return None
    steps = [statement_of(site.node, misuse.function) for site in calls_on(view, misuse, "step")]
    step = steps[0] if len(steps) == 1 else None
    branch = layout_of(misuse.function).parents[step] if step is not None else None
    block = beside(misuse, statement)
    before = block[: block.index(statement)] if statement in block else []
    if step is None or not isinstance(branch, ast.If) or branch not in before:
        return None
    return unsafe(Move(statement, step, after=True)) if step in branch.body else None
