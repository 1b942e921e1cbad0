"""What happens to real scalers, optimizers and gradients, and what the protocol says to it.

The monitor is told about events by `amplint.runtime.instrument`. It gives scalers and
optimizers numbers, tells the tracker of `amplint.protocol` what happens to them, and hands each
event to a listener. It never reads the value of a tensor, so it never waits for a device.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from amplint.protocol import Event, Tracker, Violation
from amplint.runtime.places import Place

#: Where the mark of a scaled loss lies in the metadata of its autograd node.
SCALED_MARK = "amplint.scaled"
#: How many nodes of a graph are looked at for that mark. `scale()` returns the root of the
#: graph; what users do with it before backward() (sum, divide) adds a few nodes.
MARK_DEPTH = 256


@dataclass(slots=True)
class Observation:
    """One event, as the listener gets it.

    Args:
        kind: "scale", "backward", "unscale_", "clip", "step", "update", "zero_grad",
            "plain-step", "grad", "autocast-enter" or "autocast-exit".
        filename, row: the user's innermost line, rows 1-based; "", 0 if there is none.
        scaler, optimizer: running numbers from 1, 0 for none.
        state: stage and gradients after the event, in the protocol's words; "" if unknown.
        violation: the broken rule, if any.
        facts: what else was seen.
    """

    kind: str
    filename: str
    row: int
    scaler: int = 0
    optimizer: int = 0
    state: str = ""
    violation: Violation | None = None
    facts: dict[str, Any] = field(default_factory=dict)


class Monitor:
    """Typestates of all scalers and optimizers that were seen.

    Args:
        listener: called with each observation, once it is complete.
        place: gives file and 1-based row of the user's innermost line.
    """

    def __init__(self, listener: Callable[[Observation], None], place: Callable[[], Place]) -> None:
        self._listener = listener
        self._place = place
        self._numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._counts = {"scaler": 0, "optimizer": 0}
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._tracker = Tracker()
        self.regions: list[str] = []

    # -- objects

    def scaler_number(self, scaler: Any) -> int:
        """The running number of a scaler, from 1."""
        return self._number(scaler, "scaler")

    def optimizer_number(self, optimizer: Any) -> int:
        """The running number of an optimizer, from 1; it is known from then on."""
        if optimizer not in self._optimizers:
            self._optimizers.add(optimizer)
            number = self._number(optimizer, "optimizer")
            self._tracker.observe(number, present=_has_gradients(optimizer))
        return self._number(optimizer, "optimizer")

    def _number(self, thing: Any, kind: str) -> int:
        number = self._numbers.get(thing)
        if number is None:
            self._counts[kind] += 1
            number = self._numbers[thing] = self._counts[kind]
        return number

    def owners(self, parameters: Iterable[Any]) -> list[Any]:
        """The known optimizers that own any of these parameters."""
        wanted = {id(parameter) for parameter in parameters}
        return [
            optimizer
            for optimizer in list(self._optimizers)
            if any(id(parameter) in wanted for parameter in parameters_of(optimizer))
        ]

    def known_optimizers(self) -> list[Any]:
        """All optimizers that still exist."""
        return list(self._optimizers)

    # -- events

    def scaled(self, scaler: Any, outputs: Iterable[Any]) -> None:
        """`scaler.scale(outputs)` of an enabled scaler has returned these tensors."""
        number = self.scaler_number(scaler)
        self._tracker.apply(Event.SCALE, number)
        for tensor in outputs:
            if tensor.grad_fn is not None:
                tensor.grad_fn.metadata[SCALED_MARK] = number
        self._tell("scale", scaler=number)

    def before_backward(self) -> dict[int, dict[int, tuple[int, int]]]:
        """What all gradients look like now; to be handed to `after_backward`."""
        return {
            self.optimizer_number(optimizer): _versions(optimizer)
            for optimizer in list(self._optimizers)
        }

    def after_backward(
        self,
        roots: Iterable[Any],
        before: dict[int, dict[int, tuple[int, int]]],
        raised: BaseException | None = None,
    ) -> None:
        """A backward from these tensors has filled or changed gradients, or has raised."""
        scaler = scaler_of(roots)
        if raised is not None:
            facts = _raised_fact({"scaled": bool(scaler), "optimizers": []}, raised)
            self._tell("backward", scaler=scaler, facts=facts)
            return
        event = Event.SCALED_BACKWARD if scaler else Event.PLAIN_BACKWARD
        fed = [
            number
            for optimizer in list(self._optimizers)
            if _versions(optimizer) != before.get(number := self.optimizer_number(optimizer), {})
        ]
        violation = self._tracker.apply(event, scaler or None, *fed)
        self._tell(
            "backward",
            scaler=scaler,
            optimizer=fed[0] if len(fed) == 1 else 0,
            violation=violation,
            facts={"scaled": bool(scaler), "optimizers": fed},
        )

    def unscaling(self, scaler: Any, optimizer: Any) -> Pending:
        """`scaler.unscale_(optimizer)` is about to run."""
        return self._handed("unscale_", Event.UNSCALE, scaler, optimizer)

    def stepping(self, scaler: Any, optimizer: Any) -> Pending:
        """`scaler.step(optimizer)` is about to run."""
        return self._handed("step", Event.STEP, scaler, optimizer)

    def updating(self, scaler: Any, new_scale: bool) -> Pending:
        """`scaler.update()` is about to run."""
        event = Event.SET_SCALE if new_scale else Event.UPDATE
        facts = {"new-scale": True} if new_scale else {}
        return self._pending("update", event, facts, self.scaler_number(scaler))

    def plain_step(self, optimizer: Any) -> None:
        """`optimizer.step()` is about to run, and not from inside a scaler."""
        number = self._up_to_date(optimizer)
        facts = self._facts(optimizer)
        violation = self._tracker.apply(Event.OPTIMIZER_STEP, None, number)
        self._tell("plain-step", optimizer=number, violation=violation, facts=facts)

    def zero_grad(self, optimizers: Iterable[Any]) -> None:
        """`zero_grad()` of an optimizer or module has returned."""
        for optimizer in optimizers:
            number = self.optimizer_number(optimizer)
            kept = _has_gradients(optimizer)
            self._tracker.apply(Event.ZERO_GRAD_KEEP if kept else Event.ZERO_GRAD, None, number)
            self._tell("zero_grad", optimizer=number, facts={"keep": kept})

    def clip(self, parameters: list[Any]) -> None:
        """Gradients of these parameters are about to be clipped."""
        for optimizer in self.owners(parameters):
            number = self._up_to_date(optimizer)
            violation = self._tracker.apply(Event.CLIP, None, number)
            partner = self._tracker.partner(number)
            scaler = partner if isinstance(partner, int) else 0
            self._tell("clip", scaler, number, violation, self._facts(optimizer))

    def grad(self, roots: Iterable[Any]) -> None:
        """`torch.autograd.grad` has returned."""
        scaler = scaler_of(roots)
        self._tell("grad", scaler=scaler, facts={"scaled": bool(scaler)})

    def enter_autocast(self, facts: dict[str, Any], enabled: bool) -> None:
        """An autocast region begins, of the device and dtype in `facts`."""
        self.regions.append(f"{facts['device']} {facts['dtype']}" if enabled else "")
        self._tell("autocast-enter", facts={**facts, "enabled": enabled})

    def exit_autocast(self, leaks: bool = False) -> None:
        """The innermost autocast region has ended; it `leaks` if autocast is not as before."""
        if self.regions:
            self.regions.pop()
        self._tell("autocast-exit", facts={"leaks": True} if leaks else {})

    @property
    def in_region(self) -> bool:
        """Whether the innermost autocast region is enabled."""
        return bool(self.regions and self.regions[-1])

    # -- states

    def _handed(self, kind: str, event: Event, scaler: Any, optimizer: Any) -> Pending:
        number = self._up_to_date(optimizer)
        facts = self._facts(optimizer)
        return self._pending(kind, event, facts, self.scaler_number(scaler), number)

    def _pending(
        self, kind: str, event: Event, facts: dict[str, Any], scaler: int, optimizer: int = 0
    ) -> Pending:
        """Apply an event before its call runs: what the call does inside comes after it."""
        place = self._place()
        before = self._tracker.snapshot()
        violation = self._tracker.apply(event, scaler, optimizer)

        def done(raised: BaseException | None) -> None:
            if raised is not None and not (violation and violation.raises):
                # Another reason than the protocol's: torch has left the stage as it was.
                self._tracker.restore(before)
            self._tell(
                kind,
                scaler=scaler,
                optimizer=optimizer,
                violation=violation,
                facts=_raised_fact(facts, raised),
                place=place,
            )

        return Pending(done)

    def _up_to_date(self, optimizer: Any) -> int:
        """The number of an optimizer, once gradients that came or went unseen are followed."""
        number = self.optimizer_number(optimizer)
        if self._tracker.observe(number, present=_has_gradients(optimizer)):
            self._tell("zero_grad", optimizer=number, facts={"keep": False})
        return number

    def _facts(self, optimizer: Any) -> dict[str, Any]:
        parameters = list(parameters_of(optimizer))
        gradients = list(gradients_of(optimizer))
        return {
            "gradients": len(gradients),
            "parameters": len(parameters),
            "dtypes": sorted({str(parameter.dtype) for parameter in parameters}),
            "gradient_dtypes": sorted({str(gradient.dtype) for gradient in gradients}),
        }

    def _state(self, scaler: int, optimizer: int) -> str:
        pair = self._tracker.pair(optimizer, scaler or None)
        if not optimizer or pair.gradient is None:
            return ""
        return f"{pair.stage.value}, {pair.gradient.value}"

    def _tell(
        self,
        kind: str,
        scaler: int = 0,
        optimizer: int = 0,
        violation: Violation | None = None,
        facts: dict[str, Any] | None = None,
        place: Place | None = None,
    ) -> None:
        filename, row = place or self._place()
        facts = {**(facts or {}), "autocast": self.in_region}
        state = self._state(scaler, optimizer)
        self._listener(Observation(kind, filename, row, scaler, optimizer, state, violation, facts))


class Pending:
    """A call that has begun: `done` is told how it ended."""

    def __init__(self, done: Callable[[BaseException | None], None]) -> None:
        self.done = done

    def __enter__(self) -> None:
        """Nothing is asked of the caller."""

    def __exit__(self, _type: object, raised: BaseException | None, _trace: object) -> None:
        self.done(raised)


def parameters_of(optimizer: Any) -> Iterable[Any]:
    """All parameters of an optimizer, in order."""
    for group in optimizer.param_groups:
        yield from group["params"]


def gradients_of(optimizer: Any) -> Iterable[Any]:
    """The gradients that exist now."""
    for parameter in parameters_of(optimizer):
        if parameter.grad is not None:
            yield parameter.grad


def _has_gradients(optimizer: Any) -> bool:
    return any(True for _ in gradients_of(optimizer))


def scaler_of(roots: Iterable[Any]) -> int:
    """The number of the scaler whose `scale` these tensors descend from; 0 for none."""
    queue = [root.grad_fn for root in roots if root.grad_fn is not None]
    seen = set()
    for node in queue:
        if node in seen:
            continue
        seen.add(node)
        mark = node.metadata.get(SCALED_MARK, 0)
        if mark:
            return int(mark)
        if len(seen) >= MARK_DEPTH:
            return 0
        queue.extend(following for following, _ in node.next_functions if following is not None)
    return 0


def _versions(optimizer: Any) -> dict[int, tuple[int, int]]:
    """Identity and version of each gradient: a backward changes one or the other."""
    return {
        id(parameter): (id(parameter.grad), parameter.grad._version)
        for parameter in parameters_of(optimizer)
        if parameter.grad is not None
    }


def _raised_fact(facts: dict[str, Any], raised: BaseException | None) -> dict[str, Any]:
    if raised is None:
        return facts
    return {**facts, "raised": type(raised).__name__}
