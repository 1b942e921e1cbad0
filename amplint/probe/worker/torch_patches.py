"""Changes to torch for one run: no GPU, no other processes, no files, invented arguments.

A run has a process of its own, so nothing here is taken back.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed
import torch.utils.data
from torch.nn.modules.lazy import LazyModuleMixin
from torch.optim.optimizer import Optimizer
from torch.overrides import TorchFunctionMode

from amplint.probe.messages import SMALL
from amplint.probe.worker import (
    absorbed,
    banned,
    gradient_patches,
    opaque_calls,
    operations,
    optimizer_patches,
    small_layers,
    standins,
    values,
    virtual_cuda,
)
from amplint.probe.worker.context import Run, current
from amplint.probe.worker.failures import is_amp_failure
from amplint.probe.worker.replacing import always, nothing, replace
from amplint.probe.worker.soft import (
    SoftTensor,
    call,
    connected,
    plain,
    soft,
    soften,
    tensors_in,
)
from amplint.probe.worker.torch_names import ABOUT_DTYPES
from amplint.probe.worker.world import Loader, Sampler
from amplint.runtime.instrument import CLIPS

DISTRIBUTED_ANSWERS = {
    "is_available": True,
    "is_initialized": False,
    "get_rank": 0,
    "get_world_size": 1,
    "get_backend": "gloo",
    "is_torchelastic_launched": False,
}
DISTRIBUTED_SILENT = [
    "init_process_group",
    "destroy_process_group",
    "barrier",
    "all_reduce",
    "all_gather",
    "broadcast",
    "reduce",
    "all_gather_object",
    "broadcast_object_list",
    "gather",
    "new_group",
    "all_gather_into_tensor",
    "monitored_barrier",
    "reduce_scatter",
    "scatter",
    "send",
    "recv",
]
#: Initialisations that are exact and cheap.
KEPT_INITIALISATIONS = frozenset({"zeros_", "ones_", "constant_", "eye_", "dirac_"})
WEIGHT = 0.05
_INVENTED_SIZE = "_amp_invented_size"
#: Functions of torch that return their first argument.
IDENTITIES = frozenset({"cuda", "pin_memory", "record_stream", "share_memory_"})


def install(run: Run) -> None:
    """Change torch for this run."""
    _scalers(run)
    _moves()
    gradient_patches.install_backward()
    optimizer_patches.install_optimizers()
    gradient_patches.install_clips()
    _processes()
    _sizes()
    _switches()
    _files()
    _data()
    optimizer_patches.install_schedulers()
    _models()
    _layers()
    _initialisations()
    _checkpoints()
    if run.request.assignment.get(SMALL):
        run.note("small-layers")
        small_layers.install()
    if run.virtual_cuda:
        run.remark("CUDA is virtual: everything runs on the CPU, with a CPU GradScaler")
        virtual_cuda.install()
        if any(prediction.pattern == banned.WORDS for prediction in run.plan.predictions):
            refusals = banned.Refusals(run)
            refusals.install()
            run.refuses = refusals.called


def _checkpoints() -> None:
    """A forward that would be computed again in the backward is computed once: the graph and its
    gradients are the same, and inputs that the probe invented need none."""
    replace(torch.utils.checkpoint, "checkpoint", _checkpoint)


def _checkpoint(
    function: Any,
    *args: Any,
    use_reentrant: Any = None,
    context_fn: Any = None,
    determinism_check: Any = None,
    preserve_rng_state: Any = None,
    debug: Any = None,
    early_stop: Any = None,
    **kwargs: Any,
) -> Any:
    return function(*args, **kwargs)


def watched() -> dict[tuple[str, str], Any]:
    """The functions of torch that events are taken from, as they are now."""
    owners = (torch.amp.GradScaler, Optimizer, torch.Tensor, torch.autograd, torch.nn.utils)
    names = ("__init__", "scale", "unscale_", "step", "update", "zero_grad", "backward", "grad")
    return {
        (owner.__name__, name): vars(owner)[name]
        for owner in owners
        for name in (*names, *CLIPS)
        if name in vars(owner)
    }


class Devices(TorchFunctionMode):
    """Lets every torch function pass stand-ins, and moves `cuda` to the CPU where asked to."""

    def __init__(self, virtual: bool) -> None:
        super().__init__()
        self._virtual = virtual

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name == "__get__" and type(args[0]) in (torch.Tensor, torch.nn.Parameter):
            return func(*args)  # `.grad`, `.dtype`: half of all calls
        if func is torch.device:
            return func(*args, **(kwargs or {}))  # code asks for its type
        run = current()
        run.torch_calls += 1
        if run.refuses is not None:
            run.refuses(name, args, kwargs)
        if self._virtual:
            if name in IDENTITIES and args:
                return args[0]
            args = tuple(map(_host, args))
            if name == "to" and len(args) > 1 and type(args[1]) is int:
                args = (args[0], torch.device("cpu"), *args[2:])
        if name == "to":
            args = args[:1] + tuple(value for value in args[1:] if not _is_unknown(value))
        kwargs = self._settings(kwargs) if kwargs else {}
        if name == "to" and len(args) == 1 and not set(kwargs) & {"device", "dtype", "other"}:
            return args[0]
        return call(func, args, kwargs)

    def _settings(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """The keyword arguments of a call, without those about devices that are not there."""
        if self._virtual:
            kwargs = {key: _host(value) for key, value in kwargs.items()}
            if type(kwargs.get("device")) is int:
                kwargs["device"] = torch.device("cpu")
        return {
            key: value
            for key, value in kwargs.items()
            if not (key in ("device", "dtype", "memory_format") and _is_invented(value))
        }


def _is_unknown(value: Any) -> bool:
    return isinstance(value, standins.StandIn)


def _is_invented(value: Any) -> bool:
    return isinstance(value, (standins.StandIn, SoftTensor))


def _host(value: Any) -> Any:
    """What stands for CUDA in a call of torch."""
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    if type(value) is str and value.startswith("cuda"):
        return "cpu"
    if type(value) is str and value.startswith("torch.cuda."):
        return value.replace("torch.cuda.", "torch.")
    return value


def _scalers(run: Run) -> None:
    scaler_class = torch.amp.GradScaler
    init = scaler_class.__init__
    scale, step, unscale = scaler_class.scale, scaler_class.step, scaler_class.unscale_

    def keeps(init_scale: Any) -> bool:
        """Of a text `torch.full` has its say at the first `scale`."""
        is_text = type(init_scale) is str and not run.omissions.applies("initial-scales")
        return is_text or isinstance(init_scale, bool)

    def new_init(
        self: Any,
        device: Any = "cuda",
        init_scale: Any = 2.0**16,
        growth_factor: Any = 2.0,
        backoff_factor: Any = 0.5,
        growth_interval: Any = 2000,
        enabled: Any = True,
    ) -> None:
        kind = "cpu" if run.virtual_cuda or not isinstance(device, str) else device
        if type(self).__module__.split(".")[0] != "torch":
            run.note("scaler-class", type(self).__qualname__)
        given = {"device": device, "init_scale": init_scale}
        self._amp_bools = {key: value for key, value in given.items() if isinstance(value, bool)}
        init(
            self,
            kind,
            init_scale=init_scale if keeps(init_scale) else run.request.init_scale,
            growth_factor=_number(growth_factor, 2.0),
            backoff_factor=_number(backoff_factor, 0.5),
            growth_interval=int(_number(growth_interval, 2000)),
            enabled=bool(standins.concrete(enabled, "flag")) and run.request.enabled,
        )

    def new_scale(self: Any, outputs: Any) -> Any:
        outputs = standins.concrete(outputs, "loss")
        if isinstance(outputs, SoftTensor):
            outputs = gradient_patches.felt(plain(outputs))
        with torch._C.DisableTorchFunction():
            return soften(scale(self, outputs))

    def new_step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        optimizer = standins.concrete(optimizer, "optimizer")
        with torch._C.DisableTorchFunction():
            return step(self, optimizer, *args, **kwargs)

    def new_unscale(self: Any, optimizer: Any) -> Any:
        optimizer = standins.concrete(optimizer, "optimizer")
        with torch._C.DisableTorchFunction():
            return unscale(self, optimizer)

    replace(scaler_class, "__init__", new_init)
    replace(scaler_class, "scale", new_scale)
    replace(scaler_class, "step", new_step)
    replace(scaler_class, "unscale_", new_unscale)


def _number(value: Any, default: float) -> float:
    return value if isinstance(value, (int, float)) else default


def _moves() -> None:
    """`to` reads its arguments before anybody could replace those that are invented."""
    original = torch.Tensor.to

    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        args = tuple(value for value in args if not isinstance(value, standins.StandIn))
        kwargs = {
            name: value
            for name, value in kwargs.items()
            if value is not None and not _is_invented(value)
        }
        return original(self, *args, **kwargs)

    replace(torch.Tensor, "to", to)


def _processes() -> None:
    distributed = torch.distributed
    replace(torch.multiprocessing, "spawn", _spawned)
    for name, answer in DISTRIBUTED_ANSWERS.items():
        setattr(distributed, name, always(answer))
    for name in DISTRIBUTED_SILENT:
        setattr(distributed, name, nothing)
    replace(torch, "set_num_threads", nothing)
    replace(torch, "set_num_interop_threads", nothing)


def _spawned(function: Any, args: Any = (), *rest: Any, **kwargs: Any) -> Any:
    """The only process of a training job is this one."""
    return opaque_calls.launched(function, (0, *args) if isinstance(args, tuple) else (0,))


def _sizes() -> None:
    """Functions that make tensors of a size check it before anybody could tell what it is."""
    for name in (
        "randn",
        "rand",
        "zeros",
        "ones",
        "empty",
        "full",
        "randint",
        "randperm",
        "arange",
    ):
        replace(torch, name, _of_a_size(getattr(torch, name)))
    replace(torch, "linspace", _spaced(torch.linspace))


def _spaced(original: Any) -> Any:
    """As many numbers as the code asks for, between bounds that may be unknown."""

    def make(*bounds: Any, **settings: Any) -> Any:
        known = [_bound(value) for value in bounds]
        return original(*known, **{name: _bound(value) for name, value in settings.items()})

    return make


def _bound(value: Any) -> Any:
    return standins.number(value) if isinstance(value, standins.StandIn) else value


def _of_a_size(original: Any) -> Any:
    def make(*sizes: Any, **settings: Any) -> Any:
        return original(*(_size(value) for value in sizes), **settings)

    return make


def _size(value: Any) -> Any:
    if isinstance(value, standins.StandIn):
        return int(standins.number(value))
    if type(value) in (list, tuple):
        return type(value)(map(_size, value))
    return value


def _switches() -> None:
    """`torch.backends.cudnn.benchmark = cfg.x`: an unknown setting changes nothing."""
    setting: Any = torch.backends.ContextProp
    original = setting.__set__

    def set_known(self: Any, owner: Any, value: Any) -> None:
        if not isinstance(value, standins.StandIn):
            original(self, owner, value)

    replace(setting, "__set__", set_known)


def _files() -> None:
    replace(torch, "save", lambda saved, file, *args, **kwargs: absorbed.made(file))
    replace(torch, "load", lambda *args, **kwargs: standins.StandIn("torch.load()"))
    replace(torch.hub, "load", lambda *args, **kwargs: standins.StandIn("torch.hub.load()"))
    for name in ("load_state_dict_from_url", "download_url_to_file", "list", "help"):
        replace(torch.hub, name, lambda *args, **kwargs: standins.StandIn("torch.hub"))
    replace(torch, "from_numpy", lambda *args: soft())
    replace(torch.nn.Module, "load_state_dict", lambda *args, **kwargs: standins.StandIn("missing"))


def _data() -> None:
    replace(torch.utils.data, "DataLoader", Loader)
    replace(torch.utils.data.dataloader, "DataLoader", Loader)
    replace(torch.utils.data, "DistributedSampler", Sampler)
    replace(torch.utils.data.distributed, "DistributedSampler", Sampler)


def _models() -> None:
    """Wrappers of models are the models themselves."""
    replace(torch.nn.parallel, "DistributedDataParallel", _wrapped)
    replace(torch.nn.parallel, "DataParallel", _wrapped)
    replace(torch.nn, "DataParallel", _wrapped)
    replace(torch.nn.SyncBatchNorm, "convert_sync_batchnorm", _wrapped)
    replace(torch, "compile", _wrapped)
    replace(torch.jit, "script", _wrapped)
    replace(torch.jit, "trace", _wrapped)


def _wrapped(model: Any = None, *args: Any, **kwargs: Any) -> Any:
    if model is None:
        return lambda function: function
    model = standins.concrete(model, "model")
    if isinstance(model, torch.nn.Module) and "module" not in model._modules:
        model.__dict__.setdefault("module", model)  # what a wrapper calls what it wraps
    return model


def _layers() -> None:
    """Layers of torch that check the shapes of what they get do so in Python, in vain."""
    original = torch.nn.Module.__call__
    small = bool(current().request.assignment.get(SMALL))

    def new_call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(self, LazyModuleMixin) and _has_no_size(self):
            # Its size comes from data that nobody knows.
            self.__dict__[_INVENTED_SIZE] = True
        try:
            return original(self, *args, **kwargs)
        except Exception as error:
            given = tensors_in([args, kwargs])
            loose = small or any(isinstance(value, SoftTensor) for value in given)
            loose = loose or _INVENTED_SIZE in self.__dict__
            told = is_amp_failure(error) or ABOUT_DTYPES.search(str(error)) is not None
            if not loose or told or not _is_torchs(self):
                raise
            current().remark("shapes of tensors are not followed")
            parameters = list(self.parameters())
            name = type(self).__name__.lower()
            result = connected([args, kwargs, parameters], name)
            operations.trace(name, args, result)
            return result

    replace(torch.nn.Module, "__call__", new_call)
    replace(torch.nn.Module, "forward", _forward)  # of base classes: subclasses have one
    named = torch.nn.Module.named_parameters

    def named_parameters(self: Any, *args: Any, **kwargs: Any) -> Any:
        own = bool(self._parameters or self._modules)
        if type(self).forward is _forward and not own and not _is_of_torch(self):
            values.fill(self)
        return named(self, *args, **kwargs)

    replace(torch.nn.Module, "named_parameters", named_parameters)
    add = torch.nn.Module.add_module

    def add_module(self: Any, name: Any, module: Any) -> None:
        add(self, str(name), _layer(module))

    replace(torch.nn.Module, "add_module", add_module)
    append = torch.nn.Sequential.append

    def new_append(self: Any, module: Any) -> Any:
        return append(self, _layer(module))

    replace(torch.nn.Sequential, "append", new_append)


def _has_no_size(module: Any) -> bool:
    return bool(module.has_uninitialized_params())


def _is_of_torch(module: Any) -> bool:
    return type(module).__module__.startswith("torch.")


def _layer(module: Any) -> Any:
    """A layer whose class is chosen by a name that nobody knows has a few weights."""
    if not isinstance(module, standins.StandIn):
        return module
    path = object.__getattribute__(module, "_path")
    current().note("connected", path)
    return current().world.model(path)


def _forward(self: Any, *args: Any, **kwargs: Any) -> Any:
    return values.fill(self)(*args, **kwargs)


def _is_torchs(module: Any) -> bool:
    return all(type(inner).__module__.startswith("torch.nn.") for inner in module.modules())


def _initialisations() -> None:
    """Weights are small and equal: random ones take time and show nothing more."""
    init = torch.nn.init
    for name in dir(init):
        if name.endswith("_") and name not in KEPT_INITIALISATIONS and not name.startswith("_"):
            replace(init, name, _filled)
    replace(init, "_calculate_fan_in_and_fan_out", always((2, 2)))
    replace(init, "_calculate_correct_fan", always(2))


def _filled(tensor: Any, *args: Any, **kwargs: Any) -> Any:
    if not isinstance(tensor, torch.Tensor):
        return tensor
    with torch.no_grad():
        return tensor.fill_(WEIGHT)
