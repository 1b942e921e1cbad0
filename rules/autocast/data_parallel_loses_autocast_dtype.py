"""# data-parallel-loses-autocast-dtype (AMP506)

A model in `nn.DataParallel` runs under bfloat16 autocast, and its replicas compute in float16.

## What it does
Flags the call of a `torch.nn.DataParallel` object inside an autocast region whose dtype is bfloat16,
if the wrapped model has no autocast of its own in `forward`.

## Why is this bad?
With several GPUs, `DataParallel` runs the replicas in threads. Autocast's state belongs to a thread:
the workers are told that autocast is on, but not which dtype it has, so they use CUDA's default,
float16. A bfloat16 training has no gradient scaler, so small gradients become zero and large
activations overflow. On one GPU the model is called directly and all is well.

## Example
```python
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, inputs):
        return self.layer(inputs)


model = torch.nn.DataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

for inputs, targets in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        outputs = model(inputs)
    loss = torch.nn.functional.mse_loss(outputs.float(), targets)
    loss.backward()
    optimizer.step()
```

## Use instead
```python
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, inputs):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return self.layer(inputs)


model = torch.nn.DataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

for inputs, targets in loader:
    optimizer.zero_grad()
    outputs = model(inputs)
    loss = torch.nn.functional.mse_loss(outputs.float(), targets)
    loss.backward()
    optimizer.step()
```

## How it is confirmed
Executing the forward with two GPUs: the outputs are float16. Without them, both examples run alike;
that a new thread has autocast's default dtype can be seen on any machine.

## Fix safety
No fix is offered: autocast has to move into `forward`, or the training to `DistributedDataParallel`.

## Known limits
Only a wrapped class that the project defines is judged, and only where the dtype is surely bfloat16.

## References
- PyTorch, Automatic Mixed Precision examples: "DataParallel in a single process"
- `torch/nn/parallel/parallel_apply.py`: `_worker`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.amp import links
from amplint.code.module import Class, Function
from amplint.findings import Finding, Severity
from amplint.regions.regions import Inside, Region
from amplint.regions.training import anchor, path_to
from amplint.rule import Rule
from amplint.view import FileView

RULE = Rule(
    code="AMP506",
    name="data-parallel-loses-autocast-dtype",
    severity=Severity.WARNING,
    effect="silent",
    summary="`nn.DataParallel` under bfloat16 autocast: its replicas run in float16",
    facts=("A07", "A07b"),
    unprobed="it needs at least two GPUs",
)

WRAPPERS = frozenset(("torch.nn.DataParallel", "torch.nn.parallel.DataParallel"))
#: Methods of it that decide where the replicas run, and what is handed to the module as it is.
_RUNNING = ("__init__", "forward", "parallel_apply")
MESSAGE = "`{model}` is in `DataParallel`, whose threads lose this bfloat16: it runs in float16"
HELP = "put `with torch.autocast(...)` into the model's `forward`, or use DistributedDataParallel"


def check(view: FileView) -> Iterator[Finding]:
    """Report each call of a wrapped model in a bfloat16 region."""
    regions = view.regions
    reported: set[ast.Call] = set()
    for region in view.regions.opened(view.module):
        if region.cast.dtypes != frozenset({"bfloat16"}):
            continue
        if region.cast.devices == frozenset({"cpu"}):
            continue
        for item in regions.inside(region):
            wrapped = _wrapped(view, item.call.func, item.function)
            node = anchor(view, item)
            if wrapped is None or node in reported or _has_own_region(view, *wrapped):
                continue
            reported.add(node)
            yield _finding(view, region, item, *wrapped)


def _finding(
    view: FileView, region: Region, item: Inside, model: ast.expr, function: Function
) -> Finding:
    node = anchor(view, item)
    message = MESSAGE.format(model=view.source_of(item.call.func))
    path = path_to(view, region, item, "runs in worker threads, where the dtype is the default")
    rests = (links.model(view, model, function), region.link)
    return view.finding(RULE, node, message, HELP, path=path, links=rests)


def _wrapped(
    view: FileView, callee: ast.expr, function: Function
) -> tuple[ast.expr, Function] | None:
    """What a callee wraps in `DataParallel`, with the function that does so."""
    if not isinstance(callee, (ast.Name, ast.Attribute)):
        return None
    for binding in view.objects.bindings(callee, function) or ():
        wrapper = _wrapper(view, binding.value, binding.function)
        if wrapper is not None:
            return wrapper.args[0], binding.function
    return None


def _wrapper(view: FileView, value: ast.expr | None, function: Function) -> ast.Call | None:
    """The `DataParallel(model)` in a value such as `DataParallel(model).cuda()`."""
    while isinstance(value, ast.Call):
        if value.args and _is_wrapper(view, value.func, function):
            return value
        value = value.func.value if isinstance(value.func, ast.Attribute) else None
    return None


def _is_wrapper(view: FileView, callee: ast.expr, function: Function) -> bool:
    """Whether a callee is `DataParallel`, or a class that runs its replicas as that does."""
    if function.module.resolve(callee) in WRAPPERS:
        return True
    owner = view.objects.symbol(callee, function)
    if not isinstance(owner, Class) or not view.objects.base_names(owner) & WRAPPERS:
        return False
    return not any(view.objects.method(owner, name) for name in _RUNNING)


def _has_own_region(view: FileView, model: ast.expr, function: Function) -> bool:
    """Whether the model's forward has an autocast of its own, or is not known."""
    owner = view.objects.class_of(model, function) or _class_before(view, model, function)
    forward = view.objects.method(owner, "forward") if owner is not None else None
    return forward is None or bool(view.regions.of(forward))


def _class_before(view: FileView, model: ast.expr, function: Function) -> Class | None:
    """The class of `model` before `model = DataParallel(model)`."""
    found = {
        view.objects.class_of(item.value, item.function)
        for item in view.objects.bindings(model, function) or ()
        if item.value is not None and _wrapper(view, item.value, item.function) is None
    }
    return found.pop() if len(found) == 1 else None
