"""# autocast-not-entered (AMP212)

An autocast is built, and nothing ever enters it.

## What it does
Flags `with autocast(...) and other():`, where Python enters the last context alone, and a call of
`autocast` that is a statement of its own.

## Why is this bad?
`and` gives its last part where the others are true, and a context manager always is. So autocast
stays off: training runs in float32 at the speed and memory of float32, and an evaluation measures
another precision than the one that is used. Nothing is raised. A call alone builds an object and
drops it; autocast is no setting that stays.

## Example
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs, targets = torch.randn(8, 4), torch.randn(8, 1)

with torch.autocast("cpu", dtype=torch.bfloat16) and torch.enable_grad():
    outputs = model(inputs)
assert outputs.dtype is torch.float32
loss = torch.nn.functional.mse_loss(outputs.float(), targets)
loss.backward()
optimizer.step()
```

## Use instead
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs, targets = torch.randn(8, 4), torch.randn(8, 1)

with torch.autocast("cpu", dtype=torch.bfloat16), torch.enable_grad():
    outputs = model(inputs)
assert outputs.dtype is torch.bfloat16
loss = torch.nn.functional.mse_loss(outputs.float(), targets)
loss.backward()
optimizer.step()
```

## How it is confirmed
Executing both examples: the outputs are float32 in the first and bfloat16 in the second.

## Fix safety
No fix is offered: with autocast on, the numbers change, and float16 needs a scaler.

## Known limits
Silent where the call says `enabled=False`, where it is all that a `with` or `try` statement holds,
which asks whether it raises, and where autocast is on around it already. An object that is given a
name and never entered is not found.

## References
- The Python Language Reference, "Boolean operations"
- `torch/amp/autocast_mode.py`: `autocast.__enter__` switches, the constructor does not
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.amp import links, names
from amplint.code.layout import layout_of
from amplint.code.module import CallSite
from amplint.findings import Finding, Severity
from amplint.rule import Rule
from amplint.view import FileView

RULE = Rule(
    code="AMP212",
    name="autocast-not-entered",
    severity=Severity.WARNING,
    effect="silent",
    summary="an autocast that is built and never entered",
    unprobed="no run shows what a context would have done that nobody enters",
)

#: Statements whose block may ask whether a call raises.
_ASKS = (ast.With, ast.AsyncWith, ast.Try)

JOINED = "`and` enters `{entered}` alone: `{call}` stays off"
ALONE = "`{call}` alone switches nothing on: nobody enters it"
HELP_JOINED = "name both, with a comma: `with {call}, {entered}:`"
HELP_ALONE = "enter it around the forward: `with {call}:`"


def check(view: FileView) -> Iterator[Finding]:
    """Report autocasts that `and` leaves out of a `with` statement, or that are dropped."""
    for site in view.module.calls:
        if site.dotted not in names.AUTOCASTS or _is_off(site.node):
            continue
        parent = view.module.scopes.parents.get(site.node)
        if isinstance(parent, ast.Expr):
            if not _is_asked_or_on(view, site):
                yield _finding(view, site, ALONE, HELP_ALONE, "")
        elif isinstance(parent, ast.BoolOp) and isinstance(parent.op, ast.And):
            holder = view.module.scopes.parents.get(parent)
            entered = parent.values[-1]
            if isinstance(holder, ast.withitem) and entered is not site.node:
                yield _finding(view, site, JOINED, HELP_JOINED, view.source_of(entered))


def _finding(view: FileView, site: CallSite, message: str, help: str, entered: str) -> Finding:
    words = {"call": view.source_of(site.node), "entered": entered}
    rests = (
        links.proved("object", site.node.func, "is torch's autocast"),
        links.proved("damage", site.node, "is never entered"),
    )
    return view.finding(
        RULE, site.node, message.format_map(words), help.format_map(words), links=rests
    )


def _is_off(call: ast.Call) -> bool:
    return any(
        word.arg == "enabled" and isinstance(word.value, ast.Constant) and not word.value.value
        for word in call.keywords
    )


def _is_asked_or_on(view: FileView, site: CallSite) -> bool:
    """Whether a statement is about what the call raises, or stands under an autocast anyway."""
    layout = layout_of(site.function)
    outer = layout.parents.get(layout.statement(site.node))
    if isinstance(outer, _ASKS) and len(outer.body) == 1:
        return True
    return any(
        site.node in layout.inside(part)
        for region in view.regions.opened(view.module)
        if region.function is site.function
        for part in region.parts
    )
