"""One step in so many is looked at closely: gradients, weights, modules.

Such a step waits for its device, at its end. No other step does anything more than without samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import get_ident
from typing import Any

import torch

from amplint.protocol import Event
from amplint.runtime.forwards import Forwards, Roots, own_parameters
from amplint.runtime.measures import Kinds, Pending, Shares, Weights, numbers, total_norm
from amplint.runtime.objects import OptimizerRecord, ScalerRecord
from amplint.runtime.observer import Feeding, Handed, Observer
from amplint.runtime.places import Territory, user_place
from amplint.runtime.sink import Plan, Sample, Sink

#: Steps after a skipped one that are sampled beside the others, so that a run finds the origin of
#: an overflow; a run that skips all the time does not sample all the time.
_AFTER_SKIPS = 8


class SamplingObserver(Observer):
    """An observer that samples the second step, and one in `every` after it.

    The second, because by then what is compiled has been compiled.
    """

    def __init__(
        self,
        sink: Sink,
        territory: Territory,
        plan: Plan | None = None,
        *,
        every: int,
        complain: Callable[[str], None],
    ) -> None:
        super().__init__(sink, territory, plan)
        self._every, self._complain = every, complain
        self._user_place = user_place(territory.is_user)
        self._rounds = 0
        self._after_skips = _AFTER_SKIPS
        self._roots = Roots()
        self._step: _Step | None = None

    # -- what an observer is told, and what of it belongs to the sampled step

    def scaled(self, scaler: Any, inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> None:
        """See `Observer`; the loss before it is scaled."""
        self._in_step(lambda step: step.forwards.losses("loss", inputs))
        super().scaled(scaler, inputs, outputs)

    def before_backward(self, roots: list[torch.Tensor], gradient_given: bool) -> Feeding | None:
        """See `Observer`; what goes backwards."""
        way = "scaled loss" if self.has_scaler else "loss"
        self._in_step(lambda step: step.forwards.losses(way, roots))
        return super().before_backward(roots, gradient_given)

    def before_handed(
        self, kind: str, event: Event, scaler: Any, optimizer: Any, *, has_closure: bool = False
    ) -> Handed:
        """See `Observer`; gradients before they are unscaled."""
        known = self.objects.optimizer(optimizer)
        self._in_step(lambda step: step.before(known, is_scaled=True, is_step=kind == "step"))
        return super().before_handed(kind, event, scaler, optimizer, has_closure=has_closure)

    def after_handed(self, handed: Handed, raised: bool) -> None:
        """See `Observer`; gradients after they were unscaled, weights after the step."""
        super().after_handed(handed, raised)
        known, kind = handed.optimizer, handed.kind
        if not raised:
            is_step, steps = kind == "step", handed.scaler.steps
            is_taken = is_step and bool(steps) and steps[-1] is False
            self._in_step(lambda step: step.after(known, is_step=is_step, is_taken=is_taken))

    def updated(self, scaler: Any, new_scale: Any, raised: bool) -> None:
        """See `Observer`; a round ends."""
        super().updated(scaler, new_scale, raised)
        record = self.scaler(scaler)
        self._round_ended(record, is_skipped=record.skips_in_a_row > 0)

    def before_plain_step(self, optimizer: Any, has_closure: bool) -> None:
        """See `Observer`."""
        super().before_plain_step(optimizer, has_closure)
        if self.thread.stepping is None and not has_closure:
            known = self.objects.optimizer(optimizer)
            self._in_step(lambda step: step.before(known, is_scaled=False, is_step=True))

    def after_plain_step(self, optimizer: Any, has_closure: bool) -> None:
        """See `Observer`; without a scaler, a round ends."""
        super().after_plain_step(optimizer, has_closure)
        if self.thread.stepping is None and not has_closure:
            known = self.objects.optimizer(optimizer)
            self._in_step(lambda step: step.after(known, is_step=True, is_taken=True))
            if not self.has_scaler:
                self._round_ended(None, is_skipped=False)

    # -- the sampled step

    def _round_ended(self, record: ScalerRecord | None, *, is_skipped: bool) -> None:
        if self._step is not None:
            self._in_step(lambda step: self._tell(step, record))
            self.stop()
        self._rounds += 1
        is_next = self._rounds % self._every == 1 % self._every
        if is_skipped and not is_next and self._after_skips > 0:
            self._after_skips -= 1
            is_next = True
        if is_next:
            self._step = _Step(Forwards(self._user_place, self._failed, self._roots))

    def _tell(self, step: _Step, record: ScalerRecord | None) -> None:
        number, update = (record.number, record.updates) if record else (0, self._rounds + 1)
        self._sink.sample(step.sample(number, update))

    def _in_step(self, action: Callable[[_Step], None]) -> None:
        """Do something of the sampled step, if one is running in this thread."""
        step = self._step
        if step is None or step.thread != get_ident():
            return
        try:
            action(step)
        except Exception as error:  # noqa: BLE001 - samples are not worth the watching
            self._failed(error)

    def _failed(self, error: BaseException) -> None:
        self._every = 1 << 62
        self._after_skips = 0
        self.stop()
        self._complain(f"no samples from here on ({type(error).__name__}: {error})")

    def stop(self) -> None:
        """Take the hooks of a sampled step back."""
        step, self._step = self._step, None
        if step is not None:
            step.forwards.remove()


class _Step:
    """What was seen of the running step."""

    def __init__(self, forwards: Forwards) -> None:
        self.forwards = forwards
        self.thread = get_ident()
        #: By the number of the gradient set: its optimizer, and what was measured.
        self._optimizers: dict[int, OptimizerRecord] = {}
        self._scaled: dict[int, list[torch.Tensor]] = {}
        self._unscaled: dict[int, list[torch.Tensor]] = {}
        self._gradients: dict[int, Pending] = {}
        self._weights: dict[int, Weights] = {}
        self._stills: list[tuple[Weights, list[torch.Tensor]]] = []

    def before(self, known: OptimizerRecord, *, is_scaled: bool, is_step: bool) -> None:
        """Gradients are about to be unscaled, or applied."""
        if known.set is None:
            return
        key, parameters = known.set.number, known.set.parameters
        self._optimizers[key] = known
        if key not in self._gradients:
            self._gradients[key] = pending = Pending(parameters)
            (self._scaled if is_scaled else self._unscaled)[key] = pending.norm
        if is_step:
            self._weights[key] = Weights(parameters)

    def after(self, known: OptimizerRecord, *, is_step: bool, is_taken: bool) -> None:
        """They were."""
        key = known.set.number if known.set is not None else 0
        if key in self._gradients and key not in self._unscaled:
            gradients = [
                p.grad.detach() for p in self._gradients[key].parameters if p.grad is not None
            ]
            self._unscaled[key] = total_norm(gradients)
        weights = self._weights.pop(key, None) if is_step else None
        if weights is not None and is_taken:
            self._stills.append((weights, weights.compare()))

    def sample(self, scaler: int, update: int) -> Sample:
        """All of it, read from the devices."""
        names = self.forwards.names()
        owners = {
            id(weight): name for name, module in names.values() for weight in own_parameters(module)
        }
        shares: dict[str, Shares] = {}
        kinds = self.forwards.kinds(names)
        for key, pending in self._gradients.items():
            known = self._optimizers[key]
            rows = pending.read()
            for index, (parameter, row) in enumerate(zip(pending.parameters, rows)):
                name = owners.get(id(parameter))
                name = f"optimizer {known.number}, tensor {index}" if name is None else name
                shares.setdefault(name, Shares()).add(row)
                _enter_kinds(kinds, name, parameter, known)
        for weights, stills in self._stills:
            counts = [int(each) for each in numbers(stills)]
            for parameter, compared, still in zip(weights.parameters, counts[::2], counts[1::2]):
                name = owners.get(id(parameter), "")
                shares.setdefault(name, Shares()).add(Shares(compared=compared, still=still))
        tops = {name: each.top for name, each in shares.items()}
        origin = self.forwards.origin(names, tops)
        before, after = _norm(self._scaled.values()), _norm(self._unscaled.values())
        return Sample(
            scaler, update, before, after, shares, kinds, origin, self.forwards.is_compiled
        )


def _enter_kinds(
    kinds: dict[str, Kinds], name: str, parameter: Any, known: OptimizerRecord
) -> None:
    """The dtypes of a gradient and of what its optimizer keeps."""
    entry = kinds.setdefault(name, Kinds("", str(parameter.dtype)))
    entry.gradient = str(parameter.grad.dtype) if parameter.grad is not None else entry.gradient
    state = getattr(known.object(), "state", {}).get(parameter, {})
    held = [v for v in state.values() if isinstance(v, torch.Tensor) and v.shape == parameter.shape]
    entry.state = entry.state or (str(held[0].dtype) if held else "")


def _norm(parts: Iterable[list[torch.Tensor]]) -> float | None:
    """The norm of all from the norms of parts; None where there is none."""
    squares = [value * value for each in parts for value in numbers(each)]
    return sum(squares) ** 0.5 if squares else None
