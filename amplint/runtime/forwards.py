"""What modules do in one sampled step: dtypes they ran in, and where inf or NaN first arose.

Forward hooks of all modules are there for that step only. Each keeps the extremes of what went in and
came out, on its device; the gradients that arrive at an output are looked at by a hook on that tensor.
What one module gave and the next one took is looked at once. Nothing that was compiled is seen: hooks
would make its graphs other ones.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from threading import get_ident
from typing import Any, NamedTuple

import torch
from torch.nn.modules.module import register_module_forward_hook

from amplint.runtime.dynamo import has_compiled, keep_from_dynamo, set_eval_frame
from amplint.runtime.measures import Extremes, Kinds, Origin, extremes, is_plain, largest
from amplint.runtime.places import Place
from amplint.runtime.sink import Misuse


class _Flag(NamedTuple):
    """The extremes of a tensor that was seen."""

    way: str
    module: Any
    place: Place
    extremes: Extremes


class _Seen:
    """Tensors that were met, as they were then; none is kept alive."""

    def __init__(self) -> None:
        self._versions: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}

    def is_new(self, tensor: torch.Tensor) -> bool:
        """Whether it is met for the first time, or was changed in place since."""
        if tensor.is_inference():
            return True  # it has no version
        version, known = tensor._version, self._versions.get(id(tensor))
        if known is not None and known[1] == version and known[0]() is tensor:
            return False
        self._versions[id(tensor)] = weakref.ref(tensor), version
        return True

    def clear(self) -> None:
        """Forget all."""
        self._versions.clear()


class Roots:
    """What names of modules begin with, by the network that they are counted from.

    A program may train several: both have a `layers.0`. The first that is seen needs no prefix, the
    others have the name of their class; each keeps what it got, so that samples can be laid together.
    """

    def __init__(self) -> None:
        self._prefixes: weakref.WeakKeyDictionary[torch.nn.Module, str] = (
            weakref.WeakKeyDictionary()
        )

    def meet(self, networks: Iterable[torch.nn.Module]) -> None:
        """Give each network that is new a prefix: none to the largest, if no other has it."""
        new = [each for each in networks if each not in self._prefixes]
        for network in sorted(new, key=_size, reverse=True):
            kind, taken = type(network).__name__, {*self._prefixes.values()}
            numbered = (f"{kind}#{number}" for number in range(2, len(taken) + 3))
            free = (prefix for prefix in ("", kind, *numbered) if prefix not in taken)
            self._prefixes[network] = next(free)

    def name(self, network: torch.nn.Module, path: str) -> str:
        """The name of a module below a network, by its path there."""
        return ".".join(filter(None, (self._prefixes[network], path)))


def _size(network: torch.nn.Module) -> int:
    """The number of modules in a network, itself included."""
    return sum(1 for _ in network.modules())


class Forwards:
    """The hooks of one sampled step.

    Args:
        find_place: the user's innermost line.
        fail: is told about an error of amplint's own.
        roots: of this sample and those before.
    """

    def __init__(
        self, find_place: Callable[[], Place], fail: Callable[[BaseException], None], roots: Roots
    ) -> None:
        self._find_place, self._fail, self._roots = find_place, fail, roots
        self._thread = get_ident()
        self._flags: list[_Flag] = []
        self._backward: list[_Flag] = []
        self._modules: dict[int, tuple[Any, Place, str]] = {}
        self._looked, self._hooked = _Seen(), _Seen()
        self._arrives = as_hook(self._arrived, fail)
        self.is_compiled = has_compiled()
        self._handles: list[Any] = []
        if not self.is_compiled:
            self._handles.append(register_module_forward_hook(as_hook(self._ran, fail)))

    def remove(self) -> None:
        """Take the hooks back, and let go of everything."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._flags.clear()
        self._backward.clear()
        self._modules.clear()
        self._looked.clear()
        self._hooked.clear()

    def losses(self, way: str, tensors: Iterable[Any]) -> None:
        """Look at what goes backwards."""
        place = self._find_place()
        for tensor in tensors:
            self._look(way, None, place, tensor)

    def _ran(self, module: Any, given: Any, result: Any) -> None:
        """A module has run."""
        if get_ident() != self._thread or not torch.is_grad_enabled() or _is_traced():
            return
        place = self._find_place()
        if not _has_children(module):
            for tensor in _tensors(given):
                self._look("input of", module, place, tensor)
        kind = ""
        for tensor in _tensors(result):
            self._look("output of", module, place, tensor)
            kind = kind or str(tensor.dtype)
            if tensor.requires_grad and tensor.grad_fn is not None and self._hooked.is_new(tensor):
                arrives = partial(self._arrives, module, place)
                self._handles.append(tensor.register_hook(arrives))
        self._modules.setdefault(id(module), (module, place, kind))

    def _arrived(self, module: Any, place: Place, gradient: Any) -> None:
        """A gradient has arrived at what a module gave."""
        if self._handles and is_plain(gradient):
            way = "gradient at the output of"
            self._backward.append(_Flag(way, module, place, extremes(gradient)))

    def _look(self, way: str, module: Any, place: Place, tensor: Any) -> None:
        if is_plain(tensor) and self._looked.is_new(tensor):
            self._flags.append(_Flag(way, module, place, extremes(tensor)))

    # -- what came of it

    def names(self) -> dict[int, tuple[str, Any]]:
        """The dotted name of each module that ran or lies below one, by its identity."""
        held: dict[int, tuple[Any, str, Any]] = {}
        for module, _, _ in reversed(self._modules.values()):  # whole models end last
            if id(module) not in held:
                for path, each in module.named_modules():
                    held.setdefault(id(each), (module, path, each))
        self._roots.meet(network for network, path, _ in held.values() if not path)
        return {
            key: (self._roots.name(network, path), each)
            for key, (network, path, each) in held.items()
        }

    def kinds(self, names: dict[int, tuple[str, Any]]) -> dict[str, Kinds]:
        """Class and dtypes of each module that has weights, or nothing below it."""
        found = {}
        reductions = self._reductions()
        for key, (module, _, ran) in self._modules.items():
            weight = next(own_parameters(module), None)
            if weight is None and _has_children(module):
                continue
            dtype = "" if weight is None else str(weight.dtype)
            reduction = (reductions[key] or dtype) if key in reductions else ""
            found[names[key][0]] = Kinds(type(module).__name__, dtype, ran, reduction=reduction)
        return found

    def _reductions(self) -> dict[int, str]:
        """In what ranks add the gradients of each module, by its identity; "" for their dtype."""
        found: dict[int, str] = {}
        for module, _, _ in reversed(self._modules.values()):  # whole models end last
            configured = _reduction(module)
            if configured is not None:
                found.update((id(each), configured) for each in module.modules())
        return found

    def origin(
        self, names: dict[int, tuple[str, Any]], gradients: dict[str, float]
    ) -> Origin | None:
        """Where the first value that is not finite arose; None if all were finite.

        Args:
            gradients: the largest gradient of each module's weights, by name.
        """
        flags = [*self._flags, *self._backward]
        values = largest([each.extremes for each in flags])
        for flag, value in zip(flags, values):
            if not math.isfinite(value):
                name = names.get(id(flag.module), ("", None))[0]
                kind = "" if flag.module is None else type(flag.module).__name__
                return Origin(flag.way, name, kind, flag.place)
        # Backwards runs the other way: what ran last is asked first.
        for key, (module, place, _) in reversed(self._modules.items()):
            name = names[key][0]
            if not math.isfinite(gradients.get(name, 0.0)):
                return Origin("gradient of the weights of", name, type(module).__name__, place)
        return None


def own_parameters(module: Any) -> Iterator[Any]:
    """The parameters of a module itself, at a tenth of what torch's generators of all take."""
    return (each for each in module._parameters.values() if each is not None)


def _has_children(module: Any) -> bool:
    return any(each is not None for each in module._modules.values())


def _reduction(module: Any) -> str | None:
    """In what ranks add the gradients of a wrapped model, None if it is not one."""
    if isinstance(module, torch.nn.parallel.DistributedDataParallel):
        hooks = [hook for hook, _ in getattr(module, "_comm_hooks", ())]
        if hooks:
            return str(getattr(hooks[-1], "__name__", type(hooks[-1]).__name__))
        policy = getattr(module, "mixed_precision", None)
    elif hasattr(module, "_get_fsdp_state"):
        policy = getattr(module._get_fsdp_state(), "_mp_policy", None)
    elif type(module).__name__ == "FullyShardedDataParallel":
        policy = getattr(module, "mixed_precision", None)
    else:
        return None
    dtype = getattr(policy, "reduce_dtype", None) or getattr(policy, "param_dtype", None)
    return "" if dtype is None else str(dtype)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors of what a module takes or gives: one, or some in plain containers."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from _tensors(each)
    elif isinstance(value, dict):
        for each in value.values():
            yield from _tensors(each)


def _is_traced() -> bool:
    """Whether operations are recorded or transformed, so that ours would become part of that."""
    peek = getattr(torch._C._functorch, "peek_interpreter_stack", None)
    return torch.jit.is_tracing() or (peek is not None and peek() is not None)


def as_hook(
    action: Callable[..., None], fail: Callable[[BaseException], None]
) -> Callable[..., None]:
    """The same as a hook of torch's: never compiled, and what it raises is only what was asked for."""

    def watched(*args: Any) -> None:
        callback = set_eval_frame(None)
        try:
            action(*args)
        except Misuse:
            raise
        except Exception as error:  # noqa: BLE001 - never the user's
            fail(error)
        finally:
            if callback is not None:
                set_eval_frame(callback)

    def hook(*args: Any) -> None:
        if not torch.compiler.is_compiling():
            watched(*args)

    keep_from_dynamo(watched, hook)
    return hook
