"""Values for paths: from the plan's roles and domains, else from use, else from the name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from amplint.probe.worker import standins, words
from amplint.probe.worker.context import Run, current
from amplint.probe.worker.soft import connected, derived, soft
from amplint.probe.worker.world import World, batch_numbers, named_loader

LENGTHS = (2, 1, 3)


def make(path: str, owner: Any = None) -> Any:
    """What stands at a path that nothing defines."""
    run = current()
    if run.decisions.is_declared(path):
        return run.choose(path, ())
    role = run.role(path)
    if role is None and isinstance(run.decisions.asked(path)[1], str):
        return run.choose(path, _strings(run, path))  # may be called like the model that it names
    kind = role.kind if role else words.kind_of(path, run.use(path).attributes)
    if role is None and (owner is not None or (kind != "model" and run.use(path).called)):
        kind = None
    maker = MAKERS.get(kind or "")
    if maker is None:
        return standins.StandIn(path, owner)
    if kind != "loss" and may_be_none(run, path) and is_none(path):
        return None
    return maker(run, path)


@dataclass(frozen=True, slots=True)
class Declared:
    """A setting that the code gives a default, and a user may change."""

    path: str
    default: Any

    def choose(self) -> Any:
        """Its value in this run."""
        return current().choose(self.path, self._options(), "default")

    def _options(self) -> tuple[Any, ...]:
        if isinstance(self.default, bool):
            return (self.default, not self.default)
        use = current().use(self.path)
        if isinstance(self.default, str):
            return (self.default, *(other for other in use.compared if isinstance(other, str)))
        if not use.truth and not use.compared:
            return (self.default,)
        return (self.default, *(n for n in words.numbers_for(self.path) if n != self.default))


def may_be_none(run: Run, path: str) -> bool:
    """Whether the source allows for None at this path."""
    use = run.use(path)
    return use.none or use.truth


def is_none(path: str) -> bool:
    """Decide whether None stands at this path."""
    return bool(current().choose(f"{path} is None", (False, True)))


def world(run: Run) -> World:
    """The objects of the run."""
    return run.world


def _scaler(run: Run, path: str) -> Any:
    if "(" in path:
        run.note("scaler-class", path)
    enabled = bool(run.choose(f"{path}.enabled", (True, False), "role"))
    return world(run).scaler(path, enabled)


def _loss(run: Run, path: str) -> Any:
    """A loss that nothing is known about hangs on everything that is trained."""
    parameters = world(run).trained()
    if not parameters:
        return derived(world(run).any_model()())
    run.note("connected", path)
    return connected([soft(), parameters])


def _device(run: Run, path: str) -> Any:
    world(run).invented_devices.append(path)
    return torch.device("cuda" if run.virtual_cuda else run.request.device)


MAKERS: dict[str, Callable[[Run, str], Any]] = {
    "scaler": _scaler,
    "optimizer": lambda run, path: world(run).optimizer(path),
    "model": lambda run, path: world(run).model(path),
    "loss": _loss,
    "loader": lambda run, path: named_loader(path),
    "device": _device,
}


def fill(module: Any) -> Any:
    """The layer of a module whose class leaves its layers to subclasses that are not here."""
    path = f"{type(module).__name__}.forward"
    if path not in module._modules:
        current().note("connected", path)
        module._modules[path] = world(current()).model(path)
    return module._modules[path]


def bind(path: str, kind: str, owner: Any) -> Any:
    """What a stand-in becomes once it is used as this kind of thing."""
    run = current()
    if kind == "number":
        return run.choose(path, words.numbers_for(path))
    if kind == "flag":
        return run.choose(path, words.flags_for(path))
    if kind == "string":
        return run.choose(path, _strings(run, path))
    if kind == "tensor":
        return _tensor(run, path, owner)
    if kind == "optimizer":
        if path.endswith(")"):
            run.note("optimizer-class", path)
        parameters = owner.parameters() if isinstance(owner, torch.nn.Module) else ()
        return world(run).optimizer(path, list(parameters))
    if kind == "model" and isinstance(owner, torch.nn.Module):
        return owner
    if kind == "model" and path.endswith(")"):
        return world(run).another_model(path)
    return MAKERS[kind](run, path)


def tensor(path: str) -> Any:
    """A tensor that stands at a path, of which nothing else is known."""
    return _tensor(current(), path, None)


def _tensor(run: Run, path: str, owner: Any) -> Any:
    if isinstance(owner, torch.nn.Module):
        return derived(owner())
    # A function that nobody has may well have parameters.
    trained = ("()" in path and torch.is_grad_enabled()) or run.request.trainable_inputs
    ghost = [world(run).ghost] if trained else []
    return connected([soft(), *ghost])


def bind_compared(path: str, other: Any) -> Any:
    """What an unknown value is that is compared with a constant."""
    run = current()
    if isinstance(other, bool):
        return run.choose(path, words.flags_for(path))
    if isinstance(other, str):
        return run.choose(path, (other, *_strings(run, path)))
    numbers = [
        number
        for constant in (*run.use(path).compared, other)
        if isinstance(constant, (int, float)) and not isinstance(constant, bool)
        for number in (constant, constant + 1)
    ]
    return run.choose(path, (*words.numbers_for(path), *numbers))


def truth(thing: Any, path: str, value: Any) -> bool:
    """Whether a stand-in is true: a flag, a number, a text, or an object that may be None."""
    if value is not standins.UNBOUND:
        return bool(value)
    if words.is_deep(path):
        return False
    run = current()
    use = run.use(path)
    if use.attributes or use.called or use.keys:
        return not is_none(path)
    if any(isinstance(constant, str) for constant in use.compared):
        return bool(thing._amp_bind("string"))
    numeric = any(
        isinstance(constant, (int, float)) and not isinstance(constant, bool)
        for constant in use.compared
    )
    if numeric or use.arithmetic or words.is_number(path):
        return bool(thing._amp_bind("number"))
    return bool(run.choose(path, words.flags_for(path)))


def iterate(path: str, item: Callable[[int], Any]) -> Iterator[Any]:
    """A few entries of something unknown."""
    if words.kind_of(path, set()) == "loader" or "loader" in path or "data" in path:
        return iter([soft() for _ in range(length(path))])
    return iter([item(index) for index in range(length(path))])


def element(path: str, index: int) -> Any:
    """One entry of an iterator."""
    return soft()


def length(path: str) -> int:
    """How many entries something unknown has."""
    if words.is_deep(path):
        return 0
    lengths = batch_numbers() if "loader" in path else LENGTHS
    return int(current().choose(f"len({path})", lengths))


def _strings(run: Run, path: str) -> tuple[str, ...]:
    found = [constant for constant in run.use(path).compared if isinstance(constant, str)]
    return (*found, "other")
