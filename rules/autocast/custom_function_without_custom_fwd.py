"""# custom-function-without-custom-fwd (AMP505)

An autograd function multiplies matrices, is called under autocast, and does not say how.

## What it does
Flags a `torch.autograd.Function` whose `forward` and `backward` both hold matrix products or
convolutions, whose `apply` runs inside an autocast region of the project, and which has neither
`custom_fwd` nor `custom_bwd`.

## Why is this bad?
Autocast casts the products in `forward`, so the function's output and the gradient that comes back
are in half precision. What `forward` has saved is as it came in: float32 weights. Autocast is off
during the backward, so nothing brings the two together: `RuntimeError: expected m1 and m2 to have
the same dtype, but got: c10::BFloat16 != float`.

## Example
```python
import torch


class Project(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs, weight):
        ctx.save_for_backward(inputs, weight)
        return inputs.mm(weight)

    @staticmethod
    def backward(ctx, grad):
        inputs, weight = ctx.saved_tensors
        return grad.mm(weight.t()), inputs.t().mm(grad)


weight = torch.nn.Parameter(torch.randn(4, 1))
optimizer = torch.optim.SGD([weight], lr=0.1)

with torch.autocast("cpu", dtype=torch.bfloat16):
    outputs = Project.apply(torch.randn(8, 4), weight)
outputs.float().square().mean().backward()
optimizer.step()
```

## Use instead
```python
import torch


class Project(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx, inputs, weight):
        ctx.save_for_backward(inputs, weight)
        return inputs.mm(weight)

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx, grad):
        inputs, weight = ctx.saved_tensors
        return grad.mm(weight.t()), inputs.t().mm(grad)


weight = torch.nn.Parameter(torch.randn(4, 1))
optimizer = torch.optim.SGD([weight], lr=0.1)

with torch.autocast("cpu", dtype=torch.bfloat16):
    outputs = Project.apply(torch.randn(8, 4), weight)
outputs.float().square().mean().backward()
optimizer.step()
```

## How it is confirmed
Executing forward and backward raises the `RuntimeError`, or the gradients differ from those of the
same function outside autocast.

## Fix safety
Unsafe: the function then computes in float32, on every device that autocast is on for. Both methods
get their decorators where autocast is for one device, and every torch in question has them (2.4 and
newer). Plain `custom_fwd`, which runs the backward under autocast, is faster where the function can do
with half precision.

## Known limits
Functions of single elements (a gradient reversal, a straight-through estimator) need nothing and are
not flagged, nor are kernels of extensions, whose dtypes are not known. A function that casts by
itself in `backward`, or mentions autocast, is taken to know what it does.

## References
- PyTorch, Automatic Mixed Precision examples: "Autocast and Custom Autograd Functions"
- `torch/amp/autocast_mode.py`: `custom_fwd`, `custom_bwd`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.amp import links
from amplint.amp.half_tensors import LOWERED
from amplint.amp.old_amp import SINCE
from amplint.amp.target_torch import target_torch
from amplint.code.expressions import last_name
from amplint.code.module import Class, Function
from amplint.findings import Finding, Severity
from amplint.fixing.statements import torch_in
from amplint.fixing.verbs import Decorate, Repair, unsafe
from amplint.regions.callers import applied_inside
from amplint.regions.islands import AUTOGRAD_FUNCTIONS, casting
from amplint.regions.regions import Inside, Region
from amplint.regions.training import path_to
from amplint.rule import Rule
from amplint.view import FileView

RULE = Rule(
    code="AMP505",
    name="custom-function-without-custom-fwd",
    severity=Severity.WARNING,
    effect="crash/silent",
    summary="an autograd function with matrix products under autocast, without `custom_fwd`",
    facts=("A12", "A12b", "B16b"),
    fix="unsafe",
    unprobed="the matrix products of a custom function need the shapes of your data",
)

#: A function that does one of these looks after its dtypes.
LOOKS_AFTER = frozenset(
    ("to", "type_as", "type", "float", "half", "bfloat16", "double", "autocast")
    + ("is_autocast_enabled", "get_autocast_dtype", "get_autocast_gpu_dtype", "dtype")
)
MESSAGE = (
    "`{name}` runs under autocast ({where}) without `custom_fwd`: its backward mixes two dtypes"
)
HELP = (
    'decorate `forward` with `torch.amp.custom_fwd(device_type="{device}", '
    'cast_inputs=torch.float32)` and `backward` with `torch.amp.custom_bwd(device_type="{device}")`'
)


def check(view: FileView) -> Iterator[Finding]:
    """Report each such function of the file that an autocast region reaches."""
    if "autograd" not in view.module.source:
        return
    regions = view.regions
    for owner in view.module.classes.values():
        if not view.objects.base_names(owner) & AUTOGRAD_FUNCTIONS or not _needs_one_dtype(owner):
            continue
        if any(casting(view.objects, owner.methods[name]) for name in ("forward", "backward")):
            continue
        for region, item in applied_inside(view, regions, owner):
            yield _finding(view, owner, region, item)
            break


def _finding(view: FileView, owner: Class, region: Region, item: Inside) -> Finding:
    where = f"line {view.row_of(region.opened)}"
    if region.function.module is not view.module:
        where += f" of `{region.function.module.filename.rpartition('/')[2]}`"
    device = min(map(str, region.cast.devices or ("cuda",)))
    is_one = len(region.cast.devices or ()) == 1
    return view.finding(
        RULE,
        owner.node.bases[0],
        MESSAGE.format(name=owner.name, where=where),
        HELP.format(device=device),
        path=path_to(view, region, item, f"`{owner.name}` runs with autocast on"),
        links=(region.link, links.proved("object", item.call, f"applies {owner.name}")),
        fix=_in_float32(view, owner, device) if is_one else None,
    )


def _in_float32(view: FileView, owner: Class, device: str) -> Repair | None:
    """Decorate both methods, where every torch in question has the decorators."""
    target, torch = target_torch(view.project, view.module), torch_in(view)
    forward, backward = owner.methods["forward"].node, owner.methods["backward"].node
    if torch is None or (target is not None and target < SINCE["custom_fwd"]):
        return None
    if not isinstance(forward, ast.FunctionDef) or not isinstance(backward, ast.FunctionDef):
        return None
    name, imports = torch
    word = f'device_type="{device}"'
    cast = f"{name}.amp.custom_fwd({word}, cast_inputs={name}.float32)"
    back = f"{name}.amp.custom_bwd({word})"
    return unsafe(Decorate(forward, cast), Decorate(backward, back), *imports)


def _needs_one_dtype(owner: Class) -> bool:
    """Whether forward and backward multiply, and nothing in the class looks after dtypes."""
    forward, backward = owner.methods.get("forward"), owner.methods.get("backward")
    if forward is None or backward is None or not _multiplies(forward):
        return False
    words = {last_name(node) for node in ast.walk(owner.node) if isinstance(node, ast.expr)}
    return _multiplies(backward) and not words & LOOKS_AFTER


def _multiplies(function: Function) -> bool:
    return any(
        (isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult))
        or (isinstance(node, ast.Call) and last_name(node.func) in LOWERED)
        for node in function.nodes
    )
