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
import re
from collections.abc import Iterable, Iterator

from amplint.amp import links, names
from amplint.amp.flags import flag_link, is_flag
from amplint.amp.refused_calls import RefusedCall, no_member, refused_call
from amplint.amp.scaler_calls import expects_error
from amplint.amp.signatures import METHODS
from amplint.code.dataflow import constant_of, definitions
from amplint.code.expressions import last_name
from amplint.code.module import CallSite, Function, Module
from amplint.expectations import AMP_ARGUMENTS, raises
from amplint.findings import Finding, Severity
from amplint.fixing.verbs import Add, Drop, Name, Repair, Write, unsafe
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
    probe=raises(
        "TypeError|ValueError|RuntimeError|AttributeError", AMP_ARGUMENTS, relies_on="place"
    ),
)

CLASSES = names.AUTOCASTS | names.GRAD_SCALERS
#: No device types, whatever the backend; "npu" and the like come from plug-ins.
NO_DEVICES = frozenset(("", "gpu", "auto", "meta", "nvidia", "fp16", "bf16", "half"))
DEVICES = frozenset(("cpu", "cuda", "xpu", "mps"))
#: What a scaler is for, in the order in which it is called.
PROTOCOL = ("scale", "unscale_", "step", "update")
#: What gives the number of a device.
NUMBERS = frozenset(("torch.cuda.current_device", "torch.distributed.get_rank"))
DTYPE_WORD = re.compile(r"_*(?:use_)?(?:b?fp?16|half|b?float16)_*", re.IGNORECASE)
PARAMETERS = ("device_type", "dtype", "enabled", "cache_enabled")
OLD_PARAMETERS = ("enabled", "dtype", "cache_enabled")
FACTORS = ("init_scale", "growth_factor", "backoff_factor", "growth_interval", "enabled")

MISSING = "`device_type` is missing: `TypeError: … missing 1 required positional argument`"
NOT_A_STRING = "`{text}` is no device string: `ValueError: Expected device_type of type str`"
UNKNOWN_DEVICE = "`{text}` is no device type of torch: `autocast` raises a `RuntimeError`"
NOT_A_DTYPE = "`{text}` becomes `dtype`: `TypeError: … must be torch.dtype, not {kind}`"
NOT_A_SWITCH = "`{text}` becomes `enabled`: on a GPU `TypeError: … must be bool, not {kind}`"
UNKNOWN_PARAMETER = "`{callee}` raises `TypeError: … got an unexpected keyword argument '{name}'`"
NOT_A_SCALE = "`{text}` becomes `init_scale`: on a GPU the first `scale` raises `TypeError: full()`"
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

#: The place, what is wrong, the edit; the bool that it rests on, if it rests on one.
Complaint = tuple[ast.AST, str, str, ast.expr | None]


def check(view: FileView) -> Iterator[Finding]:
    """Report calls of autocast and scalers that raise, and autocast classes without a call."""
    for site in view.module.calls:
        is_known = site.dotted in CLASSES and view.module.imported_once(site.node.func)
        if is_known and not expects_error(view, site):
            name, complaints = "GradScaler", _of_scaler
            if site.dotted in names.AUTOCASTS:
                name, complaints = "autocast", _of_autocast
            for node, message, help, flag in complaints(view, site):
                rests = (
                    links.proved("object", site.node.func, f"is torch's {name}"),
                    links.proved("value", node, "is what it is given")
                    if flag is None
                    else flag_link(view.values, flag, site.function),
                )
                fix = _repaired(view, site, node, message)
                yield view.finding(RULE, node, message, help, links=rests, fix=fix)
                break
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
        )
        yield view.finding(RULE, site.node, message, help, links=rests)


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


def _of_autocast(view: FileView, site: CallSite) -> Iterator[Complaint]:
    """What is wrong with the arguments of `autocast`."""
    call, old = site.node, site.dotted in names.DEVICE_AUTOCASTS
    callee = view.source_of(call.func)
    known = OLD_PARAMETERS if old else PARAMETERS
    given = _given(call, known)
    if given is None:
        return
    unpacks = any(item.arg is None for item in call.keywords)
    yield from _unknown(view, call, given, known)
    if "device_type" in given:
        yield from _device(view, given["device_type"], site.function)
    elif not old and not unpacks:
        yield call, MISSING, f'name the device: `{callee}("cuda", …)`', None
    if "dtype" in given:
        yield from _dtype(view, given["dtype"], site.function)
    if old and call.args:
        yield from _switch(view, call.args[0], site)


def _of_scaler(view: FileView, site: CallSite) -> Iterator[Complaint]:
    """What is wrong with the arguments of `GradScaler`."""
    old = site.dotted in names.DEVICE_GRAD_SCALERS
    known = FACTORS if old else ("device", *FACTORS)
    given = _given(site.node, known)
    if given is None:
        return
    yield from _unknown(view, site.node, given, known)
    scale = given.get("init_scale")
    if scale is not None and _is_text(view, scale, site.function):
        callee, text = view.source_of(site.node.func), view.source_of(scale)
        help = f"`{callee}` takes no device: remove `{text}`" if old else "pass a number"
        yield scale, NOT_A_SCALE.format(text=text), help, None


def _given(call: ast.Call, known: tuple[str, ...]) -> dict[str, ast.expr] | None:
    """What each parameter gets; None where `*args` hides it."""
    if any(isinstance(item, ast.Starred) for item in call.args):
        return None
    given: dict[str, ast.expr] = dict(zip(known, call.args))
    given.update((item.arg, item.value) for item in call.keywords if item.arg)
    return given


def _unknown(
    view: FileView, call: ast.Call, given: Iterable[str], known: tuple[str, ...]
) -> Iterator[Complaint]:
    """The parameters that are given and that the class does not have."""
    callee = view.source_of(call.func)
    for name in given:
        if name in known:
            continue
        if name == "device_type" and "device" in known:
            help = "the parameter is called `device`"
        else:
            help = f"remove `{name}`; the parameters are {', '.join(f'`{word}`' for word in known)}"
        yield call, UNKNOWN_PARAMETER.format(callee=callee, name=name), help, None


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
        is_dtype = _is_dtype(view, node)
        fix = Name(call, {0: "dtype"}) if is_dtype else Drop(call, 0)
        return unsafe(fix) if len(call.args) == 1 else None
    if index == len(call.args) - 1 == 1:
        flagged = is_flag(view.values, node, site.function)
        return unsafe(Name(call, {1: "enabled"})) if flagged else None
    if index or len(call.args) > 1:
        return None
    if is_flag(view.values, node, site.function) or constant_of(node) is None:
        return unsafe(Add(call, '"cuda"', 0), Name(call, {1: "enabled"}))
    if _is_dtype(view, node):
        return unsafe(Add(call, '"cuda"', 0), Name(call, {1: "dtype"}))
    return unsafe(Write(node, "{}.type")) if _is_device(view, node, site.function) else None


def _device(view: FileView, expression: ast.expr, function: Function) -> Iterator[Complaint]:
    text = view.source_of(expression)
    value = constant_of(expression)
    if isinstance(value, str):
        if _is_no_device(value):
            help = 'use "cuda", "cpu", "xpu" or "mps"'
            yield expression, UNKNOWN_DEVICE.format(text=text), help, None
    elif is_flag(view.values, expression, function):
        help = f'name the device first: `"cuda", enabled={text}`'
        yield expression, NOT_A_STRING.format(text=text), help, expression
    elif _is_number(view, expression, function):
        help = 'name the device: `"cuda"`; its number is no part of it'
        yield expression, NOT_A_STRING.format(text=text), help, None
    elif value is not ... or _is_dtype(view, expression):
        help = f'name the device: `"cuda", dtype={text}`'
        yield expression, NOT_A_STRING.format(text=text), help, None
    elif _is_device(view, expression, function):
        yield expression, NOT_A_STRING.format(text=text), f"pass its type: `{text}.type`", None


def _is_number(view: FileView, expression: ast.expr, function: Function) -> bool:
    """Whether a device is a number: `0`, `torch.cuda.current_device()`."""
    found = view.objects.origins.of(expression, function)
    values = [
        constant_of(item.expression)
        if not isinstance(item.expression, ast.Call)
        else item.function.module.resolve(item.expression.func)
        for item in found.origins
    ]
    return (
        found.complete
        and bool(values)
        and all(
            value in NUMBERS if isinstance(value, str) else type(value) in (int, float)
            for value in values
        )
    )


def _is_no_device(text: str) -> bool:
    kind = text.partition(":")[0].lower()
    return kind in NO_DEVICES or "float" in kind or (kind in DEVICES and kind not in text)


def _dtype(view: FileView, expression: ast.expr, function: Function) -> Iterator[Complaint]:
    text = view.source_of(expression)
    values = [constant_of(value) for value in _values(view, expression, function)]
    kinds = {type(value).__name__ for value in values}
    kind = kinds.pop() if len(kinds) == 1 and ... not in values and None not in values else ""
    flag = None if kind or not _is_switch(view, expression, function) else expression
    kind = kind if flag is None else "bool"
    if kind:
        wanted = f"enabled={text}" if kind == "bool" else "dtype=torch.float16"
        message = NOT_A_DTYPE.format(text=text, kind=kind)
        yield expression, message, f"write `{wanted}` instead", flag


def _is_switch(view: FileView, expression: ast.expr, function: Function) -> bool:
    """Whether a dtype argument is a bool; `fp16` may well be the name of a dtype."""
    if DTYPE_WORD.fullmatch(last_name(expression)):
        return False
    return is_flag(view.values, expression, function)


def _switch(view: FileView, expression: ast.expr, site: CallSite) -> Iterator[Complaint]:
    text = view.source_of(expression)
    is_dtype = _is_dtype(view, expression)
    if is_dtype or isinstance(constant_of(expression), str):
        edit = f"write `dtype={text}`" if is_dtype else f"remove `{text}`"
        help = f"`{view.source_of(site.node.func)}` takes `enabled` first: {edit}"
        kind = "torch.dtype" if is_dtype else "str"
        yield expression, NOT_A_SWITCH.format(text=text, kind=kind), help, None


def _values(view: FileView, expression: ast.expr, function: Function) -> list[ast.expr]:
    """What a name is bound to, or the expression itself."""
    known = definitions(view.module, expression, function)
    return [binding.value for binding in known if binding.value] if known else [expression]


def _is_text(view: FileView, expression: ast.expr, function: Function) -> bool:
    """Whether an argument is a string, directly or by every definition of its name."""
    values = _values(view, expression, function)
    return all(isinstance(constant_of(value), str) for value in values)


def _is_dtype(view: FileView, expression: ast.expr) -> bool:
    dotted = view.module.resolve(expression) or ""
    return dotted in ("torch.float16", "torch.half", "torch.bfloat16", "torch.float32")


def _is_device(view: FileView, expression: ast.expr, function: Function) -> bool:
    return all(
        isinstance(value, ast.Call) and view.module.resolve(value.func) == "torch.device"
        for value in _values(view, expression, function)
    )


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
