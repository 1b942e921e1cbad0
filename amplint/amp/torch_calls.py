"""What torch's optimizers, schedulers, loaders, layers and losses take: a call with others raises.

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
from amplint.values.unpacking import Unpacking

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
_RUNS = "maximize=0, foreach=0, capturable=0, differentiable=0, fused=0"
_ADAM = (
    f"params, lr=0, betas=0, eps=0, weight_decay=0, amsgrad=0, {_RUNS}, decoupled_weight_decay=0"
)
_SCHEDULED = "last_epoch=-1, verbose=0"
_KERNEL = "in_channels, out_channels, kernel_size, stride=1, padding=0"
_MADE = "device=None, dtype=None"
_CONV = f"{_KERNEL}, dilation=1, groups=1, bias=0, padding_mode=0, {_MADE}"
_TRANSPOSED = f"{_KERNEL}, output_padding=0, groups=1, bias=0, dilation=1, padding_mode=0, {_MADE}"
_NORM = f"num_features, eps=0, momentum=0, affine=0, track_running_stats=0, {_MADE}, bias=0"
_LAYER = (
    "d_model, nhead, dim_feedforward=0, dropout=0, activation=0, layer_norm_eps=0, batch_first=0,"
    f" norm_first=0, bias=0, {_MADE}"
)
_REDUCED = "size_average=0, reduce=0, reduction=0"
_WEIGHED = f"input, target, weight=0, {_REDUCED}"
_CLASSES = "input, target, weight=0, size_average=0, ignore_index=0, reduce=0, reduction=0"
_SOFT = "input, dim=0, _stacklevel=0, dtype=None"
#: What makes an object, or is a function, under its full name: `ReduceLROnPlateau` has changed places.
FUNCTIONS: Mapping[str, str] = {
    **{
        f"torch.optim.{name}": row
        for name, row in {
            "Adam": _ADAM,
            "AdamW": _ADAM,
            "SGD": f"params, lr=0, momentum=0, dampening=0, weight_decay=0, nesterov=0, {_RUNS}",
            "RMSprop": "params, lr=0, alpha=0, eps=0, weight_decay=0, momentum=0, centered=0,"
            " capturable=0, foreach=0, maximize=0, differentiable=0",
        }.items()
    },
    **{
        f"torch.optim.lr_scheduler.{name}": f"optimizer, {row}, {_SCHEDULED}"
        for name, row in {
            "StepLR": "step_size, gamma=0",
            "MultiStepLR": "milestones, gamma=0",
            "ExponentialLR": "gamma",
            "LambdaLR": "lr_lambda",
            "CosineAnnealingLR": "T_max, eta_min=0",
            "CosineAnnealingWarmRestarts": "T_0, T_mult=0, eta_min=0",
            "LinearLR": "start_factor=0, end_factor=0, total_iters=0",
            "OneCycleLR": "max_lr, total_steps=0, epochs=0, steps_per_epoch=0, pct_start=0,"
            " anneal_strategy=0, cycle_momentum=0, base_momentum=0, max_momentum=0,"
            " div_factor=0, final_div_factor=0, three_phase=0",
        }.items()
    },
    **{
        f"torch.nn.{name}": row
        for name, row in {
            "Linear": f"in_features, out_features, bias=0, {_MADE}",
            **{f"Conv{k}d": _CONV for k in (1, 2, 3)},
            **{f"ConvTranspose{k}d": _TRANSPOSED for k in (1, 2, 3)},
            **{f"BatchNorm{k}d": _NORM for k in (1, 2, 3)},
            "InstanceNorm2d": _NORM,
            "GroupNorm": f"num_groups, num_channels, eps=0, affine=0, {_MADE}, bias=0",
            "LayerNorm": f"normalized_shape, eps=0, elementwise_affine=0, bias=0, {_MADE}",
            "Dropout": "p=0, inplace=0",
            "Embedding": "num_embeddings, embedding_dim, padding_idx=0, max_norm=0, norm_type=0,"
            f" scale_grad_by_freq=0, sparse=0, _weight=0, _freeze=0, {_MADE}",
            "MultiheadAttention": "embed_dim, num_heads, dropout=0, bias=0, add_bias_kv=0,"
            f" add_zero_attn=0, kdim=0, vdim=0, batch_first=0, {_MADE}",
            "TransformerEncoderLayer": _LAYER,
            "TransformerDecoderLayer": _LAYER,
            "MaxPool2d": "kernel_size, stride=0, padding=0, dilation=0, return_indices=0,"
            " ceil_mode=0",
        }.items()
    },
    **{
        f"torch.nn.functional.{name}": row
        for name, row in {
            "cross_entropy": f"{_CLASSES}, label_smoothing=0",
            "nll_loss": _CLASSES,
            "mse_loss": f"input, target, {_REDUCED}, weight=0",
            "l1_loss": f"input, target, {_REDUCED}, weight=0",
            "binary_cross_entropy": _WEIGHED,
            "binary_cross_entropy_with_logits": f"{_WEIGHED}, pos_weight=0",
            "softmax": _SOFT,
            "log_softmax": _SOFT,
            "dropout": "input, p=0, training=0, inplace=0",
            "interpolate": "input, size=0, scale_factor=0, mode=0, align_corners=0,"
            " recompute_scale_factor=0, antialias=0",
        }.items()
    },
}
_FUNCTIONAL = "torch.nn.functional."
_METHODS = frozenset(method for row in CALLS.values() for method in row)
_OPTIM, _SCHEDULES = "torch.optim.", "torch.optim.lr_scheduler."


def refused(view: AmpView, call: ast.Call, function: Function) -> bool:
    """Whether torch refuses a call wherever it runs."""
    module = function.module
    callee = call.func
    dotted = module.resolve(callee)
    if dotted is not None and dotted in CALLS:
        return module.imported_once(callee) and _is_refused(call, CALLS[dotted], "__init__")
    if dotted is not None and dotted in FUNCTIONS:
        is_refused = bool(fill(_parameters(FUNCTIONS[dotted]), passed(call)).refused)
        is_refused = is_refused or (
            dotted.startswith(_FUNCTIONAL) and _gets_nothing(view, call, function)
        )
        return is_refused and module.imported_once(callee)
    if isinstance(callee, ast.Attribute) and callee.attr in _METHODS:
        classes = _made_by(view, callee.value, function)
        return bool(classes) and all(_is_refused(call, row, callee.attr) for row in classes)
    if not isinstance(callee, (ast.Name, ast.Attribute)) or dotted is not None:
        return False
    gets_nothing = _gets_nothing(view, call, function)
    classes = _made_by(view, callee, function) if gets_nothing or _is_odd(call) else []
    return bool(classes) and all(
        _is_refused(call, row, "__call__") or (gets_nothing and "__call__" in row)
        for row in classes
    )


def _gets_nothing(view: AmpView, call: ast.Call, function: Function) -> bool:
    """Whether a call passes None where a tensor has to be: what a function gives without `return`."""
    first = call.args[0] if call.args else None
    return first is not None and view.once(_unpacking).is_nothing(first, function)


def _unpacking(view: AmpView) -> Unpacking:
    """One for all calls of a file: it keeps what it has found out."""
    return Unpacking(view.objects)


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
