"""# unscale-twice (AMP108)

`scaler.unscale_(optimizer)` runs a second time before `scaler.update()`.

## What it does
Flags a second `unscale_` of one optimizer before `scaler.update()`: on every micro-batch of an
accumulation window, on two branches that are both taken, after a batch that was dropped without
`update()`, or after `scaler.step`.

## Why is this bad?
Dividing twice would shrink the gradients by the loss scale squared, so torch refuses:
`RuntimeError: unscale_() has already been called on this optimizer since the last update().`
After a step it is `RuntimeError: unscale_() is being called after step().` With accumulation it
appears only once the window is larger than 1, and a disabled scaler hides it.

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
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    if (i + 1) % 2 == 0:
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
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
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
```

## How it is confirmed
Executing the function over two micro-batches raises the `RuntimeError` at the second `unscale_`.

## Fix safety
No fix is offered: the call and the clipping below it move together, often into another block.

## Known limits
A boundary that an unknown function computes is not judged. Wrappers around an optimizer
(`unscale_(inner)`, then `step(wrapper)`) unscale twice without an error: that is AMP117.

## References
- PyTorch, Automatic Mixed Precision examples: "Gradient clipping", "Gradient accumulation"
- `torch/amp/grad_scaler.py`: `GradScaler.unscale_`
"""

from __future__ import annotations

from collections.abc import Iterator

from amplint.findings import Finding, Severity
from amplint.rule import Rule
from amplint.view import FileView
from amplint.wording import report

RULE = Rule(
    code="AMP108",
    name="unscale-twice",
    severity=Severity.ERROR,
    effect="crash",
    summary="`unscale_` a second time before `scaler.update()`",
    facts=("U01", "U02", "U06", "S37c"),
)

MESSAGES = {
    "": "`{optimizer}` is unscaled already{at}{when}: training stops with `RuntimeError: "
    "unscale_() has already been called on this optimizer since the last update().`",
    "unscale-twice loop": "`{optimizer}` is still unscaled from the iteration before{when}: "
    "training stops with {error}",
    "unscale-after-step": "`{optimizer}` is stepped already{at}{when}: training stops with {error}",
}
HELPS = {
    "": "call `{scaler}.unscale_({optimizer})` once for each `{scaler}.step`",
    "unscale-twice loop": "call `{scaler}.unscale_({optimizer})` only where the window ends, just "
    "before `{scaler}.step`; after dropping a batch, call `{scaler}.update()`",
    "unscale-after-step": "move `{scaler}.unscale_({optimizer})` before "
    "`{scaler}.step({optimizer})`",
}


def check(view: FileView) -> Iterator[Finding]:
    """Report the second unscale_ of one optimizer."""
    return report(view, RULE, MESSAGES, HELPS)
