"""CUDA as code sees it where there is none: everything runs on the CPU."""

from __future__ import annotations

import contextlib
import sys
import types
from typing import Any

import torch
import torch.distributed
import torch.utils.data

from amplint.probe.worker import standins
from amplint.probe.worker.context import current
from amplint.probe.worker.replacing import always, nothing, replace

#: What `torch.cuda` answers where there is none, and code runs as if there were.
CUDA_ANSWERS = {
    "is_available": True,
    "is_initialized": True,
    # Optimizers ask this in a torch that was built for CUDA, and the driver would answer.
    "is_current_stream_capturing": False,
    "get_arch_list": ["sm_80"],
    "current_device": 0,
    "get_device_name": "amplint",
    "memory_allocated": 0,
    "max_memory_allocated": 0,
    "memory_reserved": 0,
    "max_memory_reserved": 0,
    "mem_get_info": (1 << 30, 1 << 30),
}


#: Facts in which machines differ: the values that they may have, as a decision has them.
FACTS: dict[str, tuple[Any, ...]] = {
    "is_bf16_supported": (True, False),
    "device_count": (1, 2),
    "get_device_capability": (8, 7),
}

CUDA_SILENT = [
    "synchronize",
    "empty_cache",
    "set_device",
    "manual_seed",
    "manual_seed_all",
    "set_stream",
    "init",
    "reset_peak_memory_stats",
    "reset_max_memory_allocated",
    "ipc_collect",
    "memory_stats",
    "set_per_process_memory_fraction",
    "seed",
    "seed_all",
    "reset_max_memory_cached",
    "memory_summary",
]

#: What `torch.accelerator` answers. Optimizers and loaders ask it, too: a torch that was built for
#: CUDA says that there is one, because `torch.cuda` does, and then asks the driver for its stream.
ACCELERATOR_ANSWERS = {"is_available": False, "current_accelerator": None, "device_count": 0}

ACCELERATOR_SILENT = ["synchronize", "set_device_index", "set_device_idx", "set_stream"]


class _Silent:
    """An object of `torch.cuda` that does nothing: a stream, an event, a graph."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: 0.0

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        """Swallows nothing."""


class _Generator(torch.Generator):
    """A generator on the CPU, whichever device it is wanted on."""

    def __new__(cls, device: Any = None) -> Any:
        return super().__new__(cls)

    def __init__(self, device: Any = None) -> None:
        """Nothing is left to do."""


_PROPERTIES = types.SimpleNamespace(
    name="amplint", major=8, minor=0, total_memory=1 << 30, multi_processor_count=8
)


def install() -> None:
    """Let `torch.cuda` answer as if there were one device, and do nothing."""
    cuda = torch.cuda
    replace(torch.version, "cuda", "12.4")
    replace(torch._C, "_cuda_getCompiledVersion", always(12040))
    for name, answer in CUDA_ANSWERS.items():
        setattr(cuda, name, always(answer))
    for name, options in FACTS.items():
        setattr(cuda, name, _fact(name, options))
    for name in CUDA_SILENT:
        setattr(cuda, name, nothing)
    if sys.modules.get("torch.accelerator"):  # since torch 2.6
        _no_accelerator()
    for name in ("Event", "Stream", "CUDAGraph"):
        setattr(cuda, name, _Silent)
    replace(cuda, "nvtx", _Silent())
    replace(cuda, "current_stream", _Silent)
    replace(cuda, "default_stream", _Silent)
    replace(cuda, "get_device_properties", lambda *args: _PROPERTIES)
    replace(cuda, "stream", lambda *args: contextlib.nullcontext())
    replace(cuda, "graph", lambda *args, **kwargs: contextlib.nullcontext())
    replace(cuda, "device", lambda *args: contextlib.nullcontext())
    for name in ("FloatTensor", "HalfTensor", "LongTensor", "IntTensor", "BoolTensor"):
        setattr(cuda, name, getattr(torch, name))
    replace(torch, "Generator", _Generator)
    replace(torch, "set_default_device", nothing)
    replace(torch, "set_default_tensor_type", nothing)
    _virtual_autocast()


def _no_accelerator() -> None:
    """Let `torch.accelerator` answer in every build as in one for the CPU, and do nothing."""
    for name, answer in ACCELERATOR_ANSWERS.items():
        replace(torch.accelerator, name, always(answer))
    for name in ACCELERATOR_SILENT:
        replace(torch.accelerator, name, nothing)
    replace(torch.accelerator, "current_stream", _Silent)


def _fact(name: str, options: tuple[Any, ...]) -> Any:
    """What `torch.cuda` answers where machines differ: a decision where the project asks."""

    def answer(*args: Any, **kwargs: Any) -> Any:
        run = current()
        if not run.project.is_mine(sys._getframe(1).f_code.co_filename):
            choice = options[0]
        else:
            choice = run.choose(f"torch.cuda.{name}()", options)
        return (choice, 0) if name == "get_device_capability" else choice

    return answer


def _virtual_autocast() -> None:
    region = torch.amp.autocast_mode.autocast
    init = region.__init__

    def new_init(
        self: Any,
        device_type: Any,
        dtype: Any = None,
        enabled: Any = True,
        cache_enabled: Any = None,
    ) -> None:
        if isinstance(device_type, (bool, torch.dtype, types.FunctionType)):
            wrong: Any = device_type
            init(self, wrong)  # torch's own words about that
        on_cuda = not isinstance(device_type, str) or device_type.startswith("cuda")
        kind = "cpu" if on_cuda else device_type
        enabled = bool(standins.concrete(enabled, "flag"))
        self._amp_on_cuda = on_cuda
        self._amp_explicit = isinstance(dtype, torch.dtype)
        if not self._amp_explicit:
            dtype = torch.float16 if on_cuda else None
        init(self, kind, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)

    new_init.__qualname__ = "autocast.__init__"  # for torch's own words about arguments
    replace(region, "__init__", new_init)
