"""Numbers that may as well be tensors: what is computed from results of unknown functions.

`encode(images) / 2` is a number as long as nobody asks it for anything that numbers lack; then it
is a tensor that may hang on parameters nobody knows.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

_WRAPPED: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": operator.truediv,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "pow": operator.pow,
}
_DIVISIONS = frozenset({"truediv", "floordiv", "mod"})
_COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
_COMBINED: dict[str, Callable[[Any, Any], Any]] = {
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
}


class Loose:
    """What both kinds of numbers have in common."""

    #: What makes a tensor, and calls a torch function; set by whoever knows tensors.
    amp_tensor: Callable[[], Any]
    amp_call: Callable[[Any, Any, Any], Any]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(type(self).amp_tensor(), name)

    def __getitem__(self, index: Any) -> Any:
        return type(self).amp_tensor()[index]

    def __iter__(self) -> Iterator[Any]:
        return iter([type(self).amp_tensor(), type(self).amp_tensor()])

    def __len__(self) -> int:
        return len(type(self).amp_tensor())

    def __neg__(self) -> Any:
        return loose(-plain(self))

    def __abs__(self) -> Any:
        return loose(abs(plain(self)))

    def _amp_argument(self, function: str, position: int) -> Any:
        """What a torch function gets in its place."""
        return plain(self) if position else type(self).amp_tensor()

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return cls.amp_call(func, args, kwargs or {})


class LooseInt(Loose, int):
    """An integer, or a tensor."""

    __hash__ = int.__hash__


class LooseFloat(Loose, float):
    """A float, or a tensor."""

    __hash__ = float.__hash__


class LooseTruth(LooseInt):
    """What a comparison gives: a truth value, or a mask."""

    def __invert__(self) -> Any:
        return LooseTruth(not self)

    def __repr__(self) -> str:
        return repr(bool(self))

    __str__ = __repr__


def loose(number: Any) -> Any:
    """A number or truth value that may as well be a tensor; anything else as it is."""
    if type(number) is bool:
        return LooseTruth(number)
    if type(number) is int:
        return LooseInt(number)
    return LooseFloat(number) if type(number) is float else number


def plain(number: Any) -> Any:
    """The number itself."""
    if isinstance(number, LooseTruth):
        return bool(int.__int__(number))
    if isinstance(number, LooseInt):
        return int.__int__(number)
    return float.__float__(number) if isinstance(number, LooseFloat) else number


def _operation(name: str, function: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    def calculated(left: Any, right: Any) -> Any:
        divisor = 1 if name in _DIVISIONS and right == 0 else right
        return loose(function(plain(left), plain(divisor)))

    def forward(self: Any, other: Any) -> Any:
        return calculated(self, other) if isinstance(other, (int, float)) else NotImplemented

    def reflected(self: Any, other: Any) -> Any:
        return calculated(other, self) if isinstance(other, (int, float)) else NotImplemented

    return forward, reflected


for _name, _function in _WRAPPED.items():
    _forward, _reflected = _operation(_name, _function)
    setattr(Loose, f"__{_name}__", _forward)
    setattr(Loose, f"__r{_name}__", _reflected)


def _comparison(function: Callable[[Any, Any], Any]) -> Any:
    def compared(self: Any, other: Any) -> Any:
        if not isinstance(other, (int, float)):
            return NotImplemented
        return loose(function(plain(self), plain(other)))

    return compared


for _name, _function in _COMPARED.items():
    setattr(Loose, f"__{_name}__", _comparison(_function))
for _name, _function in _COMBINED.items():
    setattr(LooseTruth, f"__{_name}__", _comparison(_function))
    setattr(LooseTruth, f"__r{_name}__", _comparison(_function))
