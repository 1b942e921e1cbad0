"""# step-twice (AMP104)

One optimizer is stepped a second time before `scaler.update()`.

## What it does
Flags a second `scaler.step(optimizer)` before `scaler.update()`, and `optimizer.step()` after
`scaler.step(optimizer)` on the same gradients.

## Why is this bad?
`scaler.step` already calls `optimizer.step()`. A second `scaler.step` raises
`RuntimeError: step() has already been called since the last update().` A plain
`optimizer.step()` behind it is silent: the update is applied twice (2.0 times the right one with
SGD), and when the scaler skipped the step because of an overflow, the plain step applies the inf
and NaN gradients after all.

## Example
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu")
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

for inputs, targets in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.step()
```

## Use instead
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
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
Executing the function raises the `RuntimeError` at the second `scaler.step`, or changes the
parameters by twice as much as with the plain step removed.

## Fix safety
Unsafe: updates become smaller. The plain `optimizer.step()` is taken away where it is a statement of
its own, without a comment beside it, and the path assumes nothing: on a branch it may be meant for
training without AMP. There is no fix for a second `scaler.step`, which may be meant for another
optimizer.

## Known limits
Two optimizers are two steps: `scaler.step(a)` and `scaler.step(b)` before one `scaler.update()`
is right. A second step that happens only in the next iteration is AMP105.

## References
- PyTorch, Automatic Mixed Precision examples: "Typical Mixed Precision Training"
- `torch/amp/grad_scaler.py`: `GradScaler.step`, `GradScaler._maybe_opt_step`
"""

from __future__ import annotations

from collections.abc import Iterator

from amplint.expectations import breaks, measured
from amplint.findings import Finding, Severity
from amplint.fixing.statements import is_unconditional, own_statement
from amplint.fixing.verbs import Remove, Repair, unsafe
from amplint.rule import Misuse, Rule
from amplint.view import FileView
from amplint.wording import report

RULE = Rule(
    code="AMP104",
    name="step-twice",
    severity=Severity.ERROR,
    effect="crash/silent",
    summary="an optimizer stepped a second time before `scaler.update()`",
    facts=("S13", "S15"),
    fix="unsafe",
    probe=breaks("step-twice") + measured("applied-twice", "protocol"),
)

MESSAGES = {
    "": "`{optimizer}` is stepped again before `{scaler}.update()`{when}: {error}",
    "optimizer-step-twice": (
        "`{scaler}.step`{at} has applied these gradients{when}: the update is doubled"
    ),
}
HELPS = {
    "": "delete this call, or call `{scaler}.update()` and run another backward before it",
    "optimizer-step-twice": "delete `{call}`: `{scaler}.step({optimizer})` calls it",
}


def check(view: FileView) -> Iterator[Finding]:
    """Report the second step on one set of gradients."""
    return report(view, RULE, MESSAGES, HELPS, _once)


def _once(view: FileView, misuse: Misuse) -> Repair | None:
    """Take the plain step away that follows one through the scaler on every path."""
    slug = misuse.violation.slug if misuse.violation else ""
    statement = own_statement(misuse, view)
    if slug != "optimizer-step-twice" or statement is None or not is_unconditional(misuse):
        return None
    return unsafe(Remove(statement))
