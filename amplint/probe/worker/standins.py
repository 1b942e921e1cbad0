"""Stand-ins: unknown objects that become what the code takes them for.

A stand-in knows the path under which the user's code reached it. Reading an attribute gives
another one; what is asked of it (truth, comparison, arithmetic, a method of an optimizer)
decides what it is, and that is a decision of the run.
"""

from __future__ import annotations

import abc
import contextlib
import operator
import re
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from amplint.probe.messages import membership
from amplint.probe.worker import loose, opaque_calls, values, words
from amplint.probe.worker.arity import unpacked
from amplint.probe.worker.context import current
from amplint.probe.worker.soft import call as soft_call
from amplint.probe.worker.soft import is_freed

UNBOUND = object()
#: What classes are called that are modules of torch, whoever made them.
MODEL = re.compile(
    r"(Module|Model|Net|Network|Layer|Block|Encoder|Decoder|Backbone|Transformer|Head|Criterion)$"
)
#: An attribute that only one kind of object has.
TELLING = {
    "zero_grad": "optimizer",
    "param_groups": "optimizer",
    "unscale_": "scaler",
    "get_scale": "scaler",
    "parameters": "model",
    "named_parameters": "model",
    "requires_grad_": "model",
    "modules": "model",
    "named_modules": "model",
    "backward": "loss",
    **dict.fromkeys(
        [
            "shape",
            "unsqueeze",
            "squeeze",
            "permute",
            "detach",
            "backward",
            "contiguous",
            "transpose",
            "long",
            "expand",
            "flatten",
            "grad_fn",
        ],
        "tensor",
    ),
}
#: Methods that move or cast; of a module, all its weights and in place.
MOVES: dict[str, torch.dtype | None] = {
    **dict.fromkeys(["to", "cuda", "cpu", "train", "eval"]),
    "half": torch.float16,
    "bfloat16": torch.bfloat16,
    "float": torch.float32,
    "double": torch.float64,
}
OPERATIONS = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": operator.truediv,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "pow": operator.pow,
    "matmul": operator.matmul,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "lshift": operator.lshift,
    "rshift": operator.rshift,
}
#: What torch calls them.
ARITHMETIC = frozenset(
    [
        "add",
        "sub",
        "mul",
        "div",
        "true_divide",
        "floor_divide",
        "remainder",
        "pow",
        "rsub",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
    ]
)
#: What may stand in a union of types.
TYPES = (type, types.GenericAlias, types.UnionType)
#: Where a divisor of zero would come from.
DIVISIONS = frozenset({"truediv", "floordiv", "mod"})
#: Of libraries that are not here.
VERSION = "99.0"
NAMES = frozenset({"__name__", "__qualname__", "__module__"})

get = object.__getattribute__
put = object.__setattr__


def is_registering(frame: Any) -> bool:
    """Whether torch asks if an attribute is there before it registers a parameter, a buffer or
    a module under that name: nothing is, until somebody reads it."""
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return frame is not None and frame.f_code in _REGISTERS


_REGISTERS = frozenset(
    register.__code__
    for register in (
        torch.nn.Module.register_parameter,
        torch.nn.Module.register_buffer,
        torch.nn.Module.add_module,
    )
)


class Open(abc.ABCMeta):
    """The type of classes with an unknown base: that has whatever nobody has set."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"type object '{cls.__name__}' has no attribute '{name}'")
        return values.make(f"{cls.__name__}.{name}")


class StandInBase(metaclass=Open):
    """What a class has as its base where the user's base class is a stand-in.

    Attributes that nobody has set are stand-ins with a path below `self`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or is_registering(sys._getframe(1)):
            raise AttributeError(name)
        value = values.make(f"self.{name}")
        current().holders[f"self.{name}"] = self
        try:
            setattr(self, name, value)
        except Exception:  # noqa: BLE001 -- whatever the user's own __setattr__ raises
            current().remark(f"self.{name} could not be kept")
        return value

    def __contains__(self, entry: Any) -> bool:
        path = f"contains(self, {entry!r})" if isinstance(entry, (str, int)) else "contains(self)"
        return bool(current().choose(path, (True, False)))

    def __getitem__(self, index: Any) -> Any:
        return getattr(self, index) if isinstance(index, str) else values.make("self[...]")

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, str):
            setattr(self, index, value)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        """Swallows nothing."""


@contextlib.contextmanager
def declaring() -> Iterator[None]:
    """What is assigned to attributes of stand-ins is a default, and may be something else."""
    run = current()
    run.declares = True
    try:
        yield
    finally:
        run.declares = False


class StandInModule(StandInBase, torch.nn.Module):
    """The base of a class whose unknown base has the name of a model."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        current().note("connected", type(self).__name__)

    def __getattr__(self, name: str) -> Any:
        try:
            return torch.nn.Module.__getattr__(self, name)
        except AttributeError:
            if name in ("_parameters", "_buffers", "_modules"):
                raise
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, torch.nn.Parameter):
            vars(self).pop(name, None)  # what was invented for it
        super().__setattr__(name, value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return torch.nn.Module.__call__(self, *args, **kwargs)


class StandIn:
    """See the module's docstring.

    Args:
        path: how the user's code reaches it.
        owner: the model that it belongs to, or that was handed to the call that returned it.
    """

    __slots__ = (
        "__weakref__",
        "_attributes",
        "_dtype",
        "_items",
        "_method_of",
        "_moved",
        "_owner",
        "_path",
        "_value",
    )

    def __init__(self, path: str, owner: Any = None) -> None:
        put(self, "_path", path)
        put(self, "_owner", owner)
        put(self, "_value", UNBOUND)
        put(self, "_attributes", {})
        put(self, "_items", {})
        #: What the weights were cast to, should this be a model.
        put(self, "_dtype", None)
        #: What this is the same as, should that be a model.
        put(self, "_moved", None)
        #: Whose method this may be that moves or casts, and to what.
        put(self, "_method_of", None)

    # -- becoming something

    def _amp_cast(self, dtype: Any) -> None:
        """Should this be a model, its weights have this type from now on."""
        if isinstance(dtype, torch.dtype) and dtype.is_floating_point:
            put(self._amp_whole(), "_dtype", dtype)

    def _amp_is_cast(self) -> bool:
        """Whether the weights were cast, should this be a model."""
        return get(self._amp_whole(), "_dtype") is not None

    def _amp_has_method(self, name: str) -> bool:
        """Whether a method that was asked for before is one of what this has become since."""
        known, value = get(self, "_attributes")[name], get(self, "_value")
        is_method = isinstance(known, StandIn) and get(known, "_method_of") is not None
        return is_method and value is not UNBOUND and hasattr(value, name)

    def _amp_moves(self, result: Any, given: tuple[Any, ...]) -> Any:
        """What `x.to(...)` or `x.half()` gives: should that be a module, it is the same one."""
        thing, dtype = get(self, "_method_of")
        thing._amp_cast(next((one for one in given if isinstance(one, torch.dtype)), dtype))
        if isinstance(result, StandIn) and get(result, "_value") is UNBOUND:
            put(result, "_moved", thing._amp_whole())
        return result

    def _amp_whole(self) -> Any:
        """What was moved or cast first, should this be a model."""
        moved = get(self, "_moved")
        return self if moved is None else moved

    def _amp_bind(self, kind: str) -> Any:
        value = get(self, "_value")
        if isinstance(value, torch.Tensor) and is_freed(value):
            value = UNBOUND  # a value of an earlier iteration; this one has its own
        if value is UNBOUND:
            moved = get(self, "_moved") if kind == "model" else None
            value = moved._amp_bind(kind) if moved is not None else self._amp_made(kind)
            put(self, "_value", value)
        return value

    def _amp_made(self, kind: str) -> Any:
        value = values.bind(get(self, "_path"), kind, get(self, "_owner"))
        dtype = get(self, "_dtype")
        return value.to(dtype) if dtype is not None and kind == "model" else value

    def _amp_bind_to(self, options: tuple[Any, ...]) -> Any:
        """Become one of these values."""
        value = get(self, "_value")
        if value is UNBOUND:
            value = current().choose(get(self, "_path"), options)
            put(self, "_value", value)
        return value

    def _amp_tensor(self) -> Any:
        value = get(self, "_value")
        return self._amp_bind("tensor") if isinstance(value, torch.Tensor) else None

    def _amp_argument(self, function: str, position: int) -> Any:
        """What a torch function gets in its place."""
        value = get(self, "_value")
        if isinstance(value, torch.Tensor):
            return self._amp_bind("tensor")
        if value is not UNBOUND:
            return value
        if position == 1 and (function.startswith("__") or function in ARITHMETIC):
            trained = current().request.trainable_inputs
            return self._amp_bind("tensor" if trained else "number")
        if position < 3:
            return self._amp_bind("tensor")
        return self._amp_bind("number")

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_amp_") or name == "__class__":
            return get(self, name)
        if name in NAMES:
            return get(self, "_path").rsplit(".", 1)[-1]
        if name == "__version__":
            return VERSION
        if name.startswith("__") and name.endswith("__"):
            return get(self, name)
        if name in TELLING:
            self._amp_bind(TELLING[name])
        value = get(self, "_value")
        if isinstance(value, torch.Tensor):
            value = self._amp_bind("tensor")
        attributes = get(self, "_attributes")
        if name in attributes and not self._amp_has_method(name):
            known = attributes[name]
            return known.choose() if isinstance(known, values.Declared) else known
        if value is not UNBOUND and hasattr(value, name):
            return getattr(value, name)
        made = values.make(f"{get(self, '_path')}.{name}", owner=get(self, "_owner"))
        if name in MOVES and value is UNBOUND and isinstance(made, StandIn):
            put(made, "_method_of", (self, MOVES[name]))
        attributes[name] = made
        return made

    def __setattr__(self, name: str, value: Any) -> None:
        if current().declares and isinstance(value, (bool, int, float, str)):
            value = values.Declared(f"{get(self, '_path')}.{name}", value)
        bound = get(self, "_value")
        opaque_calls.keep(f"{get(self, '_path')}.{name}", value)
        if isinstance(bound, (torch.nn.Module, torch.optim.Optimizer)):
            setattr(bound, name, value)
        else:
            get(self, "_attributes")[name] = value

    def __delattr__(self, name: str) -> None:
        get(self, "_attributes").pop(name, None)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        value = get(self, "_value")
        if value is not UNBOUND and callable(value):
            return value(*args, **kwargs)
        result = opaque_calls.call(get(self, "_path"), get(self, "_owner"), args, kwargs)
        if get(self, "_method_of") is None:
            return result
        return self._amp_moves(result, (*args, *kwargs.values()))

    # -- containers

    def __iter__(self) -> Iterator[Any]:
        value = get(self, "_value")
        if value is not UNBOUND and hasattr(value, "__iter__"):
            return iter(value)
        path = get(self, "_path")
        count = unpacked(sys._getframe(1))
        if count:
            return iter([self[index] for index in range(count)])
        return values.iterate(path, lambda index: self[index])

    def __next__(self) -> Any:
        return values.element(get(self, "_path"), 0)

    def __len__(self) -> int:
        value = get(self, "_value")
        if value is not UNBOUND and hasattr(value, "__len__"):
            return len(value)
        return values.length(get(self, "_path"))

    def __contains__(self, entry: Any) -> bool:
        what = entry if isinstance(entry, (str, int)) else "x"
        return bool(current().choose(membership(get(self, "_path"), what), (False, True)))

    def __getitem__(self, index: Any) -> Any:
        value = get(self, "_value")
        if isinstance(value, torch.Tensor):
            return self._amp_bind("tensor")[index]
        if value is not UNBOUND and hasattr(value, "__getitem__") and not isinstance(value, str):
            return value[index]
        items = get(self, "_items")
        key = repr(index) if isinstance(index, (int, str)) else "..."
        if key not in items:
            items[key] = values.make(f"{get(self, '_path')}[{key}]", owner=get(self, "_owner"))
        return items[key]

    def __setitem__(self, index: Any, value: Any) -> None:
        key = repr(index) if isinstance(index, (int, str)) else "..."
        opaque_calls.keep(f"{get(self, '_path')}[{key}]", value)
        get(self, "_items")[key] = value

    def __delitem__(self, index: Any) -> None:
        """Nothing to do: a stand-in has whatever is asked for."""

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        """Swallows nothing."""

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        return self

    def __await__(self) -> Iterator[Any]:
        return iter(())

    # -- classes

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        own = [base for base in bases if isinstance(base, type)]
        known = any(issubclass(base, StandInBase) for base in own)
        first = next(base for base in bases if isinstance(base, StandIn))
        if first is not self or known:
            return ()
        if MODEL.search(get(self, "_path")) and not any(
            issubclass(base, torch.nn.Module) for base in own
        ):
            return (StandInModule,)
        return (StandInBase,)

    def __instancecheck__(self, instance: Any) -> bool:
        if not isinstance(instance, StandIn):
            return False
        path, kind = get(instance, "_path"), get(self, "_path")
        return bool(current().choose(f"isinstance({path}, {kind})", (False, True)))

    def __subclasscheck__(self, subclass: Any) -> bool:
        return False

    # -- conversions

    def __bool__(self) -> bool:
        return values.truth(self, get(self, "_path"), get(self, "_value"))

    def __index__(self) -> int:
        return int(number(self))

    def __int__(self) -> int:
        return int(number(self))

    def __float__(self) -> float:
        return float(number(self))

    def __round__(self, digits: int | None = None) -> Any:
        return round(number(self), digits)

    def __str__(self) -> str:
        value = get(self, "_value")
        if value is not UNBOUND:
            return str(value)
        if current().decisions.is_declared(get(self, "_path")):
            return str(self._amp_bind("string"))
        path: str = get(self, "_path")
        return path

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        value = get(self, "_value")
        try:
            return format(0 if value is UNBOUND else value, spec)
        except (TypeError, ValueError):
            return str(self)

    def __fspath__(self) -> str:
        return "/nonexistent/amplint"

    def __hash__(self) -> int:
        return hash(get(self, "_path"))

    def __eq__(self, other: object) -> Any:
        return compared(self, other, operator.eq)

    def __ne__(self, other: object) -> Any:
        return compared(self, other, operator.ne)

    def __lt__(self, other: Any) -> Any:
        return compared(self, other, operator.lt)

    def __le__(self, other: Any) -> Any:
        return compared(self, other, operator.le)

    def __gt__(self, other: Any) -> Any:
        return compared(self, other, operator.gt)

    def __ge__(self, other: Any) -> Any:
        return compared(self, other, operator.ge)

    def __neg__(self) -> Any:
        return -operand(self, 0)

    def __pos__(self) -> Any:
        return operand(self, 0)

    def __abs__(self) -> Any:
        return abs(operand(self, 0))

    def __invert__(self) -> Any:
        return ~operand(self, 0)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return soft_call(func, args, kwargs or {})


def _operation(name: str, function: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    def forward(self: Any, other: Any) -> Any:
        if name == "truediv" and isinstance(other, str):
            return StandIn(f"{get(self, '_path')}/{other}")
        if name == "or" and isinstance(other, TYPES):
            return self
        if name == "add" and _is_open(self) and _is_open(other):
            return StandIn(f"({get(self, '_path')} + {get(other, '_path')})")
        return calculated(function, operand(self, other), operand(other, self), name)

    def reflected(self: Any, other: Any) -> Any:
        if name == "or" and isinstance(other, TYPES):
            return self
        return calculated(function, operand(other, self), operand(self, other), name)

    return forward, reflected


for _name, _function in OPERATIONS.items():
    _forward, _reflected = _operation(_name, _function)
    setattr(StandIn, f"__{_name}__", _forward)
    setattr(StandIn, f"__r{_name}__", _reflected)


def _is_open(thing: Any) -> bool:
    """Whether nothing says what a stand-in is, and its name is not that of a number."""
    if not isinstance(thing, StandIn) or get(thing, "_value") is not UNBOUND:
        return False
    path = get(thing, "_path")
    declared = current().decisions.is_declared(path)
    return get(thing, "_owner") is None and not declared and not words.is_number(path)


def calculated(function: Callable[[Any, Any], Any], left: Any, right: Any, name: str) -> Any:
    """The result of an operation on an invented number; it never divides by zero."""
    if name in DIVISIONS and isinstance(right, (int, float)) and right == 0:
        right = 1
    return function(left, right)


def operand(thing: Any, other: Any) -> Any:
    """What a stand-in is in an operation with `other`."""
    if not isinstance(thing, StandIn):
        return thing
    value = get(thing, "_value")
    if isinstance(value, torch.Tensor):
        return thing._amp_bind("tensor")
    if value is not UNBOUND and value is not None:
        return value
    if isinstance(other, str):
        return str(thing)
    if isinstance(other, (list, tuple)):
        return type(other)()
    trained = get(thing, "_owner") is not None or current().request.trainable_inputs
    if isinstance(other, torch.Tensor) and trained:
        return thing._amp_bind("tensor")
    found = number(thing)
    return loose.loose(found) if "()" in get(thing, "_path") else found


def number(thing: Any) -> Any:
    """The number that a stand-in is, or stands for."""
    if not isinstance(thing, StandIn):
        return thing
    value = thing._amp_bind("number")
    if isinstance(value, torch.Tensor):
        return float(value)
    if isinstance(value, (int, float)):
        return value
    try:
        return float(value)
    except (TypeError, ValueError):
        return 1


def compared(thing: StandIn, other: Any, function: Callable[[Any, Any], Any]) -> Any:
    """A comparison decides what an unknown value is."""
    value = get(thing, "_value")
    equality = function in (operator.eq, operator.ne)
    if value is UNBOUND:
        if other is None:
            return function is operator.ne
        if isinstance(other, StandIn):
            return _compared_with_another(thing, other, function)
        if isinstance(other, torch.Tensor):
            value = thing._amp_bind("tensor")
        elif isinstance(other, (bool, int, float, str)):
            value = values.bind_compared(get(thing, "_path"), other)
            put(thing, "_value", value)
        else:
            return function is operator.ne
    if isinstance(other, StandIn):
        other = operand(other, value)
    try:
        found = function(value, other)
        return loose.loose(found) if "()" in get(thing, "_path") else found
    except TypeError:
        if equality:
            return function is operator.ne
        return bool(current().choose(f"comparison@{current().row()}", (False, True)))


def _compared_with_another(
    thing: StandIn, other: StandIn, function: Callable[[Any, Any], Any]
) -> Any:
    if thing is other:
        return function(0, 0)
    if function in (operator.eq, operator.ne):
        path = f"{get(thing, '_path')} == {get(other, '_path')}"
        equal = bool(current().choose(path, (False, True)))
        return loose.loose(equal == (function is operator.eq))
    return function(number(thing), number(other))


def _loose_tensor() -> Any:
    return values.tensor("()")


loose.Loose.amp_tensor = staticmethod(_loose_tensor)
loose.Loose.amp_call = staticmethod(soft_call)


def concrete(thing: Any, kind: str) -> Any:
    """A stand-in bound as this kind; anything else as it is."""
    return thing._amp_bind(kind) if isinstance(thing, StandIn) else thing


__all__ = ["UNBOUND", "StandIn", "StandInBase", "compared", "concrete", "number", "operand"]
