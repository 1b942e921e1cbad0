"""# emulated-bfloat16-selected (AMP210)

`is_bf16_supported()` is also true where bfloat16 is emulated, and the choice falls on the slow type.

## What it does
Flags `torch.cuda.is_bf16_supported()` without `including_emulation=False` where its answer chooses
between bfloat16 and another type. It is advice: training is right, and slow.

## Why is this bad?
The function asks for GPUs of compute capability 8.0, and on older ones whether a bfloat16 tensor can
be made at all. It can: Turing and Volta GPUs store the type and compute it in software, without
their tensor cores, which are made for float16. So `bfloat16 if is_bf16_supported() else float16`
never takes float16 where that is the fast type.

## Example
```python
import torch

device = "cuda" if torch.cuda.is_available() else "cpu"
dtype = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
model = torch.nn.Linear(4, 1, device=device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler(device, enabled=dtype is torch.float16)

for _ in range(4):
    optimizer.zero_grad()
    with torch.autocast(device, dtype=dtype):
        loss = model(torch.randn(8, 4, device=device)).square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
```

## Use instead
```python
import torch

device = "cuda" if torch.cuda.is_available() else "cpu"
native = torch.cuda.is_bf16_supported(including_emulation=False)
dtype = torch.bfloat16 if native else torch.float16
model = torch.nn.Linear(4, 1, device=device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler(device, enabled=dtype is torch.float16)

for _ in range(4):
    optimizer.zero_grad()
    with torch.autocast(device, dtype=dtype):
        loss = model(torch.randn(8, 4, device=device)).square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
```

## How it is confirmed
A test asks torch's own function with the properties of a GPU of compute capability 7.5: it says yes,
and no with `including_emulation=False`. The speed needs such a GPU and was not measured here.

## Fix safety
No fix is offered: torch versions that lack the argument may be in use.

## Known limits
The call has to stand in the test that chooses, or be the value of a `bf16` argument.

## References
- `torch/cuda/__init__.py`: `is_bf16_supported`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.amp import links
from amplint.code.dataflow import arguments
from amplint.code.layout import layout_of
from amplint.code.module import CallSite
from amplint.findings import Finding, Severity
from amplint.rule import Rule
from amplint.view import FileView

RULE = Rule(
    code="AMP210",
    name="emulated-bfloat16-selected",
    severity=Severity.INFO,
    effect="perf",
    summary="`is_bf16_supported()` chooses bfloat16 where it is only emulated",
    unprobed="it needs a GPU older than Ampere",
)
_ARGUMENTS = frozenset(("bf16", "use_bf16"))

MESSAGE = (
    "`{call}` is true where bfloat16 is only emulated: GPUs older than Ampere are slow with it"
)
HELP = "pass `including_emulation=False`, or test `torch.cuda.get_device_capability() >= (8, 0)`"


def check(view: FileView) -> Iterator[Finding]:
    """Report the calls whose answer chooses bfloat16."""
    for site in view.module.calls:
        if site.method != "is_bf16_supported" or arguments(site.node):
            continue
        if site.dotted == "torch.cuda.is_bf16_supported" and _chooses(view, site):
            rests = (links.proved("value", site.node, "counts emulation as support"),)
            message = MESSAGE.format(call=view.source_of(site.node))
            yield view.finding(RULE, site.node, message, HELP, links=rests)


def _chooses(view: FileView, site: CallSite) -> bool:
    """Whether the answer of a call picks bfloat16 and not another type."""
    layout = layout_of(site.function)
    inner: ast.AST = site.node
    for outer in layout.ancestors(site.node) if site.node in layout else ():
        if isinstance(outer, ast.IfExp) and inner is outer.test:
            return _is_bfloat16(view, outer.body, site) and not _is_bfloat16(
                view, outer.orelse, site
            )
        if isinstance(outer, ast.keyword):
            return outer.arg in _ARGUMENTS and inner is site.node
        if isinstance(outer, ast.stmt):
            return False
        inner = outer
    return False


def _is_bfloat16(view: FileView, expression: ast.expr, site: CallSite) -> bool:
    if isinstance(expression, ast.Constant) and expression.value == "bf16":
        return True
    return any(view.values.of(expression, site.function).with_dtype("bfloat16"))
