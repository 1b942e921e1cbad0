"""What autocast on CUDA refuses, asked of torch itself where there is no GPU.

The refusal is a kernel of torch's dispatcher, which needs no device. What a machine without GPU
cannot tell is where tensors would lie: that is followed from what the code moves.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import FrameType
from typing import Any

import torch

from amplint.probe.worker.context import Run
from amplint.probe.worker.replacing import replace
from amplint.probe.worker.soft import leaves_of, tensors_in

#: What a finding about the refusal predicts.
WORDS = "unsafe to autocast"
BANNED = frozenset({"binary_cross_entropy"})
MOVES = frozenset({"cpu", "to"})


class Refusals:
    """Where the models of one run lie, and whether a region of CUDA is on."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._regions: list[bool] = []
        #: Parameters that the code has moved to the GPU.
        self._moved: set[int] = set()
        #: Whether anything that was computed has been moved away from it.
        self._left = False

    def install(self) -> None:
        """Follow regions, and what is moved."""
        region: Any = torch.amp.autocast_mode.autocast
        enter, leave = region.__enter__, region.__exit__

        def new_enter(autocast: Any) -> Any:
            before = bool(self._regions) and self._regions[-1]
            on_cuda = getattr(autocast, "_amp_on_cuda", False)
            self._regions.append(autocast._enabled if on_cuda else before)
            return enter(autocast)

        def new_leave(autocast: Any, *error: Any) -> Any:
            if self._regions:
                self._regions.pop()
            return leave(autocast, *error)

        replace(region, "__enter__", new_enter)
        replace(region, "__exit__", new_leave)
        for name in ("to", "cuda", "cpu"):
            replace(torch.nn.Module, name, self._following(name, getattr(torch.nn.Module, name)))

    def _following(self, name: str, original: Any) -> Any:
        def move(module: Any, *args: Any, **kwargs: Any) -> Any:
            known = set(map(id, module.parameters()))
            wanted = [*args, *kwargs.values()]
            if name == "cuda" or any(map(self._is_gpu, wanted)):
                self._moved |= known
            elif name == "cpu" or any(map(_is_host, wanted)):
                self._moved -= known
            return original(module, *args, **kwargs)

        return move

    def _is_gpu(self, value: Any) -> bool:
        if isinstance(value, torch.device):
            # One that is made of an invented one looks like any other.
            return value.type == "cuda" and not self._run.world.invented_devices
        return type(value) is int or (type(value) is str and value.startswith("cuda"))

    def called(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A torch function is called by what called the caller of this.

        Raises:
            RuntimeError: torch's own, where CUDA's autocast refuses it.
        """
        caller: FrameType | None = sys._getframe(2)
        if caller is not None and caller.f_code.co_name == "to":
            caller = caller.f_back  # what stands for `Tensor.to`
        by_user = caller is not None and self._run.project.is_mine(caller.f_code.co_filename)
        if name in MOVES and args and by_user:
            away = name == "cpu" or any(map(_is_host, (*args[1:], *kwargs.values())))
            self._left = self._left or away
        if name not in BANNED or not (self._regions and self._regions[-1]):
            return
        self._say_where([*args, *kwargs.values()])
        _refuse()

    def _say_where(self, given: Iterable[Any]) -> None:
        """A doubt, unless what is given hangs on a model that was moved to the GPU."""
        tensors = [tensor for tensor in tensors_in(list(given)) if tensor.grad_fn is not None]
        leaves = [leaf for leaf in leaves_of(tensors) if leaf is not self._run.world.ghost]
        if not self._left and any(id(leaf) in self._moved for leaf in leaves):
            return
        models = self._run.world.models
        for path, model in models.items():
            if any(leaf is parameter for leaf in leaves for parameter in model.parameters()):
                self._run.note("on-gpu", path)
                return
        devices = self._run.world.invented_devices
        self._run.note("on-gpu", devices[0] if devices else "what is compared")


def _is_host(value: Any) -> bool:
    if isinstance(value, torch.device):
        return value.type == "cpu"
    return type(value) is str and value == "cpu"


def _refuse() -> None:
    """Let torch say what it says to a tensor of a GPU.

    Raises:
        RuntimeError: that.
    """
    one = torch.ones(1)
    _switch(True)
    try:
        key = torch._C.DispatchKey.AutocastCUDA
        with torch._C.DisableTorchFunction(), torch._C._IncludeDispatchKeyGuard(key):
            torch._C._nn.binary_cross_entropy(one, one)
    finally:
        _switch(False)


def _switch(enabled: bool) -> None:
    try:
        torch.set_autocast_enabled("cuda", enabled)
    except TypeError:  # before torch 2.4 there is no other device
        torch.set_autocast_enabled(enabled)
