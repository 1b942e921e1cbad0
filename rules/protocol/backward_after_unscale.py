"""# backward-after-unscale (AMP109)

A scaled backward runs between `scaler.unscale_(optimizer)` and `scaler.step(optimizer)`.

## What it does
Flags a backward whose gradients land on gradients that are already unscaled, and `unscale_`
before any backward.

## Why is this bad?
After `unscale_`, `scaler.step` applies the gradients as they are. What a later backward adds is
still multiplied by the loss scale of 65536, so the update is about 32768 times too large with two
equal losses. Nothing is raised. The inf check was made at `unscale_`, so an overflow in the later
backward is not skipped either: inf reaches the weights. `unscale_` before the first backward ends
in `AssertionError: No inf checks were recorded for this optimizer.` at the step, or, if the
gradients are zero tensors, in an update that is 65536 times too large.

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
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    penalty = 0.01 * model.weight.square().sum()
    scaler.scale(penalty).backward()
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
    penalty = 0.01 * model.weight.square().sum()
    scaler.scale(penalty).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    scaler.step(optimizer)
    scaler.update()
```

## How it is confirmed
Executing the function with the scaler on and off moves the parameters by amounts that differ by
orders of magnitude, or raises the `AssertionError` at the step.

## Fix safety
No fix is offered: moving `unscale_` moves the clipping with it.

## Known limits
With several optimizers the rule is silent unless it is known which one the backward feeds.
`unscale_` on every micro-batch is reported where torch stops: AMP108.

## References
- PyTorch, Automatic Mixed Precision examples: "Gradient clipping", "Gradient accumulation"
- `torch/amp/grad_scaler.py`: `GradScaler.unscale_`, `GradScaler.step`
"""

from __future__ import annotations

from collections.abc import Iterator

from amplint.expectations import breaks
from amplint.findings import Finding, Severity
from amplint.rule import Rule
from amplint.view import FileView
from amplint.wording import report

RULE = Rule(
    code="AMP109",
    name="backward-after-unscale",
    severity=Severity.ERROR,
    effect="silent",
    summary="a scaled backward lands on unscaled gradients",
    facts=("U04", "U05", "U08", "U08b", "U18"),
    probe=breaks(
        *("backward-after-unscale", "step-on-rescaled", "unscale-of-zeros"),
        "unscale-without-gradient",
    ),
)

MESSAGES = {
    "": "scaled gradients land on unscaled ones{when}: the step applies them scaled ({scale})",
    "backward-after-unscale": (
        "this backward runs after `unscale_`{at}{when}: its gradients stay scaled ({scale})"
    ),
    "unscale-without-gradient": (
        "no backward runs before this `unscale_`{when}: the step raises `AssertionError: No inf "
        "checks were recorded…`"
    ),
    "unscale-of-zeros": (
        "no backward runs before this `unscale_`{when}: the step applies scaled gradients ({scale})"
    ),
    "unscale-uninitialised": (
        "`unscale_` runs before `{scaler}` scales any loss{when}: it raises {error}"
    ),
}
HELPS = {
    "": "run every backward first, then `{scaler}.unscale_({optimizer})`, clipping and "
    "`{scaler}.step({optimizer})`",
}


def check(view: FileView) -> Iterator[Finding]:
    """Report backwards and unscale_ calls in the wrong order."""
    return report(view, RULE, MESSAGES, HELPS)
