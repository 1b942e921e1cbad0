"""# half-under-autocast (AMP403)

The trained model or its inputs are cast to float16 by hand although autocast runs the forward.

## What it does
Flags, in training code under a float16 autocast: inputs that are cast with `.half()` or
`.to(torch.float16)` for the trained model; and a trained model that is cast, where no scaler steps
its optimizer (with one it is AMP401). A frozen network in half precision, and inputs cast to its
dtype, are fine.

## Why is this bad?
Autocast decides for each operation which dtype is safe. A cast by hand comes before that: inputs
above 65504 become infinite, and what autocast would have kept in float32 (norms, losses) starts
from rounded numbers. Weights are rounded for good: with a float16 weight near 1, an update below
0.0005 changes nothing, so the model stops learning while the loss looks plausible.

## Example
```python
import torch

model = torch.nn.Sequential(torch.nn.LayerNorm(4), torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
inputs, targets = 1e5 * torch.randn(8, 4), torch.randn(8, 1)

for _ in range(4):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        outputs = model(inputs.half())
    loss = torch.nn.functional.mse_loss(outputs.float(), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
```

## Use instead
```python
import torch

model = torch.nn.Sequential(torch.nn.LayerNorm(4), torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
inputs, targets = 1e5 * torch.randn(8, 4), torch.randn(8, 1)

for _ in range(4):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        outputs = model(inputs)
    loss = torch.nn.functional.mse_loss(outputs.float(), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
```

## How it is confirmed
Executing both: with the cast the inputs are infinite, every step is skipped and nothing moves;
without it the normalisation runs in float32 and the model learns.

## Fix safety
No fix: removing the cast changes memory and numbers.

## Known limits
Inputs are judged where the cast, the autocast and the backward stand in one function, and what they
hold is not in sight: a cast of inputs is advice, as it only rounds images and the like. A model of
which some parameters are frozen, or that has adapters, is not judged.

## References
- PyTorch, Automatic Mixed Precision package: "Do not call half() or bfloat16() on your model(s) or
  inputs"
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.amp import links
from amplint.amp.grad_modes import is_off
from amplint.amp.halves import cast_of
from amplint.amp.names import AUTOCASTS
from amplint.amp.owned_halves import owned_halves
from amplint.amp.ownership import is_fused, owned_modules
from amplint.amp.scaling import evaluates, runs_backward
from amplint.code.expressions import path_text
from amplint.code.layout import layout_of
from amplint.code.module import CallSite, Function
from amplint.expectations import measured
from amplint.findings import Finding, Link, Severity, Standing
from amplint.rule import Rule
from amplint.values.provenance import Firmness, Origin, Step
from amplint.view import FileView

RULE = Rule(
    code="AMP403",
    name="half-under-autocast",
    severity=Severity.WARNING,
    effect="silent",
    summary="the trained model or its inputs are cast to float16 by hand under autocast",
    facts=("H07", "H12b", "H15"),
    probe=measured("half-weights", without="casts"),
)

INPUTS = "`{cast}` casts the inputs of `{model}` by hand: above 65504 they are infinite"
WEIGHTS = "the weights of `{model}` are rounded to float16 for good: small updates are lost"
INPUTS_HELP = "remove the cast"
WEIGHTS_HELP = "keep the weights in float32 and scale the loss with a GradScaler"


def check(view: FileView) -> Iterator[Finding]:
    """Report casts by hand in training code that runs under a float16 autocast."""
    regions = [site for site in view.module.calls if _is_training_region(view, site)]
    for region in regions:
        yield from _inputs(view, region)
    if regions and not view.roles.constructions:
        yield from _weights(view)


def _is_training_region(view: FileView, site: CallSite) -> bool:
    if site.dotted not in AUTOCASTS or evaluates(site.function):
        return False
    if site.node not in layout_of(site.function) or is_off(view.objects, site.node, site.function):
        return False
    found = view.regions.contexts.alternatives(site.node, site.function)
    is_half = any(cast is not None and cast.may_be_float16(view.values) for cast in found)
    return is_half and site.function.once(runs_backward)


# -- inputs ----------------------------------------------------------------------------------------


def _inputs(view: FileView, region: CallSite) -> Iterator[Finding]:
    """Casts of what a model called inside the region gets."""
    layout = layout_of(region.function)
    block = next((n for n in layout.ancestors(region.node) if isinstance(n, ast.With)), None)
    if block is None:
        return
    for call in layout.inside(block):
        if not isinstance(call, ast.Call) or not _is_trained(view, call, region.function):
            continue
        for argument in call.args:
            cast = _half_cast(view, argument, region.function)
            if cast is not None and not is_off(view.objects, call, region.function):
                yield _input_finding(view, region, call, cast)


def _half_cast(view: FileView, argument: ast.expr, function: Function) -> ast.Call | None:
    """The cast that an argument always comes from, without a dtype that a network gives."""
    found = view.values.origins.of(argument, function)
    if not found.complete or len(found.origins) != 1:
        return None
    origin = found.origins[0]
    node = origin.expression
    if not isinstance(node, ast.Call) or origin.function is not function:
        return None
    cast = cast_of(view, node, origin)
    if cast is None or cast.dtype != "float16" or origin.firmness is Firmness.CHOICE:
        return None
    return node if cast.value is None or cast.value.firmness is not Firmness.CHOICE else None


def _is_trained(view: FileView, call: ast.Call, function: Function) -> bool:
    """Whether a call runs a model whose parameters an optimizer of the file holds."""
    path = path_text(call.func)
    if path is None or path in _cast_models(view):
        return False
    return path in _owned(view)


def _cast_models(view: FileView) -> set[str | None]:
    """Models that are half themselves: their inputs have to be."""
    return {
        path_text(site.node.func.value)
        for site in view.module.calls
        if site.method in ("half", "to") and isinstance(site.node.func, ast.Attribute)
        if (cast := cast_of(view, site.node, Origin(site.node, site.function))) is not None
        and cast.dtype != "float32"
    }


def _owned(view: FileView) -> set[str | None]:
    """The names before `.parameters()` and `.train()`."""
    return {
        path_text(site.node.func.value)
        for site in view.module.calls
        if site.method in ("parameters", "train") and isinstance(site.node.func, ast.Attribute)
    } - {None, "self"}


def _input_finding(view: FileView, region: CallSite, call: ast.Call, cast: ast.Call) -> Finding:
    module = region.function.module
    steps = (
        Step(cast, module, "the inputs become float16"),
        Step(region.node, module, "autocast runs the forward in float16"),
        Step(call, module, "the trained model gets them"),
    )
    path = tuple(view.step(step.node, step.module, step.words) for step in steps)
    message = INPUTS.format(cast=view.source_of(cast), model=view.source_of(call.func))
    rests = (
        links.model(view, call.func, region.function),
        links.proved("region", region.node, "is a float16 autocast"),
        links.proved("value", cast, "is float16"),
        Link("value", Standing.GUESS, view.source_of(cast), "is above 65504 somewhere"),
    )
    return view.finding(RULE, cast, message, INPUTS_HELP, path=path, links=rests)


# -- weights ---------------------------------------------------------------------------------------


def _weights(view: FileView) -> Iterator[Finding]:
    """Float16 parameters of optimizers that are stepped without a scaler."""
    if "accelerat" in view.module.source.lower():
        return
    seen: set[ast.AST] = set()
    for site in view.module.calls:
        if site.method != "step" or not isinstance(site.node.func, ast.Attribute):
            continue
        receiver = site.node.func.value
        if not view.roles.is_optimizer(receiver, site.function):
            continue
        every = owned_modules(view, receiver, site.function)
        plain = [owned for owned in every if not is_fused(view, owned.optimizer)]
        for owned, half in owned_halves(view, plain, site.node):
            anchor = half.first_in(view.module) or site.node
            if half.firmness is Firmness.CHOICE or half.conditions or anchor in seen:
                continue
            seen.add(anchor)
            steps = (*half.steps, Step(site.node, site.function.module, "the step trains them"))
            path = [view.step(step.node, step.module, step.words) for step in steps]
            message = WEIGHTS.format(model=view.source_of(owned.module.expression))
            rests = (
                links.receiver_optimizer(view, site.node, site.function),
                *links.half_parameters(view, owned, half),
            )
            steps_shown = tuple(dict.fromkeys(path))
            yield view.finding(RULE, anchor, message, WEIGHTS_HELP, path=steps_shown, links=rests)
