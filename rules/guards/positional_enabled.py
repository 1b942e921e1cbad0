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

from collections.abc import Collection, Iterator
from functools import partial
from typing import Any

from amplint.amp import links, names
from amplint.amp.flags import flag_link, is_flag
from amplint.authoring import Candidate, Pattern, m
from amplint.expectations import measured
from amplint.findings import Severity
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
HELP = "name the argument: `enabled={flag}`"


def with_switch(classes: Collection[str], view: FileView) -> Iterator[Candidate]:
    """Scalers built with a bool that has no name: the first one of each call."""
    for built in view.roles.constructions:
        if built.dotted not in classes or not view.module.imported_once(built.call.func):
            continue
        bools = (item for item in built.call.args if is_flag(view.values, item, built.function))
        for flag in [*bools][:1]:
            rests = (
                links.proved("object", built.call.func, "is torch's GradScaler"),
                flag_link(view.values, flag, built.function),
            )
            words = {"flag": view.source_of(flag)}
            yield Candidate(built.call, flag, {"switch": flag}, words, links=rests)


def behind(count: int, found: Candidate) -> Any:
    """A call whose switch stands behind so many other arguments."""
    plain = m.Arg(keyword=None, star="")
    switch = m.Arg(keyword=None, star="", value=found.is_a("switch"))
    return m.Call(args=[*[plain] * count, switch, m.ZeroOrMore()])


def named(count: int, call: Any) -> Any:
    """The call with a name for the switch, which has to be the last argument without one.

    Raises:
        ValueError: the call would not mean what it says.
    """
    from amplint.fixing import arguments

    other = m.Arg(keyword=m.Name(m.MatchIfTrue(lambda name: name != "enabled")))
    plain = m.Arg(keyword=None, star="")
    if not m.matches(call, m.Call(args=[*[plain] * (count + 1), m.ZeroOrMore(other)])):
        raise ValueError
    return arguments.name(call, {count: "enabled"})


def misplaced(count: int, classes: Collection[str], message: str) -> Pattern:
    """A switch in the place of another parameter."""
    candidates = partial(with_switch, classes)
    matcher, replace = partial(behind, count), partial(named, count)
    return Pattern(matcher, message, HELP, candidates=candidates, replace=replace)


NEWER = names.GRAD_SCALERS - names.DEVICE_GRAD_SCALERS
PATTERNS = (
    misplaced(0, NEWER, AS_DEVICE),
    misplaced(1, NEWER, AS_INIT_SCALE),
    misplaced(0, names.DEVICE_GRAD_SCALERS, AS_INIT_SCALE),
)
