"""# recompute-outside-autocast (AMP512)

An autograd function recomputes its forward in the backward, where autocast is off.

## What it does
Flags a `torch.autograd.Function` that keeps a function on `ctx`, calls it again in `backward` with
gradients enabled, has no `custom_bwd` or autocast of its own, and is applied inside an autocast region
of the project: gradient checkpointing by hand. `custom_fwd` alone changes nothing there, unless its
`cast_inputs` switches autocast off for the forward, too.

## Why is this bad?
Autocast is on while the forward runs, and off when `backward()` is called behind the region. The
second run is another computation: float32 weights meet the half-precision inputs that were kept,
`RuntimeError: mat1 and mat2 must have the same dtype, but got BFloat16 and Float`. Where every input
is float32 it runs through, in float32: it takes more than the memory that it was to save, and the
gradients belong to other values than the loss was computed from.

## Example
```python
import torch


class Again(torch.autograd.Function):
    @staticmethod
    def forward(ctx, run, inputs, *weights):
        ctx.run, ctx.inputs, ctx.weights = run, inputs, weights
        return run(inputs)

    @staticmethod
    def backward(ctx, gradient):
        inputs = ctx.inputs.detach().requires_grad_(True)
        with torch.enable_grad():
            outputs = ctx.run(inputs)
        found = torch.autograd.grad(outputs, (inputs, *ctx.weights), gradient)
        return (None, *found)


first, second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)

with torch.autocast("cpu", dtype=torch.bfloat16):
    hidden = first(torch.randn(8, 4))
    outputs = Again.apply(second, hidden, *second.parameters())
outputs.float().square().mean().backward()
optimizer.step()
```

## Use instead
```python
import torch
from torch.utils.checkpoint import checkpoint

first, second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)

with torch.autocast("cpu", dtype=torch.bfloat16):
    hidden = first(torch.randn(8, 4))
    outputs = checkpoint(second, hidden, use_reentrant=False)
outputs.float().square().mean().backward()
optimizer.step()
```

## How it is confirmed
Executing the example raises the error above. The probe does not look for it: which dtypes meet is a
matter of your layers.

## Fix safety
No fix is offered. Besides torch's own checkpoint, plain `torch.amp.custom_fwd` and `custom_bwd` with
the device's type bring autocast back.

## Known limits
A backward that is itself called under autocast is not told apart (that is AMP501). A function that is
applied out of sight of any region is not flagged.

## References
- PyTorch, `torch/utils/checkpoint.py`: `CheckpointFunction.backward` enters autocast as it was
- PyTorch, Automatic Mixed Precision examples: "Autocast and Custom Autograd Functions"
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.amp import links
from amplint.amp.grad_modes import ON, OPEN, switched
from amplint.code.arguments import first_parameter
from amplint.code.expressions import last_name, path_text
from amplint.code.layout import layout_of
from amplint.code.module import Class, Function
from amplint.findings import Finding, Severity
from amplint.regions.callers import applied_inside
from amplint.regions.islands import AUTOGRAD_FUNCTIONS, casting
from amplint.regions.training import path_to
from amplint.rule import Rule
from amplint.view import FileView

RULE = Rule(
    code="AMP512",
    name="recompute-outside-autocast",
    severity=Severity.WARNING,
    effect="crash/silent",
    summary="an autograd function recomputes its forward without the autocast that it ran under",
    unprobed="which dtypes meet depends on your layers",
)  #: Decorators that keep, for `custom_bwd`, which autocast was on.
_KEEPS = frozenset(
    ("torch.amp.custom_fwd", "torch.amp.autocast_mode.custom_fwd", "torch.cuda.amp.custom_fwd")
    + ("torch.cuda.amp.autocast_mode.custom_fwd",)
)

MESSAGE = (
    "`{name}` recomputes without the autocast of its forward ({where}): in float32, or it raises"
)
HELP = "use `torch.utils.checkpoint.checkpoint`, which recomputes under the autocast of the forward"


def check(view: FileView) -> Iterator[Finding]:
    """Report each such function of the file that an autocast region reaches."""
    if "enable_grad" not in view.module.source or "autograd" not in view.module.source:
        return
    for owner in view.module.classes.values():
        if not view.objects.base_names(owner) & AUTOGRAD_FUNCTIONS:
            continue
        again = _recomputed(view, owner)
        if again is None:
            continue
        for region, item in applied_inside(view, view.regions, owner):
            where = f"line {view.row_of(region.opened)}"
            if region.function.module is not view.module:
                where += f" of `{region.function.module.filename.rpartition('/')[2]}`"
            rests = (
                region.link,
                links.proved("object", item.call, f"applies {owner.name}"),
                links.proved("effect", again, "runs the forward again"),
            )
            path = path_to(view, region, item, f"`{owner.name}` runs with autocast on")
            message = MESSAGE.format(name=owner.name, where=where)
            yield view.finding(RULE, again, message, HELP, path=path, links=rests)
            break


def _recomputed(view: FileView, owner: Class) -> ast.Call | None:
    """The call in `backward` that runs what `forward` was given; None where there is none."""
    backward = owner.methods.get("backward")
    if backward is None or "forward" not in owner.methods or _looks_after(view, owner):
        return None
    context = first_parameter(backward)
    for node in layout_of(backward).nodes:
        if not isinstance(node, ast.Call) or not context:
            continue
        path = path_text(node.func) or ""
        if (
            path.startswith(f"{context}.")
            and path.count(".") == 1
            and _with_gradients(backward, node)
        ):
            return node
    return None


def _looks_after(view: FileView, owner: Class) -> bool:
    """Whether a function asks for autocast, or its decorators make the two runs alike.

    `custom_fwd` alone keeps for `custom_bwd` what autocast was; with `cast_inputs` it switches
    autocast off, as it is off in the backward.
    """
    words = (last_name(node) for node in ast.walk(owner.node) if isinstance(node, ast.expr))
    if any("autocast" in word for word in words):
        return True
    if casting(view.objects, owner.methods["backward"]):
        return True
    return not all(
        item.dotted in _KEEPS and "cast_inputs" not in item.given.named and not item.given.spread
        for item in casting(view.objects, owner.methods["forward"])
    )


def _with_gradients(backward: Function, call: ast.Call) -> bool:
    """Whether gradients are on for a call, and nothing else around it may set what autocast is."""
    items = [
        item.context_expr
        for outer in layout_of(backward).ancestors(call)
        if isinstance(outer, (ast.With, ast.AsyncWith))
        for item in outer.items
    ]
    others = [item for item in items if switched(item, backward.module) not in (ON, OPEN)]
    return len(others) < len(items) and all(
        (backward.module.resolve(_callee(item)) or "").startswith("torch.") for item in others
    )


def _callee(item: ast.expr) -> ast.expr:
    return item.func if isinstance(item, ast.Call) else item
