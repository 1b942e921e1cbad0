"""What torch's optimizers, schedulers, loaders and losses take: a call with other arguments raises.

Only what no version of torch that is supported takes is refused: a parameter that one of them has stands
here, and the constructors miss none, because some gave a default later (`SGD(lr=1e-3)`).
tests/amp/test_torch_calls.py compares the rows with the signatures of the torch that it runs on.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache

from amplint.amp.library_objects import makers
from amplint.amp.view import AmpView
from amplint.code.arguments import Parameter, fill, listed, passed
from amplint.code.module import Function

OPTIMIZER = "torch.optim.Optimizer"
SCHEDULER = "torch.optim.lr_scheduler.LRScheduler"
PLATEAU = "torch.optim.lr_scheduler.ReduceLROnPlateau"
_LOSS = "weight=None, size_average=None, reduce=None, reduction=0"
_BOTH = "input, target"

#: Class -> method -> what it takes; `__init__` is a call of the class, `__call__` one of its object.
CALLS: Mapping[str, Mapping[str, str]] = {
    OPTIMIZER: {
        "load_state_dict": "state_dict",
        "state_dict": "",
        "step": "closure=None",
        "zero_grad": "set_to_none=True",
        "add_param_group": "param_group",
    },
    SCHEDULER: {
        "load_state_dict": "state_dict",
        "state_dict": "",
        "step": "epoch=None",
        "get_last_lr": "",
    },
    PLATEAU: {
        "load_state_dict": "state_dict",
        "state_dict": "",
        "step": "metrics, epoch=None",
    },
    "torch.utils.data.DataLoader": {
        "__init__": "dataset=0, batch_size=1, shuffle=None, sampler=None, batch_sampler=None,"
        " num_workers=0, collate_fn=None, pin_memory=False, drop_last=False, timeout=0,"
        " worker_init_fn=None, multiprocessing_context=None, generator=None, *,"
        " prefetch_factor=None, persistent_workers=False, pin_memory_device='', in_order=True",
    },
    "torch.nn.CrossEntropyLoss": {
        "__init__": "weight=None, size_average=None, ignore_index=-100, reduce=None,"
        " reduction='mean', label_smoothing=0.0",
        "__call__": _BOTH,
    },
    "torch.nn.BCEWithLogitsLoss": {"__init__": f"{_LOSS}, pos_weight=None", "__call__": _BOTH},
    "torch.nn.BCELoss": {"__init__": _LOSS, "__call__": _BOTH},
    "torch.nn.MSELoss": {"__init__": "size_average=0, reduce=0, reduction=0", "__call__": _BOTH},
    "torch.nn.L1Loss": {"__init__": "size_average=0, reduce=0, reduction=0", "__call__": _BOTH},
    "torch.nn.NLLLoss": {
        "__init__": "weight=None, size_average=None, ignore_index=-100, reduce=None, reduction=0",
        "__call__": _BOTH,
    },
}
_METHODS = frozenset(method for row in CALLS.values() for method in row)
_OPTIM, _SCHEDULES = "torch.optim.", "torch.optim.lr_scheduler."


def refused(view: AmpView, call: ast.Call, function: Function) -> bool:
    """Whether torch refuses a call wherever it runs."""
    module = function.module
    callee = call.func
    dotted = module.resolve(callee)
    if dotted is not None and dotted in CALLS:
        return module.imported_once(callee) and _is_refused(call, CALLS[dotted], "__init__")
    if isinstance(callee, ast.Attribute) and callee.attr in _METHODS:
        classes = _made_by(view, callee.value, function)
        return bool(classes) and all(_is_refused(call, row, callee.attr) for row in classes)
    if not isinstance(callee, (ast.Name, ast.Attribute)) or dotted is not None:
        return False
    classes = _made_by(view, callee, function) if _is_odd(call) else []
    return bool(classes) and all(_is_refused(call, row, "__call__") for row in classes)


def _is_odd(call: ast.Call) -> bool:
    """Whether a call passes what no loss takes; asked first, because it costs nothing."""
    return _is_refused(call, {"__call__": _BOTH}, "__call__")


def _is_refused(call: ast.Call, row: Mapping[str, str], method: str) -> bool:
    return method in row and bool(fill(_parameters(row[method]), passed(call)).refused)


def _made_by(view: AmpView, place: ast.expr, function: Function) -> list[Mapping[str, str]]:
    """The rows of the classes of torch that can have made an object; none where any may be another."""
    rows = [_row_of(dotted) for dotted in makers(place, function, view.objects)]
    return rows if all(rows) else []


def _row_of(dotted: str) -> Mapping[str, str]:
    """The row of a class of torch: its own, or that of its base."""
    name = dotted.rpartition(".")[2]
    if dotted in CALLS:
        return CALLS[dotted]
    if dotted.startswith(_SCHEDULES) and name[:1].isupper():
        return CALLS[SCHEDULER]
    is_optimizer = dotted.startswith(_OPTIM) and dotted.count(".") <= 3 and name[:1].isupper()
    return CALLS[OPTIMIZER] if is_optimizer and name != "LBFGS" else {}


@cache
def _parameters(text: str) -> Mapping[str, Parameter]:
    made = ast.parse(f"lambda {text}: 0", mode="eval").body
    assert isinstance(made, ast.Lambda)
    return listed(made.args)
