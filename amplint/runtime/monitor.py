"""What happens to real scalers, optimizers and gradients, and what the protocol says to it.

The monitor is told about events by `amplint.runtime.instrument`. It keeps the typestate of
every (scaler, optimizer) pair with the table of `amplint.protocol`, and hands each event to
a listener. It never reads the value of a tensor, so it never waits for a device.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from amplint.protocol import VIOLATIONS, Event, Gradient, Pair, Stage, Violation, advance
from amplint.protocol.machine import UNCHECKED, UNINITIALISED
from amplint.protocol.states import ABSENT

#: Where the mark of a scaled loss lies in the metadata of its autograd node.
SCALED_MARK = "amplint.scaled"
#: How many nodes of a graph are looked at for that mark. `scale()` returns the root of the
#: graph; what users do with it before backward() (sum, divide) adds a few nodes.
MARK_DEPTH = 256

Place = tuple[str, int]


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
        #: Gradient tag of each optimizer; None where the monitor does not know.
        self._gradients: dict[int, Gradient | None] = {}
        #: Stage, and whether an inf check is on record, of each (scaler, optimizer).
        self._stages: dict[tuple[int, int], tuple[Stage, bool]] = {}
        self._initialised: set[int] = set()
        #: The scaler that an optimizer was last used with.
        self._partner: dict[int, int] = {}
        self.regions: list[str] = []

    # -- objects

    def scaler_number(self, scaler: Any) -> int:
        """The running number of a scaler, from 1."""
        return self._number(scaler, "scaler")

    def optimizer_number(self, optimizer: Any) -> int:
        """The running number of an optimizer, from 1; it is known from then on."""
        if optimizer not in self._optimizers:
            self._optimizers.add(optimizer)
            present = any(True for _ in gradients_of(optimizer))
            self._gradients[self._number(optimizer, "optimizer")] = (
                None if present else Gradient.NONE
            )
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
        self._initialised.add(number)
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
        fed = []
        violation = None
        for optimizer in list(self._optimizers):
            number = self.optimizer_number(optimizer)
            if _versions(optimizer) == before.get(number, {}):
                continue
            fed.append(number)
            violation = self._apply(
                event, scaler or self._partner.get(number, 0), number, violation
            )
        self._tell(
            "backward",
            scaler=scaler,
            optimizer=fed[0] if len(fed) == 1 else 0,
            violation=violation,
            facts={"scaled": bool(scaler), "optimizers": fed},
        )

    def unscaling(self, scaler: Any, optimizer: Any) -> Pending:
        """`scaler.unscale_(optimizer)` is about to run."""
        return self._pending("unscale_", Event.UNSCALE, scaler, optimizer)

    def stepping(self, scaler: Any, optimizer: Any) -> Pending:
        """`scaler.step(optimizer)` is about to run."""
        return self._pending("step", Event.STEP, scaler, optimizer)

    def updating(self, scaler: Any, new_scale: bool) -> Pending:
        """`scaler.update()` is about to run."""
        number = self.scaler_number(scaler)
        event = Event.SET_SCALE if new_scale else Event.UPDATE
        violation = None
        mine = [key for key in self._stages if key[0] == number]
        if number not in self._initialised:
            violation = VIOLATIONS[UNINITIALISED[event]]
        elif event is Event.UPDATE and not any(self._stages[key][1] for key in mine):
            violation = VIOLATIONS[UNCHECKED[event]]
        place = self._place()

        def done(raised: BaseException | None) -> None:
            if raised is None:
                for _, optimizer in mine:
                    self._apply(event, number, optimizer, None)
            self._tell(
                "update",
                scaler=number,
                violation=violation,
                facts=_raised_fact({}, raised),
                place=place,
            )

        return Pending(done)

    def plain_step(self, optimizer: Any) -> None:
        """`optimizer.step()` is about to run, and not from inside a scaler."""
        number = self.optimizer_number(optimizer)
        self._reconcile(optimizer)
        facts = self._facts(optimizer)
        violation = self._apply(Event.OPTIMIZER_STEP, self._partner.get(number, 0), number, None)
        self._tell("plain-step", optimizer=number, violation=violation, facts=facts)

    def zero_grad(self, optimizers: Iterable[Any]) -> None:
        """`zero_grad()` of an optimizer or module has returned."""
        for optimizer in optimizers:
            number = self.optimizer_number(optimizer)
            kept = any(True for _ in gradients_of(optimizer))
            event = Event.ZERO_GRAD_KEEP if kept else Event.ZERO_GRAD
            self._apply(event, self._partner.get(number, 0), number, None)
            self._tell("zero_grad", optimizer=number, facts={"keep": kept})

    def clip(self, parameters: list[Any]) -> None:
        """Gradients of these parameters are about to be clipped."""
        for optimizer in self.owners(parameters):
            number = self.optimizer_number(optimizer)
            self._reconcile(optimizer)
            partner = self._partner.get(number, 0)
            violation = self._apply(Event.CLIP, partner, number, None)
            facts = self._facts(optimizer)
            self._tell("clip", partner, number, violation, facts)

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

    def _pending(self, kind: str, event: Event, scaler: Any, optimizer: Any) -> Pending:
        scaler_number = self.scaler_number(scaler)
        number = self.optimizer_number(optimizer)
        self._partner[number] = scaler_number
        self._reconcile(optimizer)
        facts = self._facts(optimizer)
        if scaler_number not in self._initialised:
            violation: Violation | None = VIOLATIONS[UNINITIALISED[event]]
        else:
            violation = None
        place = self._place()
        key = (scaler_number, number)
        before = self._stages.get(key), self._gradients.get(number)
        if violation is None:
            violation = self._apply(event, scaler_number, number, None)

        def done(raised: BaseException | None) -> None:
            if raised is not None and not (violation and violation.raises):
                # Another reason than the protocol's: torch has left the stage as it was.
                self._stages[key] = before[0] or (Stage.READY, False)
                self._gradients[number] = before[1]
            self._tell(
                kind,
                scaler=scaler_number,
                optimizer=number,
                violation=violation,
                facts=_raised_fact(facts, raised),
                place=place,
            )

        return Pending(done)

    def _apply(
        self, event: Event, scaler: int, optimizer: int, earlier: Violation | None
    ) -> Violation | None:
        """Move one pair; returns the first broken rule. Unknown gradients break none."""
        stage, checked = self._stages.get((scaler, optimizer), (Stage.READY, False))
        gradient = self._gradients.get(optimizer)
        if gradient is None:
            return earlier or self._apply_unknown(event, scaler, optimizer)
        outcome = advance(Pair(stage, gradient, checked), event)
        self._gradients[optimizer] = outcome.pair.gradient
        if scaler:
            self._stages[scaler, optimizer] = (outcome.pair.stage, outcome.pair.checked)
        return earlier or outcome.violation

    def _apply_unknown(self, event: Event, scaler: int, optimizer: int) -> Violation | None:
        """The gradients are not known: only what torch's own stage forbids is broken."""
        if event is Event.ZERO_GRAD:
            self._gradients[optimizer] = Gradient.NONE
        if event is Event.ZERO_GRAD_KEEP:
            self._gradients[optimizer] = Gradient.ZERO
        stage, checked = self._stages.get((scaler, optimizer), (Stage.READY, False))
        outcome = advance(Pair(stage, Gradient.SCALED, checked), event)
        if scaler:
            self._stages[scaler, optimizer] = (outcome.pair.stage, outcome.pair.checked)
        violation = outcome.violation
        return violation if violation and violation.raises else None

    def _reconcile(self, optimizer: Any) -> None:
        """Follow gradients that were dropped or set without an event."""
        number = self.optimizer_number(optimizer)
        present = any(True for _ in gradients_of(optimizer))
        tag = self._gradients[number]
        if present and tag in ABSENT:
            self._gradients[number] = None
        if not present and tag not in ABSENT:
            self._apply(Event.ZERO_GRAD, self._partner.get(number, 0), number, None)
            self._tell("zero_grad", optimizer=number, facts={"keep": False})

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
        gradient = self._gradients.get(optimizer)
        if not optimizer or gradient is None:
            return ""
        stage, _ = self._stages.get((scaler, optimizer), (Stage.READY, False))
        return f"{stage.value}, {gradient.value}"

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
        partner = scaler or self._partner.get(optimizer, 0)
        state = self._state(partner, optimizer)
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
