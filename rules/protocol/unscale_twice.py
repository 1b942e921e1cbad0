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
Unsafe: training goes on where it stopped. A second `unscale_` that no condition leads to is taken
away. One that is repeated while a window is open moves in front of the only `scaler.step` of the
function, with the clips behind it and under the tests that the step is under. No fix where the norm
that a clip returns is kept, where something between reads or drops gradients, and for an `unscale_`
behind the step.

## Known limits
A boundary that an unknown function computes is not judged. Wrappers around an optimizer
(`unscale_(inner)`, then `step(wrapper)`) unscale twice without an error: that is AMP117.

## References
- PyTorch, Automatic Mixed Precision examples: "Gradient clipping", "Gradient accumulation"
- `torch/amp/grad_scaler.py`: `GradScaler.unscale_`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.expectations import breaks
from amplint.findings import Finding, Severity
from amplint.fixing.statements import is_unconditional, own_statement
from amplint.fixing.verbs import Remove, Repair, unsafe
from amplint.fixing.windows import at_the_step
from amplint.rule import Misuse, Rule
from amplint.view import FileView
from amplint.wording import report

RULE = Rule(
    code="AMP108",
    name="unscale-twice",
    severity=Severity.ERROR,
    effect="crash",
    summary="`unscale_` a second time before `scaler.update()`",
    facts=("U01", "U02", "U06", "S37c"),
    fix="unsafe",
    probe=breaks("unscale-twice", "unscale-after-step"),
)

MESSAGES = {
    "": (
        "`{optimizer}` is unscaled already{at}{when}: `RuntimeError: unscale_() has already "
        "been called…`"
    ),
    "unscale-twice loop": (
        "`{optimizer}` is still unscaled from the iteration before{when}: {error}"
    ),
    "unscale-after-step": "`{optimizer}` is stepped already{at}{when}: {error}",
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
    return report(view, RULE, MESSAGES, HELPS, _once_for_each_step)


def _once_for_each_step(view: FileView, misuse: Misuse) -> Repair | None:
    """Unscale where the window ends, with the clips; or not a second time on one path."""
    statement = own_statement(misuse, view)
    if not isinstance(statement, ast.Expr) or not misuse.optimizer:
        return None
    slug = misuse.violation.slug if misuse.violation else ""
    if misuse.details.get("loop") == "yes":
        return at_the_step(view, misuse, statement)
    if slug != "unscale-twice" or not is_unconditional(misuse):
        return None
    return unsafe(Remove(statement))
