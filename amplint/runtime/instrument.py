"""Tells a monitor about the calls of a running program, by wrapping torch's own methods.

Methods are replaced on the classes, so every scaler and optimizer is seen, however it is
reached; functions that user code imports by name (`clip_grad_norm_`) have to be replaced
before the user's modules are loaded. Everything can be undone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

from amplint.runtime.monitor import Monitor, parameters_of
from amplint.runtime.patches import Patches

CLIPS = ("clip_grad_norm_", "clip_grad_value_")


def instrument(monitor: Monitor) -> Patches:
    """Wrap torch; `undo()` of the result takes everything back."""
    patches = Patches()
    _scalers(monitor, patches)
    _backwards(monitor, patches)
    _optimizers(monitor, patches)
    _clips(monitor, patches)
    _autocast(monitor, patches)
    return patches


class _Depth:
    """Whether the program is inside a scaler's own `step`."""

    def __init__(self) -> None:
        self.stepping = 0


def _scalers(monitor: Monitor, patches: Patches) -> None:
    scaler_class = torch.amp.GradScaler
    depth = _Depth()

    def scale(original: Callable[..., Any], self: Any, outputs: Any) -> Any:
        result = original(self, outputs)
        if self.is_enabled():
            monitor.scaled(self, _tensors(result))
        return result

    def unscale(original: Callable[..., Any], self: Any, optimizer: Any) -> Any:
        # `step` calls unscale_ where the user did not: that is part of the step.
        if not self.is_enabled() or not _is_optimizer(optimizer) or depth.stepping:
            return original(self, optimizer)
        with monitor.unscaling(self, optimizer):
            return original(self, optimizer)

    def step(
        original: Callable[..., Any], self: Any, optimizer: Any, *args: Any, **kwargs: Any
    ) -> Any:
        if not self.is_enabled() or not _is_optimizer(optimizer):
            return original(self, optimizer, *args, **kwargs)
        depth.stepping += 1
        try:
            with monitor.stepping(self, optimizer):
                return original(self, optimizer, *args, **kwargs)
        finally:
            depth.stepping -= 1

    def update(original: Callable[..., Any], self: Any, new_scale: Any = None) -> Any:
        if not self.is_enabled():
            return original(self, new_scale)
        with monitor.updating(self, new_scale is not None):
            return original(self, new_scale)

    for name, wrapper in (("scale", scale), ("unscale_", unscale), ("step", step)):
        patches.wrap(scaler_class, name, wrapper)
    patches.wrap(scaler_class, "update", update)

    def before_step(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if not depth.stepping:
            monitor.plain_step(optimizer)

    patches.on_undo(register_optimizer_step_pre_hook(before_step).remove)


def _backwards(monitor: Monitor, patches: Patches) -> None:
    # Tensor.backward calls torch.autograd.backward: one wrapper sees both.
    def backward(original: Callable[..., Any], tensors: Any, *args: Any, **kwargs: Any) -> Any:
        before = monitor.before_backward()
        try:
            result = original(tensors, *args, **kwargs)
        except BaseException as error:
            monitor.after_backward(_tensors(tensors), before, error)
            raise
        monitor.after_backward(_tensors(tensors), before)
        return result

    def grad(original: Callable[..., Any], outputs: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(outputs, *args, **kwargs)
        monitor.grad(_tensors(outputs))
        return result

    patches.wrap(torch.autograd, "backward", backward)
    patches.wrap(torch.autograd, "grad", grad)


def _optimizers(monitor: Monitor, patches: Patches) -> None:
    def init(original: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        monitor.optimizer_number(self)
        return result

    def zero_grad(original: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
        monitor.optimizer_number(self)
        result = original(self, *args, **kwargs)
        monitor.zero_grad([self])
        return result

    def module_zero_grad(original: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        cleared = {id(parameter) for parameter in self.parameters()}
        monitor.zero_grad(
            optimizer
            for optimizer in monitor.owners(self.parameters())
            if all(id(parameter) in cleared for parameter in parameters_of(optimizer))
        )
        return result

    patches.wrap(Optimizer, "__init__", init)
    patches.wrap(Optimizer, "zero_grad", zero_grad)
    patches.wrap(torch.nn.Module, "zero_grad", module_zero_grad)


def _clips(monitor: Monitor, patches: Patches) -> None:
    def clip(original: Callable[..., Any], parameters: Any, *args: Any, **kwargs: Any) -> Any:
        parameters = list(_tensors(parameters))
        monitor.clip(parameters)
        return original(parameters, *args, **kwargs)

    for module in (torch.nn.utils, torch.nn.utils.clip_grad):
        for name in CLIPS:
            patches.wrap(module, name, clip)


def _autocast(monitor: Monitor, patches: Patches) -> None:
    region_class = torch.amp.autocast_mode.autocast

    #: The state before the outermost entry of each region that is active, and how often it is.
    active: dict[int, list[tuple[bool, str]]] = {}

    def enter(original: Callable[..., Any], self: Any) -> Any:
        before = active.setdefault(id(self), [])
        before.append(_autocast_state(self.device))
        result = original(self)
        explicit = bool(getattr(self, "_amp_explicit", True))
        facts = {"device": self.device, "dtype": str(self.fast_dtype), "explicit": explicit}
        monitor.enter_autocast({**facts, "again": len(before) > 1}, bool(self._enabled))
        return result

    def leave(original: Callable[..., Any], self: Any, *error: Any) -> Any:
        result = original(self, *error)
        before = active.pop(id(self), [])
        outermost = before.pop() if before else None
        if before:
            active[id(self)] = before
        leaks = not before and outermost is not None
        monitor.exit_autocast(leaks and _autocast_state(self.device) != outermost)
        return result

    patches.wrap(region_class, "__enter__", enter)
    patches.wrap(region_class, "__exit__", leave)


def _autocast_state(device: str) -> tuple[bool, str]:
    """Whether autocast is on in this thread, and its dtype."""
    if hasattr(torch, "get_autocast_dtype"):
        return torch.is_autocast_enabled(device), str(torch.get_autocast_dtype(device))
    if device == "cpu":  # before torch 2.4
        return torch.is_autocast_cpu_enabled(), str(torch.get_autocast_cpu_dtype())
    return torch.is_autocast_enabled(), str(torch.get_autocast_gpu_dtype())


def _is_optimizer(thing: Any) -> bool:
    return hasattr(thing, "param_groups")


def _tensors(value: Any) -> Iterable[Any]:
    """The tensors of what `scale`, `backward` and `clip` accept: one, or an iterable."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
        return []
    return [item for entry in value for item in _tensors(entry)]
