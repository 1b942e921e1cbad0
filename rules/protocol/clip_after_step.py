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
Unsafe: steps become smaller where the clip has been without effect. The clip moves in front of the
only `scaler.step` of its block, behind a new `unscale_` if the function has none. No fix where the
step stands elsewhere, or where anything but plain calls lies between.

## Known limits
A clip with an infinite threshold only measures the norm and is silent.

## References
- PyTorch, Automatic Mixed Precision examples: "Gradient clipping"
- `torch/nn/utils/clip_grad.py`: `clip_grad_norm_`, `clip_grad_value_`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.expectations import measured
from amplint.findings import Finding, Severity
from amplint.fixing.statements import beside, calls_on, is_unconditional, own_statement
from amplint.fixing.verbs import Insert, Move, Repair, unsafe
from amplint.rule import Misuse, Rule
from amplint.view import FileView
from amplint.wording import report

RULE = Rule(
    code="AMP127",
    name="clip-after-step",
    severity=Severity.ERROR,
    effect="silent",
    summary="gradients clipped after the step that applied them",
    facts=("C04",),
    fix="unsafe",
    probe=measured("idle-clip", "protocol", without="clips"),
)

MESSAGES = {
    "": "`{clip}` runs after the step{at}{when}: the gradients were applied unclipped",
}
HELPS = {
    "": "move `{clip}` before `{scaler}.step({optimizer})`, after `{scaler}.unscale_({optimizer})`",
}


def check(view: FileView) -> Iterator[Finding]:
    """Report the clips of gradients that are spent."""
    return report(view, RULE, MESSAGES, HELPS, _clip_before)


def _clip_before(view: FileView, misuse: Misuse) -> Repair | None:
    """Move the clip in front of the step, and unscale there if nothing does.

    Only where both stand in one block with nothing but plain calls between.
    """
    statement = own_statement(misuse, view)
    if not isinstance(statement, ast.Expr) or not is_unconditional(misuse):
        return None
    block = beside(misuse, statement)
    before = block[: block.index(statement)]
    steps = {site.node for site in calls_on(view, misuse, "step")}
    found = [other for other in before if getattr(other, "value", None) in steps]
    if len(found) != 1:
        return None
    if not all(isinstance(other, ast.Expr) for other in before[before.index(found[0]) :]):
        return None
    move = Move(statement, found[0])
    if any(calls_on(view, misuse, "unscale_")):
        return unsafe(move)
    return unsafe(Insert(found[0], f"{misuse.scaler}.unscale_({misuse.optimizer})"), move)
