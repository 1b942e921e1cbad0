"""A real GradScaler over optimizers of one scalar parameter each, driven event by event.

The loss is the plain sum of the parameters, so every true gradient is exactly 1, and
SGD with a learning rate of 1 writes the applied gradient into the weight.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch.amp.grad_scaler import _refresh_per_optimizer_state

from amplint.protocol import Event

INIT_SCALE = 65536.0
MAX_NORM = 1.0


@dataclass(frozen=True)
class Observed:
    """What torch shows of one (scaler, optimizer) pair after an event."""

    stage: str
    checked: bool
    gradient: float | None


class ScalarTorch:
    """One scaler and its optimizers, with snapshots so that words share prefixes."""

    def __init__(
        self,
        optimizers: tuple[Hashable, ...] = ("optimizer",),
        *,
        enabled: bool = True,
        device: str = "cpu",
    ) -> None:
        torch.set_num_threads(1)
        self.loss_factor = 1.0  # inf makes the next backward overflow
        kind = device.partition(":")[0]
        self.scaler = torch.amp.GradScaler(kind, init_scale=INIT_SCALE, enabled=enabled)
        self.parameters = {
            key: torch.zeros(1, requires_grad=True, device=device) for key in optimizers
        }
        self.optimizers = {
            key: torch.optim.SGD([parameter], lr=1.0, foreach=False)
            for key, parameter in self.parameters.items()
        }

    @property
    def initialised(self) -> bool:
        return self.scaler._scale is not None

    def observe(self, key: Hashable = "optimizer") -> Observed:
        states = self.scaler._per_optimizer_states
        state = states.get(id(self.optimizers[key]), _refresh_per_optimizer_state())
        gradient = self.parameters[key].grad
        return Observed(
            stage=state["stage"].name,
            checked=bool(state["found_inf_per_device"]),
            gradient=None if gradient is None else gradient.item(),
        )

    def weight(self, key: Hashable = "optimizer") -> float:
        """The sum of all applied gradients, negated: weights start at 0."""
        return self.parameters[key].item()

    def apply(
        self, event: Event, key: Hashable = "optimizer", new_scale: float = INIT_SCALE
    ) -> tuple[str, str] | None:
        """Run one event; return torch's exception as (type name, text), None if accepted."""
        try:
            self._run(event, key, new_scale)
        except Exception as error:  # noqa: BLE001 - whatever torch raises is the observation
            return type(error).__name__, str(error)
        return None

    def _run(self, event: Event, key: Hashable, new_scale: float) -> None:
        optimizer = self.optimizers[key]
        match event:
            case Event.SCALE:
                self.scaler.scale(self._loss())
            case Event.SCALED_BACKWARD:
                self.scaler.scale(self._loss()).backward()
            case Event.PLAIN_BACKWARD:
                self._loss().backward()
            case Event.UNSCALE:
                self.scaler.unscale_(optimizer)
            case Event.STEP:
                self.scaler.step(optimizer)
            case Event.UPDATE:
                self.scaler.update()
            case Event.SET_SCALE:
                self.scaler.update(new_scale)
            case Event.ZERO_GRAD:
                optimizer.zero_grad()
            case Event.ZERO_GRAD_KEEP:
                optimizer.zero_grad(set_to_none=False)
            case Event.CLIP:
                torch.nn.utils.clip_grad_norm_([self.parameters[key]], MAX_NORM)
            case Event.OPTIMIZER_STEP:
                optimizer.step()

    def _loss(self) -> torch.Tensor:
        return reduce(torch.add, map(torch.sum, self.parameters.values())) * self.loss_factor

    def snapshot(self) -> tuple[Any, ...]:
        """Copy everything that an event can change; `restore` takes it back."""
        parameters = [(p.item(), _copy(p.grad)) for p in self.parameters.values()]
        return self._scaler_snapshot() if self.scaler.is_enabled() else None, parameters

    def _scaler_snapshot(self) -> tuple[Any, ...]:
        states = {
            id_: (state["stage"], dict(state["found_inf_per_device"]))
            for id_, state in self.scaler._per_optimizer_states.items()
        }
        return _copy(self.scaler._scale), _copy(self.scaler._growth_tracker), states

    def restore(self, snapshot: tuple[Any, ...]) -> None:
        scaler_snapshot, parameters = snapshot
        for parameter, (weight, gradient) in zip(self.parameters.values(), parameters):
            parameter.data.fill_(weight)
            parameter.grad = _copy(gradient)
        if scaler_snapshot is None:
            return
        scale, growth_tracker, states = scaler_snapshot
        self.scaler._scale = _copy(scale)
        self.scaler._growth_tracker = _copy(growth_tracker)
        self.scaler._per_optimizer_states = defaultdict(_refresh_per_optimizer_state)
        for id_, (stage, found_inf) in states.items():
            state = {"stage": stage, "found_inf_per_device": dict(found_inf)}
            self.scaler._per_optimizer_states[id_] = state


def _copy(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else tensor.detach().clone()
