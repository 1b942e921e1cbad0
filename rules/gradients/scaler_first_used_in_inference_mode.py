"""# scaler-first-used-in-inference-mode (AMP307)

The first `scaler.scale` of a run happens under `torch.inference_mode`.

## What it does
Flags `scaler.scale(...)` under `torch.inference_mode` (a block or a decorator) where the same
function, or the function that calls it, scales its first training loss only afterwards.

## Why is this bad?
A scaler makes its scale tensor at its first use. Under `inference_mode` that is an inference
tensor, for good. A validation pass before the first epoch is enough, and the training that follows raises

    RuntimeError: Inference tensors cannot be saved for backward. Please do not use Tensors created
    in inference mode in computation tracked by autograd. To work around this, you can make a clone
    to get a normal tensor and use it in autograd, or use `torch.no_grad()` instead of
    `torch.inference_mode()`.

## Example
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)
inputs, targets = torch.randn(8, 4), torch.randn(8, 1)

with torch.inference_mode():
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    print(scaler.scale(loss).item() / scaler.get_scale())

for _ in range(4):
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
scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)
inputs, targets = torch.randn(8, 4), torch.randn(8, 1)

with torch.inference_mode():
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    print(loss.item())

for _ in range(4):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
```

## How it is confirmed
Executing the validation and the first training step raises the error.

## Fix safety
No fix is offered. A loss that is only looked at needs no scaling: use it as it is.

## Known limits
Only an order that stands in one function, or in the function that calls both, is seen. `no_grad`
does no harm.

## References
- `torch/amp/grad_scaler.py`: `GradScaler.scale`, `_lazy_init_scale_growth_tracker`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.amp import links
from amplint.amp.grad_modes import mode_at
from amplint.amp.scaler_calls import scaler_calls
from amplint.code.dataflow import receiver
from amplint.code.layout import layout_of
from amplint.code.module import CallSite, Function
from amplint.expectations import INFERENCE_TENSORS, caused
from amplint.findings import Finding, Severity
from amplint.rule import Rule
from amplint.view import FileView

RULE = Rule(
    code="AMP307",
    name="scaler-first-used-in-inference-mode",
    severity=Severity.ERROR,
    effect="crash",
    summary="the first `scale()` of a scaler under `torch.inference_mode`",
    facts=("S40",),
    probe=caused("inference-mode", *INFERENCE_TENSORS, everywhere=True),
)

MESSAGE = (
    "the first `scale()` runs under `inference_mode`: the training on line {row} raises "
    "`RuntimeError`"
)
HELP = "use the loss unscaled here; only a loss that is backwarded needs the scaler"


def check(view: FileView) -> Iterator[Finding]:
    """Report the scaling, or the call that leads to it, before the first training."""
    scales = list(scaler_calls(view, "scale"))
    inferring = [
        site
        for site in scales
        if mode_at(view.objects, site.node, site.function) == "inference_mode"
    ]
    training = [site for site in scales if site not in inferring]
    for site in inferring:
        later = _trained_later(view, site, training)
        if later is not None:
            step = view.step(later.node, view.module, "the training comes afterwards")
            message = MESSAGE.format(row=view.row_of(later.node))
            rests = (
                links.scaler_named(view, receiver(site.node), site.function),
                links.proved("region", site.node, "runs under inference_mode"),
            )
            yield view.finding(RULE, site.node, message, HELP, path=(step,), links=rests)


def _trained_later(view: FileView, site: CallSite, training: list[CallSite]) -> CallSite | None:
    """The training that comes after an inferring scale, if none may come before it."""
    here = _order(view, site.function, {site.function}, site.node)
    if here is None:
        return None
    function, node = here
    layout = layout_of(function)
    first: CallSite | None = None
    for other in training:
        place = _place(view, other, function)
        if place is None:
            continue
        if not layout.before(node, place):
            return None
        first = first or other
    return first


def _order(
    view: FileView, function: Function, seen: set[Function], node: ast.Call
) -> tuple[Function, ast.Call] | None:
    """The function whose order of calls decides: where nobody calls it from this file."""
    callers = [
        call
        for call in view.objects.calls_of(function)
        if call.function.module is view.module and call.function not in seen
    ]
    if not callers:
        return function, node
    caller = min(callers, key=lambda call: call.node.lineno)  # the first of several decides
    if any(call.function is not caller.function for call in callers):
        return None
    if caller.node not in layout_of(caller.function):
        return None
    return _order(view, caller.function, seen | {caller.function}, caller.node)


def _place(view: FileView, site: CallSite, function: Function) -> ast.Call | None:
    """The call in `function` that runs a site; the first one, None if there is none."""
    if site.function is function:
        return site.node
    calls = [call for call in view.objects.calls_of(site.function) if call.node is not site.node]
    found = (
        call.node if call.function is function else _place(view, call, function)
        for call in calls
        if call.function is not site.function
    )
    return next((node for node in found if node is not None), None)
