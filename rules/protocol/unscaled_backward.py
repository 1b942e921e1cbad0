"""# unscaled-backward (AMP113)

`scaler.step` divides gradients by the loss scale that were never multiplied with it.

## What it does
Flags a `scaler.step` or `scaler.unscale_` whose gradients come from a plain `loss.backward()`,
alone or added to those of a scaled backward, and losses that add a scaled and an unscaled term.

## Why is this bad?
The step divides every gradient by the loss scale of 65536. Those of a plain backward all but
vanish: the update is 1.5e-5 of the right one with SGD and 0.94 with Adam. Where one of two equal
losses is not scaled, its half of the update is lost. Nothing is raised, except when the scaler has
never scaled anything: then it is
`AssertionError: Attempted unscale_ but _scale is None.`

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
    auxiliary_loss = torch.nn.functional.l1_loss(model(inputs), targets)
    auxiliary_loss.backward()
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
    auxiliary_loss = torch.nn.functional.l1_loss(model(inputs), targets)
    scaler.scale(auxiliary_loss).backward()
    scaler.step(optimizer)
    scaler.update()
```

## How it is confirmed
Executing the function with the scaler on and off moves the parameters by different amounts.

## Fix safety
Unsafe: the update grows by the loss scale. The loss of the plain backward is scaled where it is the
only one of the function, stands under no condition, and the path assumes nothing. Elsewhere it may be
meant for another optimizer, or for training without AMP.

## Known limits
A plain backward on a loss of its own (an attack, a visualisation) counts only if its gradients can
reach the optimizer. Guards that disagree are AMP201, a dropped result of `scaler.scale` is AMP114.

## References
- PyTorch, Automatic Mixed Precision examples: "Working with Multiple Models, Losses, and
  Optimizers"
- `torch/amp/grad_scaler.py`: `GradScaler.scale`, `GradScaler._unscale_grads_`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.code.layout import layout_of
from amplint.expectations import PLAIN, breaks
from amplint.findings import Finding, Severity
from amplint.fixing.statements import calls_on, is_unconditional
from amplint.fixing.verbs import Repair, Write, unsafe
from amplint.rule import Misuse, Rule
from amplint.view import FileView
from amplint.wording import report

RULE = Rule(
    code="AMP113",
    name="unscaled-backward",
    severity=Severity.ERROR,
    effect="silent",
    summary="`scaler.step` on gradients of a plain `loss.backward()`",
    facts=("S03", "B14", "B25"),
    fix="unsafe",
    probe=breaks("unscale-uninitialised", "step-uninitialised", *PLAIN),
)

MESSAGES = {
    "": "gradients that were never scaled are divided by the loss scale{when}, {scale}",
    "unscale-of-plain": (
        "this `{method}` divides gradients of a plain backward{at} by the loss scale{when}, {scale}"
    ),
    "unscale-of-plain never": (
        "`{scaler}` never scales a loss: `AssertionError: Attempted {method} but _scale is None.`"
    ),
    "step-on-mixed": (
        "scaled and plain gradients meet in this `{method}`{when}: the plain part is lost ({scale})"
    ),
    "losses-mixed": "a scaled and a plain loss are added{when}: the plain part is lost ({scale})",
    "unscale-uninitialised": (
        "`{scaler}` has scaled no loss before this `unscale_`{when}: {error}"
    ),
}
HELPS = {
    "": "backward through the scaler: `{scaler}.scale({loss}).backward()`",
    "step-on-mixed": "scale every loss of the step: `{scaler}.scale({loss}).backward()`",
    "losses-mixed": "add the losses first and scale the sum: `{scaler}.scale(...)`",
}


def check(view: FileView) -> Iterator[Finding]:
    """Report the steps that divide unscaled gradients."""
    return report(view, RULE, MESSAGES, HELPS, _scale_it)


def _scale_it(view: FileView, misuse: Misuse) -> Repair | None:
    """Scale the loss of the only plain backward of the function, which no branch holds."""
    if misuse.function.module is not view.module or not is_unconditional(misuse):
        return None
    layout = layout_of(misuse.function)
    scaled = {site.node for site in calls_on(view, misuse, "scale")}
    plain = [
        (node, node.func.value)
        for node in layout.nodes
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "backward"
        and not scaled & {*layout.inside(node.func.value)}
    ]
    if len(plain) != 1 or layout.conditions(plain[0][0]) or not misuse.scaler:
        return None
    return unsafe(Write(plain[0][1], f"{misuse.scaler}.scale({{}})"))
