"""# update-between-steps (AMP107)

`scaler.update()` runs between two calls that must use the same loss scale.

## What it does
Flags `scaler.update()` between `unscale_` and `step` of the same gradients, between the steps of
two optimizers fed by one backward, or between backward and `step`. The finding is at the `step`
or `unscale_` that meets the scaler after the update.

## Why is this bad?
`update()` changes the loss scale and forgets which optimizers are unscaled and stepped.
- Between two optimizers, or between backward and step: the gradients are divided by another scale
  than they were multiplied with, so the update is silently half or twice the right one whenever
  the scale changes.
- Between `unscale_` and `step`: the step divides the gradients by the loss scale a second time and
  the update is silently 65536 times too small (SGD, ratio 1.5e-5). Without another `update()`
  after the step, the next iteration stops with
  `RuntimeError: unscale_() is being called after step().`

`unscale_`, `update`, `zero_grad`, and then a new backward is legal: it drops a batch.

## Example
```python
import torch

backbone, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(backbone.parameters(), lr=0.01)
optimizer_head = torch.optim.SGD(head.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", growth_interval=1)  # 2000 by default
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

for inputs, targets in loader:
    optimizer.zero_grad()
    optimizer_head.zero_grad()
    loss = torch.nn.functional.mse_loss(head(backbone(inputs)), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    scaler.step(optimizer_head)
    scaler.update()
```

## Use instead
```python
import torch

backbone, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(backbone.parameters(), lr=0.01)
optimizer_head = torch.optim.SGD(head.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", growth_interval=1)  # 2000 by default
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

for inputs, targets in loader:
    optimizer.zero_grad()
    optimizer_head.zero_grad()
    loss = torch.nn.functional.mse_loss(head(backbone(inputs)), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.step(optimizer_head)
    scaler.update()
```

## How it is confirmed
Executing the function with the scaler on and off moves the parameters by different amounts: in the
example the head moves half as far, because the scale doubles before its step.

## Fix safety
Unsafe: the size of updates changes. The early `update()` moves behind the step, or goes where
another one follows. Only behind a `step` or `unscale_` of its own block, where the later step stands in
the same block, under no condition, or in an `if` of it, whose own `update()` goes: elsewhere the right
place can be in another function.

## Known limits
With several optimizers the rule needs to see that one backward feeds both: an `update()` between
the phases of a GAN, each with its own backward, is right.

## References
- PyTorch, Automatic Mixed Precision examples: "Working with Multiple Models, Losses, and
  Optimizers"
- `torch/amp/grad_scaler.py`: `GradScaler.update`, `GradScaler.unscale_`, `GradScaler.step`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from amplint.amp import links
from amplint.code.dataflow import arguments
from amplint.code.layout import layout_of
from amplint.expectations import breaks
from amplint.findings import Finding, Link, Severity
from amplint.fixing.statements import beside, calls_on, is_unconditional, own_statement
from amplint.fixing.verbs import Move, Remove, Repair, unsafe
from amplint.rule import Misuse, Rule
from amplint.view import FileView
from amplint.wording import called_method, report

RULE = Rule(
    code="AMP107",
    name="update-between-steps",
    severity=Severity.ERROR,
    effect="silent",
    summary="`scaler.update()` between two calls that need the same loss scale",
    facts=("S30", "P09", "P11"),
    fix="unsafe",
    probe=breaks("unscale-again"),
)

METHODS = ("step", "unscale_", "update")
MESSAGES = {
    "": (
        "`{scaler}.update()`{at} changes the scale before this `{method}`{when}: it divides wrongly"
    ),
    "unscale-again": (
        "`{scaler}.update()`{at} runs before this `{method}`{when}: it divides a second time "
        "({scale})"
    ),
}
HELPS = {
    "": "move `{scaler}.update()` behind the last `{scaler}.step` of the iteration",
}


def check(view: FileView) -> Iterator[Finding]:
    """Report the calls that meet a scaler updated too early."""
    misuses = [
        replace(item, links=(*item.links, *_reached(view, item)))
        for item in view.misuses(RULE.code)
    ]
    return report(view, RULE, MESSAGES, HELPS, _update_later, misuses)


def _reached(view: FileView, misuse: Misuse) -> Iterator[Link]:
    """That the optimizer of the late step takes part in the backward at all."""
    if isinstance(misuse.node, ast.Call) and misuse.node.args:
        yield from links.reached(view, misuse.node.args[0], misuse.node, misuse.function)


def _update_later(view: FileView, misuse: Misuse) -> Repair | None:
    """Move the update behind the step, or drop it where another one follows there.

    Only where it stands in the block of the step, or of an `if` that holds the step, and the block
    itself steps or unscales before it: then no step of an earlier round waits for it.
    """
    statement = own_statement(misuse, view)
    if statement is None or called_method(misuse.node) != "step":
        return None
    methods = {site.node: site.method for site in calls_on(view, misuse, *METHODS)}
    inner, place = beside(misuse, statement), statement
    block, branch = inner, layout_of(misuse.function).parents[statement]
    if "update" not in _words(methods, inner[: inner.index(statement)]):
        if not isinstance(branch, ast.If) or statement not in branch.body:
            return None
        block, place = beside(misuse, branch), branch
    elif not is_unconditional(misuse):
        return None
    before = _words(methods, block[: block.index(place)])
    after = _words(methods, block[block.index(place) + 1 :])
    if before.count("update") != 1 or ("step" in after and "update" not in after):
        return None
    early = before.index("update")
    if not {"step", "unscale_"} & {*before[:early]} or _has_argument(block[early]):
        return None
    again = _words(methods, inner).count("update") if inner is not block else 0
    if "update" in after:
        return unsafe(Remove(block[early])) if not again else None
    move = Move(block[early], place, after=True)
    late = [each for each in inner if methods.get(_call(each)) == "update"] if again else []
    return unsafe(move, *map(Remove, late)) if len(late) < 2 else None


def _words(methods: Mapping[ast.Call, str], block: list[ast.stmt]) -> list[str]:
    """The method that each statement calls on the scaler; "" for the others."""
    return [methods.get(_call(each), "") for each in block]


def _call(statement: ast.stmt) -> Any:
    return getattr(statement, "value", None)


def _has_argument(statement: ast.stmt) -> bool:
    call = getattr(statement, "value", None)
    return not isinstance(call, ast.Call) or bool(arguments(call))
