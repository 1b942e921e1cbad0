"""Accelerate's `Accelerator` in one process: what it does to losses, gradients and steps.

Read in accelerate 1.15, `accelerator.py`, `optimizer.py`, `scheduler.py` and `data_loader.py`; the
scaler is torch's own. A plain start is what happens here: one process without a configuration of
`accelerate config`. Whatever hands training to another library (DeepSpeed, FSDP, Megatron) or
chooses the scaler's settings is none of it: then there is no such object.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from amplint.probe.worker import standins, values, words
from amplint.probe.worker.context import current
from amplint.probe.worker.world import Loader

#: The names under which the class is imported.
NAMES = ("accelerate.Accelerator", "accelerate.accelerator.Accelerator")
#: Its arguments in order, as far as they say how training goes on.
POSITIONS = ("device_placement", "split_batches", "mixed_precision", "gradient_accumulation_steps")
#: Arguments that hand something of that to others.
PLUGINS = frozenset(
    [
        *("deepspeed_plugin", "deepspeed_plugins", "fsdp_plugin", "torch_tp_plugin"),
        *("megatron_lm_plugin", "parallelism_config", "gradient_accumulation_plugin"),
        *("dynamo_backend", "dynamo_plugin"),
    ]
)
#: Handlers that say nothing about scalers and regions.
HARMLESS = ("DistributedDataParallelKwargs", "InitProcessGroupKwargs", "ProfileKwargs")
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
#: What one process is.
FIRST = frozenset(["is_main_process", "is_local_main_process", "is_last_process"])
#: What only writes down, waits or restores.
SILENT = frozenset(
    [
        *("print", "log", "init_trackers", "end_training", "wait_for_everyone", "save"),
        *("save_state", "save_model", "load_state", "register_for_checkpointing"),
        *("register_save_state_pre_hook", "register_load_state_pre_hook", "log_images"),
    ]
)
#: What gives back what it is given, where there is one process.
SAME = frozenset(
    [
        *("gather", "gather_for_metrics", "reduce", "pad_across_processes", "unwrap_model"),
        *("on_main_process", "on_local_main_process", "skip_first_batches"),
    ]
)
#: Regions that change nothing in one process.
AROUND = frozenset(
    ["main_process_first", "local_main_process_first", "no_sync", "join_uneven_inputs", "profile"]
)


def accelerator(path: str, *args: Any, **kwargs: Any) -> Any:
    """An accelerator; NotImplemented where another library takes part, or may do."""
    given = {**dict(zip(POSITIONS, args)), **kwargs}
    if len(args) > len(POSITIONS) or any(given.get(name) is not None for name in PLUGINS):
        return NotImplemented
    handlers = given.get("kwargs_handlers") or ()
    if not isinstance(handlers, (list, tuple)) or not all(map(_is_harmless, handlers)):
        return NotImplemented
    precision = _precision(given.get("mixed_precision"))
    if precision not in ("no", *DTYPES):
        return NotImplemented
    steps = standins.number(given.get("gradient_accumulation_steps", 1))
    windows = Windows(max(1, int(steps)))
    return Accelerator(
        path, precision, windows, bool(given.get("step_scheduler_with_optimizer", True))
    )


def _is_harmless(handler: Any) -> bool:
    return isinstance(handler, standins.StandIn) and any(
        f"{name}()" in str(handler) for name in HARMLESS
    )


def _precision(given: Any) -> Any:
    """The precision that somebody asks for; what an unknown value is, is a decision."""
    if given is None:
        return "no"
    if isinstance(given, standins.StandIn):
        return given._amp_bind_to(("no", *DTYPES))
    return str(given)


@dataclass(slots=True)
class Windows:
    """Windows of accumulated gradients (`GradientState`).

    Args:
        steps: micro-batches of a window.
        seen: those of this one.
        is_last: whether the prepared loader has no further batch.
        is_due: whether this micro-batch ends a window.
    """

    steps: int
    seen: int = 0
    is_last: bool = False
    is_due: bool = True

    def advance(self) -> None:
        """A micro-batch begins."""
        self.seen = 0 if self.is_last else self.seen + 1
        self.is_due = self.is_last or self.seen % self.steps == 0


class Accelerator:
    """See the module's docstring."""

    def __init__(self, path: str, precision: str, windows: Windows, pairs_schedules: bool) -> None:
        self._amp_path = path
        self._windows = windows
        self._pairs_schedules = pairs_schedules
        self._optimizers: list[PreparedOptimizer] = []
        self.mixed_precision = precision
        self.native_amp = True
        self.device = values.MAKERS["device"](current(), f"{path}.device")
        self.distributed_type = Plainly()
        self.scaler = torch.amp.GradScaler("cuda") if precision == "fp16" else None
        self.process_index = self.local_process_index = 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in FIRST:
            return True
        if name in SILENT:
            return _nothing
        if name in SAME:
            return _same
        if name in AROUND:
            return lambda *args, **kwargs: contextlib.nullcontext()
        return standins.StandIn(f"{self.__dict__.get('_amp_path', 'accelerator')}.{name}")

    @property
    def num_processes(self) -> Any:
        """How many there are: a fact of the machine."""
        return current().choose("torch.cuda.device_count()", (1, 2))

    @property
    def gradient_accumulation_steps(self) -> int:
        """Micro-batches of a window."""
        return self._windows.steps

    @gradient_accumulation_steps.setter
    def gradient_accumulation_steps(self, steps: Any) -> None:
        self._windows.steps = max(1, int(standins.number(steps)))

    @property
    def sync_gradients(self) -> bool:
        """Whether a step would be made now."""
        return self._windows.is_due

    @property
    def optimizer_step_was_skipped(self) -> bool:
        """Whether the last step found gradients that are not finite."""
        return any(optimizer.step_was_skipped for optimizer in self._optimizers)

    # -- what is prepared

    def prepare(self, *given: Any, **_settings: Any) -> Any:
        """The same objects, the optimizers and schedules of which follow the windows."""
        # Schedules need to know the optimizers, which may come after them.
        first = [thing if _is_schedule(thing) else self._prepared(thing) for thing in given]
        found = [self.prepare_scheduler(t) if _is_schedule(t) else t for t in first]
        return found[0] if len(found) == 1 else tuple(found)

    def _prepared(self, thing: Any) -> Any:
        thing = _known(thing)
        if isinstance(thing, Optimizer):
            return self.prepare_optimizer(thing)
        if isinstance(thing, torch.nn.Module):
            return self.prepare_model(thing)
        if isinstance(thing, (Loader, torch.utils.data.DataLoader)):
            return self.prepare_data_loader(thing)
        return thing

    def prepare_model(self, model: Any, *_args: Any, **_settings: Any) -> Any:
        """The model, whose forward runs under autocast and gives float32."""
        model = standins.concrete(model, "model")
        if self.mixed_precision not in DTYPES or "_amp_prepared" in vars(model):
            return model
        forward = model.forward

        def under_autocast(_model: Any, *args: Any, **kwargs: Any) -> Any:
            with self.autocast():
                found = forward(*args, **kwargs)
            return _whole(found)

        vars(model)["_amp_prepared"] = True
        model.forward = types.MethodType(under_autocast, model)
        return model

    def prepare_optimizer(self, optimizer: Any, *_args: Any, **_settings: Any) -> Any:
        """The optimizer, which steps at the ends of windows, with the scaler if there is one."""
        if isinstance(optimizer, PreparedOptimizer):
            return optimizer
        made = PreparedOptimizer(
            standins.concrete(optimizer, "optimizer"), self.scaler, self._windows
        )
        self._optimizers.append(made)
        return made

    def prepare_data_loader(self, loader: Any, *_args: Any, **_settings: Any) -> Any:
        """The loader, whose last batch ends a window."""
        return PreparedLoader(standins.concrete(loader, "loader"), self._windows)

    def prepare_scheduler(self, scheduler: Any) -> Any:
        """The schedule, which follows the optimizers."""
        if not isinstance(scheduler, LRScheduler):
            return scheduler
        return PreparedSchedule(scheduler, self._optimizers, self._windows, self._pairs_schedules)

    # -- what is done to gradients

    @contextlib.contextmanager
    def accumulate(self, *_models: Any) -> Iterator[None]:
        """A micro-batch."""
        self._windows.advance()
        yield

    def backward(self, loss: Any, **kwargs: Any) -> None:
        """A part of the window's gradients, scaled if there is a scaler."""
        loss = standins.concrete(loss, "loss") / self._windows.steps
        kwargs.pop("learning_rate", None)
        if self.scaler is not None:
            loss = self.scaler.scale(loss)
        loss.backward(**kwargs)

    def unscale_gradients(self, optimizer: Any = None) -> None:
        """Divide the gradients of these optimizers, or of all, by the scale."""
        if self.scaler is None:
            return
        chosen = self._optimizers if optimizer is None else optimizer
        for item in chosen if isinstance(chosen, (list, tuple)) else [chosen]:
            self.scaler.unscale_(item.optimizer if isinstance(item, PreparedOptimizer) else item)

    def clip_grad_norm_(self, parameters: Any, max_norm: Any, norm_type: Any = 2) -> Any:
        """Clip after the gradients are divided."""
        self.unscale_gradients()
        return torch.nn.utils.clip_grad_norm_(parameters, max_norm, norm_type=norm_type)

    def clip_grad_value_(self, parameters: Any, clip_value: Any) -> None:
        """The same for each number."""
        self.unscale_gradients()
        torch.nn.utils.clip_grad_value_(parameters, clip_value)

    def autocast(self, *_args: Any, **_settings: Any) -> Any:
        """The region of this precision."""
        dtype = DTYPES.get(self.mixed_precision)
        return torch.autocast("cuda", dtype=dtype) if dtype else contextlib.nullcontext()

    @contextlib.contextmanager
    def split_between_processes(self, inputs: Any, *_args: Any, **_settings: Any) -> Iterator[Any]:
        """All of it."""
        yield inputs


class PreparedOptimizer(Optimizer):
    """`AcceleratedOptimizer`: steps and clears at the ends of windows only."""

    def __init__(self, optimizer: Any, scaler: Any, windows: Windows) -> None:
        self.optimizer = optimizer
        self.scaler = scaler
        self.step_was_skipped = False
        self._windows = windows

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "optimizer":
            raise AttributeError(name)
        return getattr(self.optimizer, name)

    @property
    def param_groups(self) -> Any:
        """Those of the optimizer."""
        return self.optimizer.param_groups

    @param_groups.setter
    def param_groups(self, groups: Any) -> None:
        self.optimizer.param_groups = groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        """That of the optimizer."""
        return self.optimizer.state

    @property
    def defaults(self) -> Any:  # type: ignore[override]
        """Those of the optimizer."""
        return self.optimizer.defaults

    def add_param_group(self, param_group: Any) -> None:
        """Of the optimizer."""
        self.optimizer.add_param_group(param_group)

    def state_dict(self) -> Any:
        """That of the optimizer."""
        return self.optimizer.state_dict()

    def load_state_dict(self, state_dict: Any) -> None:
        """Checkpoints are not loaded."""

    def zero_grad(self, set_to_none: Any = True) -> None:
        """Clear at the end of a window."""
        if self._windows.is_due:
            self.optimizer.zero_grad(set_to_none=True if set_to_none is None else set_to_none)

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Step at the end of a window."""
        if not self._windows.is_due:
            return
        if self.scaler is None:
            self.optimizer.step(closure)
            return
        before = len(current().steps)
        self.scaler.step(self.optimizer, closure)
        self.scaler.update()
        self.step_was_skipped = len(current().steps) == before


class PreparedSchedule:
    """`AcceleratedScheduler`: follows the steps that were made."""

    def __init__(
        self, schedule: Any, optimizers: list[PreparedOptimizer], windows: Windows, pairs: bool
    ) -> None:
        self.scheduler = schedule
        self._optimizers = optimizers
        self._windows = windows
        self._pairs = pairs

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "scheduler":
            raise AttributeError(name)
        return getattr(self.scheduler, name)

    def step(self, *args: Any, **kwargs: Any) -> None:
        """Step if the optimizers did."""
        skipped = any(optimizer.step_was_skipped for optimizer in self._optimizers)
        if not self._pairs or (self._windows.is_due and not skipped):
            self.scheduler.step(*args, **kwargs)


class PreparedLoader(Loader):
    """`DataLoaderShard`: knows which batch is the last."""

    def __init__(self, loader: Any, windows: Windows) -> None:  # nothing is built anew
        self._loader = loader
        self._windows = windows

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_loader":
            raise AttributeError(name)
        return getattr(self._loader, name)

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        self._windows.is_last = False
        batches = list(self._loader)
        for index, batch in enumerate(batches, start=1):
            self._windows.is_last = index == len(batches)
            yield batch
        self._windows.is_last = False


class Plainly:
    """`DistributedType.NO`."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plainly) or str(other).rpartition(".")[2] == "NO"

    def __hash__(self) -> int:
        return hash("NO")

    def __str__(self) -> str:
        return "DistributedType.NO"


def _known(thing: Any) -> Any:
    """What a stand-in has become, or is by its name; it may still be anything."""
    if not isinstance(thing, standins.StandIn):
        return thing
    bound = object.__getattribute__(thing, "_value")
    if bound is not standins.UNBOUND:
        return bound if isinstance(bound, (torch.nn.Module, Optimizer, Loader)) else thing
    path = object.__getattribute__(thing, "_path")
    kind = words.kind_of(path.replace("()", "").rpartition(".")[2], set())
    return thing._amp_bind(kind) if kind in ("model", "optimizer", "loader") else thing


def _is_schedule(thing: Any) -> bool:
    return isinstance(thing, LRScheduler)


def _whole(found: Any) -> Any:
    """Outputs in float32 (`convert_outputs_to_fp32`)."""
    if isinstance(found, torch.Tensor):
        return found.float() if found.dtype in DTYPES.values() else found
    if type(found) in (list, tuple):
        return type(found)(map(_whole, found))
    if type(found) is dict:
        return {key: _whole(value) for key, value in found.items()}
    return found


def _nothing(*_args: Any, **_kwargs: Any) -> None:
    """What has no effect on the training."""


def _same(given: Any = None, *_args: Any, **_kwargs: Any) -> Any:
    """What one process gets back."""
    return given


LIBRARY: dict[str, Callable[..., Any]] = dict.fromkeys(NAMES, accelerator)
