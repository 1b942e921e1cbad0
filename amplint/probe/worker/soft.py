"""Tensors whose shape is nobody's business, and whose gradient, dtype and grad mode are real.

Mixed-precision mistakes depend on which tensor hangs on which parameter, in which dtype and
under which grad mode. What usually keeps a function from running on invented data is
something else: shapes, keys, lengths. So a soft tensor runs every operation for real, and
where that fails it takes a result that depends on the same inputs, in the dtype that the
operation would have had.
"""

from __future__ import annotations

import contextlib
import math
import operator
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from amplint.probe.worker import operations
from amplint.probe.worker.arity import unpacked
from amplint.probe.worker.context import current
from amplint.probe.worker.torch_names import (
    ABOUT_DTYPES,
    ALONG,
    EXACT,
    FACTORIES,
    FULL,
    INDEXES,
    LOWER,
    MASKED,
    PAIRS,
    STRICT,
)

LOW = frozenset({torch.float16, torch.bfloat16})
#: An invented length: of a dimension, of a tensor that is iterated over.
LENGTH = 2
#: A length that no bound of a program exceeds.
LONG = 1 << 40
#: Depth to which arguments are searched for tensors.
DEPTH = 5
#: The mark of graphs that a backward has freed, in the metadata of their nodes.
FREED_MARK = "amplint.freed"
FREED_DEPTH = 64
#: The mark of a gradient history that is a guess: the stand-in whose result it is.
GUESS_MARK = "amplint.guess"


without_overrides = torch._C.DisableTorchFunctionSubclass
#: Without the mode of the run, too: for what the probe computes for itself, which no omission and no
#: observer concerns. Every call that goes through the mode costs some twenty times as much.
unobserved = torch._C.DisableTorchFunction


class SoftLength(int):
    """How long invented data are: as long as the code wants them to be.

    Real data are longer than a block, and as wide as a layer. In arithmetic it is a small number.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self._agrees(other, int(self) == other)

    def __ne__(self, other: object) -> bool:
        return not self._agrees(other, int(self) == other)

    def __hash__(self) -> int:
        return int.__hash__(self)

    def _agrees(self, other: object, equal: bool) -> bool:
        """Whether it equals a number that the project's code compares it with."""
        run = current()
        asks = run.project.is_mine(sys._getframe(2).f_code.co_filename)
        if equal or not asks or isinstance(other, bool) or not isinstance(other, int):
            return equal
        fits = other > 1  # nothing, or a dimension that is left out, is an exception
        return bool(run.choose(f"size@{run.row()}", (fits, not fits)))

    def __lt__(self, other: Any) -> bool:
        return self._ordered(other, operator.lt)

    def __le__(self, other: Any) -> bool:
        return self._ordered(other, operator.le)

    def __gt__(self, other: Any) -> bool:
        return self._ordered(other, operator.gt)

    def __ge__(self, other: Any) -> bool:
        return self._ordered(other, operator.ge)

    def _ordered(self, other: Any, compare: Callable[[int, Any], bool]) -> bool:
        """How it compares with a bound: real data are long. A counter that changes meets the number."""
        run = current()
        asks = run.project.is_mine(sys._getframe(2).f_code.co_filename)
        if not asks or type(other) not in (int, float):
            return compare(int(self), other)
        path = f"size@{run.row()}"
        if run.bounds.setdefault(path, other) != other:
            return compare(int(self), other)
        long = compare(LONG, other)
        return bool(run.choose(path, (long, not long)))

    def __add__(self, other: Any) -> Any:
        return _length(int(self) + other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return _length(int(self) - other)

    def __mul__(self, other: Any) -> Any:
        return _length(int(self) * other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Any:
        return _length(max(1, int(self) // other))


def _length(value: Any) -> Any:
    return SoftLength(value) if type(value) is int else value


def blocks(*bounds: Any) -> range:
    """`range` over data: where they are shorter than a step, there are some steps all the same."""
    made = range(*map(int, bounds))
    if len(made) >= LENGTH or not any(isinstance(bound, SoftLength) for bound in bounds):
        return made
    step = int(bounds[2]) if len(bounds) > 2 else 1
    start = int(bounds[0]) if len(bounds) > 1 else 0
    return range(start, start + LENGTH * step, step)


class SoftSize(tuple):  # type: ignore[type-arg]
    """A shape of as many dimensions as are asked for."""

    __slots__ = ()

    def __iter__(self) -> Iterator[int]:
        count = unpacked(sys._getframe(1))
        return iter([SoftLength(LENGTH)] * count) if count else super().__iter__()

    def __getitem__(self, index: Any) -> Any:
        try:
            return super().__getitem__(index)
        except IndexError:
            return SoftLength(LENGTH)

    def numel(self) -> int:
        """The number of elements."""
        return math.prod(tuple.__iter__(self))


class SoftCount(int):
    """A number of dimensions: whichever the code asks about."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return int.__hash__(self)


class _SizeMethod(SoftSize):
    __slots__ = ()

    def __call__(self, dim: Any = None) -> Any:
        return SHAPE if dim is None else SHAPE[int(dim)]


SIZE = _SizeMethod(map(SoftLength, (LENGTH, LENGTH)))
SHAPE = SoftSize(map(SoftLength, (LENGTH, 3, 4, 4)))
DIMENSIONS = SoftCount(len(SHAPE))


class SoftTensor(torch.Tensor):
    """See the module's docstring."""

    _amp_exact: bool

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return call(func, args, kwargs or {})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return derived(self)

    def __getitem__(self, index: Any) -> Any:
        if self.requires_grad and _is_stale(self):
            return self.detach()[index]
        if isinstance(index, (int, slice)) and self.dim() == 0:
            return derived(self)
        try:
            with without_overrides():
                part = torch.Tensor.__getitem__(self, index)
            if part.numel():
                return soften(part)
            current().note("selected", row=current().row())
            return derived(self)
        except Exception:  # noqa: BLE001 -- whatever torch raises about an index
            return derived(self)

    def __setitem__(self, index: Any, value: Any) -> None:
        """Wherever a value is put, the whole hangs on it from then on."""
        current().remark("assignment into a tensor of unknown shape followed as a whole")
        given = [tensor for tensor in tensors_in([value]) if tensor.requires_grad]
        if not given or not torch.is_grad_enabled() or not self.is_floating_point():
            return
        # torch refuses to write into leaves, and into what is expanded.
        with unobserved(), contextlib.suppress(RuntimeError):
            torch.Tensor.add_(self, plain(connected(given)).to(self.dtype))

    def transpose(self, *dims: Any) -> Any:
        """Two dimensions of a tensor, or all of an array."""
        return super().transpose(*dims) if len(dims) == 2 else derived(self)

    def __delitem__(self, index: Any) -> None:
        """Nothing to do: there are always enough entries."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return connected([args, kwargs])

    def __iter__(self) -> Iterator[Any]:
        count = unpacked(sys._getframe(1))
        return iter([derived(self) for _ in range(count or LENGTH)])

    def __next__(self) -> Any:
        return derived(self)

    def __len__(self) -> int:
        return LENGTH

    def __contains__(self, entry: Any) -> bool:
        if not isinstance(entry, str):
            return False
        return bool(current().choose(f"contains(data, {entry!r})", (True, False)))

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        """Soft tensors may stand for objects that are context managers."""

    def __bool__(self) -> bool:
        actual = self._truth()
        run = current()
        caller = sys._getframe(1).f_code.co_filename
        if getattr(self, "_amp_exact", False) or not run.project.is_mine(caller):
            return actual
        return bool(run.choose(f"data@{run.row()}", (actual, not actual)))

    def _truth(self) -> bool:
        with unobserved():
            return bool((plain(self).detach().float().sum() != 0).item())

    def __index__(self) -> int:
        return 1

    def __float__(self) -> float:
        with unobserved():
            return float(plain(self).detach().float().mean())

    def __int__(self) -> int:
        value = float(self)
        return int(value) if math.isfinite(value) else 0

    def item(self) -> Any:
        """A Python number, as torch gives it."""
        if current().omissions.applies("copies"):
            return self
        return float(self) if self.is_floating_point() else int(self)

    def tolist(self) -> Any:
        """A few numbers."""
        return [float(self)] * LENGTH

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        """The same without a gradient: stand-ins for numpy work on it."""
        return soften(self.detach())

    def __format__(self, spec: str) -> str:
        try:
            return format(float(self), spec)
        except (TypeError, ValueError):
            return str(float(self))

    def __hash__(self) -> int:
        return id(self)

    def __deepcopy__(self, memo: Any) -> Any:
        return derived(self.detach())

    @property
    def shape(self) -> Any:  # type: ignore[override]
        """As many dimensions as are asked for."""
        return SHAPE

    @property
    def ndim(self) -> int:  # type: ignore[override]
        """As many as are asked for."""
        return DIMENSIONS

    @property
    def size(self) -> Any:
        """A method of tensors, a tuple of images: this is both."""
        return SIZE

    def keys(self) -> list[str]:
        """The keys that the source asks of anything."""
        return current().project.keys() or ["0", "1"]

    def values(self) -> Any:
        """One for each key."""
        return [derived(self) for _ in self.keys()]

    def items(self) -> list[tuple[str, Any]]:
        """One for each key."""
        return [(key, derived(self)) for key in self.keys()]

    def get(self, *args: Any) -> Any:
        """An entry, as of a mapping."""
        return derived(self)

    def pop(self, *args: Any) -> Any:
        """An entry, as of a mapping or list."""
        return derived(self)

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Mappings can be updated; nothing changes here."""

    def append(self, *args: Any) -> None:
        """Lists can grow; nothing changes here."""

    def split(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Two parts."""
        return _parts(self, LENGTH)

    def chunk(self, chunks: Any = LENGTH, *args: Any, **kwargs: Any) -> Any:
        """As many parts as asked for."""
        return _parts(self, int(chunks))

    def unbind(self, *args: Any, **kwargs: Any) -> Any:
        """As many parts as are unpacked."""
        count = unpacked(sys._getframe(1))
        return _parts(self, count or LENGTH)


def _parts(tensor: torch.Tensor, count: int) -> list[Any]:
    return [derived(tensor) for _ in range(max(1, min(count, 64)))]


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The same tensor as a plain one, in the same graph."""
    return tensor.as_subclass(torch.Tensor) if isinstance(tensor, SoftTensor) else tensor


def soften(value: Any) -> Any:
    """Tensors in a result become soft; parameters and other leaves with gradient stay."""
    if isinstance(value, (SoftTensor, torch.nn.Parameter)):
        return value
    if isinstance(value, torch.Tensor):
        if value.is_leaf and value.requires_grad:
            return value
        with unobserved():
            result = value.as_subclass(SoftTensor)
        operations.trace("view", (value,), result)
        return result
    if type(value) in (list, tuple):
        return type(value)(soften(entry) for entry in value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(soften(entry) for entry in value))
    if isinstance(value, tuple) and hasattr(value, "n_fields"):  # torch.return_types
        return type(value)(soften(entry) for entry in value)
    return value


def soft(value: float = 0.5, dtype: torch.dtype = torch.float32) -> Any:
    """A soft tensor that hangs on nothing."""
    with unobserved():
        return torch.full((), value, dtype=dtype).as_subclass(SoftTensor)


def derived(tensor: torch.Tensor) -> Any:
    """A part of a tensor, or something computed from it."""
    with unobserved():
        part = plain(tensor)
        part = part * 1 if part.is_floating_point() else part.clone()
        result = part.as_subclass(SoftTensor)
    operations.trace("view", (tensor,), result)
    return result


def tensors_in(value: Any, depth: int = DEPTH) -> Iterator[torch.Tensor]:
    """All tensors in nested containers and stand-ins."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth <= 0 or isinstance(value, (str, bytes)):
        return
    elif isinstance(value, dict):
        for entry in value.values():
            yield from tensors_in(entry, depth - 1)
    elif isinstance(value, (list, tuple, set)):
        for entry in tuple.__iter__(value) if isinstance(value, tuple) else value:
            yield from tensors_in(entry, depth - 1)
    else:
        inner = getattr(type(value), "_amp_tensor", None)
        bound = inner(value) if inner is not None else None
        if bound is not None:
            yield bound


def connected(values: Any, name: str = "", detach_freed: bool = False) -> Any:
    """A tensor that depends on all tensors in `values`, under the grad mode of now."""
    tensors = list(tensors_in(values))
    with unobserved():
        floats = [tensor for tensor in tensors if tensor.is_floating_point() and tensor.numel()]
        target = _dtype_of(floats, name)
        if not floats:
            result = torch.full((), 0.5)
        else:
            carriers = [_carrier(tensor, detach_freed) for tensor in floats]
            carriers = [carrier.to(carriers[-1].device) for carrier in carriers]
            result = torch.stack(carriers).mean()
        return result.to(target).as_subclass(SoftTensor)


def _carrier(tensor: torch.Tensor, detach_freed: bool) -> torch.Tensor:
    tensor = plain(tensor)
    if detach_freed and tensor.grad_fn is not None and is_freed(tensor):
        tensor = tensor.detach()
    return tensor.float().mean()


def _dtype_of(floats: list[torch.Tensor], name: str) -> torch.dtype:
    lower = autocast_dtype()
    if lower is not None and name in LOWER:
        return lower
    if lower is not None and (name in FULL or "loss" in name or "entropy" in name):
        return torch.float32
    target = None
    for tensor in floats:
        target = tensor.dtype if target is None else torch.promote_types(target, tensor.dtype)
    return target or torch.float32


def autocast_dtype() -> torch.dtype | None:
    """The lower precision of the autocast region that is active; None outside."""
    if torch.is_autocast_enabled():
        return torch.get_autocast_gpu_dtype()
    if torch.is_autocast_cpu_enabled():
        return torch.get_autocast_cpu_dtype()
    return None


def is_freed(tensor: torch.Tensor) -> bool:
    """Whether a backward has freed a part of the graph near this tensor."""
    queue: list[Any] = [tensor.grad_fn]
    for node in queue:
        if node is None:
            continue
        if FREED_MARK in node.metadata:
            return True
        if len(queue) < FREED_DEPTH:
            queue.extend(following for following, _ in node.next_functions)
    return False


def _is_stale(tensor: torch.Tensor) -> bool:
    """Whether a backward has freed the graph of a tensor that hangs on unknown functions only:
    data that are used again."""
    ghost = current().world.ghost
    return is_freed(tensor) and all(leaf is ghost for leaf in leaves_of([tensor]))


def leaves_of(roots: Iterable[torch.Tensor]) -> list[Any]:
    """The tensors with a gradient of their own that a graph ends in."""
    queue: list[Any] = [root.grad_fn for root in roots]
    seen = set()
    found = []
    for node in queue:
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.append(node.variable)
        queue.extend(following for following, _ in node.next_functions)
    return found


def mark_freed(roots: Iterable[torch.Tensor], frees: bool = True) -> Iterator[str]:
    """Mark the graph below these tensors as freed; the guesses that it holds."""
    queue: list[Any] = [root.grad_fn for root in roots]
    seen = set()
    for node in queue:
        if node is None or node in seen:
            continue
        seen.add(node)
        if GUESS_MARK in node.metadata:
            yield node.metadata[GUESS_MARK]
        if frees and not hasattr(node, "variable"):
            node.metadata[FREED_MARK] = True
        queue.extend(following for following, _ in node.next_functions)


def call(func: Any, args: Any, kwargs: Any) -> Any:
    """Run a torch function; soft and stand-in arguments let it fail without harm."""
    name = getattr(func, "__name__", "")
    run = current()
    if run.omissions:
        kept = run.omissions.instead(func, name, args, kwargs)
        if kept is not None:
            return kept
    args, kwargs, loose = _concrete(name, args, kwargs)
    if name in MASKED and len(args) > 2 and isinstance(args[1], SoftTensor):
        args = (args[0], args[1].bool(), *args[2:])  # data that are a mask are boolean
    try:
        with without_overrides():
            result = func(*args, **kwargs)
    except Exception as error:  # about shapes that were invented; all else is raised
        if ABOUT_DTYPES.search(str(error)):
            operations.doubt(run, args)
            raise
        if name == "__len__":
            return LENGTH  # of a number that would be a sequence if data were real
        if name in STRICT or not (loose or name in FACTORIES):
            raise
        run.remark("shapes of tensors are not followed")
        result = connected([args, kwargs], name)
        operations.trace(name, args, result)
        if name in PAIRS or (name in ALONG and _has_dimension(args, kwargs)):
            indices = soft(0, torch.int64)
            return getattr(torch.return_types, name)((result, indices))
        return result.detach() if name in INDEXES else result
    if run.virtual_cuda and name in FULL:
        result = _in_full_precision(result)
    operations.trace(name, args, result)
    if run.watches_operations:
        operations.watch(run, name, args, kwargs)
    if not loose or name == "__set__":
        return result
    if any(result is argument for argument in args):
        return result
    if _is_artefact(result, args, kwargs):
        result = connected([args, kwargs], name)
    result = soften(result)
    operations.trace(name, args, result)
    if name in EXACT and isinstance(result, SoftTensor):
        result._amp_exact = True
    return result


def _is_artefact(result: Any, args: Any, kwargs: Any) -> bool:
    """Whether finite numbers gave one that is not, and not because the precision is low: the
    deviation of a single element, the logarithm of zero. That is the invented numbers' fault."""
    if not isinstance(result, torch.Tensor) or not result.is_floating_point():
        return False
    with unobserved():
        overflows = result.isnan() if result.dtype in LOW else ~result.isfinite()
        if not bool(overflows.any()):
            return False
        given = (*args, *kwargs.values())
        if any(isinstance(value, float) and not math.isfinite(value) for value in given):
            return False
        return all(bool(tensor.isfinite().all()) for tensor in tensors_in([args, kwargs]))


def _has_dimension(args: Any, kwargs: Any) -> bool:
    """Whether a reduction is asked for along one dimension."""
    return "dim" in kwargs or (len(args) > 1 and type(args[1]) is int)


def _in_full_precision(result: Any) -> Any:
    """What autocast on CUDA would have computed in float32."""
    lower = autocast_dtype()
    if lower is None or not isinstance(result, torch.Tensor) or result.dtype != lower:
        return result
    with unobserved():
        return result.float()


def _concrete(name: str, args: Any, kwargs: Any) -> tuple[Any, Any, bool]:
    """Arguments without stand-ins, and whether anything among them is soft."""
    loose = False

    def convert(value: Any, position: int) -> Any:
        nonlocal loose
        if isinstance(value, SoftTensor):
            loose = True
            return value
        if type(value) in (list, tuple):
            return type(value)(convert(entry, position) for entry in value)
        as_argument = getattr(type(value), "_amp_argument", None)
        if as_argument is None:
            return value
        loose = True
        return as_argument(value, name, position)

    new_args = tuple(convert(value, position) for position, value in enumerate(args))
    new_kwargs = {key: convert(value, 9) for key, value in kwargs.items()}
    return new_args, new_kwargs, loose
