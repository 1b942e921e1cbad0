"""# half-overflow-constant (AMP503)

A constant outside float16's range goes into a tensor that is float16 under autocast.

## What it does
Flags `masked_fill`, `fill_`, `full_like`, `full`, `index_fill`, `pad` and their like with a finite
constant beyond 65504, on a tensor that autocast has computed in float16 (the result of a matrix
product, a convolution or a linear layer, through views and products with numbers), or that is
cast with `.half()`. The autocast may stand in the training loop of another file.

## Why is this bad?
The largest float16 is 65504. Filling a mask with `-1e9` works in float32 and bfloat16 and raises
`RuntimeError: value cannot be converted to type c10::Half without overflow` in float16 (`at::Half`
in older releases). So the model runs until somebody switches AMP on.

## Example
```python
import torch

model = torch.nn.Linear(4, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
loader = [torch.randn(8, 4) for _ in range(4)]

for inputs in loader:
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        hidden = model(inputs)
        scores = torch.matmul(hidden, hidden.t())
        mask = torch.ones(8, 8, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(mask, -1e9)
        loss = scores.float().softmax(-1).square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
```

## Use instead
```python
import torch

model = torch.nn.Linear(4, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
loader = [torch.randn(8, 4) for _ in range(4)]

for inputs in loader:
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        hidden = model(inputs)
        scores = torch.matmul(hidden, hidden.t())
        mask = torch.ones(8, 8, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(mask, torch.finfo(torch.float16).min)
        loss = scores.float().softmax(-1).square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
```

## How it is confirmed
Executing the forward under float16 autocast raises the exception.

## Fix safety
Unsafe: the number that is written changes where the tensor is float32, too. A literal becomes
`torch.finfo(scores.dtype).min` (or `.max`), which is right for every dtype, where the tensor is a name
or an attribute. `float("-inf")` is right, too, unless a row is masked completely: its softmax is NaN.

## Known limits
A tensor is taken to be float16 only where its computation is in sight: a parameter of the function
is unknown. Where a float16 region trains something that is not in sight, and the project builds the
module, the finding is only `info`; so it is where a test computes something of the tensor. Operations that autocast runs in float32 on CUDA (softmax, norms, sums) end it.
`torch.where` and indexed assignment are not flagged: they store infinity instead of raising. Nor is
`clamp`: its CUDA kernel computes with float32 limits and does not raise (`launch_clamp_scalar` in
`aten/src/ATen/native/cuda/TensorCompare.cu`; the CPU kernel does raise).

## References
- PyTorch, Automatic Mixed Precision package: CUDA Ops that can autocast to float16
- `torch.finfo`
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator

from amplint.amp import links
from amplint.code.expressions import path_text
from amplint.code.layout import layout_of
from amplint.code.module import CallSite
from amplint.expectations import raises
from amplint.findings import Finding, Severity
from amplint.fixing.statements import code_of, torch_in
from amplint.fixing.verbs import Repair, Write, unsafe
from amplint.regions.float16 import HalfTensor, half_dtype, half_tensor
from amplint.rule import Rule
from amplint.values.conditions import conditions_at
from amplint.values.provenance import Step
from amplint.values.values import Value
from amplint.view import FileView

RULE = Rule(
    code="AMP503",
    name="half-overflow-constant",
    severity=Severity.ERROR,
    effect="crash",
    summary="a constant beyond 65504 goes into a tensor that is float16 under autocast",
    facts=("H20",),
    fix="unsafe",
    probe=raises(
        *("RuntimeError", "without overflow"),
        relies_on="objects",
        without="autocast",
        everywhere=True,
    ),
)

OVERFLOWS = (
    "`{constant}` does not fit: `{tensor}` is float16{why}, and `{name}` raises `RuntimeError`"
)
HELP = "use `torch.finfo({dtype}).{end}`, or a constant that float16 can hold"

#: The first value that rounds to infinity.
_FIRST_TOO_LARGE = 65520.0
#: Methods by the positions of the numbers that they write into the tensor they are called on.
_METHODS = {
    "masked_fill": (1,),
    "masked_fill_": (1,),
    "index_fill": (2,),
    "index_fill_": (2,),
    "fill_": (0,),
    "fill_diagonal_": (0,),
    "new_full": (1,),
}
#: The same for functions of torch, with the tensor as first argument.
_FUNCTIONS = {
    "torch.masked_fill": (2,),
    "torch.full_like": (1,),
    "torch.index_fill": (3,),
    "torch.nn.functional.pad": (3,),
}
#: Functions that make a tensor of the dtype that they are given.
_MAKING = {"torch.full": (1,)}
_KEYWORDS = frozenset(("value", "fill_value"))


def check(view: FileView) -> Iterator[Finding]:
    """Report constants that overflow in float16 tensors."""
    for site in view.module.calls:
        place = _tensor_and_numbers(site)
        if place is None or site.node not in layout_of(site.function):
            continue
        tensor, numbers = place
        large = ((item, _too_large(view, item, site)) for item in numbers)
        number, value = next((pair for pair in large if pair[1] is not None), (tensor, None))
        if value is None:
            continue
        why = half_dtype if site.dotted in _MAKING else half_tensor
        half = why(view, view.regions, tensor, site.function)
        if half is not None:
            is_made = site.dotted in _MAKING
            fix = None if is_made else _by_dtype(view, tensor, number, value)
            yield _finding(view, site, tensor, value, half, fix)


def _tensor_and_numbers(site: CallSite) -> tuple[ast.expr, list[ast.expr]] | None:
    call = site.node
    named = [item.value for item in call.keywords if item.arg in _KEYWORDS]
    if site.dotted in _MAKING:
        dtypes = [item.value for item in call.keywords if item.arg == "dtype"]
        positions, tensor = _MAKING[site.dotted], dtypes[0] if dtypes else None
    elif site.dotted in _FUNCTIONS:
        positions, tensor = _FUNCTIONS[site.dotted], call.args[0] if call.args else None
    elif site.method in _METHODS and isinstance(call.func, ast.Attribute) and not site.dotted:
        positions, tensor = _METHODS[site.method], call.func.value
    else:
        return None
    numbers = [call.args[index] for index in positions if index < len(call.args)]
    return (tensor, numbers + named) if tensor is not None else None


def _too_large(view: FileView, number: ast.expr, site: CallSite) -> Value | None:
    for value in view.values.of(number, site.function).values:
        content = value.content
        if isinstance(content, bool) or not isinstance(content, (int, float)):
            continue
        if not math.isfinite(content) or abs(content) < _FIRST_TOO_LARGE:
            continue
        if not _is_for_a_dtype(value):
            return value
    return None


def _is_for_a_dtype(value: Value) -> bool:
    """Whether a test of a dtype chooses the number: `-1e4 if x.dtype == torch.half else -1e9`."""
    return any(
        isinstance(node, ast.Attribute) and node.attr == "dtype"
        for condition in conditions_at(value.node, value.origin.function)
        for node in ast.walk(condition.test)
    )


def _finding(
    view: FileView,
    site: CallSite,
    tensor: ast.expr,
    value: Value,
    half: HalfTensor,
    fix: Repair | None,
) -> Finding:
    here = site.function.module
    steps = [*half.steps()]
    steps.append(Step(site.node, here, f"`{_number(value)}` does not fit"))
    name = view.source_of(tensor)
    message = OVERFLOWS.format(
        constant=_number(value),
        tensor=name,
        why=half.why,
        name=site.method,
    )
    path = tuple(view.step(step.node, step.module, step.words) for step in steps)
    takes = links.held(value.firmness, name, "takes the constant")
    data = links.data_decides(site.node, site.function, (tensor,))
    rests = (*half.links(view, tensor), takes, *data)
    assert isinstance(value.content, (int, float))
    dtype = name if site.dotted in _MAKING else f"{name}.dtype"
    help = HELP.format(dtype=dtype, end=_end(value))
    return view.finding(RULE, site.node, message, help, path=path, links=rests, fix=fix)


def _end(value: Value) -> str:
    assert isinstance(value.content, (int, float))
    return "min" if value.content < 0 else "max"


def _by_dtype(view: FileView, tensor: ast.expr, number: ast.expr, value: Value) -> Repair | None:
    """Write the end of the tensor's dtype for a literal."""
    torch = torch_in(view)
    is_literal = isinstance(number, (ast.Constant, ast.UnaryOp, ast.Call))
    if torch is None or path_text(tensor) is None or not is_literal:
        return None
    end = f"{torch[0]}.finfo({code_of(view, tensor)}.dtype).{_end(value)}"
    return unsafe(Write(number, end), *torch[1])


def _number(value: Value) -> str:
    return f"{value.content:g}" if isinstance(value.content, float) else str(value.content)
