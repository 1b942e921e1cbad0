"""# optimizer-step-bypasses-scaler (AMP112)

`optimizer.step()` applies gradients that belong to the scaler.

## What it does
Flags a plain `optimizer.step()` on gradients of a scaled backward, and after
`scaler.unscale_(optimizer)`, where only the skip of overflowing steps is lost.

## Why is this bad?
The gradients are multiplied by the loss scale, and the plain step applies them so: the update is
65536 times too large with SGD. Adam-family optimizers hide it, because they normalise the
gradient (ratio 1.0), but their moments are then off by 65536 and 65536 squared. With these, and after
`unscale_`, the size is right, but inf and NaN gradients, which every run produces while the loss scale is
being found, reach the weights. A later `scaler.update()` stops with
`AssertionError: No inf checks were recorded prior to update.`

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
    optimizer.step()
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
    scaler.step(optimizer)
    scaler.update()
```

## How it is confirmed
Executing the function with the scaler on and off moves the parameters by amounts that differ by
65536, or leaves inf or NaN in the parameters after an overflow.

## Fix safety
Unsafe: the step then has the size that the code means, and overflows are skipped, which changes
training. The fix writes `scaler.step(optimizer)` for `optimizer.step()`, and `scaler.update()`
behind it if the function has none. It is offered where the step is a statement of its own, the same
function scales with this scaler, and the path assumes nothing.

## Known limits
After `unscale_`, an optimizer with sparse parameters is exempt: plain steps are the way to use
one with a scaler. Optimizers prepared by Accelerate step through their own scaler and are silent.

## References
- PyTorch, Automatic Mixed Precision examples: "Typical Mixed Precision Training"
- `torch/amp/grad_scaler.py`: `GradScaler.step`, `GradScaler._maybe_opt_step`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from amplint.amp.connected import connected_files
from amplint.amp.overflows import at_nan, at_overflow
from amplint.code.dataflow import arguments
from amplint.code.layout import layout_of
from amplint.code.module import Function
from amplint.expectations import breaks, measured
from amplint.findings import Finding, Link, Severity, Standing
from amplint.fixing.statements import calls_on, is_unconditional, own_statement
from amplint.fixing.verbs import Insert, Repair, Write, unsafe
from amplint.rule import Misuse, Rule
from amplint.values.conditions import conditions_at
from amplint.view import FileView
from amplint.wording import report

RULE = Rule(
    code="AMP112",
    name="optimizer-step-bypasses-scaler",
    severity=Severity.ERROR,
    effect="silent",
    summary="`optimizer.step()` on gradients that belong to the scaler",
    facts=("S16", "S17", "S17b"),
    fix="unsafe",
    probe=(
        breaks("optimizer-step-on-scaled", "optimizer-step-on-mixed")
        + measured("applied-nan", "protocol")
    ),
)

MESSAGES = {
    "": "`{call}` applies scaled gradients{when}: too large by the loss scale, {scale}",
    "optimizer-step-on-scaled updates": (
        "`{call}` applies scaled gradients{when}: `{scaler}.update()`{at} raises `AssertionError…`"
    ),
    "optimizer-step-on-scaled normalised": (
        "`{call}` bypasses `{scaler}`{when}: an overflow is not skipped, inf and NaN reach the weights"
    ),
    "optimizer-step-bypass": (
        "`{call}` bypasses `{scaler}` after `unscale_`{when}: inf and NaN reach the weights"
    ),
    "optimizer-step-on-mixed": (
        "`{call}` applies scaled and plain gradients{when}: one part is too large ({scale})"
    ),
}
HELPS = {
    "": "replace `{call}` by `{scaler}.step({optimizer})`, followed by one `{scaler}.update()`",
    "optimizer-step-on-scaled updates": "replace `{call}` by `{scaler}.step({optimizer})`",
}


#: Callers of callers are asked so many times.
_CALLERS = 3
#: Optimizers that divide a constant factor out of the gradients (S16c: ratio 1.0, SGD 65536).
NORMALISING = frozenset(
    f"torch.optim.{name}" for name in ("Adam", "AdamW", "NAdam", "RMSprop", "Adagrad", "Rprop")
)


def check(view: FileView) -> Iterator[Finding]:
    """Report the plain steps on scaled or unscaled gradients."""
    judged = (_told(view, item) for item in view.misuses(RULE.code) if not _is_finite(view, item))
    return report(view, RULE, MESSAGES, HELPS, _through_scaler, misuses=judged)


def _is_finite(view: FileView, misuse: Misuse) -> bool:
    """Whether a step on unscaled gradients runs only where a test has found them finite."""
    if misuse.violation is None or misuse.violation.slug != "optimizer-step-bypass":
        return False
    return _runs_if_finite(view, misuse.node, misuse.function)


def _runs_if_finite(
    view: FileView, node: ast.AST, function: Function, depth: int = _CALLERS
) -> bool:
    """Whether a test around a node, or around each call of its function, sees every overflow."""
    if any(
        (not item.side) is at_overflow(view, item.test, item.function)
        and (not item.side) is at_nan(view, item.test, item.function)
        for item in conditions_at(node, function)
    ):
        return True
    sites = view.objects.calls_of(function) if depth else ()
    return bool(sites) and all(
        _runs_if_finite(view, site.node, site.function, depth - 1) for site in sites
    )


def _told(view: FileView, misuse: Misuse) -> Misuse:
    """The misuse, with the row of the `update()` that fails because of it, if there is one.

    Else with whether the optimizer divides the loss scale out itself.
    """
    layout = layout_of(misuse.function)
    slug = misuse.violation.slug if misuse.violation else ""
    if slug != "optimizer-step-on-scaled" or misuse.node not in layout:
        return misuse
    if any(calls_on(view, misuse, "step", "unscale_")):
        return misuse  # the check of another optimizer may be on record
    for site in calls_on(view, misuse, "update"):
        if layout.reaches(misuse.node, site.node) and not arguments(site.node):
            details = {**misuse.details, "updates": "yes", "line": str(view.row_of(site.node))}
            return replace(misuse, details=details)
    if not _is_normalised(view, misuse):
        return misuse
    links = misuse.links
    if connected_files(view.project, view.module).is_float32:
        links += (
            Link("damage", Standing.HARMLESS, misuse.optimizer, "steps gradients in float32"),
        )
    return replace(misuse, details={**misuse.details, "normalised": "yes"}, links=links)


def _is_normalised(view: FileView, misuse: Misuse) -> bool:
    """Whether the stepped optimizer is, for all that is in sight, one that the size means nothing to."""
    callee = getattr(misuse.node, "func", None)
    if not isinstance(callee, ast.Attribute):
        return False
    found = view.objects.origins.of(callee.value, misuse.function)
    return bool(found.origins) and all(
        isinstance(item.expression, ast.Call)
        and item.function.module.resolve(item.expression.func) in NORMALISING
        for item in found.origins
    )


def _through_scaler(view: FileView, misuse: Misuse) -> Repair | None:
    """Step through the scaler, and update it where nothing does."""
    statement = own_statement(misuse, view)
    call = misuse.node
    if not isinstance(statement, ast.Expr) or not is_unconditional(misuse):
        return None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return None
    if arguments(call) or call.func.attr != "step" or not any(calls_on(view, misuse, "scale")):
        return None
    step = Write(call, f"{misuse.scaler}.step({ast.unparse(call.func.value)})")
    if any(calls_on(view, misuse, "update")):
        return unsafe(step)
    return unsafe(step, Insert(statement, f"{misuse.scaler}.update()", after=True))
