"""# amp-arguments (AMP209)

`autocast` or `GradScaler` gets an argument that it cannot work with, or `autocast` is not called.

## What it does
Flags calls of torch's `autocast` without `device_type`, with a bool, a `torch.device` or an unknown
device as `device_type`, or a number, with a bool, a string or a number as `dtype`, or with a parameter
that it does not have; `@autocast` or `with autocast:` without the call; calls of `GradScaler` with a
parameter that it does not have, or with a string as its initial scale; and calls of a method of a
scaler that is built in sight, with arguments that the method does not take, or of one that scalers
do not have; and calls of names that `torch.amp` and its like do not have (`torch.cuda.amp.GradScalar`).

## Why is this bad?
Most of these errors appear only when the line runs, and some only on a GPU. `torch.autocast()`
raises `TypeError: autocast.__init__() missing 1 required positional argument: 'device_type'`. In
`torch.amp.autocast("cuda", use_amp)`, the mechanical translation of
`torch.cuda.amp.autocast(use_amp)`, the bool is the `dtype`: `TypeError: set_autocast_dtype():
argument 'dtype' (position 2) must be torch.dtype, not bool`, raised on entering the block, even
when it is False; on a CUDA machine the failed entry leaves autocast switched on. A `torch.device`
raises `ValueError: Expected device_type of type str`, and `@torch.autocast` without a call raises
the same for the decorated function.

The methods of a scaler take little: `scaler.update(scale=1024.0)` raises `TypeError:
GradScaler.update() got an unexpected keyword argument 'scale'`, also where the scaler is off.
`scaler.unscale(optimizer)`, without the underscore, raises `AttributeError: 'GradScaler' object has no
attribute 'unscale'`. `update(1024)` with a whole number raises `AttributeError: 'int' object has no attribute 'device'`.

The two classes name the device differently: `device_type` of `autocast` is `device` of
`torch.amp.GradScaler`, and `torch.cuda.amp.GradScaler` has neither. Its first parameter is the
initial scale, so `torch.cuda.amp.GradScaler("cuda")` is built, and the first `scale()` on a GPU raises
`TypeError: full(): argument 'fill_value' (position 2) must be Number, not str`.

## Example
```python
import torch

use_amp = True
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", enabled=use_amp)
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

for inputs, targets in loader:
    optimizer.zero_grad()
    with torch.amp.autocast("cpu", use_amp):
        outputs = model(inputs)
    loss = torch.nn.functional.mse_loss(outputs.float(), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
```

## Use instead
```python
import torch

use_amp = True
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", enabled=use_amp)
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

for inputs, targets in loader:
    optimizer.zero_grad()
    with torch.amp.autocast("cpu", dtype=torch.float16, enabled=use_amp):
        outputs = model(inputs)
    loss = torch.nn.functional.mse_loss(outputs.float(), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
```

## How it is confirmed
Executing the line raises the exception that the message quotes.

## Fix safety
Unsafe: training goes on where it stopped. A switch or a dtype gets its name, a `torch.device` its
`.type`, a class its call, and a call without a device gets "cuda", which is what autocast is for nearly
everywhere. A device that the old `GradScaler` takes for its scale goes. No fix for unknown devices
and parameters; the `device_type` of an older `autocast` is right once AMP801 has fixed its import.

## Known limits
A name is judged by its definitions in the file, without them only as a bool and by its words
(`use_amp`). Torch 2.13 accepts `"cuda:0"`. A name that two imports bind is skipped.

## References
- PyTorch, Automatic Mixed Precision package: `torch.autocast`
- `torch/amp/autocast_mode.py`: `autocast.__init__`, `autocast.__enter__`
- `torch/amp/grad_scaler.py`: `GradScaler.__init__`, `GradScaler._lazy_init_scale_growth_tracker`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.amp import links, names
from amplint.amp.constructor_arguments import MISSING, complaints, is_device, is_dtype
from amplint.amp.flags import flag_link, is_flag
from amplint.amp.refused_calls import RefusedCall, no_member, refused_call
from amplint.amp.scalers import is_off_on_a_gpu
from amplint.amp.signatures import METHODS
from amplint.code.dataflow import constant_of
from amplint.code.expressions import last_name
from amplint.code.module import CallSite, Module
from amplint.expectations import AMP_ARGUMENTS, caused, raises
from amplint.findings import Finding, Link, Severity, Standing
from amplint.fixing.verbs import Add, Drop, Name, Repair, Write, unsafe
from amplint.flow.raising import is_awaited
from amplint.rule import Rule
from amplint.view import FileView

RULE = Rule(
    code="AMP209",
    name="amp-arguments",
    severity=Severity.ERROR,
    effect="crash",
    summary="`autocast` or `GradScaler` called with what it does not take, or `autocast` not called",
    facts=("E01", "A05", "A15", "A16"),
    fix="unsafe",
    probe=(
        raises("TypeError|ValueError|RuntimeError|AttributeError", AMP_ARGUMENTS, relies_on="place")
        + caused("initial-scales", "TypeError", "argument 'fill_value'", "place")
    ),
)

#: What torch and Python raise where a call is not as they want it.
_REFUSALS = ("TypeError", "ValueError", "AttributeError", "RuntimeError")
#: What a scaler is for, in the order in which it is called.
PROTOCOL = ("scale", "unscale_", "step", "update")
REFUSED = "`{callee}` raises `TypeError: … {words}`"
NO_METHOD = (
    "`{callee}` does not exist: `AttributeError: 'GradScaler' object has no attribute '{name}'`"
)
UNKNOWN_NAME = "`{module}` has no `{name}`: Python raises where it is imported or read"
NOT_A_NEW_SCALE = (
    "`{callee}` takes a float: `AttributeError: '{kind}' object has no attribute 'device'`"
)
NOT_CALLED = "`{callee}` is not called: {error}"
WITH_ERROR = "`TypeError: 'type' object does not support the context manager protocol`"
DECORATOR_ERROR = "`ValueError: Expected device_type of type str`"
OLD_DECORATOR_ERROR = "`TypeError: autocast()(func) requires a callable`, at the first call"


def check(view: FileView) -> Iterator[Finding]:
    """Report calls of autocast and scalers that raise, and autocast classes without a call."""
    for site in view.module.calls:
        found = next(complaints(view, site), None)
        if found is not None:
            name = "autocast" if site.dotted in names.AUTOCASTS else "GradScaler"
            rests: tuple[Link, ...] = (
                links.proved("object", site.node.func, f"is torch's {name}"),
                links.proved("value", found.node, "is what it is given")
                if found.flag is None
                else flag_link(view.values, found.flag, site.function),
            )
            rests += _caught(site)
            if found.later and is_off_on_a_gpu(view, site.node, site.function):
                rests += (Link("value", Standing.GUESS, name, "is on with an older torch"),)
            fix = _repaired(view, site, found.node, found.message)
            yield view.finding(RULE, found.node, found.message, found.help, links=rests, fix=fix)
    yield from _refused(view)
    yield from _unknown_names(view)
    yield from _uncalled(view)


def _refused(view: FileView) -> Iterator[Finding]:
    """Calls on a scaler that torch refuses."""
    for site in view.module.calls:
        found = refused_call(view, site)
        if found is None or not isinstance(site.node.func, ast.Attribute):
            continue
        message, help = _told(view, site.node.func, found)
        rests = (
            links.proved("object", site.node.func.value, "is torch's GradScaler"),
            links.proved("value", site.node, "is what it is given"),
            *_caught(site),
        )
        yield view.finding(RULE, site.node, message, help, links=rests)


def _caught(site: CallSite) -> tuple[Link, ...]:
    """That a handler around a call names what torch raises there: the program goes on by it."""
    if not is_awaited(site.node, site.function, _REFUSALS):
        return ()
    return (Link("damage", Standing.HARMLESS, last_name(site.node.func), "ends a program"),)


def _unknown_names(view: FileView) -> Iterator[Finding]:
    """Calls of names that torch's AMP modules do not have."""
    for site in view.module.calls:
        meant = no_member(view, site)
        if meant is not None:
            module, _, name = (site.dotted or "").rpartition(".")
            message = UNKNOWN_NAME.format(module=module, name=name)
            known = meant or tuple(sorted(names.MEMBERS[module] & {"autocast", "GradScaler"}))
            help = f"write {' or '.join(f'`{item}`' for item in known)}"
            rests = (
                links.proved("object", site.node.func, f"is of `{module}`"),
                links.proved("value", site.node.func, "is none of its names"),
                *_caught(site),
            )
            yield view.finding(RULE, site.node, message, help, links=rests)


def _told(view: FileView, callee: ast.Attribute, found: RefusedCall) -> tuple[str, str]:
    """The message and the help of a refused call."""
    name, scaler = view.source_of(callee), view.source_of(callee.value)
    if found.meant is not None:
        methods = ", ".join(f"`{scaler}.{item}`" for item in found.meant or PROTOCOL)
        message = NO_METHOD.format(callee=name, name=callee.attr)
        return message, f"call {methods}" if found.meant else f"a scaler has {methods}"
    if found.kind:
        return NOT_A_NEW_SCALE.format(callee=name, kind=found.kind), "pass a float"
    known = METHODS[callee.attr]
    parameters = ", ".join(f"`{word}`" for word in (*known.required, *known.optional))
    help = f"`{name}` takes {parameters or 'nothing'}"
    return REFUSED.format(callee=name, words=found.words), help


def _repaired(view: FileView, site: CallSite, node: ast.AST, message: str) -> Repair | None:
    """What the help says, where it leaves nothing open but the device, which is then "cuda".

    Args:
        node: the argument that is wrong, or the call.
    """
    call, old = site.node, site.dotted in names.DEVICE_AUTOCASTS
    if site.dotted in names.DEVICE_GRAD_SCALERS and call.args == [node]:
        return unsafe(Drop(call, 0))
    if site.dotted in names.GRAD_SCALERS:
        return None
    if message == MISSING and not call.args:
        return unsafe(Add(call, '"cuda"', 0))
    if not isinstance(node, ast.expr) or node not in call.args:
        return None
    index = call.args.index(node)
    if old:
        fix = Name(call, {0: "dtype"}) if is_dtype(node, site.function) else Drop(call, 0)
        return unsafe(fix) if len(call.args) == 1 else None
    if index == len(call.args) - 1 == 1:
        flagged = is_flag(view.values, node, site.function)
        return unsafe(Name(call, {1: "enabled"})) if flagged else None
    if index or len(call.args) > 1:
        return None
    if is_flag(view.values, node, site.function) or constant_of(node) is None:
        return unsafe(Add(call, '"cuda"', 0), Name(call, {1: "enabled"}))
    if is_dtype(node, site.function):
        return unsafe(Add(call, '"cuda"', 0), Name(call, {1: "dtype"}))
    return unsafe(Write(node, "{}.type")) if is_device(node, site.function) else None


def _uncalled(view: FileView) -> Iterator[Finding]:
    for place, is_block in _entered(view.module):
        dotted = view.module.resolve(place)
        if dotted in names.AUTOCASTS and view.module.imported_once(place):
            yield _not_called(view, place, dotted in names.DEVICE_AUTOCASTS, is_block)


def _entered(module: Module) -> Iterator[tuple[ast.expr, bool]]:
    """Decorators, and what `with` enters; whether it is the latter."""
    for function in module.functions:
        yield from ((place, False) for place in getattr(function.node, "decorator_list", ()))
    for node in module.nodes():
        if isinstance(node, (ast.With, ast.AsyncWith)):
            yield from ((item.context_expr, True) for item in node.items)


def _not_called(view: FileView, place: ast.expr, old: bool, is_block: bool) -> Finding:
    callee = view.source_of(place)
    error = WITH_ERROR if is_block else OLD_DECORATOR_ERROR if old else DECORATOR_ERROR
    example = f"{callee}()" if old else f'{callee}("cuda")'
    message = NOT_CALLED.format(callee=callee, error=error)
    rests = (
        links.proved("object", place, "is torch's autocast"),
        links.proved("value", place, "is a class"),
    )
    fix = unsafe(Write(place, "{}()" if old else '{}("cuda")'))
    return view.finding(RULE, place, message, f"call it: `{example}`", links=rests, fix=fix)
