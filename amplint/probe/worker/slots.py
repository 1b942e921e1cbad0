"""Places that others fill: lists of callbacks, hooks that are None until somebody sets them.

An object that the probe has built, and a module of which nothing but definitions ran, lack what
builders and imports register. They stay empty, and whoever looks into them while they are says
so.
"""

from __future__ import annotations

import collections
import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch

from amplint.probe.worker.context import Run, current

MATTERING = frozenset({"scaler", "optimizer", "model"})
#: What a slot may be.
CONTAINERS = (list, tuple, set, dict, collections.deque, collections.defaultdict)
Fill = Callable[[], None] | None
#: Objects in objects that are looked at.
DEPTH = 2
_NONE: frozenset[str] = frozenset()


def _looked_into(slot: Any) -> None:
    """Somebody looks into an empty slot: what other files register comes first."""
    run = current()
    fill, slot._amp_fill = slot._amp_fill, None
    if fill is not None:
        fill()
    if not slot:
        run.note("unfilled", slot._amp_path, row=run.row())


def _open_iter(self: Any) -> Iterator[Any]:
    if not len(self):
        _looked_into(self)
    base: Any = type(self).__mro__[1]
    return iter(base.__iter__(self))


#: Sequences and sets that somebody may have filled.
OPEN = {
    base: type(
        f"Open{base.__name__.title()}",
        (base,),
        {"__iter__": _open_iter, "_amp_path": "", "_amp_fill": None},
    )
    for base in (list, tuple, set, collections.deque)
}


class OpenDict(dict):  # type: ignore[type-arg]
    """A mapping that somebody may have filled."""

    _amp_path = ""
    _amp_default: Any = None
    _amp_fill: Fill = None

    def _amp_look(self) -> None:
        if not len(self):
            _looked_into(self)

    def __iter__(self) -> Iterator[Any]:
        self._amp_look()
        return super().__iter__()

    def __contains__(self, key: object) -> bool:
        self._amp_look()
        return super().__contains__(key)

    def __missing__(self, key: Any) -> Any:
        if not len(self):
            _looked_into(self)
            if key in self:
                return self[key]
        if self._amp_default is None:
            raise KeyError(key)
        self[key] = opened(self._amp_default(), f"{self._amp_path}[{key!r}]")
        return self[key]

    def get(self, key: Any, default: Any = None) -> Any:
        """The entry; a missing one may be there."""
        self._amp_look()
        return super().get(key, default)

    def keys(self) -> Any:
        """The keys, of which there may be more."""
        self._amp_look()
        return super().keys()

    def values(self) -> Any:
        """The entries, of which there may be more."""
        self._amp_look()
        return super().values()

    def items(self) -> Any:
        """Both."""
        self._amp_look()
        return super().items()


class Unset:
    """None, where somebody may have set a function."""

    def __init__(self, path: str) -> None:
        self._amp_path = path

    def __bool__(self) -> bool:
        return not self._amp_is_none()

    def _amp_is_none(self) -> bool:
        run = current()
        run.note("unfilled", self._amp_path, row=run.row())
        return True


def is_hook(run: Run, *paths: str) -> bool:
    """Whether what stands at a path is called with what holds scaler, optimizer or model.

    Args:
        paths: how it may be written.
    """
    given = {part for path in paths for part in run.use(path).given}
    roles = map(run.role, given)
    telling = any(role is not None and role.kind in MATTERING for role in roles)
    return telling or "self" in given


def open_slots(run: Run, made: Any, path: str, depth: int = DEPTH) -> None:
    """Mark the empty slots of an object that the probe has built."""
    for name, value in list(getattr(made, "__dict__", {}).items()):
        if name in _of_torch(made):
            continue
        inner = f"{path}.{name}"
        slot = value
        if value is None and is_hook(run, f"self.{name}"):
            slot = Unset(inner)
        elif type(value) in CONTAINERS:
            slot = opened(value, inner)
        elif depth and _is_users(run, value):
            open_slots(run, value, inner, depth - 1)
        if slot is not value:
            made.__dict__[name] = slot
    for kind in type(made).__mro__:
        if is_users(run, kind):
            _open_class(run, kind, path)


def _open_class(run: Run, kind: type, path: str) -> None:
    """Mark the empty slots that all objects of a class have: others may set them."""
    for name, value in list(vars(kind).items()):
        slot = value
        if name.startswith("__"):
            continue
        if value is None and is_hook(run, f"self.{name}"):
            slot = Unset(f"{path}.{name}")
        elif type(value) in CONTAINERS:
            slot = opened(value, f"{path}.{name}")
        if slot is not value:
            with contextlib.suppress(AttributeError, TypeError):  # an enum, a frozen class
                setattr(kind, name, slot)


def _of_torch(made: Any) -> frozenset[str]:
    """Attributes that torch itself keeps in an object: nobody registers anything there by hand."""
    if isinstance(made, torch.nn.Module):
        return frozenset(vars(torch.nn.Module()))
    return frozenset({"state", "defaults"}) if isinstance(made, torch.optim.Optimizer) else _NONE


def opened(value: Any, path: str, fill: Fill = None) -> Any:
    """The same container; an empty one tells who looks into it.

    Args:
        fill: lets other files register what they have.
    """
    if type(value) in OPEN and not value:
        found: Any = OPEN[type(value)]()
    elif isinstance(value, dict) and type(value) is not OpenDict and _is_empty(value):
        found = OpenDict({key: opened(item, f"{path}[{key!r}]") for key, item in value.items()})
        found._amp_default = getattr(value, "default_factory", None)
    else:
        return value
    found._amp_path, found._amp_fill = path, fill
    return found


def _is_empty(table: dict[Any, Any]) -> bool:
    """Whether a mapping has no entries, or nothing but empty lists."""
    return all(type(item) is list and not item for item in table.values())


def _is_users(run: Run, value: Any) -> bool:
    init = getattr(type(value), "__init__", None)
    code = getattr(inspect.unwrap(init), "__code__", None) if init is not None else None
    return code is not None and run.project.is_mine(code.co_filename)


def is_users(run: Run, kind: type) -> bool:
    """Whether a class is one of the project's files."""
    codes = (getattr(member, "__code__", None) for member in vars(kind).values())
    return any(code is not None and run.project.is_mine(code.co_filename) for code in codes)
