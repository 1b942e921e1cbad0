"""# clip-after-step (AMP127)

Gradients are clipped after the step that applied them.

## What it does
Flags `clip_grad_norm_`, `clip_grad_value_` and project functions that clip, between
`scaler.step(optimizer)` or `optimizer.step()` and the next backward.

## Why is this bad?
The gradients were applied already, so the clip changes nothing that training uses. Nothing is
raised, and the norm it returns looks right in the log. An exploding gradient goes through
unclipped: with `max_norm=1e-4` the measured step was 5294 times the clipped one.

## Example
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
loader = [(torch.randn(8, 4), 100 * torch.randn(8, 1)) for _ in range(4)]

for inputs, targets in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
```

## Use instead
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
loader = [(torch.randn(8, 4), 100 * torch.randn(8, 1)) for _ in range(4)]

for inputs, targets in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    scaler.step(optimizer)
    scaler.update()
```

## How it is confirmed
Executing the function with and without the clip moves the parameters by the same amount.

## Fix safety
No fix is offered: the clip has to move together with a new `unscale_`.

## Known limits
A clip with an infinite threshold only measures the norm and is silent.

## References
- PyTorch, Automatic Mixed Precision examples: "Gradient clipping"
- `torch/nn/utils/clip_grad.py`: `clip_grad_norm_`, `clip_grad_value_`
"""

from __future__ import annotations

from collections.abc import Iterator

from amplint.findings import Finding, Severity
from amplint.rule import FileView, Rule
from amplint.wording import report

RULE = Rule(
    code="AMP127",
    name="clip-after-step",
    severity=Severity.ERROR,
    effect="silent",
    summary="gradients clipped after the step that applied them",
    facts=("C04",),
)

MESSAGES = {
    "": "`{clip}` runs after the step{at}{when}: the gradients were applied unclipped, the clip "
    "does nothing",
}
HELPS = {
    "": "move `{clip}` before `{scaler}.step({optimizer})`, after `{scaler}.unscale_({optimizer})`",
}


def check(view: FileView) -> Iterator[Finding]:
    """Report the clips of gradients that are spent."""
    return report(view, RULE, MESSAGES, HELPS)
