"""# step-without-scaled-backward (AMP101)

`scaler.step(optimizer)` runs on a path where no scaled backward produced gradients.

## What it does
Flags `scaler.step(optimizer)` when a feasible path reaches it with no
`scaler.scale(loss).backward()` since the last `scaler.update()` or `zero_grad()`, and also
when the scaler never scales anything.

## Why is this bad?
`scaler.step` first divides the gradients by the loss scale and looks for inf and NaN. With no
gradient there is nothing to look at, and torch stops with
`AssertionError: No inf checks were recorded for this optimizer.` If the scaler has never
scaled a loss, it stops with `AssertionError: Attempted step but _scale is None.` Both are
`AssertionError`, so `except RuntimeError` does not catch them. After the failure the optimizer
stays marked as unscaled, so the next iteration fails too, even with gradients. A disabled
scaler (a machine without CUDA) hides all of this.

## Example
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]
loader[2][1].fill_(float("inf"))  # one broken batch

for inputs, targets in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    if torch.isfinite(loss):
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
loader[2][1].fill_(float("inf"))  # one broken batch

for inputs, targets in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    if not torch.isfinite(loss):
        continue
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
```

## How it is confirmed
Executing the function along the reported path raises one of the two `AssertionError`s above at
the reported line.

## Fix safety
No fix is offered: whether the step or the missing backward is the mistake is not in the code.

## Known limits
Silent where an unknown function receives the scaler, the optimizer or a scaled loss, because it
may run the backward. A flush after the accumulation loop is AMP103, cleared gradients are
AMP102, and guards that disagree are AMP201.

## References
- PyTorch, Automatic Mixed Precision examples: "Typical Mixed Precision Training"
- `torch/amp/grad_scaler.py`: `GradScaler.step`, `GradScaler._check_scale_growth_tracker`
"""

from __future__ import annotations

from collections.abc import Iterator

from amplint.expectations import NO_GRADIENT, PLAIN, breaks
from amplint.findings import Finding, Severity
from amplint.rule import Rule
from amplint.view import FileView
from amplint.wording import report

RULE = Rule(
    code="AMP101",
    name="step-without-scaled-backward",
    severity=Severity.ERROR,
    effect="crash",
    summary="`scaler.step` on a path with no scaled backward",
    facts=("S01", "S02", "S05", "S06", "S25"),
    probe=(
        breaks("step-uninitialised", *NO_GRADIENT, "step-on-spent")
        + breaks("unscale-uninitialised", *PLAIN)
    ),
)

MESSAGES = {
    "": (
        "no scaled backward before this step{when}: it raises `AssertionError: No inf checks "
        "were recorded…`"
    ),
    "step-uninitialised": (
        "`{scaler}` has scaled no loss before this step{when}: it raises {error}"
    ),
    "step-uninitialised never": (
        "`{scaler}` never scales a loss in this file: the step raises {error}"
    ),
    "step-on-spent": (
        "no backward since the last step{when}: the old gradients are divided and applied again"
    ),
}
HELPS = {
    "": "run `{scaler}.scale({loss}).backward()` on every path to this step, or skip the step "
    "and `{scaler}.update()` where there is none",
    "step-uninitialised": "backward through `{scaler}.scale({loss})`, or step with "
    "`{optimizer}.step()` where the loss is not scaled",
}


def check(view: FileView) -> Iterator[Finding]:
    """Report the steps that the flow analysis reached without gradients."""
    return report(view, RULE, MESSAGES, HELPS)
