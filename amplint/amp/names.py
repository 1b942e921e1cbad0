"""Dotted names of torch's AMP interface, every spelling that any supported torch has."""

from __future__ import annotations

from collections.abc import Mapping

GRAD_SCALERS = frozenset(
    {
        "torch.amp.GradScaler",
        "torch.GradScaler",
        "torch.amp.grad_scaler.GradScaler",
        "torch.cuda.amp.GradScaler",
        "torch.cuda.amp.grad_scaler.GradScaler",
        "torch.cpu.amp.GradScaler",
        "torch.cpu.amp.grad_scaler.GradScaler",
    }
)
SHARDED_GRAD_SCALERS = frozenset(
    {
        "torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler",
        "fairscale.optim.grad_scaler.ShardedGradScaler",
        "fairscale.optim.grad_scaler.GradScaler",
    }
)
AUTOCASTS = frozenset(
    {
        "torch.autocast",
        "torch.amp.autocast",
        "torch.amp.autocast_mode.autocast",
        "torch.cuda.amp.autocast",
        "torch.cuda.amp.autocast_mode.autocast",
        "torch.cpu.amp.autocast",
        "torch.cpu.amp.autocast_mode.autocast",
    }
)
#: Autocasts whose first parameter is `enabled`, not `device_type`.
DEVICE_AUTOCASTS = frozenset(
    {
        "torch.cuda.amp.autocast",
        "torch.cuda.amp.autocast_mode.autocast",
        "torch.cpu.amp.autocast",
        "torch.cpu.amp.autocast_mode.autocast",
    }
)
#: GradScalers whose first parameter is `init_scale`, not `device`.
DEVICE_GRAD_SCALERS = frozenset(
    {
        "torch.cuda.amp.GradScaler",
        "torch.cuda.amp.grad_scaler.GradScaler",
        "torch.cpu.amp.GradScaler",
        "torch.cpu.amp.grad_scaler.GradScaler",
    }
)
#: What their constructors take, in this order (torch 2.13: `autocast_mode.py` and `grad_scaler.py` of
#: torch/amp and of torch/cuda/amp).
AUTOCAST_PARAMETERS = ("device_type", "dtype", "enabled", "cache_enabled")
DEVICE_AUTOCAST_PARAMETERS = ("enabled", "dtype", "cache_enabled")
DEVICE_SCALER_PARAMETERS = (
    *("init_scale", "growth_factor", "backoff_factor", "growth_interval"),
    "enabled",
)
SCALER_PARAMETERS = ("device", *DEVICE_SCALER_PARAMETERS)
CLIP_FUNCTIONS = frozenset(
    f"{module}.{name}"
    for module in ("torch.nn.utils", "torch.nn.utils.clip_grad")
    for name in ("clip_grad_norm_", "clip_grad_norm", "clip_grad_value_", "clip_grads_with_norm_")
)

#: Methods that list the parameters of a module.
PARAMETERS = frozenset(("parameters", "named_parameters"))


def parameters_of(dotted: str) -> tuple[str, ...]:
    """What an autocast or a scaler takes, in this order; nothing of any other call."""
    if dotted in AUTOCASTS:
        return DEVICE_AUTOCAST_PARAMETERS if dotted in DEVICE_AUTOCASTS else AUTOCAST_PARAMETERS
    if dotted in GRAD_SCALERS | SHARDED_GRAD_SCALERS:
        return DEVICE_SCALER_PARAMETERS if dotted in DEVICE_GRAD_SCALERS else SCALER_PARAMETERS
    return ()


def is_optimizer_class(dotted: str) -> bool:
    """Whether a dotted name is a class of torch's optimizers: `torch.optim` also holds others.

    Schedules (`lr_scheduler`, `swa_utils.SWALR`) and averages (`swa_utils.AveragedModel`).
    """
    if not dotted.startswith("torch.optim.") or not dotted.rpartition(".")[2][:1].isupper():
        return False
    return ".lr_scheduler." not in dotted and ".swa_utils." not in dotted


#: The public names of torch's AMP modules (torch 2.13; older ones have fewer).
MEMBERS: Mapping[str, frozenset[str]] = {
    "torch.amp": frozenset(
        ("autocast", "GradScaler", "custom_fwd", "custom_bwd", "is_autocast_available")
        + ("autocast_mode", "grad_scaler")
    ),
    "torch.cuda.amp": frozenset(
        ("autocast", "GradScaler", "custom_fwd", "custom_bwd", "amp_definitely_not_available")
        + ("autocast_mode", "grad_scaler", "common")
    ),
    "torch.cpu.amp": frozenset(("autocast", "GradScaler", "autocast_mode", "grad_scaler")),
}
