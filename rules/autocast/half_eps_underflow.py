"""# half-eps-underflow (AMP504)

An epsilon that is lost in float16 guards a division or a logarithm of a float16 tensor.

## What it does
Flags `x / (y + 1e-8)`, `torch.log(y + 1e-12)`, `torch.sqrt(y + 1e-10)` and the same with
`clamp(min=...)`, and `torch.log(1 - p)` where `p = y.clamp(max=1 - 1e-7)`, if `y` is float16 there:
computed under autocast by a matrix product, a
convolution or a linear layer (through views, sigmoid, products with numbers), or cast with
`.half()`. The autocast may stand in the training loop of another file. Also flags Adam and its
relatives with such an `eps` (1e-8 is the default) over float16 parameters without a scaler.

## Why is this bad?
The smallest float16 above zero is about 6e-8, and constants up to 3e-8 are rounded to zero; the
greatest below one is about 0.9995, and bounds from 0.99976 on are rounded to one. The guard is then
none: `log(0)` is -inf with an infinite gradient, `0 / 0` is NaN, and the NaN is in
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
or more (5e-4 below one), or a function made for it (`logsigmoid`, `log_softmax`, `F.normalize`).

## Known limits
A tensor is taken to be float16 only where its computation is in sight: through assignments, results
of functions and models, dicts that they return, and parameters that a call gives float16. Where a float16 region trains
something that is not in sight, and the project builds the module, the finding is only `info`. Operations that autocast
runs in float32 on CUDA (softmax, norms, sums, exponentials) end it, unless the tensor is cast by hand
and nothing in sight runs the function under autocast.

## References
- PyTorch, Automatic Mixed Precision package: CUDA Ops that can autocast to float16
- `torch.optim.Adam`: `eps` is added to the denominator in the dtype of the parameter
"""

from __future__ import annotations

import ast
import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from amplint.amp import links
from amplint.amp.halves import Half, halves_of
from amplint.amp.ownership import is_fused, owned_modules
from amplint.code.dataflow import constant_of
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
    summary="an epsilon that is lost in float16 guards a division, a logarithm or Adam",
    facts=("H17",),
    probe=measured("vanishing"),
)

VANISHES = "`{eps}` is {value} in float16, as `{tensor}` is{why}: {operation} is not guarded"
HELP = "compute in float32 (`{tensor}.float()`), or use an epsilon of at least {least}"
OPTIMIZER = "`{optimizer}` adds {eps:g}, which is zero in float16: parameters become NaN"
OPTIMIZER_HELP = "keep the parameters in float32 under autocast with a GradScaler, or use bfloat16"

#: Half of the smallest subnormal float16: this and everything below it rounds to zero.
_ZERO_BELOW = 2.0**-25
#: Half of the way from the greatest float16 below one: this and everything up to one rounds to one.
_ONE_ABOVE = 1.0 - 2.0**-12
_CLAMPS = frozenset(("clamp", "clamp_", "clip", "clip_"))
_LOWER = _CLAMPS | {"clamp_min", "clamp_min_"}
_UPPER = _CLAMPS | {"clamp_max", "clamp_max_"}
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
            lost = _lost(view, node, function) if operation else None
            if lost is None:
                continue
            half = half_tensor(view, view.regions, lost.tensor, lost.function)
            if half is not None:
                yield _finding(view, lost, operation, half)
    yield from _optimizers(view)


@dataclass(frozen=True, slots=True)
class _Lost:
    """A guard that is none.

    Args:
        node: `y + eps`, or the `clamp`.
        tensor: what it guards.
        eps: the epsilon, or the bound.
        function: that holds it.
        value: what that is in float16, in words.
        least: the smallest epsilon that is not lost, in words.
    """

    node: ast.expr
    tensor: ast.expr
    eps: ast.expr
    function: Function
    value: str = "zero"
    least: str = "1e-6"


def _lost(view: FileView, node: ast.AST, function: Function) -> _Lost | None:
    """What is lost in `y + eps`, `y.clamp(min=eps)`, and in `1 - y.clamp(max=1 - eps)`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        for tensor, eps in ((node.left, node.right), (node.right, node.left)):
            if _vanishes(view, eps, function):
                return _Lost(node, tensor, eps, function)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
        return _saturated(view, node, function) if constant_of(node.left) == 1 else None
    bound = _bound(node, function, _LOWER, "min", 0) if isinstance(node, ast.Call) else None
    if bound is None or not _vanishes(view, bound[1], function):
        return None
    assert isinstance(node, ast.expr)
    return _Lost(node, *bound, function)


def _saturated(view: FileView, node: ast.BinOp, function: Function) -> _Lost | None:
    """The clamp below one of what is taken from one, whose bound is one in float16."""
    found = view.objects.origins.of(node.right, function)
    origin = found.origins[0] if found.complete and len(found.origins) == 1 else None
    if origin is None or origin.function.module is not view.module:
        return None
    if not isinstance(origin.expression, ast.Call):
        return None
    bound = _bound(origin.expression, origin.function, _UPPER, "max", 1)
    if bound is None or not _ONE_ABOVE <= _number(view, bound[1], origin.function) < 1.0:
        return None
    return _Lost(origin.expression, *bound, origin.function, value="one", least="5e-4")


def _bound(
    call: ast.Call, function: Function, names: Collection[str], keyword: str, index: int
) -> tuple[ast.expr, ast.expr] | None:
    """The tensor and a bound of a `clamp`; `clamp_min` and `clamp_max` have one alone.

    Args:
        index: the place of the bound behind the tensor.
    """
    name = last_name(call.func)
    if name not in names:
        return None
    given = [*call.args]
    if function.module.resolve(call.func) is None:
        if not isinstance(call.func, ast.Attribute):
            return None
        given.insert(0, call.func.value)
    place = 1 + index if name in _CLAMPS else 1
    numbers = given[place : place + 1]
    numbers += [item.value for item in call.keywords if item.arg == keyword]
    return (given[0], numbers[0]) if given and numbers else None


def _number(view: FileView, expression: ast.expr, function: Function) -> float:
    """What a bound is, `1 - 1e-7` computed; NaN if that is not known."""
    if isinstance(expression, ast.BinOp) and isinstance(expression.op, ast.Sub):
        left = _number(view, expression.left, function)
        return left - _number(view, expression.right, function)
    content = constant_of(expression)
    if content is ...:
        content = view.values.of(expression, function).only()
    return float(content) if isinstance(content, (int, float)) else math.nan


def _vanishes(view: FileView, eps: ast.expr, function: Function) -> bool:
    if isinstance(eps, ast.Constant):
        return _is_lost(eps.value)
    if not isinstance(eps, (ast.Name, ast.Attribute, ast.Subscript)):
        return False
    return _firmness(view, eps, function) is not None


def _firmness(view: FileView, eps: ast.expr, function: Function) -> Firmness | None:
    """How firmly an epsilon is one that vanishes; None where it may be another by default."""
    if isinstance(eps, (ast.Constant, ast.BinOp)):
        return Firmness.FIXED
    possible = view.values.of(eps, function)
    known = possible.values if possible.complete else possible.by_default()
    if not known or not all(_is_lost(value.content) for value in known):
        return None
    return Firmness.FIXED if possible.complete else Firmness.DEFAULT


def _is_lost(content: object) -> bool:
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


def _finding(view: FileView, lost: _Lost, operation: str, half: HalfTensor) -> Finding:
    eps, name = view.source_of(lost.eps), view.source_of(lost.tensor)
    words = f"is {lost.value} in float16"
    module = lost.function.module
    steps = [*half.steps(), Step(lost.node, module, f"`{eps}` {words}")]
    message = VANISHES.format(
        eps=eps,
        value=lost.value,
        tensor=name,
        why=half.why,
        operation=operation,
    )
    path = tuple(view.step(step.node, step.module, step.words) for step in steps)
    firmness = _firmness(view, lost.eps, lost.function) or Firmness.FIXED
    held = links.held(firmness, ast.unparse(lost.eps), words)
    rests = (*half.links(view, lost.tensor), held)
    help = HELP.format(tensor=name, least=lost.least)
    return view.finding(RULE, lost.node, message, help, path=path, links=rests)


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
