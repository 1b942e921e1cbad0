"""# update-between-steps (AMP107)

`scaler.update()` runs between two calls that must use the same loss scale.

## What it does
Flags `scaler.update()` between `unscale_` and `step` of the same gradients, between the steps of
two optimizers fed by one backward, or between backward and `step`. The finding is at the `step`
or `unscale_` that meets the scaler after the update.

## Why is this bad?
`update()` changes the loss scale and forgets which optimizers are unscaled and stepped.
- Between two optimizers, or between backward and step: the gradients are divided by another scale
  than they were multiplied with, so the update is silently half or twice the right one whenever
  the scale changes.
- Between `unscale_` and `step`: the step divides the gradients by the loss scale a second time and
  the update is silently 65536 times too small (SGD, ratio 1.5e-5). Without another `update()`
  after the step, the next iteration stops with
  `RuntimeError: unscale_() is being called after step().`

`unscale_`, `update`, `zero_grad`, and then a new backward is legal: it drops a batch.

## Example
```python
import torch

backbone, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(backbone.parameters(), lr=0.01)
optimizer_head = torch.optim.SGD(head.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", growth_interval=1)  # 2000 by default
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

for inputs, targets in loader:
    optimizer.zero_grad()
    optimizer_head.zero_grad()
    loss = torch.nn.functional.mse_loss(head(backbone(inputs)), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    scaler.step(optimizer_head)
    scaler.update()
```

## Use instead
```python
import torch

backbone, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(backbone.parameters(), lr=0.01)
optimizer_head = torch.optim.SGD(head.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", growth_interval=1)  # 2000 by default
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

for inputs, targets in loader:
    optimizer.zero_grad()
    optimizer_head.zero_grad()
    loss = torch.nn.functional.mse_loss(head(backbone(inputs)), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.step(optimizer_head)
    scaler.update()
```

## How it is confirmed
Executing the function with the scaler on and off moves the parameters by different amounts: in the
example the head moves half as far, because the scale doubles before its step.

## Fix safety
No fix is offered: with several optimizers only the place after the last step is right, and that
can be in another function.

## Known limits
With several optimizers the rule needs to see that one backward feeds both: an `update()` between
the phases of a GAN, each with its own backward, is right.

## References
- PyTorch, Automatic Mixed Precision examples: "Working with Multiple Models, Losses, and
  Optimizers"
- `torch/amp/grad_scaler.py`: `GradScaler.update`, `GradScaler.unscale_`, `GradScaler.step`
"""

from __future__ import annotations

from collections.abc import Iterator

from amplint.findings import Finding, Severity
from amplint.rule import FileView, Rule
from amplint.wording import report

RULE = Rule(
    code="AMP107",
    name="update-between-steps",
    severity=Severity.ERROR,
    effect="silent",
    summary="`scaler.update()` between two calls that need the same loss scale",
    facts=("S30", "P09", "P11"),
)

MESSAGES = {
    "": "`{scaler}.update()`{at} changes the loss scale before this `{method}`{when}: the update "
    "is wrong by the factor of each change (2 or 0.5 by default)",
    "unscale-again": "`{scaler}.update()`{at} runs before this `{method}`{when}: the gradients "
    "are divided by the loss scale ({scale}) a second time",
}
HELPS = {
    "": "move `{scaler}.update()` behind the last `{scaler}.step` of the iteration",
}


def check(view: FileView) -> Iterator[Finding]:
    """Report the calls that meet a scaler updated too early."""
    return report(view, RULE, MESSAGES, HELPS)
