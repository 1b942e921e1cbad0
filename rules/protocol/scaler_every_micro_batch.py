"""# scaler-every-micro-batch (AMP116)

The scaler steps and updates on every micro-batch, but the gradients are cleared per window.

## What it does
Flags `scaler.step` with `scaler.update()`, or `scaler.unscale_` with `scaler.update()`, on every
micro-batch of an accumulation window whose `zero_grad()` runs only at its end.

## Why is this bad?
The step leaves its gradients in `.grad`, already divided by the loss scale. The next backward adds
scaled gradients, and the next step divides the sum again: what the earlier micro-batches left
there is divided by 65536 and lost. Nothing is accumulated, every step uses its own micro-batch
alone, and nothing is raised. With a window of 4 the parameters move 0.4 as far as in the same loop
without a scaler. With `unscale_` and `update()` per micro-batch and one step at the end, all but
the last gradients vanish (0.25 of the update remains), or everything does if the step unscales
again (4e-6).

## Example
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
scaler = torch.amp.GradScaler("cpu")
loader = [(torch.randn(64, 4), torch.randn(64, 1)) for _ in range(4)]

for i, (inputs, targets) in enumerate(loader):
    loss = torch.nn.functional.mse_loss(model(inputs), targets) / 4
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if (i + 1) % 4 == 0:
        optimizer.zero_grad()
```

## Use instead
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
scaler = torch.amp.GradScaler("cpu")
loader = [(torch.randn(64, 4), torch.randn(64, 1)) for _ in range(4)]

for i, (inputs, targets) in enumerate(loader):
    loss = torch.nn.functional.mse_loss(model(inputs), targets) / 4
    scaler.scale(loss).backward()
    if (i + 1) % 4 == 0:
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
```

## How it is confirmed
Executing the function with the scaler on and off moves the parameters by different amounts.

## Fix safety
No fix is offered: either the step moves to the end of the window, or `zero_grad()` into every
micro-batch.

## Known limits
Reported only where the same optimizer steps again after `update()` without a `zero_grad()`.
Clearing that happens in an unknown function keeps the rule silent.

## References
- PyTorch, Automatic Mixed Precision examples: "Gradient accumulation"
- `torch/amp/grad_scaler.py`: `GradScaler.step`, `GradScaler.update`
"""

from __future__ import annotations

from collections.abc import Iterator

from amplint.expectations import breaks
from amplint.findings import Finding, Severity
from amplint.rule import Rule
from amplint.view import FileView
from amplint.wording import report

RULE = Rule(
    code="AMP116",
    name="scaler-every-micro-batch",
    severity=Severity.ERROR,
    effect="silent",
    summary="step and update per micro-batch while `zero_grad` runs per window",
    facts=("P05", "U07", "U07b"),
    probe=breaks("step-on-piled"),
)

MESSAGES = {
    "": (
        "`{scaler}` steps{when} and `zero_grad` does not follow: what stays in `.grad` is "
        "unscaled again"
    ),
    "unscale_": (
        "`{scaler}` unscales{when} and no `zero_grad` follows: what stays in `.grad` is "
        "unscaled again"
    ),
    "step-on-piled flush": (
        "another step{at} leaves its gradients in `.grad`{when}: they are unscaled again here"
    ),
}
HELPS = {
    "": "call `{scaler}.step({optimizer})` and `{scaler}.update()` only at the end of the window, "
    "or clear the gradients after every step",
    "unscale_": "call `{scaler}.unscale_({optimizer})` and `{scaler}.update()` only at the end of "
    "the window, around the step",
    "step-on-piled flush": "call `{optimizer}.zero_grad()` after that step, too",
}


def check(view: FileView) -> Iterator[Finding]:
    """Report the calls that divide gradients of earlier micro-batches again."""
    return report(view, RULE, MESSAGES, HELPS)
