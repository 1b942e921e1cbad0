"""# step-after-zero-grad (AMP102)

Gradients are cleared between the backward and the `scaler.step` that should apply them.

## What it does
Flags `scaler.step(optimizer)` and `scaler.unscale_(optimizer)` when `zero_grad()` ran between
the scaled backward and the call. The usual shape is a guard against NaN that clears the
gradients and then falls through to the step.

## Why is this bad?
`zero_grad()` sets the gradients to `None`, so the inf check of the step has nothing to look at:
`AssertionError: No inf checks were recorded for this optimizer.` It happens only on the batch
that was meant to be skipped, often days into a run. With `zero_grad(set_to_none=False)` torch
says nothing and applies zeros: only weight decay and momentum move the weights (0.34 of the right
update in the measured case).

`scaler.unscale_(optimizer)`, then `zero_grad()`, then `scaler.step(optimizer)` is legal: the inf
check is on record, and the step does nothing.

## Example
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]
loader[2][1].fill_(float("nan"))  # one broken batch

for inputs, targets in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    scaler.scale(loss).backward()
    if torch.isnan(loss):
        optimizer.zero_grad()
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
loader[2][1].fill_(float("nan"))  # one broken batch

for inputs, targets in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)  # skips the optimizer by itself when a gradient is inf or NaN
    scaler.update()
```

## How it is confirmed
Executing the function with a loss of NaN on one batch raises the `AssertionError` at the
reported step.

## Fix safety
No fix is offered: the clearing, the step or their order may be the mistake.

## Known limits
A `zero_grad()` of another optimizer counts only where both are known to share parameters.

## References
- PyTorch, Automatic Mixed Precision examples: "Working with Unscaled Gradients"
- `torch/amp/grad_scaler.py`: `GradScaler.step`, `GradScaler.unscale_`
"""

from __future__ import annotations

from collections.abc import Iterator

from amplint.amp.gradient_tests import guarded_steps
from amplint.expectations import breaks
from amplint.findings import Finding, Severity
from amplint.rule import Rule
from amplint.view import FileView
from amplint.wording import report

RULE = Rule(
    code="AMP102",
    name="step-after-zero-grad",
    severity=Severity.ERROR,
    effect="crash/silent",
    summary="gradients cleared between backward and `scaler.step`",
    facts=("S07", "S08", "U16", "U17"),
    probe=breaks("step-after-zero-grad", "unscale-after-zero-grad"),
)

MESSAGES = {
    "": (
        "gradients are cleared before this step{when}: it raises `AssertionError: No inf "
        "checks were recorded…`"
    ),
    "unscale-after-zero-grad": (
        "gradients are cleared before `unscale_`{when}: the step raises `AssertionError: No "
        "inf checks were recorded…`"
    ),
    "step-on-zeros": (
        "gradients are zeroed before this step{when}: only weight decay and momentum move weights"
    ),
    "unscale-of-zeros": (
        "gradients are zeroed before this `unscale_`{when}: the step applies zeros"
    ),
}
HELPS = {
    "": "move `{optimizer}.zero_grad()` after `{scaler}.step({optimizer})`; to drop a batch, skip "
    "the step and the `update()` as well",
}


def check(view: FileView) -> Iterator[Finding]:
    """Report the steps whose gradients were thrown away before.

    A step behind a gradient test that zeros make useless is AMP125: its test is the defect.
    """
    useless = {guard.site.node for guard in guarded_steps(view) if guard.is_useless}
    kept = (misuse for misuse in view.misuses(RULE.code) if misuse.node not in useless)
    return report(view, RULE, MESSAGES, HELPS, misuses=kept)
