"""# autocast-device-mismatch (AMP205)

Autocast is switched on for one device, and the model runs on another.

## What it does
Compares the device type of an autocast region with the device that the model called inside is moved
to (`.to(device)`, `.cuda()`), through definitions in the project. Flags a region whose device types
are all known and are none of the model's.

## Why is this bad?
Autocast acts on operations of its own device only. `torch.autocast("cuda")` around a model on the
CPU or on Apple's `mps` casts nothing: the model runs in float32, slower and with more memory than
meant, and what was tuned for half precision (the scaler, the batch size) is pointless. Nothing is
raised.

## Example
```python
import torch

device = torch.device("cpu")
model = torch.nn.Linear(4, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

for inputs, targets in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        outputs = model(inputs.to(device))
    loss = torch.nn.functional.mse_loss(outputs.float(), targets.to(device))
    loss.backward()
    optimizer.step()
```

## Use instead
```python
import torch

device = torch.device("cpu")
model = torch.nn.Linear(4, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

for inputs, targets in loader:
    optimizer.zero_grad()
    with torch.autocast(device.type, dtype=torch.bfloat16):
        outputs = model(inputs.to(device))
    loss = torch.nn.functional.mse_loss(outputs.float(), targets.to(device))
    loss.backward()
    optimizer.step()
```

## How it is confirmed
Executing the forward: the region's outputs are float32 instead of the autocast dtype.

## Fix safety
Unsafe: the model then runs in half precision. A literal device type of the autocast becomes the one
that the model is moved to, where that is a single one. If the model is what is on the wrong device,
the fix is wrong.

## Known limits
Silent where one of the devices is chosen in a way that is not known, where the sets overlap
(`"cuda" if torch.cuda.is_available() else "cpu"` against `"cuda"`), and where the model is never
moved.

## References
- PyTorch, Automatic Mixed Precision package: `torch.autocast`, `device_type`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

from amplint.amp import links
from amplint.amp.dtypes import DType
from amplint.code.dataflow import parameters, scopes
from amplint.code.expressions import last_name, path_text
from amplint.code.layout import layout_of
from amplint.code.module import Function, enclosing_class
from amplint.findings import Finding, Severity
from amplint.fixing.statements import keyword_of
from amplint.fixing.verbs import Repair, Write, unsafe
from amplint.regions.contexts import device_types, is_property
from amplint.regions.regions import Region, opening_words
from amplint.rule import Rule
from amplint.values.wrappers import WRAPPERS
from amplint.view import FileView

RULE = Rule(
    code="AMP205",
    name="autocast-device-mismatch",
    severity=Severity.WARNING,
    effect="perf",
    summary="autocast for a device on which the model does not run: nothing is cast",
    facts=("A08", "A16"),
    fix="unsafe",
    unprobed="it shows only on the device that the model really runs on",
)

MESSAGE = (
    "autocast is for {region}, but `{model}` is on {model_devices} (line {row}): nothing is cast"
)
HELP = "take the device type from the model's device: `torch.autocast(device.type, ...)`"
#: Definitions are followed through this many names and callers.
DEPTH = 4


@dataclass(frozen=True, slots=True, eq=False)
class Move:
    """A call that puts a model on a device.

    Args:
        devices: device types; None where they are not known.
    """

    call: ast.Call
    function: Function
    devices: frozenset[str] | None


def check(view: FileView) -> Iterator[Finding]:
    """Report each region whose device is none of the called model's."""
    regions = view.regions
    for region in view.regions.opened(view.module):
        devices = region.cast.devices
        if not devices:
            continue
        asked: set[tuple[str, Function]] = set()
        for item in regions.here(region):
            model = path_text(item.call.func)
            if model is None or (model, item.function) in asked:
                continue
            asked.add((model, item.function))
            moves = list(_moves(view, item.call.func, item.function, DEPTH))
            known = [move.devices for move in moves if move.devices is not None]
            if not moves or len(known) < len(moves) or any(each & devices for each in known):
                continue
            yield _finding(view, region, item.call, moves[0], frozenset().union(*known))
            break


def _finding(
    view: FileView, region: Region, call: ast.Call, move: Move, found: frozenset[str]
) -> Finding:
    assert region.cast.devices is not None
    message = MESSAGE.format(
        region=_words(region.cast.devices),
        model=view.source_of(call.func),
        model_devices=_words(found),
        row=view.row_of(move.call),
    )
    path = (
        view.step(move.call, move.function.module, f"puts the model on {_words(found)}"),
        view.step(region.opened, region.function.module, opening_words(view, region)),
        view.step(call, region.function.module, "the model runs here"),
    )
    rests = (
        links.model(view, call.func, region.function, is_run=True),
        region.link,
        links.proved("value", move.call, f"puts it on {_words(found)}"),
    )
    fix = _for_model(region, found)
    return view.finding(RULE, region.opened, message, HELP, path=path, links=rests, fix=fix)


def _for_model(region: Region, devices: frozenset[str]) -> Repair | None:
    """Name the model's device type, if it is one, where the call names another as a literal."""
    call = region.opened
    if not isinstance(call, ast.Call) or len(devices) != 1:
        return None
    named = keyword_of(call, "device_type")
    given = named.value if named is not None else next(iter(call.args), None)
    if not isinstance(given, ast.Constant) or not isinstance(given.value, str):
        return None
    (device,) = devices
    return unsafe(Write(given, f'"{device}"'))


def _words(devices: frozenset[object] | frozenset[str]) -> str:
    return " or ".join(f"`{device}`" for device in sorted(map(str, devices)))


def _moves(view: FileView, model: ast.expr, function: Function, depth: int) -> Iterator[Move]:
    """Every call in sight that moves a model, at its definitions and by itself."""
    path = path_text(model)
    if path is None or not depth:
        return
    for scope in _scopes_of(view, path, function):
        for node in scope.nodes:
            if isinstance(node, ast.Call) and _receiver(node) == path:
                is_sure = _is_sure(node, scope, function)
                for move in _move(view, node, scope):
                    yield move if is_sure else replace(move, devices=None)
    root = path.partition(".")[0]
    for scope in scopes(function, function.module):
        if path in parameters(scope):
            for value, site in view.objects.arguments(scope, path).given:
                yield from _defined(view, value, site.function, depth - 1)
            return
        if root in parameters(scope) and root not in ("self", "cls"):
            return
    for binding in view.objects.bindings(model, function) or ():
        if binding.value is not None and not is_property(binding):
            yield from _defined(view, binding.value, binding.function, depth - 1)


def _defined(view: FileView, value: ast.expr, function: Function, depth: int) -> Iterator[Move]:
    while isinstance(value, ast.Call):
        if last_name(value.func) in WRAPPERS and value.args:
            value = value.args[0]
        elif isinstance(value.func, ast.Attribute):
            yield from _move(view, value, function)
            value = value.func.value
        else:
            return
    yield from _moves(view, value, function, depth)


def _scopes_of(view: FileView, path: str, function: Function) -> list[Function]:
    """The functions in which a path is the same object as in `function`."""
    owner = enclosing_class(function)
    if path.startswith("self.") and owner is not None:
        return [method for item in view.objects.ancestry(owner) for method in item.methods.values()]
    return list(scopes(function, function.module))


def _is_sure(call: ast.Call, function: Function, user: Function) -> bool:
    """Whether a call surely runs before `user` does, or in it: not on a branch, nor in a helper."""
    if call not in layout_of(function) or layout_of(function).conditions(call):
        return False
    return function in (user, function.module.body) or function.name == "__init__"


def _receiver(call: ast.Call) -> str:
    return (path_text(call.func.value) or "") if isinstance(call.func, ast.Attribute) else ""


def _move(view: FileView, call: ast.Call, function: Function) -> Iterator[Move]:
    name = last_name(call.func)
    if name in ("cuda", "cpu", "xpu"):
        yield Move(call, function, frozenset((name,)))
    if name != "to":
        return
    given = [*call.args[:1], *(item.value for item in call.keywords if item.arg == "device")]
    for value in given:
        possible = view.values.of(value, function)
        contents = [each.content for each in possible.values]
        if possible.complete and contents and all(isinstance(each, DType) for each in contents):
            continue
        known = device_types(frozenset(contents)) if possible.complete and contents else None
        devices = frozenset(map(str, known)) if known is not None else None
        yield Move(call, function, devices)
