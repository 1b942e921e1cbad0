"""# half-eps-underflow (AMP504)

An epsilon that is zero in float16 guards a division or a logarithm of a float16 tensor.

## What it does
Flags `x / (y + 1e-8)`, `torch.log(y + 1e-12)`, `torch.sqrt(y + 1e-10)` and the same with
`clamp(min=...)`, if `y` is float16 there: computed under autocast by a matrix product, a
convolution or a linear layer (through views, sigmoid, products with numbers), or cast with
`.half()`. The autocast may stand in the training loop of another file. Also flags Adam and its
relatives with such an `eps` (1e-8 is the default) over float16 parameters without a scaler.

## Why is this bad?
The smallest float16 above zero is about 6e-8, and constants up to 3e-8 are rounded to zero. The
guard is then none: `log(0)` is -inf with an infinite gradient, `0 / 0` is NaN, and the NaN is in
every parameter one step later (with a scaler: the step is skipped, again and again). Adam on
float16 parameters divides by `sqrt(v) + 0`: a parameter whose gradient is zero or tiny becomes NaN
in its first step.

## Example
```python
import torch

head = torch.nn.Linear(4, 1)
inputs = torch.full((8, 4), 40.0)
with torch.no_grad():
    head.weight.fill_(-1.0)
optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)

optimizer.zero_grad()
with torch.autocast("cpu", dtype=torch.float16):
    probability = torch.sigmoid(head(inputs))
    loss = -torch.log(probability + 1e-8).mean()
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
```

## Use instead
```python
import torch

head = torch.nn.Linear(4, 1)
inputs = torch.full((8, 4), 40.0)
with torch.no_grad():
    head.weight.fill_(-1.0)
optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)

optimizer.zero_grad()
with torch.autocast("cpu", dtype=torch.float16):
    logits = head(inputs)
    loss = -torch.nn.functional.logsigmoid(logits.float()).mean()
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
```

## How it is confirmed
Executing the bad example: the loss is infinite, the scaler skips the step and nothing moves. The
good one has a finite loss and trains.

## Fix safety
No fix. Compute the guarded expression in float32 (`y.float() + 1e-8`), or use an epsilon of 1e-6
or more, or a function made for it (`logsigmoid`, `log_softmax`, `F.normalize`).

## Known limits
A tensor is taken to be float16 only where its computation is in sight. Where a float16 region trains
something that is not in sight, and the project builds the module, the finding is only `info`. Operations that autocast
runs in float32 on CUDA (softmax, norms, sums, exponentials) end it, unless the tensor is cast by hand
and nothing in sight runs the function under autocast.

## References
- PyTorch, Automatic Mixed Precision package: CUDA Ops that can autocast to float16
- `torch.optim.Adam`: `eps` is added to the denominator in the dtype of the parameter
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.amp import links
from amplint.amp.halves import Half, halves_of
from amplint.amp.ownership import is_fused, owned_modules
from amplint.code.expressions import last_name
from amplint.code.layout import layout_of
from amplint.code.module import Function
from amplint.expectations import measured
from amplint.findings import Finding, Severity
from amplint.regions.float16 import HalfTensor, half_tensor
from amplint.rule import Rule
from amplint.values.provenance import Firmness, Origin, Step
from amplint.view import FileView

RULE = Rule(
    code="AMP504",
    name="half-eps-underflow",
    severity=Severity.WARNING,
    effect="silent",
    summary="an epsilon that is zero in float16 guards a division, a logarithm or Adam",
    facts=("H17",),
    probe=measured("vanishing"),
)

VANISHES = "`{eps}` is zero in float16, as `{tensor}` is{why}: {operation} is not guarded"
HELP = "compute in float32 (`{tensor}.float()`), or use an epsilon of at least 1e-6"
OPTIMIZER = "`{optimizer}` adds {eps:g}, which is zero in float16: parameters become NaN"
OPTIMIZER_HELP = "keep the parameters in float32 under autocast with a GradScaler, or use bfloat16"

#: Half of the smallest subnormal float16: this and everything below it rounds to zero.
_ZERO_BELOW = 2.0**-25
_GUARDED = frozenset(("log", "log2", "log10", "sqrt", "rsqrt", "reciprocal", "div", "divide"))
_ADAMS = frozenset(("Adam", "AdamW", "NAdam", "RAdam", "Adagrad", "RMSprop"))
_DEFAULT_EPS = 1e-8


def check(view: FileView) -> Iterator[Finding]:
    """Report epsilons that vanish, in expressions and in optimizers."""
    for function in view.module.functions:
        for node in layout_of(function).nodes:
            if not isinstance(node, (ast.BinOp, ast.Call)):
                continue
            operation = _operation(function, node)
            guarded = _guarded(view, node, function) if operation else None
            if guarded is None:
                continue
            tensor, eps = guarded
            half = half_tensor(view, view.regions, tensor, function)
            if half is not None:
                yield _finding(view, node, function, tensor, eps, operation, half)
    yield from _optimizers(view)


def _guarded(view: FileView, node: ast.AST, function: Function) -> tuple[ast.expr, ast.expr] | None:
    """The tensor and the epsilon in `y + eps` and `y.clamp(min=eps)`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        for tensor, eps in ((node.left, node.right), (node.right, node.left)):
            if _vanishes(view, eps, function):
                return tensor, eps
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr not in ("clamp", "clamp_min", "clamp_", "clip"):
            return None
        if function.module.resolve(node.func) is not None:
            tensors, numbers = node.args[:1], node.args[1:2]
        else:
            tensors, numbers = [node.func.value], node.args[:1]
        numbers = [*numbers, *(item.value for item in node.keywords if item.arg == "min")]
        for tensor, eps in zip(tensors, numbers):
            if _vanishes(view, eps, function):
                return tensor, eps
    return None


def _vanishes(view: FileView, eps: ast.expr, function: Function) -> bool:
    if isinstance(eps, ast.Constant):
        return isinstance(eps.value, float) and 0.0 < eps.value <= _ZERO_BELOW
    if not isinstance(eps, (ast.Name, ast.Attribute, ast.Subscript)):
        return False
    content = view.values.of(eps, function).only()
    return isinstance(content, float) and 0.0 < content <= _ZERO_BELOW


def _operation(function: Function, node: ast.AST) -> str:
    """What the guarded expression goes into: a division or a function; "" for neither."""
    parent = layout_of(function).parents.get(node)
    if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Div) and parent.right is node:
        return "the division"
    if isinstance(parent, ast.Attribute):
        call = layout_of(function).parents.get(parent)
        if isinstance(call, ast.Call) and call.func is parent and parent.attr in _GUARDED:
            return f"`{parent.attr}`"
    if isinstance(parent, ast.Call) and node in parent.args:
        name = last_name(parent.func)
        dotted = function.module.resolve(parent.func) or ""
        if name in _GUARDED and dotted.startswith("torch."):
            return f"`{name}`"
    return ""


def _finding(
    view: FileView,
    node: ast.AST,
    function: Function,
    tensor: ast.expr,
    eps: ast.expr,
    operation: str,
    half: HalfTensor,
) -> Finding:
    steps = [*half.steps(function.module)]
    steps.append(Step(node, function.module, f"`{view.source_of(eps)}` is zero in float16"))
    name = view.source_of(tensor)
    message = VANISHES.format(
        eps=view.source_of(eps),
        tensor=name,
        why=half.why,
        operation=operation,
    )
    path = tuple(view.step(step.node, step.module, step.words) for step in steps)
    rests = (half.link, half.tensor(tensor), links.proved("value", eps, "is zero in float16"))
    return view.finding(RULE, node, message, HELP.format(tensor=name), path=path, links=rests)


# -- optimizers ------------------------------------------------------------------------------------


def _optimizers(view: FileView) -> Iterator[Finding]:
    """Adam over float16 parameters in a file that scales nothing."""
    if view.roles.constructions or "accelerat" in view.module.source.lower():
        return
    for site in view.module.calls:
        dotted = site.dotted or ""
        name = dotted.rpartition(".")[2]
        if not dotted.startswith("torch.optim.") or name not in _ADAMS:
            continue
        built = Origin(site.node, site.function)
        eps = _eps(view, site.node, site.function)
        if eps is None or eps > _ZERO_BELOW or is_fused(view, built):
            continue
        for owned in owned_modules(view, site.node, site.function):
            halves = halves_of(view, owned.module) if not owned.selected else []
            for half in [h for h in halves if h.firmness is not Firmness.CHOICE][:1]:
                yield _optimizer_finding(view, site.node, half, name, eps)


def _eps(view: FileView, call: ast.Call, function: Function) -> float | None:
    for keyword in call.keywords:
        if keyword.arg == "eps":
            content = view.values.of(keyword.value, function).only()
            return content if isinstance(content, float) else None
        if keyword.arg is None:
            return None
    return _DEFAULT_EPS


def _optimizer_finding(
    view: FileView, call: ast.Call, half: Half, name: str, eps: float
) -> Finding:
    steps = (*half.steps, Step(call, view.module, "the optimizer owns them"))
    path = [view.step(step.node, step.module, step.words) for step in steps]
    message = OPTIMIZER.format(optimizer=name, eps=eps)
    rests = (
        links.proved("object", call, "is the optimizer"),
        links.proved("value", half.node, "makes its parameters float16"),
    )
    steps_shown = tuple(dict.fromkeys(path))
    return view.finding(RULE, call, message, OPTIMIZER_HELP, path=steps_shown, links=rests)
