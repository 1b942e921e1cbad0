"""Calls of functions that nobody has: what they return, and who has to know about it."""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import re
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from amplint.probe.messages import LONGEST_GIVEN, Asked, Handed
from amplint.probe.worker import operations, standins, values
from amplint.probe.worker.context import current
from amplint.probe.worker.soft import GUESS_MARK, SIZE, connected, derived, tensors_in
from amplint.probe.worker.world import Loader, Progress

WRAPPER = re.compile(
    r"parallel|DDP$|FSDP$|wrap|prepare|compile|convert|^to_|module|cuda|move|device|place|unwrap"
    r"|copy|clone|bottleneck",
    re.IGNORECASE,
)
SCALER = re.compile(r"^(\w*Grad|\w*Loss|\w*Native|Amp|AMP)?Scaler$")
OPTIMIZER = re.compile(r"(Adam|SGD|LAMB|Lamb|Lion|Adafactor|RAdam|LARS|Ranger|[Oo]ptim)\w*$")
#: What a function is called that may run a backward on a tensor it is given.
EFFECT = re.compile(r"backward|optimi[sz]|train|update|step|scale", re.IGNORECASE)
#: What a function is called whose result hangs on its arguments: that is its purpose.
LOSS = re.compile(r"loss|criteri|crit$|objective|entropy|bce|mse|forward", re.IGNORECASE)
#: What returns a device.
DEVICE = re.compile(r"^(get|select|choose|infer|find|pick|auto|init\w*)_(\w+_)?device(_id)?$")
#: What runs a function that it is given, at once.
LAUNCHER = re.compile(r"^(Fire|run|launch|spawn|start_processes)$")
#: The same of packages that are known to run a whole program, and nothing beside it.
PROGRAM = re.compile(r"(^|\.)(Fire|launch|spawn|start_processes)$|^(typer|absl\.app)\.run$")
#: What loads a model in the dtype that it is given (`modeling_utils.py` of both libraries).
LOADS = re.compile(r"^(transformers|diffusers)\.[\w.]+\.from_pretrained$")
#: What is called by whoever gets it.
CALLED = (types.FunctionType, types.MethodType)
#: What may run through parameters once; other iterators run through data.
LAZY = (types.GeneratorType, filter, map, itertools.chain)
#: What progress bars and the like are made of; they give out the same entries.
PASSED_ON = (Loader, Progress, enumerate, zip, types.GeneratorType)
#: How many calls are remembered, and how many parts of what they get.
MOST_ASKED, MOST_PARTS = 300, 40
#: Functions of libraries that order, repeat or sum the elements of their first argument.
SHAPES = (
    *("einops.rearrange", "einops.repeat", "einops.reduce", "einops.layers.torch.Rearrange"),
    "einops.layers.torch.Reduce",
)
MAPPING = frozenset({"items", "keys", "values"})
#: What somebody who has it can train with.
KEPT = frozenset({"scaler", "optimizer"})
PLAIN_CONTAINERS = (list, tuple, set, frozenset, collections.deque)
#: Things given to unknown functions that are looked at again at the end of a run.
MOST_GIVEN = 200
#: Objects in objects in which a scaler is looked for, and how many of each depth.
HOLDERS_DEPTH, MOST_HELD = 3, 200


def call(path: str, owner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of calling the stand-in at `path`."""
    run = current()
    name = path.rsplit(".", 1)[-1]
    passed = [*args, *kwargs.values()]
    made = run.library[path](name, *args, **kwargs) if path in run.library else NotImplemented
    if made is not NotImplemented:
        return made
    ask(path, passed)
    remember(path, passed)
    if path.split(".")[0] in run.with_handlers:
        run.opaque.setdefault(Handed(path, run.row(), ("scaler",)), None)
    if path in run.holders:
        report(path, [run.holders[path]])
    callbacks = [thing for thing in passed if isinstance(thing, (*CALLED, type))]
    if callbacks:
        report(path, callbacks)
    if args and isinstance(args[0], types.FunctionType) and LAUNCHER.search(name):
        if not PROGRAM.search(path):
            run.note("launcher", path, detail=args[0].__name__)
        return launched(args[0], kwargs.get("args", args[1:]))
    if len(args) == 1 and not kwargs and _is_defined(args[0]):
        if isinstance(args[0], types.FunctionType):
            return watched(path, decorated(args[0]))
        return watched_class(path, args[0])
    if name in MAPPING and not args:
        return _mapping(path, name)
    if name in ("get", "pop", "setdefault") and len(args) == 2 and _is_default(args[1]):
        return args[1]
    if DEVICE.search(name):
        return values.MAKERS["device"](run, path)
    if SCALER.search(name):
        return _scaler(path, kwargs)
    parameters = list(parameters_in(passed))
    if OPTIMIZER.search(name) and parameters:
        run.note("optimizer-class", path)
        return values.world(run).optimizer(f"{path}@{run.row()}", parameters)
    if name == "size" and len(args) <= 1 and all(type(arg) is int for arg in args):
        return SIZE(*args)
    if path.replace("()", "").startswith(SHAPES) and args and isinstance(args[0], torch.Tensor):
        return _in_another_shape(args[0])
    if args and not parameters and isinstance(args[0], PASSED_ON):
        return args[0]
    report(path, passed)
    modules = [thing for thing in passed if isinstance(thing, torch.nn.Module)]
    if modules and WRAPPER.search(name):
        return args if len(args) > 1 and name.startswith("prepare") else modules[0]
    if isinstance(owner, torch.nn.Module):
        return derived(owner(*args, **kwargs))
    tensors = list(tensors_in(passed))
    if any(tensor.is_floating_point() for tensor in tensors) or tensors:
        return _hanging_on(path, tensors, modules)
    made = standins.StandIn(f"{path}()", owner=modules[0] if modules else None)
    if LOADS.search(path):
        made._amp_cast(kwargs.get("torch_dtype", kwargs.get("dtype")))
    return made


def _is_defined(thing: Any) -> bool:
    """Whether something may be decorated: a function or class that has a name, and is no builtin.

    `.astype(float)` decorates nothing.
    """
    return (isinstance(thing, type) and thing.__module__ != "builtins") or (
        isinstance(thing, types.FunctionType) and thing.__name__ != "<lambda>"
    )


def ask(path: str, passed: list[Any]) -> None:
    """Remember what an unknown function is asked, as long as no target row was reached."""
    run = current()
    if len(run.asked) >= MOST_ASKED or not run.rows.keys().isdisjoint(run.plan.target_rows):
        return
    inputs: dict[str, None] = dict.fromkeys([path.rpartition(".")[0]] if "." in path else [])
    given = " ".join(_words(thing, inputs) for thing in passed)
    run.asked.setdefault(Asked(path, run.row(), tuple(inputs), given[:LONGEST_GIVEN]), None)


def _words(thing: Any, inputs: dict[str, None], depth: int = 3) -> str:
    """Something as far as it is plain; unknown values and options are added to `inputs`."""
    if isinstance(thing, standins.StandIn):
        inputs[object.__getattribute__(thing, "_path")] = None
        return ""
    root = getattr(type(thing), "_amp_root", "")
    if root:
        inputs[root] = None
        return ""
    if thing is None or isinstance(thing, (bool, int, str)):
        return repr(thing)
    if isinstance(thing, float):
        return repr(thing) if current().decisions.has_chosen(thing) else ""
    if isinstance(thing, (torch.Tensor, torch.nn.Module, torch.optim.Optimizer, type)) or not depth:
        return ""
    if isinstance(thing, dict):
        inner = [part for item in thing.items() for part in item]
    elif isinstance(thing, (list, tuple, set, frozenset)):
        inner = list(thing)
    else:
        inner = list(getattr(thing, "__dict__", {}).values())
    return f"({' '.join(_words(part, inputs, depth - 1) for part in inner[:MOST_PARTS])})"


def launched(function: Any, args: Any) -> Any:
    """The result of a function that somebody calls for us, with what it is known to get."""
    current().remark(f"`{function.__name__}` is called by its launcher")
    given = args if isinstance(args, tuple) else ()
    return decorated(function)(*given)


def watched(path: str, function: Any) -> Any:
    """A function that an unknown decorator may have put something around: who calls it gives
    that decorator what it passes."""

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        report(path, [*args, *kwargs.values()])
        return function(*args, **kwargs)

    return called


def watched_class(path: str, kind: Any) -> Any:
    """A class whose methods an unknown decorator may have replaced: it is given each object."""
    if issubclass(kind, torch.nn.Module) or "__init__" not in vars(kind):
        return kind
    init = kind.__init__

    @functools.wraps(init)
    def new_init(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        remember(path, [self])

    kind.__init__ = new_init
    return kind


def decorated(function: Any) -> Any:
    """The function, which may have arguments added by an unknown decorator."""
    required = _required(function)
    if not required:
        return function

    @functools.wraps(function)
    def filled(*args: Any, **kwargs: Any) -> Any:
        missing = [name for name in required[len(args) :] if name not in kwargs]
        if missing:
            current().note("arguments", function.__name__, detail=", ".join(missing))
        return function(*args, **kwargs, **{name: values.make(name) for name in missing})

    return filled


def _required(function: Any) -> list[str]:
    """Parameters that can be given by position and have no default."""
    code = function.__code__
    count = code.co_argcount - len(function.__defaults__ or ())
    return list(code.co_varnames[:count])


def parameters_in(value: Any, depth: int = 4) -> Iterable[Any]:
    """All parameters in nested lists, groups and modules, each once."""
    found: dict[int, Any] = {}
    _collect(value, depth, found)
    return found.values()


def _collect(value: Any, depth: int, found: dict[int, Any]) -> None:
    if isinstance(value, torch.nn.Parameter):
        found[id(value)] = value
    elif isinstance(value, torch.nn.Module):
        for parameter in value.parameters():
            found[id(parameter)] = parameter
    elif depth and isinstance(value, dict):
        for entry in value.values():
            _collect(entry, depth - 1, found)
    elif depth and isinstance(value, (list, tuple, set, *LAZY)):
        for entry in value:
            _collect(entry, depth - 1, found)


class Key(str):
    """A key that nobody has named: a text, or the text of a number where one is made of it."""

    def __int__(self) -> int:
        return int(str(self)) if self.isdecimal() else 0

    def __float__(self) -> float:
        return float(int(self))


def _mapping(path: str, name: str) -> list[Any]:
    run = current()
    base = path.rsplit(".", 1)[0]
    keys = run.use(base).keys or [Key(key) for key in run.uses.keys()[:2] or ["0", "1"]]
    keys = list(dict.fromkeys(keys))
    if name == "keys":
        return keys
    entries = [values.make(f"{base}[{key!r}]") for key in keys]
    return entries if name == "values" else list(zip(keys, entries))


def _scaler(path: str, kwargs: dict[str, Any]) -> Any:
    run = current()
    run.note("scaler-class", path)
    enabled = bool(kwargs.get("enabled", True))
    return values.world(run).scaler(f"{path}@{run.row()}", enabled)


def report(path: str, passed: list[Any]) -> None:
    """Remember that something unknown got hold of things that matter."""
    kinds = {kind for thing in passed for kind in _kinds(thing)}
    name = path.rsplit(".", 1)[-1]
    harmless = {"loss", "model"} if LOSS.search(name) else {"loss"}
    if kinds - harmless or (kinds and EFFECT.search(name)):
        run = current()
        run.opaque.setdefault(Handed(path, run.row(), tuple(sorted(kinds))), None)


def keep(path: str, value: Any) -> None:
    """Remember that something unknown now holds a scaler or an optimizer, or what calls them."""
    remember(path, [value])
    if not KEPT.isdisjoint(_kinds(value)):
        report(path, [value])


def remember(path: str, passed: list[Any]) -> None:
    """Remember what something unknown got that a scaler may be put into later."""
    run = current()
    for thing in passed:
        if len(run.given) < MOST_GIVEN and _can_be_filled(thing):
            run.given.setdefault((path, id(thing)), (run.row(), thing))


def _can_be_filled(thing: Any) -> bool:
    if isinstance(thing, (standins.StandIn, torch.Tensor, types.ModuleType, type)):
        return False
    return isinstance(thing, (dict, *PLAIN_CONTAINERS, *CALLED)) or hasattr(thing, "__dict__")


def report_filled() -> None:
    """Remember who was given what holds a scaler by the end of the run."""
    run = current()
    for (path, _), (row, thing) in run.given.items():
        kinds = sorted(_kinds(thing))
        if "scaler" in kinds:
            run.opaque.setdefault(Handed(path, row, tuple(dict.fromkeys(kinds))), None)


def _kinds(thing: Any) -> Iterable[str]:
    """What it is of things that matter; what holds a scaler is as good as the scaler."""
    for part in (thing, *_carried(thing)):
        yield from _kinds_of(part)
        if _holds_scaler(part):
            yield "scaler"


def _holds_scaler(thing: Any) -> bool:
    """Whether a scaler is among the parts of something, of those in it, and so on."""
    level, seen = [thing], {id(thing)}
    for _ in range(HOLDERS_DEPTH):
        inner = [part for holder in level for part in _parts_of(holder)]
        if any(isinstance(part, torch.amp.GradScaler) for part in inner):
            return True
        level = [part for part in inner[:MOST_HELD] if id(part) not in seen]
        seen.update(map(id, level))
    return False


def _parts_of(holder: Any) -> Iterable[Any]:
    """What who has something can reach: entries, attributes, what functions and methods know."""
    if isinstance(holder, (types.ModuleType, torch.Tensor, str, int, float)):
        return
    if isinstance(holder, CALLED):
        yield from _carried(holder, 0)
    elif isinstance(holder, functools.partial):
        yield from (holder.func, *holder.args, *holder.keywords.values())
    elif isinstance(holder, dict):
        yield from dict.values(holder)
    elif isinstance(holder, PLAIN_CONTAINERS):
        base = next(kind for kind in PLAIN_CONTAINERS if isinstance(holder, kind))
        every: Callable[[Any], Iterator[Any]] = base.__iter__
        yield from every(holder)
    kind = holder if isinstance(holder, type) else type(holder)
    if _is_users(kind):
        yield from (part for part in vars(kind).values() if isinstance(part, types.FunctionType))
    members = None if kind is holder else getattr(holder, "__dict__", None)
    if isinstance(members, dict):
        yield from members.values()


def _is_users(kind: type) -> bool:
    """Whether any method of a class is the project's."""
    codes = (getattr(member, "__code__", None) for member in vars(kind).values())
    mine = current().project.is_mine
    return any(code is not None and mine(code.co_filename) for code in codes)


def _carried(thing: Any, depth: int = HOLDERS_DEPTH) -> Iterable[Any]:
    """The object of a bound method, what a function has closed over, and its globals; the same
    of functions among them."""
    if isinstance(thing, types.MethodType):
        yield thing.__self__
        thing = thing.__func__
    if not isinstance(thing, types.FunctionType):
        return
    found: list[Any] = []
    for cell in thing.__closure__ or ():
        with contextlib.suppress(ValueError):  # not bound yet
            found.append(cell.cell_contents)
    names = thing.__globals__
    is_bound = getattr(names, "has", names.__contains__)
    found += [names[name] for name in thing.__code__.co_names if is_bound(name)]
    for part in found:
        yield part
        if depth and isinstance(part, CALLED):
            yield from _carried(part, depth - 1)


def _kinds_of(thing: Any) -> Iterable[str]:
    if isinstance(thing, torch.amp.GradScaler):
        yield "scaler"
    elif isinstance(thing, torch.optim.Optimizer):
        yield "optimizer"
    elif isinstance(thing, torch.nn.Module):
        yield "model"
    elif isinstance(thing, torch.Tensor):
        if thing.requires_grad:
            yield "loss"
    elif isinstance(thing, standins.StandIn):
        if thing._amp_is_cast():
            yield "weights"
    elif isinstance(thing, (list, tuple)) and len(thing) < 20:
        for entry in tuple(thing):
            yield from _kinds_of(entry)
    elif isinstance(thing, dict) and len(thing) < 20:
        for entry in tuple(thing.values()):
            yield from _kinds_of(entry)


def _hanging_on(path: str, tensors: list[Any], modules: list[Any]) -> Any:
    """A result that depends on all arguments: a guess, unless the name says as much."""
    parameters = [
        parameter
        for module in modules
        for parameter in module.parameters()
        if parameter.requires_grad
    ]
    guessed = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    ghost = current().world.ghost
    result = connected([tensors, parameters, ghost], detach_freed=True)
    if guessed and not LOSS.search(path):
        result.grad_fn.metadata[GUESS_MARK] = path
    return result


def _in_another_shape(tensor: torch.Tensor) -> Any:
    """The same numbers in another order: what libraries of shapes give."""
    result = derived(tensor)
    operations.trace("view", (tensor,), result)
    return result


def _is_default(value: Any) -> bool:
    """Whether a mapping may well answer with this: a value, or a few of them."""
    if isinstance(value, (list, tuple)):
        return bool(value) and all(_is_plain(entry) for entry in value)
    return _is_plain(value)


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))
