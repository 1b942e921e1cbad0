"""What names and attributes of a file are used as: scalers and optimizers by their methods.

Where nothing says what an object is, and no caller in sight passes it, its uses do, whatever it
is called: nothing but a gradient scaler has `unscale_`, or `scale`, `step` and `update` together.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from amplint.code.expressions import path_text
from amplint.code.module import CallSite, Function, Module, enclosing_class

#: Methods of scalers and optimizers -> how many arguments they are given.
_SHAPES: Mapping[str, tuple[int, ...]] = {
    "scale": (1,),
    "unscale_": (1,),
    "step": (0, 1, 2),
    "update": (0,),
    "zero_grad": (0,),
}
#: Uses of one object, any set of which makes it a scaler: a method and its number of arguments.
_OF_SCALERS = (
    frozenset({("unscale_", 1)}),
    frozenset({("scale", 1), ("step", 1), ("update", 0)}),
    frozenset({("backward of scale", 0)}),
)
_OF_OPTIMIZERS = frozenset({("step", 0), ("zero_grad", 0)})
#: Uses that speak for what a name says already: two different ones on one object are no accident.
_SPEAKS_FOR_SCALER = frozenset({("scale", 1), ("unscale_", 1), ("step", 1), ("update", 0)})
_ENOUGH = 2
#: Whatever else is called on an object that is called a scaler is a method of another class, which may
#: scale in it (torch/amp/grad_scaler.py).
_METHODS_OF_SCALERS = frozenset(
    {
        "scale",
        "unscale_",
        "step",
        "update",
        "is_enabled",
        "state_dict",
        "load_state_dict",
        "get_scale",
        "get_growth_factor",
        "set_growth_factor",
        "get_growth_interval",
        "set_growth_interval",
        "get_backoff_factor",
        "set_backoff_factor",
    }
)
#: Methods that ask a scaler for its state; of other objects, too.
_OF_STATE = frozenset({"get_scale", "is_enabled"})
#: Methods that all have that is trained. What a name or an attribute with one of them stands for is
#: not looked for: it would be dear, and so would an entry under a key that is computed. What an entry
#: is that the text names by its key, no name says.
_OF_ALL_STATES = frozenset({"load_state_dict", "state_dict"})
#: A use that no optimizer has: of an engine that wraps all, and of a model.
_OF_OTHERS = frozenset({"backward", "()", "train", "eval"})

#: The scope of a path, and the path: see `key_of`.
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Uses:
    """What the paths of a module are used as.

    Args:
        shaped: paths with a call that a scaler or an optimizer may have, or that are given to one.
        scalers: keys of what is used as only a scaler can be.
        optimizers: keys of what such a scaler steps, or of what is used as an optimizer.
        methods: key -> the uses of what it stands for, each with its number of arguments.
        given: key -> the calls `x.step(key)` and `x.unscale_(key)`.
        strange: keys of what has a method called that no scaler of torch has.
    """

    shaped: frozenset[str]
    scalers: frozenset[Key]
    optimizers: frozenset[Key]
    methods: Mapping[Key, frozenset[tuple[str, int]]]
    given: Mapping[Key, tuple[CallSite, ...]]
    strange: frozenset[Key]

    def speak_for_scaler(self, key: Key) -> bool:
        """Whether what is called a scaler, or annotated as one, is used as one as well."""
        if key in self.scalers:
            return True
        found = self.methods.get(key, frozenset())
        return key not in self.strange and len(found & _SPEAKS_FOR_SCALER) >= _ENOUGH

    def speak_for_optimizer(self, key: Key) -> bool:
        """Whether what is called an optimizer is used as one as well."""
        return key in self.optimizers or self.methods.get(key, frozenset()) >= _OF_OPTIMIZERS


def key_of(function: Function, path: str) -> Key:
    """The scope of a path and the path; of `self.x` the class and `x`."""
    owner = enclosing_class(function)
    if path.startswith("self.") and owner is not None:
        return (f"class {owner.name}", path.partition(".")[2])
    return (function.qualname, path)


def uses_of(module: Module) -> Uses:
    """Read all calls of a module."""
    methods: dict[Key, set[tuple[str, int]]] = {}
    given: dict[Key, list[CallSite]] = {}
    shaped: set[str] = set()
    strange: set[Key] = set()
    for site in module.calls:
        receiver = _receiver(site)
        is_of_scalers = site.method in _METHODS_OF_SCALERS or site.method.startswith("_")
        if receiver is not None and not is_of_scalers:
            strange.add(receiver)
        if _asks_state(site) and (path := _receiver_path(site)) is not None:
            shaped.add(path)
        for path, use in _uses(site):
            key = key_of(site.function, path)
            methods.setdefault(key, set()).add(use)
            optimizer = path_text(site.node.args[0]) if use[1] else None
            if use[0] in _SHAPES:
                shaped.add(path)
            if use[0] in ("step", "unscale_") and optimizer is not None:
                shaped.add(optimizer)
                given.setdefault(key_of(site.function, optimizer), []).append(site)
    scalers = {key for key, found in methods.items() if any(one <= found for one in _OF_SCALERS)}
    optimizers = {
        key
        for key, found in methods.items()
        if found >= _OF_OPTIMIZERS and not any(name in _OF_OTHERS for name, _ in found)
    }
    optimizers.update(
        key for key, sites in given.items() if any(_receiver(site) in scalers for site in sites)
    )
    return Uses(
        frozenset(shaped),
        frozenset(scalers),
        frozenset(optimizers - scalers),
        {key: frozenset(found) for key, found in methods.items()},
        {key: tuple(sites) for key, sites in given.items()},
        frozenset(strange),
    )


def _asks_state(site: CallSite) -> bool:
    """Whether a call may ask a scaler for its state, by its name and by what it is called on."""
    callee = site.node.func
    entry = callee.value if isinstance(callee, ast.Attribute) else None
    is_entry = isinstance(entry, ast.Subscript) and isinstance(entry.slice, ast.Constant)
    return site.method in _OF_STATE or (is_entry and site.method in _OF_ALL_STATES)


def _receiver(site: CallSite) -> Key | None:
    path = _receiver_path(site)
    return key_of(site.function, path) if path is not None else None


def _receiver_path(site: CallSite) -> str | None:
    callee = site.node.func
    return path_text(callee.value) if isinstance(callee, ast.Attribute) else None


def _uses(site: CallSite) -> Iterator[tuple[str, tuple[str, int]]]:
    """The path of what a call is a use of, with the use."""
    callee, given = site.node.func, len(site.node.args)
    if isinstance(callee, ast.Name):
        yield callee.id, ("()", 0)
    if not isinstance(callee, ast.Attribute):
        return
    path = path_text(callee.value)
    is_plain = not site.node.keywords or site.method in ("step", "zero_grad")
    is_shaped = is_plain and given in _SHAPES.get(site.method, ())
    if path is not None and (is_shaped or site.method in _OF_OTHERS):
        yield path, (site.method, given if is_shaped else 0)
    inner = callee.value
    if site.method == "backward" and isinstance(inner, ast.Call):
        scaled = inner.func
        if isinstance(scaled, ast.Attribute) and scaled.attr == "scale":
            path = path_text(scaled.value)
            if path is not None:
                yield path, ("backward of scale", 0)
