"""What torch refuses of the arguments of `autocast` and `GradScaler`, and what to write instead."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from amplint.amp import names
from amplint.amp.flags import is_flag
from amplint.amp.scaler_calls import expects_error
from amplint.amp.view import AmpView
from amplint.code.dataflow import constant_of, definitions
from amplint.code.expressions import last_name
from amplint.code.module import CallSite, Function

CLASSES = names.AUTOCASTS | names.GRAD_SCALERS
#: No device types, whatever the backend; "npu" and the like come from plug-ins.
NO_DEVICES = frozenset(("", "gpu", "auto", "meta", "nvidia", "fp16", "bf16", "half"))
DEVICES = frozenset(("cpu", "cuda", "xpu", "mps"))
#: What gives the number of a device.
NUMBERS = frozenset(("torch.cuda.current_device", "torch.distributed.get_rank"))
DTYPE_WORD = re.compile(r"_*(?:use_)?(?:b?fp?16|half|b?float16)_*", re.IGNORECASE)

MISSING = "`device_type` is missing: `TypeError: … missing 1 required positional argument`"
NOT_A_STRING = "`{text}` is no device string: `ValueError: Expected device_type of type str`"
UNKNOWN_DEVICE = "`{text}` is no device type of torch: `autocast` raises a `RuntimeError`"
NOT_A_DTYPE = "`{text}` becomes `dtype`: `TypeError: … must be torch.dtype, not {kind}`"
NOT_A_SWITCH = "`{text}` becomes `enabled`: on a GPU `TypeError: … must be bool, not {kind}`"
UNKNOWN_PARAMETER = "`{callee}` raises `TypeError: … got an unexpected keyword argument '{name}'`"
NOT_A_SCALE = "`{text}` becomes `init_scale`: on a GPU the first `scale` raises `TypeError: full()`"


@dataclass(frozen=True, slots=True)
class Complaint:
    """One thing that torch refuses of a call.

    Args:
        node: the argument that is wrong, or the call.
        message: what is wrong, as a finding says it.
        help: what to write instead.
        flag: the bool that it rests on, if it rests on one.
        later: whether the class takes it, and a method raises.
    """

    node: ast.AST
    message: str
    help: str
    flag: ast.expr | None = None
    later: bool = False


def complaints(view: AmpView, site: CallSite) -> Iterator[Complaint]:
    """What is wrong with the arguments of a call of one of the classes; nothing of other calls."""
    module = site.function.module
    is_known = site.dotted in CLASSES and module.imported_once(site.node.func)
    if is_known and not expects_error(view, site):
        is_autocast = site.dotted in names.AUTOCASTS
        yield from _of_autocast(view, site) if is_autocast else _of_scaler(view, site)


def is_refused(view: AmpView, site: CallSite) -> bool:
    """Whether a call of one of the classes raises wherever it runs.

    An initial scale that is none is found out later, by the first `scale`.
    """
    return any(found.flag is None and not found.later for found in complaints(view, site))


def _of_autocast(view: AmpView, site: CallSite) -> Iterator[Complaint]:
    """What is wrong with the arguments of `autocast`."""
    call, old = site.node, site.dotted in names.DEVICE_AUTOCASTS
    callee = view.source_of(call.func)
    known = names.parameters_of(site.dotted or "")
    given = _given(call, known)
    if given is None:
        return
    unpacks = any(item.arg is None for item in call.keywords)
    yield from _unknown(view, call, given, known)
    if "device_type" in given:
        yield from _device(view, given["device_type"], site.function)
    elif not old and not unpacks:
        yield Complaint(call, MISSING, f'name the device: `{callee}("cuda", …)`')
    if "dtype" in given:
        yield from _dtype(view, given["dtype"], site.function)
    if old and call.args:
        yield from _switch(view, call.args[0], site)


def _of_scaler(view: AmpView, site: CallSite) -> Iterator[Complaint]:
    """What is wrong with the arguments of `GradScaler`."""
    old = site.dotted in names.DEVICE_GRAD_SCALERS
    known = names.parameters_of(site.dotted or "")
    given = _given(site.node, known)
    if given is None:
        return
    yield from _unknown(view, site.node, given, known)
    scale = given.get("init_scale")
    if scale is not None and _is_text(scale, site.function):
        callee, text = view.source_of(site.node.func), view.source_of(scale)
        help = f"`{callee}` takes no device: remove `{text}`" if old else "pass a number"
        yield Complaint(scale, NOT_A_SCALE.format(text=text), help, later=True)


def _given(call: ast.Call, known: tuple[str, ...]) -> dict[str, ast.expr] | None:
    """What each parameter gets; None where `*args` hides it."""
    if any(isinstance(item, ast.Starred) for item in call.args):
        return None
    given: dict[str, ast.expr] = dict(zip(known, call.args))
    given.update((item.arg, item.value) for item in call.keywords if item.arg)
    return given


def _unknown(
    view: AmpView, call: ast.Call, given: Iterable[str], known: tuple[str, ...]
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
        yield Complaint(call, UNKNOWN_PARAMETER.format(callee=callee, name=name), help)


def _device(view: AmpView, expression: ast.expr, function: Function) -> Iterator[Complaint]:
    text = view.source_of(expression)
    value = constant_of(expression)
    if isinstance(value, str):
        if _is_no_device(value):
            help = 'use "cuda", "cpu", "xpu" or "mps"'
            yield Complaint(expression, UNKNOWN_DEVICE.format(text=text), help)
    elif is_flag(view.values, expression, function):
        help = f'name the device first: `"cuda", enabled={text}`'
        yield Complaint(expression, NOT_A_STRING.format(text=text), help, expression)
    elif _is_number(view, expression, function):
        help = 'name the device: `"cuda"`; its number is no part of it'
        yield Complaint(expression, NOT_A_STRING.format(text=text), help)
    elif value is not ... or is_dtype(expression, function):
        help = f'name the device: `"cuda", dtype={text}`'
        yield Complaint(expression, NOT_A_STRING.format(text=text), help)
    elif is_device(expression, function):
        yield Complaint(expression, NOT_A_STRING.format(text=text), f"pass its type: `{text}.type`")


def _is_number(view: AmpView, expression: ast.expr, function: Function) -> bool:
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


def _dtype(view: AmpView, expression: ast.expr, function: Function) -> Iterator[Complaint]:
    text = view.source_of(expression)
    values = [constant_of(value) for value in _values(expression, function)]
    kinds = {type(value).__name__ for value in values}
    kind = kinds.pop() if len(kinds) == 1 and ... not in values and None not in values else ""
    flag = None if kind or not _is_switch(view, expression, function) else expression
    kind = kind if flag is None else "bool"
    if kind:
        wanted = f"enabled={text}" if kind == "bool" else "dtype=torch.float16"
        message = NOT_A_DTYPE.format(text=text, kind=kind)
        yield Complaint(expression, message, f"write `{wanted}` instead", flag)


def _is_switch(view: AmpView, expression: ast.expr, function: Function) -> bool:
    """Whether a dtype argument is a bool; `fp16` may well be the name of a dtype."""
    if DTYPE_WORD.fullmatch(last_name(expression)):
        return False
    return is_flag(view.values, expression, function)


def _switch(view: AmpView, expression: ast.expr, site: CallSite) -> Iterator[Complaint]:
    text = view.source_of(expression)
    named_dtype = is_dtype(expression, site.function)
    if named_dtype or isinstance(constant_of(expression), str):
        edit = f"write `dtype={text}`" if named_dtype else f"remove `{text}`"
        help = f"`{view.source_of(site.node.func)}` takes `enabled` first: {edit}"
        kind = "torch.dtype" if named_dtype else "str"
        yield Complaint(expression, NOT_A_SWITCH.format(text=text, kind=kind), help)


def _values(expression: ast.expr, function: Function) -> list[ast.expr]:
    """What a name is bound to, or the expression itself."""
    known = definitions(function.module, expression, function)
    return [binding.value for binding in known if binding.value] if known else [expression]


def _is_text(expression: ast.expr, function: Function) -> bool:
    """Whether an argument is a string, directly or by every definition of its name."""
    values = _values(expression, function)
    return all(isinstance(constant_of(value), str) for value in values)


def is_dtype(expression: ast.expr, function: Function) -> bool:
    """Whether an expression is a dtype of torch by its name."""
    dotted = function.module.resolve(expression) or ""
    return dotted in ("torch.float16", "torch.half", "torch.bfloat16", "torch.float32")


def is_device(expression: ast.expr, function: Function) -> bool:
    """Whether an expression is a `torch.device` by every definition of its name."""
    return all(
        isinstance(value, ast.Call) and function.module.resolve(value.func) == "torch.device"
        for value in _values(expression, function)
    )
