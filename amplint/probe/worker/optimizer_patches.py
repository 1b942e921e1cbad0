"""Optimizers and schedulers whose parameters and settings may be invented."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed
import torch.utils.data
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

from amplint.probe.worker import opaque_calls, standins, values
from amplint.probe.worker.context import current
from amplint.probe.worker.replacing import nothing, replace
from amplint.probe.worker.soft import (
    SoftTensor,
)

#: Settings of optimizers that nobody knows.
ORDINARY: dict[str, Any] = {"lr": 1e-3, "momentum": 0.9, "eps": 1e-8, "betas": (0.9, 0.999)}


def install_optimizers() -> None:
    """Optimizers take unknown parameters and settings."""
    init = Optimizer.__init__

    def new_init(self: Any, params: Any, defaults: Any) -> None:
        groups = _groups(params)
        if not groups:
            current().note("no-parameters")
            groups = list(values.world(current()).any_model().parameters())
            filled[id(self)] = frozenset(map(id, groups))
        init(self, groups, {key: _setting(key, value) for key, value in defaults.items()})

    def add_param_group(self: Any, group: Any) -> None:
        """Parameters that the code itself gives to an optimizer take the place of invented ones."""
        invented = filled.get(id(self), frozenset())
        for wanted in _groups([group]) if invented else [group]:
            own = set(map(id, opaque_calls.parameters_in(wanted))) & invented
            for known in self.param_groups if own else ():
                known["params"] = [p for p in known["params"] if id(p) not in own]
            add(self, wanted)

    filled: dict[int, frozenset[int]] = {}
    add = Optimizer.add_param_group
    replace(Optimizer, "__init__", new_init)
    replace(Optimizer, "add_param_group", add_param_group)
    register_optimizer_step_pre_hook(_concrete_groups)
    replace(Optimizer, "load_state_dict", nothing)
    for name in dir(torch.optim):
        kind = getattr(torch.optim, name)
        if isinstance(kind, type) and issubclass(kind, Optimizer) and kind is not Optimizer:
            _concrete_settings(kind)


def _concrete_groups(optimizer: Any, args: Any, kwargs: Any) -> None:
    """Schedules write into the groups of an optimizer; what they write may be invented."""
    for group in optimizer.param_groups:
        for name, value in group.items():
            if name != "params":
                group[name] = _setting(name, value)


def _concrete_settings(kind: Any) -> None:
    """Constructors of torch check their settings, so these must be numbers before."""
    init = kind.__init__

    def new_init(self: Any, params: Any, *args: Any, **kwargs: Any) -> None:
        args = tuple(_setting("lr", value) for value in args)
        init(self, params, *args, **{key: _setting(key, value) for key, value in kwargs.items()})

    replace(kind, "__init__", new_init)


def _setting(name: str, value: Any) -> Any:
    if isinstance(value, standins.StandIn):
        return ORDINARY.get(name, 0.0)
    if isinstance(value, SoftTensor):
        return 1e-3
    if type(value) in (tuple, list):
        return type(value)(_setting("momentum", entry) for entry in value)
    return value


def _groups(params: Any) -> list[Any]:
    if isinstance(params, standins.StandIn):
        return []
    groups: list[Any] = []
    for entry in params:
        if isinstance(entry, dict):
            owned = list(opaque_calls.parameters_in(entry.get("params", ())))
            settings = {key: _setting(key, value) for key, value in entry.items()}
            if owned:
                groups.append({**settings, "params": owned})
        elif isinstance(entry, tuple):
            groups.extend(opaque_calls.parameters_in(entry))
        elif isinstance(entry, torch.Tensor):
            groups.append(entry)
    return groups


def install_schedulers() -> None:
    """Schedulers take unknown optimizers and settings."""
    module = torch.optim.lr_scheduler
    for name in dir(module):
        kind = getattr(module, name)
        known = isinstance(kind, type) and issubclass(kind, module.LRScheduler)
        if known and "__init__" in vars(kind):
            _lenient(kind)


def _lenient(kind: Any) -> None:
    """A scheduler whose invented settings torch refuses is one that does nothing."""
    init = kind.__init__

    def new_init(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> None:
        optimizer = standins.concrete(optimizer, "optimizer")
        try:
            init(self, optimizer, *args, **kwargs)
        except Exception:  # noqa: BLE001 -- whatever torch says about an invented number
            current().remark(f"{type(self).__name__} does nothing")
            self.optimizer = optimizer
            self.step = self.load_state_dict = nothing
            self.get_last_lr = self.get_lr = lambda: [1e-3]
            self.state_dict = dict

    replace(kind, "__init__", new_init)
