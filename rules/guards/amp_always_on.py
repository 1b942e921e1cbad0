"""# amp-always-on (AMP203)

Mixed precision is switched on by a constant, while the device is chosen at run time.

## What it does
Flags a float16 `autocast` around a training step that follows a device which can also be the CPU,
beside a GradScaler for CUDA: where there is no CUDA, autocast stays on and the scaler turns itself
off. As advice, it also flags autocast and scaler for CUDA that nothing but CUDA's absence switches off.

## Why is this bad?
`GradScaler()` is a CUDA scaler: without CUDA it warns once and passes everything through. The
float16 autocast beside it goes on, and float16 gradients below 6e-8 become zero: in the example no
parameter moves at all on the CPU. Where both are for CUDA, both turn themselves off: training runs
in float32, and 57 of the 80 crashes of the scaler's protocol that were measured cannot be seen on a
machine without CUDA.

## Example
```python
import os

import torch

device = torch.device(os.environ.get("TRAIN_DEVICE", "cpu"))
model = torch.nn.Linear(4, 1).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

for inputs, targets in loader:
    optimizer.zero_grad()
    with torch.autocast(device.type, dtype=torch.float16):
        outputs = model(inputs.to(device))
    loss = 1e-8 * torch.nn.functional.mse_loss(outputs.float(), targets.to(device))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
```

## Use instead
```python
import os

import torch

device = torch.device(os.environ.get("TRAIN_DEVICE", "cpu"))
use_amp = device.type == "cuda"
model = torch.nn.Linear(4, 1).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda", enabled=use_amp)
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

for inputs, targets in loader:
    optimizer.zero_grad()
    with torch.autocast(device.type, dtype=torch.float16, enabled=use_amp):
        outputs = model(inputs.to(device))
    loss = 1e-8 * torch.nn.functional.mse_loss(outputs.float(), targets.to(device))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
```

## How it is confirmed
Executing the function on the CPU: the scaler is disabled, autocast is not.

## Fix safety
Unsafe: without CUDA training then runs in float32. Autocast gets `enabled=device.type == "cuda"` where
it takes its device from a name or an attribute, else `enabled=torch.cuda.is_available()`, and the
scaler the same. No fix where that is not known where the scaler is built.

## Known limits
Only devices whose possible values include another one than CUDA: a choice by `is_available()`, an
option, an environment variable. Silent where the code ends without CUDA, or calls `.cuda()`.

## References
- PyTorch, Automatic Mixed Precision package: "Autocasting", "Gradient Scaling"
- `torch/amp/grad_scaler.py`: `GradScaler.__init__`
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from amplint.amp import links, names
from amplint.amp.roles import Role
from amplint.amp.scaler_calls import scaler_calls
from amplint.amp.scalers import BuiltScaler, built_scalers
from amplint.code.dataflow import arguments, constant_of
from amplint.code.expressions import last_name
from amplint.code.layout import EXITS, layout_of
from amplint.code.module import CallSite, Function, Module
from amplint.findings import Finding, Link, Severity, Standing
from amplint.fixing.statements import code_of, is_known_at, keyword_of, torch_in
from amplint.fixing.verbs import Add, Repair, unsafe
from amplint.regions.regions import Region
from amplint.rule import Rule
from amplint.values.values import Value
from amplint.view import FileView

RULE = Rule(
    code="AMP203",
    name="amp-always-on",
    severity=Severity.WARNING,
    effect="crash/portability",
    summary="AMP switched on by a constant while the device is chosen at run time",
    facts=("A16", "H10"),
    fix="unsafe",
    unprobed="it shows only on a machine without that device",
)

STAYS_ON = (
    "on `{device}` this float16 autocast stays on, and the scaler of line {row} turns itself off"
)
TURNS_OFF = "on `{device}` autocast and the scaler of line {row} turn off: training runs in float32"
HELP = "give both the same `enabled=...`, which says that the device is CUDA"
#: Calls of torch that raise where there is no CUDA.
_NEEDS_CUDA = frozenset(
    f"torch.cuda.{name}"
    for name in ("set_device", "synchronize", "current_device", "Stream", "current_stream")
)
_IS_AVAILABLE = "torch.cuda.is_available"
_NO_CUDA = re.compile(r"(?:cpu|mps|xpu)(?::\d+)?")


def check(view: FileView) -> Iterator[Finding]:
    """Report the first autocast of a training step that is on whatever the device is."""
    if _is_for_cuda_alone(view.module):
        return
    regions = [item for item in view.regions.opened(view.module) if _is_always_on(view, item)]
    built = built_scalers(view) if regions else ()
    scalers = [item for item in built if _is_for_cuda(view, item)]
    if not scalers:
        return
    choices = [(item, _other_device(view, item.function)) for item in regions]
    wrong = [(item, choice) for item, choice in choices if choice is not None]
    if wrong:
        yield from _judge(view, [item for item, _ in wrong], scalers, wrong[0][1])


def _judge(
    view: FileView, regions: list[Region], scalers: list[BuiltScaler], choice: Value
) -> Iterator[Finding]:
    """One finding for all of them, at the first region, with a fix for all."""
    region, scaler = regions[0], scalers[0]
    devices, dtypes = region.cast.devices, region.cast.dtypes
    words = {"device": str(choice.content), "row": str(view.row_of(scaler.call))}
    path = tuple(view.step(step.node, step.module, step.words) for step in choice.steps)
    rests = (
        links.participant(view, scaler.call, scaler.function, Role.SCALER, scaler.target),
        region.link,
        Link("value", Standing.CODE, words["device"], "can be the device"),
    )
    fix = _with_cuda(view, regions, scalers)
    if devices == frozenset({"cuda"}):
        message = TURNS_OFF.format_map(words)
        slower = Link("damage", Standing.HARMLESS, words["device"], "trains on in float32")
        yield view.finding(
            RULE, region.opened, message, HELP, path=path, links=(*rests, slower), fix=fix
        )
    elif dtypes == frozenset({"float16"}) and (devices is None or choice.content in devices):
        message = STAYS_ON.format_map(words)
        yield view.finding(RULE, region.opened, message, HELP, path=path, links=rests, fix=fix)


def _with_cuda(view: FileView, regions: list[Region], scalers: list[BuiltScaler]) -> Repair | None:
    """Switch all of them on only where the device is CUDA."""
    torch = torch_in(view)
    if torch is None or any(scaler.factory is not None for scaler in scalers):
        return None
    opened = [region.opened for region in regions if isinstance(region.opened, ast.Call)]
    calls = [*dict.fromkeys(opened), *(scaler.call for scaler in scalers)]
    switches = {_switch(view, region, scalers, torch[0]) for region in regions}
    if len(switches) > 1 or None in switches or any(map(_is_full, calls)):
        return None
    switch = str(switches.pop())
    imports = torch[1] if switch.endswith("()") else ()
    return unsafe(*(Add(call, switch, keyword="enabled") for call in calls), *imports)


def _switch(view: FileView, region: Region, scalers: list[BuiltScaler], torch: str) -> str | None:
    """What says that the device of a region is CUDA, there and where the scalers are built."""
    device = _device_of(view, region.opened) if isinstance(region.opened, ast.Call) else None
    if isinstance(device, ast.Constant):
        return f"{torch}.cuda.is_available()"
    if device is None or not all(
        is_known_at(view, device, region.function, scaler.function, scaler.call)
        for scaler in scalers
    ):
        return None
    return f'{code_of(view, device)} == "cuda"'


def _device_of(view: FileView, call: ast.Call) -> ast.expr | None:
    """The device of an autocast; None where it is given in a way that cannot be told."""
    dotted = view.module.resolve(call.func)
    if dotted in names.DEVICE_AUTOCASTS:
        return None if call.args else ast.Constant("cuda")
    if dotted not in names.AUTOCASTS:
        return None
    named = keyword_of(call, "device_type")
    return named.value if named is not None else next(iter(call.args), None)


def _is_full(call: ast.Call) -> bool:
    """Whether a call may have its switch already, or gets more than a device by position."""
    named = keyword_of(call, "enabled") or keyword_of(call, None)
    return named is not None or len(call.args) > 1


def _is_for_cuda(view: FileView, built: BuiltScaler) -> bool:
    """Whether a scaler is on by a constant, and turns itself off without CUDA."""
    module = view.module if built.factory is None else built.factory.module
    dotted = module.resolve(built.constructor.func)
    if dotted not in names.GRAD_SCALERS or dotted.startswith("torch.cpu."):
        return False
    given = {item.arg: item.value for item in built.constructor.keywords}
    if None in given or ("enabled" in given and not _is_on(view, given["enabled"], built)):
        return False
    if dotted in names.DEVICE_GRAD_SCALERS:
        return len(built.constructor.args) < 5 and not _is_switched(
            view, built.call, built.function
        )
    device = given.get("device", next(iter(built.constructor.args), ast.Constant("cuda")))
    return constant_of(device) == "cuda" and not _is_switched(view, built.call, built.function)


def _is_on(view: FileView, switch: ast.expr, built: BuiltScaler) -> bool:
    where = built.factory or built.function
    return view.values.of(switch, where).only() is True


def _is_for_cuda_alone(module: Module) -> bool:
    """Whether a file calls what raises without CUDA, or does not go on without it."""
    return any(_needs_cuda(site) for site in module.calls) or any(
        _refuses_without_cuda(node, module) for node in module.nodes()
    )


def _needs_cuda(site: CallSite) -> bool:
    if site.dotted in _NEEDS_CUDA or "nccl" in map(constant_of, arguments(site.node)):
        return True
    return site.method == "cuda" and isinstance(site.node.func, ast.Attribute)


def _refuses_without_cuda(node: ast.AST, module: Module) -> bool:
    """`assert torch.cuda.is_available()`, or an `if` of it whose other side leaves."""
    if isinstance(node, ast.Assert):
        return _asks_for_cuda(node.test, module)
    if not isinstance(node, ast.If) or not isinstance(node.test, ast.UnaryOp):
        return False
    last = node.body[-1]
    leaves = isinstance(last, EXITS) or (
        isinstance(last, ast.Expr)
        and isinstance(last.value, ast.Call)
        and last_name(last.value.func) == "exit"
    )
    return (
        leaves and isinstance(node.test.op, ast.Not) and _asks_for_cuda(node.test.operand, module)
    )


def _asks_for_cuda(test: ast.expr, module: Module) -> bool:
    return isinstance(test, ast.Call) and module.resolve(test.func) == _IS_AVAILABLE


def _is_switched(view: FileView, node: ast.AST, function: Function) -> bool:
    """Whether a test around a node may be the missing switch: no constant, and of no number."""
    layout = layout_of(function)
    return any(
        view.values.of(test, function).only() is not True and not _is_of_a_number(test)
        for test in (layout.conditions(node) if node in layout else [])
    )


def _is_of_a_number(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and any(
        isinstance(constant_of(item), (int, float)) and not isinstance(constant_of(item), bool)
        for item in test.comparators
    )


def _is_always_on(view: FileView, region: Region) -> bool:
    """Whether a region of a training step is on by a constant, and under no test of AMP."""
    if region.cast.enabled is not True or region.conditional:
        return False
    if not list(scaler_calls(view, "scale", within=region.function)):
        return False
    return not _is_switched(view, region.opened, region.function)


def _other_device(view: FileView, function: Function) -> Value | None:
    """A device without CUDA that the tensors of a function may be moved to."""
    for node in layout_of(function).nodes:
        if not isinstance(node, ast.Call) or last_name(node.func) != "to":
            continue
        given = [item.value for item in node.keywords if item.arg == "device"]
        for expression in (*node.args[:1], *given):
            for value in view.values.of(expression, function).values:
                if isinstance(value.content, str) and _NO_CUDA.fullmatch(value.content):
                    return value
    return None
