"""# optimizer-step-bypasses-scaler (AMP112)

`optimizer.step()` applies gradients that belong to the scaler.

## What it does
Flags a plain `optimizer.step()` on gradients of a scaled backward, and after
`scaler.unscale_(optimizer)`, where only the skip of overflowing steps is lost.

## Why is this bad?
The gradients are multiplied by the loss scale, and the plain step applies them so: the update is
65536 times too large with SGD. Adam-family optimizers hide it, because they normalise the
gradient (ratio 1.0), but their moments are then off by 65536 and 65536 squared. After `unscale_`
the size is right, but inf and NaN gradients, which every run produces while the loss scale is
being found, reach the weights. A later `scaler.update()` stops with
`AssertionError: No inf checks were recorded prior to update.`

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
    optimizer.step()
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
Executing the function with the scaler on and off moves the parameters by amounts that differ by
65536, or leaves inf or NaN in the parameters after an overflow.

## Fix safety
No fix is offered: the step may be one of several branches, and `update()` has to be added once.

## Known limits
After `unscale_`, an optimizer with sparse parameters is exempt: plain steps are the way to use
one with a scaler. Optimizers prepared by Accelerate step through their own scaler and are silent.

## References
- PyTorch, Automatic Mixed Precision examples: "Typical Mixed Precision Training"
- `torch/amp/grad_scaler.py`: `GradScaler.step`, `GradScaler._maybe_opt_step`
"""

from __future__ import annotations

from collections.abc import Iterator

from amplint.findings import Finding, Severity
from amplint.rule import FileView, Rule
from amplint.wording import report

RULE = Rule(
    code="AMP112",
    name="optimizer-step-bypasses-scaler",
    severity=Severity.ERROR,
    effect="silent",
    summary="`optimizer.step()` on gradients that belong to the scaler",
    facts=("S16", "S17", "S17b"),
)

MESSAGES = {
    "": "`{call}` applies gradients still multiplied by the loss scale{when}: the update is 65536 "
    "times too large with SGD, Adam hides it",
    "optimizer-step-bypass": "`{call}` bypasses `{scaler}` after `unscale_`{when}: overflows are "
    "not skipped, inf and NaN reach the weights",
    "optimizer-step-on-mixed": "`{call}` applies scaled and unscaled gradients added "
    "together{when}: the scaled part is 65536 times too large",
}
HELPS = {
    "": "replace `{call}` by `{scaler}.step({optimizer})`, followed by one `{scaler}.update()`",
}


def check(view: FileView) -> Iterator[Finding]:
    """Report the plain steps on scaled or unscaled gradients."""
    return report(view, RULE, MESSAGES, HELPS)
