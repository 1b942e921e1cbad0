"""Where the scalers of a file come from: constructors, and factories in whatever file."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from amplint.amp.machine import ON_A_GPU
from amplint.amp.roles import Role, ScalerConstruction
from amplint.amp.scaling import constructor_argument
from amplint.amp.view import AmpView
from amplint.code.arguments import fill, passed
from amplint.code.dataflow import bindings_of, constant_of, receiver
from amplint.code.definitions import is_memoised, returned
from amplint.code.expressions import callee_of, path_text
from amplint.code.module import CallSite, Class, Function, Module, enclosing_class
from amplint.code.records import is_record, record_parameters
from amplint.values.assumptions import Assumptions, may_run
from amplint.values.conditions import conditions_at
from amplint.values.provenance import Origin

_ASSIGNMENTS = frozenset((ast.Assign, ast.AnnAssign, ast.NamedExpr))
#: A part of what a function returns: an index, a key or a field; None for all of it.
Key = int | str | None

_SCALES = re.compile(r"scaler|amp|mixed|precision", re.IGNORECASE)


@dataclass(frozen=True, slots=True, eq=False)
class Assigned:
    """A call of the checked file whose result is kept.

    Args:
        function: the function that holds `call`.
        target: what it is assigned to, as source text; "" when it is not assigned directly.
    """

    call: ast.Call
    function: Function
    target: str


@dataclass(frozen=True, slots=True, eq=False)
class BuiltScaler(Assigned):
    """A call of the checked file, of a constructor or a factory, that gives it a new GradScaler.

    Args:
        constructor: the call of the constructor itself.
        factory: the function that holds `constructor`; None where that is `call`.
    """

    constructor: ast.Call
    factory: Function | None = None

    def is_off(self, view: AmpView) -> bool:
        """Whether it is surely disabled, or never built."""
        if not may_run(view.values, self.call, self.function):
            return True
        return is_off(view, self.constructor, self.factory or self.function)


def is_off(view: AmpView, constructor: ast.Call, function: Function) -> bool:
    """Whether the scaler that a constructor call of `function` builds is surely disabled."""
    enabled = constructor_argument(view, Origin(constructor, function), "enabled")
    if enabled is None:
        return False
    if view.values.of(*enabled).always(lambda content: content is False):
        return True
    return _needs_a_gpu(view, constructor, function) and is_off_on_a_gpu(
        view, constructor, function
    )


def is_off_on_a_gpu(view: AmpView, constructor: ast.Call, function: Function) -> bool:
    """Whether every GPU has the scaler of a constructor call disabled, with torch 2.3 or newer."""
    enabled = constructor_argument(view, Origin(constructor, function), "enabled")
    on_a_gpu = Assumptions(view.values, answers=ON_A_GPU)
    return enabled is not None and on_a_gpu.decides(*enabled) is False


def _needs_a_gpu(view: AmpView, constructor: ast.Call, function: Function) -> bool:
    """Whether a scaler of a torch of which `ON_A_GPU` is so, 2.3 or newer, is off without a GPU."""
    dotted = function.module.resolve(callee_of(constructor)) or ""
    device = constructor_argument(view, Origin(constructor, function), "device")
    is_cuda = device is None or view.values.of(*device).always(lambda content: content == "cuda")
    return dotted.startswith("torch.amp.") and is_cuda


def built_scalers(
    view: AmpView, wanted: Callable[[Assigned], bool] = lambda _: True
) -> Iterator[BuiltScaler]:
    """Every scaler that the checked file builds, or lets another function build.

    Args:
        wanted: whether it matters if a call gives a scaler. What a function gives can take the
            callers of its callers to find out, so this is asked first.
    """
    for built in view.roles.constructions:
        call, function = built.call, built.function
        target = built.target or _chosen_for(call, function)
        for place in (target, *_kept_as(view, call, target, function)):
            scaler = BuiltScaler(call, function, place, call)
            if wanted(scaler):
                yield scaler
                break
    for function in view.module.functions:
        for call in _assigned_calls(function):
            yield from _from_factory(view, call, function, wanted)


def built_wrappers(
    view: AmpView, wanted: Callable[[Assigned], bool] = lambda _: True
) -> Iterator[BuiltScaler]:
    """Every object that the checked file builds around a new scaler that runs one step at a time.

    Its constructor builds the scaler whatever it is given, its methods scale and step with it, and
    none of them does so in a loop of its own: one that does is a whole training.

    Args:
        wanted: as for `built_scalers`.
    """
    for function in view.module.functions:
        for call in _assigned_calls(function):
            owner = view.objects.symbol(callee_of(call), function)
            if not isinstance(owner, Class):
                continue
            for target, key in _taken_from(call, function):
                if key is None and wanted(Assigned(call, function, target)):
                    made = _wrapped(view, owner)
                    if made is not None:
                        yield BuiltScaler(call, function, target, made.call, made.function)


def _wrapped(view: AmpView, owner: Class) -> ScalerConstruction | None:
    """The scaler that the constructor of a class always builds, and its methods scale and step."""
    constructor = view.objects.method(owner, "__init__")
    if constructor is None:
        return None
    family = view.objects.ancestry(owner)
    for built in view.roles_of(constructor.module).constructions:
        if built.function is not constructor or not built.target.startswith("self."):
            continue
        if conditions_at(built.call, constructor) or view.objects.loops(built.call, constructor):
            continue
        sites = [
            site
            for item in family
            for site in item.module.calls
            if enclosing_class(site.function) is item and receiver(site.node) == built.target
        ]
        runs = [site for site in sites if site.method in ("scale", "step")]
        if len({site.method for site in runs}) == 2 and not any(
            view.objects.loops(site.node, site.function) for site in runs
        ):
            return built
    return None


def _assigned_calls(function: Function) -> Iterator[ast.Call]:
    for node in function.nodes:
        if type(node) in _ASSIGNMENTS:
            value = node.value  # type: ignore[attr-defined]
            parts = value.elts if isinstance(value, (ast.Tuple, ast.List)) else [value]
            yield from (part for part in parts if isinstance(part, ast.Call))


def _chosen_for(call: ast.Call, function: Function) -> str:
    """What `x = GradScaler() if amp else None` assigns a constructor call to, or ""."""
    for target, bindings in bindings_of(function).items():
        for binding in bindings:
            value = binding.value
            if isinstance(value, ast.IfExp) and call in (value.body, value.orelse):
                return target
    return ""


def _from_factory(
    view: AmpView, call: ast.Call, function: Function, wanted: Callable[[Assigned], bool]
) -> Iterator[BuiltScaler]:
    """The scaler that a called function of the project builds and returns, if it always does."""
    if view.roles.role_of(call, function) is not None or not _may_build(view, call, function):
        return
    taken = _taken_from(call, function)
    parts = [(target, key) for target, key in taken if wanted(Assigned(call, function, target))]
    factory = view.objects.callee(call, function) if parts else None
    if factory is None or factory.name == "__init__" or is_memoised(factory):
        return
    for target, key in parts:
        built = [
            _constructor(view, _part(view, value, key, factory), factory)
            for value in returned(factory)
        ]
        if built and built[0] is not None and None not in built:
            made = built[0].expression
            assert isinstance(made, ast.Call)
            if is_memoised(built[0].function):
                continue
            yield BuiltScaler(call, function, target, made, built[0].function)


def _taken_from(call: ast.Call, function: Function) -> Iterator[tuple[str, Key]]:
    """What a call's result is assigned to, as source text, with the part of it that is."""
    bound = function.once(_bound_values)
    wholes = dict.fromkeys(target for target, value, _ in bound if value is call)
    for target, value, whole in bound if wholes else ():
        if value is call:
            yield target, None
        elif whole in wholes:
            yield target, _key(value)
    for path in wholes:
        yield from _stepped_parts(path, function)
    yield from function.once(_unpacked).get(call, ())


def _bound_values(function: Function) -> list[tuple[str, ast.expr, str | None]]:
    """What a function binds to expressions: the path, the expression, what that is a part of."""
    return [
        (target, binding.value, _whole(binding.value))
        for target, bindings in bindings_of(function).items()
        for binding in bindings
        if binding.value is not None
    ]


def _unpacked(function: Function) -> dict[ast.expr, list[tuple[str, Key]]]:
    """Values that a function takes apart, each with the targets of its parts."""
    return {
        node.value: [
            (path_text(part) or "", index) for index, part in enumerate(node.targets[0].elts)
        ]
        for node in function.nodes
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], (ast.Tuple, ast.List))
    }


def _kept_as(view: AmpView, call: ast.Call, target: str, function: Function) -> list[str]:
    """The other names of a new scaler, and the parts that are one of what a function puts together.

    Args:
        target: the scaler's own name there; "" where it has none.

    Returns:
        Source texts.
    """
    bound = bindings_of(function)
    names = [target] if target else []

    def is_it(value: ast.expr | None) -> bool:
        return value is not None and (value is call or path_text(value) in names)

    def is_part(whole: str | None, key: Key) -> bool:
        values = [binding.value for binding in bound.get(whole or "", ())]
        return any(value and is_it(_part(view, value, key, function)) for value in values)

    for name, bindings in bound.items():
        values = [binding.value for binding in bindings if binding.value is not None]
        if any(is_it(value) or is_part(_whole(value), _key(value)) for value in values):
            names.append(name)
        parts = _stepped_parts(name, function) if values else ()
        names += [text for text, key in parts if is_part(name, key)]
    return [name for name in names if name != target]


def _stepped_parts(whole: str, function: Function) -> Iterator[tuple[str, Key]]:
    """The parts of an object that are stepped with, as source text, each with its key.

    What an object keeps its other methods may step with.
    """
    owner = enclosing_class(function) if whole.startswith("self.") else None
    parts: dict[str, Key] = {}
    for site, place, held_by in function.module.once(_steps):
        is_near = site.function is function or (owner and enclosing_class(site.function) is owner)
        if is_near and held_by == whole:
            parts[receiver(site.node)] = _key(place)
    yield from parts.items()


def _steps(module: Module) -> list[tuple[CallSite, ast.expr, str | None]]:
    """Calls of `step` in a module: the call, what it is a method of, what that is a part of."""
    return [
        (site, site.node.func.value, _whole(site.node.func.value))
        for site in module.calls
        if site.method == "step" and isinstance(site.node.func, ast.Attribute)
    ]


def _whole(part: ast.expr | None) -> str | None:
    """What an attribute or an entry belongs to, as source text; None for anything else."""
    return path_text(part.value) if isinstance(part, (ast.Subscript, ast.Attribute)) else None


def _key(part: ast.expr | None) -> Key:
    """Which attribute or entry it is; "" where nobody knows."""
    if isinstance(part, ast.Attribute):
        return part.attr
    key = constant_of(part.slice) if isinstance(part, ast.Subscript) else None
    return key if isinstance(key, (int, str)) else ""


def _part(view: AmpView, value: ast.expr, key: Key, function: Function) -> ast.expr | None:
    """A part of a display, or a field of a record; `value` stands in `function`."""
    if key is None:
        return value
    if isinstance(value, (ast.Tuple, ast.List)) and isinstance(key, int):
        return value.elts[key] if -len(value.elts) <= key < len(value.elts) else None
    if isinstance(value, ast.Dict):
        known = zip(value.keys, value.values)
        return next((part for name, part in known if constant_of(name) == key), None)
    if not isinstance(value, ast.Call) or not isinstance(key, str):
        return None
    owner = view.objects.symbol(value.func, function)
    if not isinstance(owner, Class) or not is_record(owner):
        return None
    return fill(record_parameters(view.objects.ancestry(owner)), passed(value)).given.get(key)


def _may_build(view: AmpView, call: ast.Call, function: Function) -> bool:
    """Whether a call can be a factory's: a function's, a method's of its own, or named so.

    To find the method that an object has can take the callers of callers; few objects that a
    training function calls are factories.
    """
    callee = callee_of(call)
    if isinstance(callee, ast.Name):
        return isinstance(view.objects.symbol(callee, function), Function)
    if not isinstance(callee, ast.Attribute):
        return False
    is_own = isinstance(callee.value, ast.Name) and callee.value.id in ("self", "cls")
    return is_own or bool(_SCALES.search(callee.attr)) or view.module.resolve(callee) is not None


def _constructor(view: AmpView, value: ast.expr | None, factory: Function) -> Origin | None:
    """The constructor call behind what a factory returns, if each call of it builds anew."""
    found = view.values.origins.of(value, factory) if value is not None else None
    if found is None or not found.complete or len(found.origins) != 1:
        return None
    (made,) = found.origins
    call = made.expression
    if not isinstance(call, ast.Call) or not _runs_in(made, factory):
        return None
    role = view.roles_of(made.function.module).role_of(call, made.function)
    return made if role is Role.SCALER else None


def _runs_in(made: Origin, factory: Function) -> bool:
    """Whether a value is created in a function, or in one that it calls for it."""
    call = made.activation
    while made.function is not factory and call is not None:
        if call.caller is factory:
            return True
        call = call.outer
    return made.function is factory


def is_handed_to(call: ast.Call, path: str) -> bool:
    """Whether an object is among the arguments of a call."""
    return any(path_text(argument) == path for argument in passed(call).every())
