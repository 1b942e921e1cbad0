"""# accelerate-with-own-scaler (AMP601)

A hand-made GradScaler beside an `Accelerator`, which scales by itself.

## What it does
Flags a training step that mixes the two: `accelerator.backward(scaler.scale(loss))` followed by
`optimizer.step()`, `accelerator.backward(loss)` followed by `scaler.step(optimizer)`, and a scaler
around objects of `accelerator.prepare(...)` where the accelerator was made with
`mixed_precision="fp16"`.

## Why is this bad?
Under `mixed_precision="fp16"` the accelerator owns a scaler: its `backward` scales, and the step of
a prepared optimizer unscales, skips and updates. A loss that was scaled before arrives multiplied
twice and is divided once: the update of the example is 65536 times too large. The other way round,
the hand-made scaler has never scaled anything and `scaler.step` raises `AssertionError: Attempted
step but _scale is None`. Both happen with every setting of `mixed_precision`, `"no"` included.

## Example
```python
import torch
from accelerate import Accelerator

accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = accelerator.prepare(model, optimizer)
scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)

for _ in range(4):
    inputs, targets = torch.randn(8, 4), torch.randn(8, 1)
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    accelerator.backward(scaler.scale(loss))
    optimizer.step()
```

## Use instead
```python
import torch
from accelerate import Accelerator

accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = accelerator.prepare(model, optimizer)

for _ in range(4):
    inputs, targets = torch.randn(8, 4), torch.randn(8, 1)
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    accelerator.backward(loss)
    optimizer.step()
```

## How it is confirmed
Executing the step with accelerate 1.15 shows the update, or the exception. The double scaling under
`fp16` needs a CUDA device.

## Fix safety
No fix is offered: several statements have to go.

## Known limits
The accelerator is known by its constructor, or by its name in a file that imports accelerate. A
scaler that is handed to the accelerator, or used in a branch without it, is not flagged.

## References
- accelerate, `accelerator.py`: `Accelerator.backward`; `optimizer.py`: `AcceleratedOptimizer.step`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.amp import links
from amplint.amp.accelerators import ACCELERATOR, precisions_of
from amplint.amp.library_objects import calls_on
from amplint.amp.scaler_calls import scaler_calls
from amplint.amp.scaling import scale_words
from amplint.code.dataflow import bindings_of
from amplint.code.expressions import path_text
from amplint.code.layout import layout_of
from amplint.code.module import CallSite
from amplint.expectations import IN_A_LIBRARY
from amplint.findings import Finding, Severity
from amplint.rule import Rule
from amplint.view import FileView

RULE = Rule(
    code="AMP601",
    name="accelerate-with-own-scaler",
    severity=Severity.ERROR,
    effect="crash/silent",
    summary="a hand-made `GradScaler` beside `accelerator.backward` or prepared objects",
    unprobed=IN_A_LIBRARY,
)

SCALED = "the loss of `{backward}` is scaled by hand, and `{step}` does not unscale ({scale})"
NEVER_SCALED = (
    "`{backward}` does not use `{scaler}`: `AssertionError: Attempted step but _scale is None`"
)
TWICE = "the accelerator scales by itself: with `{scaler}` the loss is scaled twice"
HELP = (
    "drop the GradScaler: `accelerator.backward(loss)`, `accelerator.clip_grad_norm_(...)` and "
    "`optimizer.step()` of a prepared optimizer do everything"
)


def check(view: FileView) -> Iterator[Finding]:
    """Report each backward of an accelerator that a hand-made scaler takes part in."""
    if "ccelerat" not in view.module.source:
        return
    for backward in calls_on(view.objects, view.module, ACCELERATOR, "backward"):
        if backward.node not in layout_of(backward.function) or not backward.node.args:
            continue
        message = _message(view, backward)
        if message is not None:
            accelerator = backward.node.func.value  # type: ignore[attr-defined]
            rests = (
                links.library_object(view, accelerator, backward.function),
                links.proved("effect", backward.node, "scales by itself"),
            )
            yield view.finding(RULE, backward.node, message, HELP, links=rests)


def _message(view: FileView, backward: CallSite) -> str | None:
    scaled_by = _scaled_by(view, backward)
    steps = list(_steps_after(view, backward))
    scale = scale_words(view, scaled_by, backward.function) if scaled_by else ""
    words = {"backward": view.source_of(backward.node.func), "scaler": scaled_by, "scale": scale}
    own = [site for site in steps if site.node.args]
    if scaled_by and own:
        return TWICE.format_map(words) if _is_fp16(view, backward) else None
    if scaled_by and steps:
        return SCALED.format(step=view.source_of(steps[0].node), **words)
    if scaled_by or not own or any(scaler_calls(view, "scale", "unscale_")):
        return None
    words["scaler"] = view.source_of(own[0].node.func.value)  # type: ignore[attr-defined]
    return NEVER_SCALED.format(step=view.source_of(own[0].node), **words)


def _scaled_by(view: FileView, backward: CallSite) -> str:
    """The scaler whose `scale(...)` is handed to the backward, as the code writes it."""
    loss = backward.node.args[0]
    values: list[ast.AST] = [loss]
    bound = bindings_of(backward.function).get(path_text(loss) or "", [])
    layout = layout_of(backward.function)
    before = [item for item in bound if layout.before(item.statement, backward.node)]
    values += [item.value for item in before[-1:] if item.value is not None]
    for site in scaler_calls(view, "scale", within=backward.function):
        if any(site.node is part for value in values for part in ast.walk(value)):
            return view.source_of(site.node.func.value)  # type: ignore[attr-defined]
    return ""


def _steps_after(view: FileView, backward: CallSite) -> Iterator[CallSite]:
    """Steps of a scaler (with an argument) or of an optimizer behind the backward."""
    layout = layout_of(backward.function)
    own = {site.node for site in scaler_calls(view, "step", within=backward.function)}
    for site in view.module.calls:
        if site.function is not backward.function or site.method != "step":
            continue
        if site.node not in layout or not layout.before(backward.node, site.node):
            continue
        if layout.exclusive(backward.node, site.node) or not isinstance(
            site.node.func, ast.Attribute
        ):
            continue
        if site.node in own or view.roles.is_optimizer(site.node.func.value, site.function):
            yield site


def _is_fp16(view: FileView, backward: CallSite) -> bool:
    accelerator = backward.node.func.value  # type: ignore[attr-defined]
    settings = precisions_of(view, accelerator, backward.function)
    return any(item.possible.only() == "fp16" for item in settings)
