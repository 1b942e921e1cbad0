"""# clip-without-unscale (AMP110)

Gradients are clipped while they are still multiplied by the loss scale.

## What it does
Flags `clip_grad_norm_`, `clip_grad_value_`, an optimizer's or model's clip method and project
functions that clip, when the gradients come from a scaled backward and were not unscaled:
no `unscale_`, `unscale_` after the clip, `unscale_` of another optimizer, or a clip on every
micro-batch with `unscale_` only at the end of the window.

## Why is this bad?
The gradients are about 65536 times too large, so `max_norm=1.0` acts like `max_norm=1.5e-5`:
every step is clipped. Nothing is raised. The update is 2.9e-5 of the right one with SGD and
0.96 with Adam, which normalises most of it away. As the loss scale changes during training, so
does the real threshold, and resumed runs differ.

`clip_grad_norm_(parameters, max_norm * scaler.get_scale())` without `unscale_` is right.

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
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
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
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    scaler.step(optimizer)
    scaler.update()
```

## How it is confirmed
Executing the function shows that the clip sees a norm 65536 times that of the same run with the
scaler off, and that the parameters move by a tiny part of the right update.

## Fix safety
Unsafe: gradients are then clipped at the threshold that the code names, which changes training. The
fix puts `scaler.unscale_(optimizer)` in front of the clip, and takes away one that follows in the
same block. It is offered where the clip is a statement of its own, the same function steps this
optimizer through the scaler, and the path assumes nothing; under accumulation the new `unscale_`
belongs at the end of the window, and a second one would crash.

## Known limits
With several optimizers a clip is reported only if none of their gradients can be unscaled. A clip
whose threshold mentions the scale is taken to be right.

## References
- PyTorch, Automatic Mixed Precision examples: "Gradient clipping"
- `torch/amp/grad_scaler.py`: `GradScaler.unscale_`
- `torch/nn/utils/clip_grad.py`: `clip_grad_norm_`, `clip_grad_value_`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.code.dataflow import arguments
from amplint.code.module import CallSite
from amplint.findings import Finding, Severity
from amplint.fixing.statements import block_of, calls_on, is_unconditional, own_statement
from amplint.fixing.verbs import Insert, Move, Repair, unsafe
from amplint.rule import Misuse, Rule
from amplint.view import FileView
from amplint.wording import report

RULE = Rule(
    code="AMP110",
    name="clip-without-unscale",
    severity=Severity.ERROR,
    effect="silent",
    summary="gradients clipped while still multiplied by the loss scale",
    facts=("C01", "C02", "C03", "C08", "U09"),
    fix="unsafe",
)

MESSAGES = {
    "": (
        "`{clip}` clips scaled gradients{when}: its limit is too small by the loss scale, {scale}"
    ),
}
HELPS = {
    "": "call `{scaler}.unscale_({optimizer})` once between the last backward and `{clip}`",
}


def check(view: FileView) -> Iterator[Finding]:
    """Report the clips that see scaled gradients."""
    return report(view, RULE, MESSAGES, HELPS, _unscale_before)


def _unscale_before(view: FileView, misuse: Misuse) -> Repair | None:
    """Unscale in front of the clip instead of behind it or not at all."""
    statement = own_statement(misuse, view)
    if statement is None or not misuse.optimizer or not is_unconditional(misuse):
        return None
    if not any(_is_about(site, misuse) for site in calls_on(view, misuse, "step")):
        return None
    late = [site for site in calls_on(view, misuse, "unscale_") if _is_about(site, misuse)]
    if not late:
        return unsafe(Insert(statement, f"{misuse.scaler}.unscale_({misuse.optimizer})"))
    block = block_of(misuse, statement)
    following = block[block.index(statement) + 1 :] if statement in block else []
    moved = [other for other in following if getattr(other, "value", None) is late[0].node]
    return None if len(late) > 1 or not moved else unsafe(Move(moved[0], statement))


def _is_about(site: CallSite, misuse: Misuse) -> bool:
    """Whether a call names the misuse's optimizer as its only argument."""
    return [ast.unparse(argument) for argument in arguments(site.node)] == [misuse.optimizer]
