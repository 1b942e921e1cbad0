"""# missing-mixed-precision-guard (AMP202)

A scaler that exists only under a condition is used without it.

## What it does
Flags a use of a scaler on a path where it is `None` or was never assigned: its definition has a
condition (`scaler = GradScaler() if use_amp else None`), and the use does not test it.

## Why is this bad?
With AMP off the first batch stops with
`AttributeError: 'NoneType' object has no attribute 'scale'`. The setting that breaks is the one
for debugging and for machines without a GPU, so it is seldom tested.

## Example
```python
import sys
import torch

use_amp = "--amp" in sys.argv
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu") if use_amp else None
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
import sys
import torch

use_amp = "--amp" in sys.argv
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", enabled=use_amp)
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

for inputs, targets in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
```

## How it is confirmed
Executing the function with the condition off raises the `AttributeError` at the reported use.

## Fix safety
Display only: the JSON report shows the use under `if scaler is not None:`, where it is a statement
of its own. A scaler that is always built, and disabled, is as good, and what has to happen without
one is not known.

## Known limits
An attribute that is `None` in `__init__` and assigned by another method is taken to be set.
A scaler that arrives as an argument is reported only if the function itself tests it, or the file
passes `None`.

## References
- PyTorch, Automatic Mixed Precision package: `torch.amp.GradScaler`, argument `enabled`
- `torch/amp/grad_scaler.py`: `GradScaler.__init__`, `GradScaler.scale`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.amp import links
from amplint.amp.roles import Role
from amplint.expectations import raises
from amplint.findings import Finding, Link, Severity
from amplint.fixing.statements import own_statement
from amplint.fixing.verbs import Repair, Within
from amplint.rule import Misuse, Rule
from amplint.view import FileView
from amplint.wording import choose, fields

RULE = Rule(
    code="AMP202",
    name="missing-mixed-precision-guard",
    severity=Severity.ERROR,
    effect="crash",
    summary="a scaler that can be `None` used without its guard",
    fix="display",
    probe=raises("AttributeError", "'NoneType' object has no attribute"),
)

MESSAGES = {
    "": "`{scaler}` can be None here{when}: `AttributeError: … no attribute '{attribute}'`",
    "absent": "`{scaler}` has no value here{when}: this use raises `{error}`",
}
HELPS = {
    "": "build it always, `{scaler} = GradScaler(device, enabled=...)`, or guard this use with "
    "`if {scaler} is not None:`",
    "absent": "build it always, `{scaler} = GradScaler(device, enabled=...)`, or set it to None "
    "where there is no AMP, and guard this use with `if {scaler} is not None:`",
}


def check(view: FileView) -> Iterator[Finding]:
    """Report the uses of a scaler that can be None."""
    for misuse in view.misuses(RULE.code):
        attribute = misuse.details.get("method", "step")
        error = "UnboundLocalError" if misuse.scaler.isidentifier() else "AttributeError"
        words = {**fields(view, misuse), "attribute": attribute, "error": error}
        message = choose(MESSAGES, misuse).format_map(words)
        help = choose(HELPS, misuse).format_map(words)
        fix = _guarded(view, misuse)
        yield view.finding(
            RULE, misuse.node, message, help, path=misuse.path, fix=fix, links=_links(view, misuse)
        )


def _links(view: FileView, misuse: Misuse) -> Iterator[Link]:
    """Those of the path, which may hold no event of the scaler: it is None."""
    yield from misuse.links
    callee = misuse.node.func if isinstance(misuse.node, ast.Call) else misuse.node
    if isinstance(callee, ast.Attribute):
        yield links.participant(view, callee.value, misuse.function, Role.SCALER)


def _guarded(view: FileView, misuse: Misuse) -> Repair | None:
    """The use under a test for None; an illustration."""
    statement = own_statement(misuse, view)
    if not isinstance(statement, ast.Expr) or not misuse.scaler or "absent" in misuse.details:
        return None
    return Repair("display", (Within(statement, f"if {misuse.scaler} is not None:"),))
