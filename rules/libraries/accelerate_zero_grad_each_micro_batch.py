"""# accelerate-zero-grad-each-micro-batch (AMP613)

Under `accelerator.accumulate` each micro-batch clears the gradients before its backward.

## What it does
Flags a `zero_grad()` in front of `accelerator.backward(loss)` in a `with accelerator.accumulate(model):`
block that each micro-batch runs, where the accelerator is built with more than one
`gradient_accumulation_steps`, or with an option for it.

## Why is this bad?
In the block `optimizer.step()` and `optimizer.zero_grad()` do nothing until the last micro-batch. There
`zero_grad()` in front of the backward drops what the others have added up, so the step gets the
gradients of the last micro-batch, divided by the number of all. Nothing is raised: three of four
micro-batches are computed for nothing, and the learning rate is a quarter of what it says.

## Example
```python
import torch
from accelerate import Accelerator

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = accelerator.prepare(model, optimizer)

for _ in range(8):
    with accelerator.accumulate(model):
        inputs = torch.ones(8, 4)
        loss = model(inputs).mean()
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
```

## Use instead
```python
import torch
from accelerate import Accelerator

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = accelerator.prepare(model, optimizer)

for _ in range(8):
    with accelerator.accumulate(model):
        inputs = torch.ones(8, 4)
        loss = model(inputs).mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
```

## How it is confirmed
Executed with accelerate 1.15: the steps of the first example are a quarter of those of the second.

## Fix safety
No fix is offered: where the call goes depends on what stands between backward and step.

## Known limits
Silent where `gradient_accumulation_steps` is left out, and where a test stands around the
`zero_grad()` that does not stand around the backward.

## References
- accelerate, `optimizer.py`: `AcceleratedOptimizer.zero_grad`, `step`
- accelerate, documentation: "Performing gradient accumulation"
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.amp import links
from amplint.amp.accelerators import (
    ACCELERATOR,
    accumulation_steps,
    cleared_before,
    in_accumulation,
    path_of,
    set_to,
)
from amplint.amp.library_objects import calls_on
from amplint.code.expressions import path_text
from amplint.findings import Finding, Severity
from amplint.rule import Rule
from amplint.view import FileView

RULE = Rule(
    code="AMP613",
    name="accelerate-zero-grad-each-micro-batch",
    severity=Severity.WARNING,
    effect="silent",
    summary="gradients cleared before each backward of `accelerator.accumulate`",
    unprobed="a run of one step does not show what the micro-batches before it would have added",
)

MESSAGE = "`{call}` drops what the micro-batches before have added up: only the last one is stepped"
HELP = "call it behind `step()`, which acts on the last micro-batch as well"


def check(view: FileView) -> Iterator[Finding]:
    """Report `zero_grad` calls between the micro-batches of an accumulation."""
    if "accumulate" not in view.module.source or "zero_grad" not in view.module.source:
        return
    for backward in calls_on(view.objects, view.module, ACCELERATOR, "backward"):
        assert isinstance(backward.node.func, ast.Attribute)
        accelerator = backward.node.func.value
        cleared = cleared_before(backward)
        if cleared is None or not in_accumulation(backward, path_text(accelerator)):
            continue
        steps = accumulation_steps(view, accelerator, backward.function)
        if steps is None:
            continue
        setting, value = steps
        assert setting.given is not None
        rests = (
            links.library_object(view, accelerator, backward.function),
            set_to(value, setting.given, ast.Gt(), 1),
            links.proved("damage", cleared, "runs before each backward"),
        )
        message = MESSAGE.format(call=view.source_of(cleared))
        path = path_of(view, setting, value)
        yield view.finding(RULE, cleared, message, HELP, path=path, links=rests)
