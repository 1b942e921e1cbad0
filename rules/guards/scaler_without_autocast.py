"""# scaler-without-autocast (AMP207)

There is a GradScaler, but nothing ever runs in half precision.

## What it does
Flags a `GradScaler` that steps an optimizer where neither the file, nor what it imports, nor the
files that import it mention autocast or a half precision dtype.

## Why is this bad?
The loss is scaled so that small gradients survive in float16. In float32 they survive anyway: the
scaler changes nothing in training but the time. Each step waits for the device to learn whether the
gradients are finite, and the first steps may be skipped because of the scale alone. Usually the
forward was meant to run under autocast, and all of the speed and memory that mixed precision would
bring is missing.

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
    with torch.autocast("cpu", dtype=torch.float16):
        outputs = model(inputs)
    loss = torch.nn.functional.mse_loss(outputs.float(), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
```

## How it is confirmed
Executing the function: no tensor of a half precision dtype is ever made.

## Fix safety
No fix is offered: either the autocast is missing or the scaler is too much.

## Known limits
Advice only. Silent where a file imports a library that might run the model in half precision
itself, where a file it needs cannot be found, and for scalers that are handed on and not used here.

## References
- PyTorch, Automatic Mixed Precision package: "Gradient Scaling"
- PyTorch, Automatic Mixed Precision examples: "Typical Mixed Precision Training"
"""

from __future__ import annotations

from collections.abc import Iterator

from amplint.amp.connected import connected_files
from amplint.amp.scaler_calls import scaler_calls
from amplint.amp.scalers import built_scalers
from amplint.code.dataflow import receiver
from amplint.findings import Finding, Severity
from amplint.rule import Rule
from amplint.view import FileView

RULE = Rule(
    code="AMP207",
    name="scaler-without-autocast",
    severity=Severity.INFO,
    effect="perf",
    summary="a GradScaler, and nothing ever runs in half precision",
    facts=("S00", "R10"),
    unprobed="nothing goes wrong: the scaler only costs time",
)

MESSAGE = "`{scaler}` scales the loss, but nothing runs in half precision: it only costs time"
HELP = "run the forward under `torch.autocast`, or drop the scaler"


def check(view: FileView) -> Iterator[Finding]:
    """Report scalers that step an optimizer where everything is float32."""
    stepping = {receiver(site.node) for site in scaler_calls(view, "step")}
    scalers = list(built_scalers(view, lambda assigned: assigned.target in stepping))
    if not scalers or all(built.is_off(view) for built in scalers):
        return
    training = connected_files(view.project, view.module)
    if training.unknown or not training.is_float32:
        return
    for built in scalers:
        if not built.is_off(view):
            yield view.finding(RULE, built.call, MESSAGE.format(scaler=built.target), HELP)
