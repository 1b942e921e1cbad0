"""# positional-enabled (AMP208)

A switch is passed to `GradScaler` by position and becomes its initial scale or its device.

## What it does
Flags `GradScaler("cuda", use_amp)`, `GradScaler(use_amp)` and `torch.cuda.amp.GradScaler(use_amp)`,
where the argument is a bool by its form, its definition or its name.

## Why is this bad?
`enabled` is the last parameter, never the first or second. In `torch.amp.GradScaler("cuda",
False)` the `False` is `init_scale`: the scaler stays enabled with scale 0, the gradients become
0/0, and all parameters are NaN after one step, without an exception. With `True` the scale is 1,
so nothing is protected from underflow. `torch.cuda.amp.GradScaler(False)` is the same. In
`torch.amp.GradScaler(False)` the `False` is `device`: the scaler is enabled at scale 65536
whatever the switch says.

## Example
```python
import torch

use_amp = False
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", use_amp)
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

for inputs, targets in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
```

## Use instead
```python
import torch

use_amp = False
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", enabled=use_amp)
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

for inputs, targets in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
```

## How it is confirmed
Executing one step leaves NaN in the parameters (`False`), or `scaler.get_scale()` is 1 (`True`);
for `torch.amp.GradScaler(use_amp)`, `scaler.is_enabled()` is true although the switch is off.

## Fix safety
Unsafe: naming the argument `enabled` is what the code means, and it changes what it does (the
scaler is really switched off, or really scales by 65536). No fix where another positional argument
follows, or where `enabled` is already given.

## Known limits
A name with no definition in sight is judged by its words (`use_amp`, `fp16`, `cfg.amp.enabled`);
names that speak of a device, a scale or a type are not flagged.

## References
- PyTorch, Automatic Mixed Precision package: signature of `torch.amp.GradScaler`
- `torch/amp/grad_scaler.py`: `GradScaler.__init__`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.amp import links, names
from amplint.amp.flags import flag_link, is_flag
from amplint.amp.roles import ScalerConstruction
from amplint.expectations import measured
from amplint.findings import Finding, Severity
from amplint.fixing.verbs import Name, Repair, unsafe
from amplint.rule import Rule
from amplint.view import FileView

RULE = Rule(
    code="AMP208",
    name="positional-enabled",
    severity=Severity.ERROR,
    effect="silent",
    summary="a bool passed to `GradScaler` by position becomes `init_scale` or `device`",
    facts=("E02", "A16b"),
    fix="unsafe",
    probe=measured("bool-scale", "place"),
)

AS_INIT_SCALE = "`{flag}` becomes `init_scale`: False is scale 0, which makes all parameters NaN"
AS_DEVICE = "`{flag}` becomes `device`: the scaler is enabled whatever it says"


def check(view: FileView) -> Iterator[Finding]:
    """Report bools in the positional arguments of torch's scalers."""
    for built in view.roles.constructions:
        if built.dotted not in names.GRAD_SCALERS:
            continue
        index = _flag_index(view, built)
        if index is None or not view.module.imported_once(built.call.func):
            continue
        argument = built.call.args[index]
        flag = view.source_of(argument)
        as_device = index == 0 and built.dotted not in names.DEVICE_GRAD_SCALERS
        yield view.finding(
            RULE,
            argument,
            (AS_DEVICE if as_device else AS_INIT_SCALE).format(flag=flag),
            f"name the argument: `enabled={flag}`",
            fix=_name_it(built.call, index),
            links=(
                links.proved("object", built.call.func, "is torch's GradScaler"),
                flag_link(view.values, argument, built.function),
            ),
        )


def _flag_index(view: FileView, built: ScalerConstruction) -> int | None:
    """Position of the first bool among the parameters that are no factors; None if none is.

    `device` and `init_scale` of `torch.amp.GradScaler`, `init_scale` of the older ones.
    """
    count = 1 if built.dotted in names.DEVICE_GRAD_SCALERS else 2
    for index, argument in enumerate(built.call.args[:count]):
        if isinstance(argument, ast.Starred):
            return None
        if is_flag(view.values, argument, built.function):
            return index
    return None


def _name_it(call: ast.Call, index: int) -> Repair | None:
    """Name the argument, if the call then still means what it says."""
    named = {item.arg for item in call.keywords}
    if index != len(call.args) - 1 or named & {"enabled", None}:
        return None
    return unsafe(Name(call, {index: "enabled"}))
