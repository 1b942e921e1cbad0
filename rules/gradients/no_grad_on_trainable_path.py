"""# no-grad-on-trainable-path (AMP301)

`torch.no_grad` or `torch.inference_mode` stands between parameters that are trained and the loss.

## What it does
Flags a decorator or a `with` block that switches gradients off where a training step computes its
loss. Either nothing the loss is made of has a graph any more, or one of the modules whose
parameters the optimizer owns (`Adam(model.parameters())`) is cut off from every loss of the step.
Calls are followed, so the block may stand in another file.

## Why is this bad?
Without any graph `backward()` raises `RuntimeError: element 0 of tensors does not require grad and
does not have a grad_fn`. Worse is the other case: other modules still connect the loss, nothing is
raised, and the module that is cut off never moves. In the measured case (a backbone under
`no_grad`, an optimizer over backbone and head) the backbone's gradients were None and its weights
were unchanged. With an optimizer of its own, `scaler.step` raises `AssertionError: No inf checks
were recorded for this optimizer`.

## Example
```python
import torch

backbone = torch.nn.Linear(4, 4)
head = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD([*backbone.parameters(), *head.parameters()], lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)


@torch.no_grad()
def normalised(features):
    return features / features.norm(dim=1, keepdim=True)


for _ in range(4):
    inputs, targets = torch.randn(8, 4), torch.randn(8, 1)
    optimizer.zero_grad()
    outputs = head(normalised(backbone(inputs)))
    loss = torch.nn.functional.mse_loss(outputs, targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
```

## Use instead
```python
import torch

backbone = torch.nn.Linear(4, 4)
head = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD([*backbone.parameters(), *head.parameters()], lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)


def normalised(features):
    return features / features.norm(dim=1, keepdim=True)


for _ in range(4):
    inputs, targets = torch.randn(8, 4), torch.randn(8, 1)
    optimizer.zero_grad()
    outputs = head(normalised(backbone(inputs)))
    loss = torch.nn.functional.mse_loss(outputs, targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
```

## How it is confirmed
Executing the step shows the error, or the parameters that are left without a gradient.

## Fix safety
No fix is offered. A backbone that is meant to be frozen does not belong into the optimizer.

## Known limits
A module counts as owned only if the constructor of the stepped optimizer gets its `parameters()`, in
whatever list or from whatever generator, or `add_param_group` right behind it, and nothing filters or
freezes them; what is frozen counts again where the training function itself thaws it. What any
branch connects counts as connected, unless one test chooses the region and the backward. Teachers,
EMA copies and targets are told by their names, unless an optimizer lists them beside others.

## References
- PyTorch, "Autograd mechanics": locally disabling gradient computation
- `torch/autograd/grad_mode.py`: `no_grad`, `inference_mode`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.expectations import INFERENCE_TENSORS, NO_GRAPH, caused, measured
from amplint.findings import Finding, PathStep, Severity
from amplint.gradflow.analysis import CutOff
from amplint.rule import Rule
from amplint.view import FileView

RULE = Rule(
    code="AMP301",
    name="no-grad-on-trainable-path",
    severity=Severity.ERROR,
    effect="crash/silent",
    summary="`no_grad` or `inference_mode` between trained parameters and the loss",
    facts=("B07", "B07b", "B08", "B08b", "B09", "B09b", "B09c"),
    probe=(
        caused("grad-modes", *NO_GRAPH)
        + caused("grad-modes", *INFERENCE_TENSORS)
        + measured("no-gradient", without="grad-modes")
    ),
)

CRASH = (
    "`torch.{kind}` leaves the loss without a graph: `RuntimeError: element 0 of tensors "
    "does not require grad…`"
)
SILENT = "`torch.{kind}` cuts `{root}` off from the loss: its parameters never get a gradient"
HELP = "compute what the loss is made of outside of `torch.{kind}`"
HELP_OTHER = "remove `torch.{kind}` from {where} in {filename}, or call it for evaluation only"


def check(view: FileView) -> Iterator[Finding]:
    """Report each block once, at the place of this file that leads into it."""
    reported: set[ast.AST] = set()
    for found in view.cut_off:
        node = _place(view, found)
        if not found.block.by_mode or node is None or node in reported:
            continue
        reported.add(node)
        message = (SILENT if found.root else CRASH).format(kind=found.block.kind, root=found.root)
        help, path = _help(view, found), _path(view, found)
        yield view.finding(RULE, node, message, help, path=path, links=found.links)


def _place(view: FileView, found: CutOff) -> ast.expr | None:
    block = found.block
    if block.function.module is view.module:
        return block.node
    calls = (call for call, function in block.calls if function.module is view.module)
    return next(calls, None)


def _help(view: FileView, found: CutOff) -> str:
    block = found.block
    if block.function.module is view.module:
        return HELP.format(kind=block.kind)
    where = f"`{block.function.qualname}`"
    return HELP_OTHER.format(kind=block.kind, where=where, filename=block.function.module.filename)


def _path(view: FileView, found: CutOff) -> tuple[PathStep, ...]:
    block, backward = found.block, found.backward
    steps = [
        view.step(call, function.module, f"`{view.source_of(call.func)}` is called")
        for call, function in block.calls
    ]
    off = f"`torch.{block.kind}` switches gradients off in `{block.function.qualname}`"
    steps.append(view.step(block.node, block.function.module, off))
    what = f"nothing of `{found.root}` is in its graph" if found.root else "it has no graph"
    text = f"`{view.source_of(backward.node)}`: {what}"
    steps.append(view.step(backward.node, backward.function.module, text))
    return tuple(steps)
