"""Programs executed for real, on a torch that only keeps the books of the protocol.

The generated programs run as ordinary Python. `GradScaler`, optimizers and losses are
objects that tell `amplint.protocol.Tracker` what happens; the tracker itself is checked
against torch in tests/protocol. So a run knows the truth about one path.
"""

from __future__ import annotations

import itertools
import random
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from amplint.protocol import Event, Tracker
from amplint.protocol.violations import Violation

#: How a run stops where no scaler is to blame, besides the slugs of violations.
ABSENT_SCALER = "scaler-is-none"
FREED_GRAPH = "graph-freed"
_BACKWARDS = (Event.SCALED_BACKWARD, Event.PLAIN_BACKWARD)


class Stop(Exception):
    """torch would have raised here."""


@dataclass
class World:
    """One run: what each of its scalers sees, and every rule that it broke.

    Args:
        answers: gives the outcome of each test that the program cannot foresee.
        stopped: why the run ended early: the slug of a violation that raises, or one of
            the names above.
    """

    answers: Callable[[], bool]
    trackers: list[Tracker] = field(default_factory=list)
    optimizers: list[Any] = field(default_factory=list)
    broken: list[Violation] = field(default_factory=list)
    stopped: str = ""

    def tell(self, event: Event, optimizer: Any = None, tracker: Tracker | None = None) -> None:
        """Apply one event; only the acting scaler (every one, if none acts) can complain."""
        optimizers = self.optimizers if event in _BACKWARDS else [optimizer]
        for other in self.trackers:
            if tracker is None or other is tracker:
                self._judge(other.apply(event, other, *optimizers))
            elif event is Event.SCALED_BACKWARD:  # not this one's scale
                other.apply(Event.PLAIN_BACKWARD, other, *optimizers)
            elif event is Event.STEP:
                other.apply(Event.OPTIMIZER_STEP, other, *optimizers)

    def _judge(self, violation: Violation | None) -> None:
        if violation is None:
            return
        self.broken.append(violation)
        if violation.raises:
            raise Stop(violation.slug)


class _Loss:
    """A tensor: arithmetic changes nothing about which backward it is."""

    def __init__(self, world: World, scaler: Any = None, origin: _Loss | None = None) -> None:
        self.world = world
        self.scaler = scaler
        self.origin = origin or self
        self.freed = False

    def __truediv__(self, _: object) -> _Loss:
        return self

    def __add__(self, _: object) -> _Loss:
        return self

    def item(self) -> float:
        return 1.0

    def backward(self) -> None:
        if self.origin.freed:
            raise Stop(FREED_GRAPH)
        self.origin.freed = True
        if self.scaler is None:
            self.world.tell(Event.PLAIN_BACKWARD)
        else:
            self.world.tell(Event.SCALED_BACKWARD, tracker=self.scaler.tracker)


def _optimizer_class(world: World) -> type:
    class SGD:
        def __init__(self, parameters: object, lr: float) -> None:
            world.optimizers.append(self)

        def step(self) -> None:
            world.tell(Event.OPTIMIZER_STEP, self)

        def zero_grad(self, set_to_none: bool = True) -> None:
            world.tell(Event.ZERO_GRAD if set_to_none else Event.ZERO_GRAD_KEEP, self)

    return SGD


def _scaler_class(world: World) -> type:
    class GradScaler:
        def __init__(self, device: str = "cuda", enabled: bool = True) -> None:
            self.enabled = enabled
            self.tracker = Tracker()
            world.trackers.append(self.tracker)

        def scale(self, loss: _Loss) -> _Loss:
            if not self.enabled:
                return loss
            world.tell(Event.SCALE, tracker=self.tracker)
            return _Loss(world, self, loss.origin)

        def unscale_(self, optimizer: object) -> None:
            if self.enabled:
                world.tell(Event.UNSCALE, optimizer, self.tracker)

        def step(self, optimizer: object) -> None:
            if self.enabled:
                world.tell(Event.STEP, optimizer, self.tracker)
            else:
                world.tell(Event.OPTIMIZER_STEP, optimizer)

        def update(self, new_scale: float | None = None) -> None:
            if self.enabled:
                event = Event.UPDATE if new_scale is None else Event.SET_SCALE
                world.tell(event, tracker=self.tracker)

        def get_scale(self) -> float:
            return 1.0

        def is_enabled(self) -> bool:
            return self.enabled

    return GradScaler


class _Context:
    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


def _namespace(world: World, cuda: bool) -> dict[str, Any]:
    def clip(*_: object) -> _Loss:
        for optimizer in world.optimizers:
            world.tell(Event.CLIP, optimizer)
        return _Loss(world)

    space = types.SimpleNamespace
    torch = space(
        amp=space(GradScaler=_scaler_class(world)),
        autocast=_Context,
        cuda=space(is_available=lambda: cuda),
        isfinite=lambda _: world.answers(),
        nn=space(utils=space(clip_grad_norm_=clip)),
        optim=space(SGD=_optimizer_class(world)),
    )
    return {"torch": torch}


@dataclass(frozen=True)
class Setting:
    """The arguments of one run; see `every_setting`."""

    amp: bool
    clip: float | None
    accum: int
    batches: int
    cuda: bool
    answers: int


def every_setting(*, answers: bool, cuda: bool) -> Iterator[Setting]:
    """Settings that reach each combination of guards; a loop over data runs at least once.

    Args:
        answers: whether the program asks something that it cannot foresee.
        cuda: whether it asks if there is a GPU.
    """
    for amp, clip, accum, batches in itertools.product(
        (True, False), (None, 1.0), (1, 2, 3), (1, 2, 3, 4, 6)
    ):
        for gpu in (True, False) if cuda else (True,):
            for number in range(4) if answers else (0,):
                yield Setting(amp, clip, accum, batches, gpu, number)


def run(program: types.CodeType, setting: Setting) -> World:
    """Call `main(model, loader, amp, clip, accum)` of a compiled program.

    Raises:
        NameError: the program uses a name that this path has not bound.
    """
    chance = random.Random(setting.answers)
    answers = (lambda: True, lambda: False)[setting.answers :][:1] or [
        lambda: chance.random() < 0.5
    ]
    world = World(answers[0])
    space = _namespace(world, setting.cuda)
    exec(program, space)  # noqa: S102 - a program of tests/flow/programs.py
    model = types.SimpleNamespace(
        parameters=list, forward=lambda _: _Loss(world), train=lambda: None
    )
    loader = list(range(setting.batches))
    try:
        space["main"](model, loader, setting.amp, setting.clip, setting.accum)
    except Stop as stop:
        world.stopped = str(stop)
    except AttributeError as error:
        if "'NoneType' object" not in str(error):
            raise
        world.stopped = ABSENT_SCALER
    return world


def every_run(source: str) -> Iterator[World]:
    """Execute a program under every setting."""
    program = compile(source.replace("import torch\n", "", 1), "program", "exec")
    for setting in every_setting(answers="isfinite" in source, cuda="is_available" in source):
        yield run(program, setting)
