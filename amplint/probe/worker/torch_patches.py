"""Changes to torch for one run: no GPU, no other processes, no files, invented arguments.

A run has a process of its own, so nothing here is taken back.
"""

from __future__ import annotations

import contextlib
import re
import types
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed
import torch.utils.data
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode

from amplint.probe.messages import SMALL
from amplint.probe.worker import opaque_calls, operations, small_layers, standins, values
from amplint.probe.worker.context import Run, current
from amplint.probe.worker.failures import is_amp_failure
from amplint.probe.worker.soft import (
    SoftTensor,
    call,
    connected,
    leaves_of,
    mark_freed,
    plain,
    soft,
    soften,
    tensors_in,
)
from amplint.probe.worker.world import Loader
from amplint.runtime.instrument import CLIPS

#: What `torch.cuda` answers where there is none, and code runs as if there were.
CUDA_ANSWERS = {
    "is_available": True,
    "is_initialized": True,
    "is_bf16_supported": True,
    # Optimizers ask this in a torch that was built for CUDA, and the driver would answer.
    "is_current_stream_capturing": False,
    "device_count": 1,
    "get_arch_list": ["sm_80"],
    "current_device": 0,
    "get_device_name": "amplint",
    "get_device_capability": (8, 0),
    "memory_allocated": 0,
    "max_memory_allocated": 0,
    "memory_reserved": 0,
    "max_memory_reserved": 0,
    "mem_get_info": (1 << 30, 1 << 30),
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
#: What autograd says of graphs in which tensors have other shapes than they would have.
ABOUT_SHAPES = re.compile(r"inplace operation|invalid gradient|shape|size|dimension")
#: Settings of optimizers that nobody knows.
ORDINARY: dict[str, Any] = {"lr": 1e-3, "momentum": 0.9, "eps": 1e-8, "betas": (0.9, 0.999)}
#: Nodes between a scaled loss and the loss: a product, and what casts it.
MULTIPLE_DEPTH = 4
#: Functions of torch that return their first argument.
IDENTITIES = frozenset({"cuda", "pin_memory", "record_stream", "share_memory_"})


def install(run: Run) -> None:
    """Change torch for this run."""
    _scalers(run)
    _moves()
    _gradients()
    _optimizers()
    _clips()
    _processes()
    _switches()
    _files()
    _data()
    _schedulers()
    _models()
    _layers()
    _initialisations()
    if run.request.assignment.get(SMALL):
        run.note("the layers are smaller than the code says")
        small_layers.install()
    if run.virtual_cuda:
        run.remark("CUDA is virtual: everything runs on the CPU, with a CPU GradScaler")
        _virtual_cuda()


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
        kwargs = dict(kwargs or {})
        if self._virtual:
            if name in IDENTITIES and args:
                return args[0]
            args = tuple(_host(value) for value in args)
            kwargs = {key: _host(value) for key, value in kwargs.items()}
            if name == "to" and len(args) > 1 and type(args[1]) is int:
                args = (args[0], torch.device("cpu"), *args[2:])
            if type(kwargs.get("device")) is int:
                kwargs["device"] = torch.device("cpu")
        if name == "to":
            args = args[:1] + tuple(value for value in args[1:] if not _is_unknown(value))
        kwargs = {
            key: value
            for key, value in kwargs.items()
            if not (key in ("device", "dtype", "memory_format") and _is_invented(value))
        }
        if name == "to" and len(args) == 1 and not set(kwargs) & {"device", "dtype", "other"}:
            return args[0]
        return call(func, args, kwargs)


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
            run.note(f"scaler subclass {type(self).__qualname__}")
        given = {"device": device, "init_scale": init_scale}
        self._amp_bools = {key: value for key, value in given.items() if isinstance(value, bool)}
        init(
            self,
            kind,
            init_scale=init_scale if isinstance(init_scale, bool) else run.request.init_scale,
            growth_factor=_number(growth_factor, 2.0),
            backoff_factor=_number(backoff_factor, 0.5),
            growth_interval=int(_number(growth_interval, 2000)),
            enabled=bool(standins.concrete(enabled, "flag")) and run.request.enabled,
        )

    def new_scale(self: Any, outputs: Any) -> Any:
        outputs = standins.concrete(outputs, "loss")
        if isinstance(outputs, SoftTensor):
            outputs = plain(outputs)
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

    _replace(scaler_class, "__init__", new_init)
    _replace(scaler_class, "scale", new_scale)
    _replace(scaler_class, "step", new_step)
    _replace(scaler_class, "unscale_", new_unscale)
    _replace(scaler_class, "load_state_dict", _nothing)


def _number(value: Any, default: float) -> float:
    return value if isinstance(value, (int, float)) else default


def _nothing(*args: Any, **kwargs: Any) -> None:
    return None


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

    _replace(torch.Tensor, "to", to)


def _gradients() -> None:
    """A backward starts from one number, whatever shape the loss seems to have."""
    original = torch.autograd.backward

    def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        tensors = standins.concrete(tensors, "loss")
        with torch._C.DisableTorchFunction():
            roots = [_scalar(tensor) for tensor in tensors_in(tensors)]
            leaves = _link(roots)
            roots = _fed(roots, leaves)
            if current().omissions.applies("freed-graphs"):
                args, kwargs = args[:1], {**kwargs, "retain_graph": True}
            try:
                original(roots, *args, **kwargs)
            except RuntimeError as error:
                if not ABOUT_SHAPES.search(str(error)):
                    raise
                roots = [_substitute(roots)]
                original(roots, *args, **kwargs)
            finally:
                current().after_backward(leaves)
            keeps = kwargs.get("retain_graph", args[1] if len(args) > 1 else False)
            for name in mark_freed(roots, frees=not keeps):
                current().note(f"connected {name}")

    _replace(torch.autograd, "backward", backward)

    def tensor_backward(
        self: Any,
        gradient: Any = None,
        retain_graph: Any = None,
        create_graph: Any = False,
        inputs: Any = None,
    ) -> None:
        gradient = None if isinstance(self, SoftTensor) else gradient
        torch.autograd.backward(
            self, gradient, bool(retain_graph), bool(create_graph), inputs=inputs
        )

    _replace(torch.Tensor, "backward", tensor_backward)


def _substitute(roots: list[Any]) -> Any:
    """A loss that hangs on the same parameters, for one whose graph does not fit together."""
    leaves = [leaf for leaf in leaves_of(roots) if leaf.is_floating_point()]
    current().note("connected the loss")
    scale = torch.stack([root.detach().float().abs().mean() for root in roots]).sum()
    return torch.stack([leaf.float().mean() for leaf in leaves]).sum() * scale


def _link(roots: list[Any]) -> list[Any]:
    """The leaves of the graph; an optimizer that was made up may get them."""
    run = current()
    leaves = leaves_of(roots)
    known = [leaf for leaf in leaves if leaf is not run.world.ghost]
    copies = _next_to(roots)
    run.world.link([leaf for leaf in known or leaves if id(leaf) not in copies])
    if leaves and not known:
        run.note("connected the functions that the loss comes from")
    return leaves


def _fed(roots: list[Any], leaves: list[Any]) -> list[Any]:
    """The losses; where statements are skipped, they reach at least what somebody trains."""
    run = current()
    trained = [parameter for parameter in run.world.trained() if parameter.requires_grad]
    reached = {id(leaf) for leaf in leaves}
    if not run.request.repair or not leaves or not trained:
        return roots
    if reached.intersection(map(id, trained)):
        return roots
    run.note("connected the loss")
    nothing = torch.stack([parameter.float().mean() for parameter in trained]).sum() * 0
    return [roots[0] + nothing.to(roots[0].dtype), *roots[1:]]


def _next_to(roots: list[Any]) -> set[int]:
    """Leaves that are the loss itself, or that it is a multiple of: nobody trains those."""
    found = set()
    for node in (root.grad_fn for root in roots):
        for _ in range(MULTIPLE_DEPTH):
            following = [inner for inner, _ in getattr(node, "next_functions", ()) if inner]
            if len(following) != 1:
                break
            node = following[0]
            if hasattr(node, "variable"):
                found.add(id(node.variable))
    return found


def _scalar(tensor: torch.Tensor) -> torch.Tensor:
    loose = isinstance(tensor, SoftTensor)
    tensor = plain(tensor)
    return tensor.sum() if loose and tensor.numel() != 1 else tensor


def _optimizers() -> None:
    init = Optimizer.__init__

    def new_init(self: Any, params: Any, defaults: Any) -> None:
        groups = _groups(params)
        if not groups:
            current().note("an optimizer was given no known parameters: it has those of all models")
            groups = list(values.world(current()).any_model().parameters())
            filled[id(self)] = frozenset(map(id, groups))
        init(self, groups, {key: _setting(key, value) for key, value in defaults.items()})

    def add_param_group(self: Any, group: Any) -> None:
        """Parameters that the code itself gives to an optimizer take the place of invented ones."""
        invented = filled.get(id(self), frozenset())
        for wanted in _groups([group]) if invented else [group]:
            own = set(map(id, opaque_calls.parameters_in(wanted))) & invented
            for known in self.param_groups if own else ():
                known["params"] = [p for p in known["params"] if id(p) not in own]
            add(self, wanted)

    filled: dict[int, frozenset[int]] = {}
    add = Optimizer.add_param_group
    _replace(Optimizer, "__init__", new_init)
    _replace(Optimizer, "add_param_group", add_param_group)
    register_optimizer_step_pre_hook(_concrete_groups)
    _replace(Optimizer, "load_state_dict", _nothing)
    for name in dir(torch.optim):
        kind = getattr(torch.optim, name)
        if isinstance(kind, type) and issubclass(kind, Optimizer) and kind is not Optimizer:
            _concrete_settings(kind)


def _concrete_groups(optimizer: Any, args: Any, kwargs: Any) -> None:
    """Schedules write into the groups of an optimizer; what they write may be invented."""
    for group in optimizer.param_groups:
        for name, value in group.items():
            if name != "params":
                group[name] = _setting(name, value)


def _concrete_settings(kind: Any) -> None:
    """Constructors of torch check their settings, so these must be numbers before."""
    init = kind.__init__

    def new_init(self: Any, params: Any, *args: Any, **kwargs: Any) -> None:
        args = tuple(_setting("lr", value) for value in args)
        init(self, params, *args, **{key: _setting(key, value) for key, value in kwargs.items()})

    _replace(kind, "__init__", new_init)


def _setting(name: str, value: Any) -> Any:
    if isinstance(value, standins.StandIn):
        return ORDINARY.get(name, 0.0)
    if isinstance(value, SoftTensor):
        return 1e-3
    if type(value) in (tuple, list):
        return type(value)(_setting("momentum", entry) for entry in value)
    return value


def _groups(params: Any) -> list[Any]:
    if isinstance(params, standins.StandIn):
        return []
    groups: list[Any] = []
    for entry in params:
        if isinstance(entry, dict):
            owned = list(opaque_calls.parameters_in(entry.get("params", ())))
            settings = {key: _setting(key, value) for key, value in entry.items()}
            if owned:
                groups.append({**settings, "params": owned})
        elif isinstance(entry, tuple):
            groups.extend(opaque_calls.parameters_in(entry))
        elif isinstance(entry, torch.Tensor):
            groups.append(entry)
    return groups


def _clips() -> None:
    for name in CLIPS:
        clip = _clip(getattr(torch.nn.utils, name))
        setattr(torch.nn.utils, name, clip)
        setattr(torch.nn.utils.clip_grad, name, clip)


def _clip(original: Callable[..., Any]) -> Callable[..., Any]:
    def clip(parameters: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(parameters, standins.StandIn):
            current().remark("gradients of unknown parameters are clipped: those of all models")
            parameters = values.world(current()).any_model()
        limits = [standins.number(value) for value in args]
        named = {key: standins.number(value) for key, value in kwargs.items()}
        owned = list(opaque_calls.parameters_in(parameters))
        with torch._C.DisableTorchFunction():
            return original(owned, *limits, **named)

    return clip


def _processes() -> None:
    distributed = torch.distributed
    _replace(torch.multiprocessing, "spawn", _spawned)
    for name, answer in DISTRIBUTED_ANSWERS.items():
        setattr(distributed, name, _always(answer))
    for name in DISTRIBUTED_SILENT:
        setattr(distributed, name, _nothing)
    _replace(torch, "set_num_threads", _nothing)
    _replace(torch, "set_num_interop_threads", _nothing)


def _spawned(function: Any, args: Any = (), *rest: Any, **kwargs: Any) -> Any:
    """The only process of a training job is this one."""
    return opaque_calls.launched(function, (0, *args) if isinstance(args, tuple) else (0,))


def _switches() -> None:
    """`torch.backends.cudnn.benchmark = cfg.x`: an unknown setting changes nothing."""
    setting = torch.backends.ContextProp
    original = setting.__set__

    def set_known(self: Any, owner: Any, value: Any) -> None:
        if not isinstance(value, standins.StandIn):
            original(self, owner, value)

    _replace(setting, "__set__", set_known)


def _files() -> None:
    _replace(torch, "save", _nothing)
    _replace(torch, "load", lambda *args, **kwargs: standins.StandIn("torch.load()"))
    _replace(torch.hub, "load", lambda *args, **kwargs: standins.StandIn("torch.hub.load()"))
    for name in ("load_state_dict_from_url", "download_url_to_file", "list", "help"):
        _replace(torch.hub, name, lambda *args, **kwargs: standins.StandIn("torch.hub"))
    _replace(torch, "from_numpy", lambda *args: soft())
    _replace(
        torch.nn.Module, "load_state_dict", lambda *args, **kwargs: standins.StandIn("missing")
    )


def _data() -> None:
    _replace(torch.utils.data, "DataLoader", Loader)
    _replace(torch.utils.data.dataloader, "DataLoader", Loader)
    _replace(torch.utils.data, "DistributedSampler", _Sampler)
    _replace(torch.utils.data.distributed, "DistributedSampler", _Sampler)


class _Sampler:
    """The order of the data, which does not matter here."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __iter__(self) -> Any:
        return iter(range(2))

    def __len__(self) -> int:
        return 2

    def set_epoch(self, epoch: Any) -> None:
        """Nothing depends on it."""


def _schedulers() -> None:
    module = torch.optim.lr_scheduler
    for name in dir(module):
        kind = getattr(module, name)
        known = isinstance(kind, type) and issubclass(kind, module.LRScheduler)
        if known and "__init__" in vars(kind):
            _lenient(kind)


def _lenient(kind: Any) -> None:
    """A scheduler whose invented settings torch refuses is one that does nothing."""
    init = kind.__init__

    def new_init(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> None:
        optimizer = standins.concrete(optimizer, "optimizer")
        try:
            init(self, optimizer, *args, **kwargs)
        except Exception:  # noqa: BLE001 -- whatever torch says about an invented number
            current().remark(f"{type(self).__name__} does nothing")
            self.optimizer = optimizer
            self.step = self.load_state_dict = _nothing
            self.get_last_lr = self.get_lr = lambda: [1e-3]
            self.state_dict = dict

    _replace(kind, "__init__", new_init)


def _models() -> None:
    """Wrappers of models are the models themselves."""
    _replace(torch.nn.parallel, "DistributedDataParallel", _wrapped)
    _replace(torch.nn.parallel, "DataParallel", _wrapped)
    _replace(torch.nn, "DataParallel", _wrapped)
    _replace(torch.nn.SyncBatchNorm, "convert_sync_batchnorm", _wrapped)
    _replace(torch, "compile", _wrapped)
    _replace(torch.jit, "script", _wrapped)
    _replace(torch.jit, "trace", _wrapped)


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
        try:
            return original(self, *args, **kwargs)
        except Exception as error:
            given = tensors_in([args, kwargs])
            loose = small or any(isinstance(value, SoftTensor) for value in given)
            if not loose or is_amp_failure(error) or not _is_torchs(self):
                raise
            current().remark("shapes of tensors are not followed")
            parameters = list(self.parameters())
            name = type(self).__name__.lower()
            result = connected([args, kwargs, parameters], name)
            operations.trace(name, args, result)
            return result

    _replace(torch.nn.Module, "__call__", new_call)
    _replace(torch.nn.Module, "forward", _forward)  # of base classes: subclasses have one
    named = torch.nn.Module.named_parameters

    def named_parameters(self: Any, *args: Any, **kwargs: Any) -> Any:
        own = bool(self._parameters or self._modules)
        if type(self).forward is _forward and not own and not _is_of_torch(self):
            values.fill(self)
        return named(self, *args, **kwargs)

    _replace(torch.nn.Module, "named_parameters", named_parameters)
    add = torch.nn.Module.add_module

    def add_module(self: Any, name: Any, module: Any) -> None:
        add(self, str(name), _layer(module))

    _replace(torch.nn.Module, "add_module", add_module)
    append = torch.nn.Sequential.append

    def new_append(self: Any, module: Any) -> Any:
        return append(self, _layer(module))

    _replace(torch.nn.Sequential, "append", new_append)


def _is_of_torch(module: Any) -> bool:
    return type(module).__module__.startswith("torch.")


def _layer(module: Any) -> Any:
    """A layer whose class is chosen by a name that nobody knows has a few weights."""
    if not isinstance(module, standins.StandIn):
        return module
    path = object.__getattribute__(module, "_path")
    current().note(f"connected {path}")
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
            _replace(init, name, _filled)
    _replace(init, "_calculate_fan_in_and_fan_out", _always((2, 2)))
    _replace(init, "_calculate_correct_fan", _always(2))


def _filled(tensor: Any, *args: Any, **kwargs: Any) -> Any:
    if not isinstance(tensor, torch.Tensor):
        return tensor
    with torch.no_grad():
        return tensor.fill_(WEIGHT)


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


def _virtual_cuda() -> None:
    cuda = torch.cuda
    _replace(torch.version, "cuda", "12.4")
    _replace(torch._C, "_cuda_getCompiledVersion", _always(12040))
    for name, answer in CUDA_ANSWERS.items():
        setattr(cuda, name, _always(answer))
    for name in CUDA_SILENT:
        setattr(cuda, name, _nothing)
    for name in ("Event", "Stream", "CUDAGraph"):
        setattr(cuda, name, _Silent)
    _replace(cuda, "nvtx", _Silent())
    _replace(cuda, "current_stream", _Silent)
    _replace(cuda, "default_stream", _Silent)
    _replace(cuda, "get_device_properties", lambda *args: _PROPERTIES)
    _replace(cuda, "stream", lambda *args: contextlib.nullcontext())
    _replace(cuda, "graph", lambda *args, **kwargs: contextlib.nullcontext())
    _replace(cuda, "device", lambda *args: contextlib.nullcontext())
    for name in ("FloatTensor", "HalfTensor", "LongTensor", "IntTensor", "BoolTensor"):
        setattr(cuda, name, getattr(torch, name))
    _replace(torch, "Generator", _Generator)
    _replace(torch, "set_default_device", _nothing)
    _replace(torch, "set_default_tensor_type", _nothing)
    _virtual_autocast()


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
        self._amp_explicit = isinstance(dtype, torch.dtype)
        if not self._amp_explicit:
            dtype = torch.float16 if on_cuda else None
        init(self, kind, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)

    new_init.__qualname__ = "autocast.__init__"  # for torch's own words about arguments
    _replace(region, "__init__", new_init)


def _replace(owner: Any, name: str, value: Any) -> None:
    setattr(owner, name, value)


def _always(answer: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: answer
