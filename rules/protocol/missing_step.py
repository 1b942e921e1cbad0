"""# missing-step (AMP130)

A scaler scales the loss, unscales the gradients and updates, and nothing ever steps an optimizer.

## What it does
Flags the first `scaler.unscale_(optimizer)` of a scaler in a file that runs the backward of a scaled
loss, updates the scaler, and in which nothing is stepped: no `scaler.step`, no `optimizer.step`, nor
anything else called `step` but a learning rate scheduler's, nor what the function calls in other files.

## Why is this bad?
The parameters never move. `unscale_` records the inf check that `update()` asks for, so torch raises
nothing: the loss scale is adapted, the gradients are clipped, and the loss stays where it began.

## Example
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]


def train():
    scaler = torch.amp.GradScaler("cpu")
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.update()


train()
```

## Use instead
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]


def train():
    scaler = torch.amp.GradScaler("cpu")
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()


train()
```

## How it is confirmed
Executing the file changes no parameter.

## Fix safety
No fix is offered: the step belongs before `update()`, and where that is in another function, which
optimizer it is for is not in sight.

## Known limits
Only scalers that are handed to nobody are judged. One in an attribute counts if no other file of the
project mentions that attribute and a step, and if every base of its class is in sight. A step that only some paths leave out is not meant: behind
a finite norm that is what a scaler does itself.

## References
- PyTorch, `torch.amp.GradScaler`: `step`, `update`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.amp import links
from amplint.amp.roles import ScalerConstruction
from amplint.code.module import Class, Function, enclosing_class
from amplint.findings import Finding, Severity
from amplint.flow.facts import PLAIN_STEP, STEP
from amplint.flow.presence import is_private, never_stepped, steps_something
from amplint.rule import Rule
from amplint.view import FileView

RULE = Rule(
    code="AMP130",
    name="missing-step",
    severity=Severity.ERROR,
    effect="silent",
    summary="a scaler unscales and updates, and nothing ever steps an optimizer",
    facts=("S01", "P01"),
    unprobed="a run of one function does not show that no other one steps",
)

STEPS = frozenset({STEP, PLAIN_STEP})
MESSAGE = "`{scaler}` scales the loss, but nothing in this file steps: the parameters never change"
HELP = "call `{scaler}.step(optimizer)` before `{scaler}.update()`"


def check(view: FileView) -> Iterator[Finding]:
    """Report the first `unscale_` of each scaler whose optimizers are never stepped."""
    if not view.roles.constructions or steps_something(view.module, view.roles):
        return
    for site, built in never_stepped(view.program.unit(view.module.body)):
        if not (is_private(built) or _stays_here(view, built)):
            continue
        if _steps_elsewhere(view, site.function):
            continue
        assert isinstance(site.node.func, ast.Attribute)
        scaler = site.node.func.value
        words = {"scaler": view.source_of(scaler)}
        rests = (
            links.proved("object", scaler, "is a scaler that this file keeps"),
            links.proved("damage", site.node, "is followed by no step"),
        )
        message, help = MESSAGE.format_map(words), HELP.format_map(words)
        yield view.finding(RULE, site.node, message, help, links=rests)


def _steps_elsewhere(view: FileView, function: Function) -> bool:
    """Whether what a function calls, of an object that it is handed, steps in another file."""
    program = view.program
    return any(
        STEPS & program.reach_of(callee)
        for node in function.nodes
        if isinstance(node, ast.Call)
        for callee in program.targets(node, function).functions
    )


def _stays_here(view: FileView, built: ScalerConstruction) -> bool:
    """Whether an attribute is one that neither another file nor a base class out of sight steps."""
    owner = enclosing_class(built.function)
    if owner is None or not built.target.startswith("self."):
        return False
    name = built.target.rpartition(".")[2]
    if next(view.project.mentioning(view.module, name, "step("), None) is not None:
        return False
    family = view.objects.ancestry(owner)
    bases = [(base, item.module) for item in family for base in item.node.bases]
    return all(
        module.resolve(base) == "torch.nn.Module"
        or isinstance(view.objects.symbol(base, module.body), Class)
        for base, module in bases
    ) and not any(
        "step(" in item.module.source for item in family if item.module is not view.module
    )
