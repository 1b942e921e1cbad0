"""Where a file trains with a gradient scaler: its `scale` and `step` calls, its constructors."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from amplint.amp import names
from amplint.amp.scaler_calls import scaler_calls
from amplint.amp.view import AmpView
from amplint.code.arguments import Passed, fill, optional, passed
from amplint.code.expressions import binder_of, callee_of, last_name
from amplint.code.module import CallSite, Function, Module
from amplint.values.provenance import Activation, Origin

TORCH_SCALERS = names.GRAD_SCALERS | names.SHARDED_GRAD_SCALERS
#: Functions with one of these words in their name only evaluate.
_EVALUATES = re.compile(
    r"(?:^|_)(?:eval|evaluate|evaluation|val|valid|validate|validation|test|infer|inference"
    r"|predict|prediction|sample|generate|export|visualize|demo|benchmark)(?:_|\d|$)",
    re.IGNORECASE,
)

#: The method in which torch's scalers refuse float16 gradients.
_UNSCALING = "_unscale_grads_"
#: `init_scale` of torch's scalers where none is given.
_DEFAULT_SCALE = 2.0**16
_DEFAULT_WORDS = "65536 by default"


@dataclass(frozen=True, slots=True, eq=False)
class ScalerUse:
    """A call of a scaler's method, with a constructor call that the scaler may come from.

    Args:
        site: `scaler.scale(...)` or `scaler.step(...)`.
        built: the constructor call, or the call of what `partial` made of the constructor; its
            `conditions` say when it is this one.
        enabled: the expression of `enabled=`; None where the scaler is always on.
        switching: the function that evaluates it.
    """

    site: CallSite
    built: Origin
    enabled: ast.expr | None
    switching: Function


def scaler_uses(view: AmpView, *methods: str) -> Iterator[ScalerUse]:
    """The calls of scalers' methods in a file whose constructor is known."""
    for site in scaler_calls(view, *methods):
        yield from uses_in(view, site)


def uses_in(view: AmpView, site: CallSite) -> Iterator[ScalerUse]:
    """The constructors that the object of a call may come from, in whatever file, if of scalers."""
    assert isinstance(site.node.func, ast.Attribute)
    for origin in view.values.origins.of(site.node.func.value, site.function).origins:
        if is_torch_scaler(view, origin):
            yield _use(view, site, origin)


def _use(view: AmpView, site: CallSite, built: Origin) -> ScalerUse:
    enabled, switching = constructor_argument(view, built, "enabled") or (None, built.function)
    return ScalerUse(site, built, enabled, switching)


def is_torch_scaler(view: AmpView, origin: Origin) -> bool:
    """Whether an expression builds one of torch's gradient scalers, by `partial` as well."""
    if not isinstance(origin.expression, ast.Call):
        return False
    return _is_scaler_class(origin.expression.func, origin.function) or bool(_binder(view, origin))


def _is_scaler_class(expression: ast.expr, function: Function) -> bool:
    return function.module.resolve(expression) in TORCH_SCALERS


def constructor_argument(
    view: AmpView, built: Origin, name: str
) -> tuple[ast.expr, Function] | None:
    """The argument that a constructor call of a scaler gives a parameter, and who evaluates it.

    None where the call leaves it out.
    """
    call, function = built.expression, built.function
    assert isinstance(call, ast.Call)
    given, made, binding = passed(call), callee_of(call), function
    binder = None if _is_scaler_class(made, function) else _binder(view, built)
    earlier = Passed()
    if binder is not None:
        binding = binder.function
        assert isinstance(binder.expression, ast.Call)
        earlier, made = passed(binder.expression).after(1), binder.expression.args[0]
    is_for_one_device = binding.module.resolve(made) in names.DEVICE_GRAD_SCALERS
    order = names.DEVICE_SCALER_PARAMETERS if is_for_one_device else names.SCALER_PARAMETERS
    found = fill(optional(order), earlier.then(given)).given.get(name)
    if found is None:
        return None
    return found, function if any(found is item for item in given.every()) else binding


def _binder(view: AmpView, built: Origin) -> Origin | None:
    """The `partial(GradScaler, ...)` that made what a call runs; None of any other call."""
    assert isinstance(built.expression, ast.Call)
    callee = built.expression.func
    found = view.values.origins.of(callee, built.function, built.activation)
    if len(found.origins) != 1 or not found.complete:
        return None
    binder = binder_of(found.origins[0].expression)
    if binder is None or not _is_scaler_class(binder.args[0], found.origins[0].function):
        return None
    return found.origins[0]


def unscales_otherwise(view: AmpView, built: Origin) -> bool:
    """Whether a scaler's own unscaling gives way to another function, here or in a called one.

    Args:
        built: the constructor call of the scaler, or of the object that holds it.
    """
    return any(
        any(item.expression is built.expression for item in found)
        for module in dict.fromkeys((view.module, built.function.module))
        for found in view.once(_rebuilt_scalers, module)
    )


def _rebuilt_scalers(view: AmpView, module: Module) -> tuple[tuple[Origin, ...], ...]:
    """Origins of what `scaler._unscale_grads_ = ...` is done to, and of what that is a part of."""
    found: list[tuple[Origin, ...]] = []
    for function in module.functions:
        found += _replaced_unscaling(view, function, None)
    for site in module.calls:
        callee = view.objects.symbol(site.node.func, site.function)
        if isinstance(callee, Function) and _UNSCALING in callee.module.source:
            found += _replaced_unscaling(view, callee, Activation(callee, site.node, site.function))
    return tuple(found)


def _replaced_unscaling(
    view: AmpView, function: Function, activation: Activation | None
) -> Iterator[tuple[Origin, ...]]:
    for node in function.nodes:
        if not isinstance(node, ast.Attribute) or node.attr != _UNSCALING:
            continue
        place = node.value if isinstance(node.ctx, ast.Store) else None
        while place is not None:
            yield view.values.origins.of(place, function, activation).origins
            place = place.value if isinstance(place, ast.Attribute) else None


def scale_words(view: AmpView, scaler: str, function: Function) -> str:
    """The loss scale that a scaler starts with, in words: "65536 at first", "65536 by default".

    "At first" where each constructor call that the scaler may come from is in sight and gives the
    same constant; every later `update()` may change the scale.

    Args:
        scaler: as `function` writes it.
    """
    try:
        expression = ast.parse(scaler, mode="eval").body
    except SyntaxError:
        return _DEFAULT_WORDS
    found = view.values.origins.of(expression, function)
    built = [item for item in found.origins if isinstance(item.expression, ast.Call)]
    scales = {_initial_scale(view, item) for item in built}
    if len(scales) != 1 or None in scales:
        return _DEFAULT_WORDS
    return f"{scales.pop():.6g} at first"


def _initial_scale(view: AmpView, built: Origin) -> float | None:
    """The constant `init_scale` of a constructor call of torch, written or not; None if unknown."""
    call = built.expression
    if not isinstance(call, ast.Call) or not is_torch_scaler(view, built):
        return None
    if any(item.arg is None for item in call.keywords):
        return None
    given = constructor_argument(view, built, "init_scale")
    if given is None:
        return _DEFAULT_SCALE
    content = view.values.of(*given, built.activation).only()
    is_number = isinstance(content, (int, float)) and not isinstance(content, bool)
    return float(content) if is_number else None  # type: ignore[arg-type]


def runs_backward(function: Function) -> bool:
    """Whether a call of a function's own is a backward."""
    return any(map(_is_backward, function.nodes))


def evaluates(function: Function) -> bool:
    """Whether a function, by its name or that of a function around it, does not train.

    One that runs a backward itself trains, whatever it is called: `train_and_evaluate`.
    """
    if function.once(runs_backward):
        return False
    scope: Function | None = function
    while scope is not None:
        if _EVALUATES.search(scope.name):
            return True
        scope = scope.parent
    return False


def _is_backward(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and last_name(node.func) == "backward"


@dataclass(frozen=True, slots=True, eq=False)
class AcceleratedStep:
    """A plain `optimizer.step()` of an optimizer that an Accelerator has prepared.

    Args:
        site: the call.
        accelerator: the constructor call of the Accelerator.
    """

    site: CallSite
    accelerator: Origin

    @property
    def mixed_precision(self) -> ast.expr | None:
        """The expression of `mixed_precision=`; None where a configuration file decides."""
        call = self.accelerator.expression
        assert isinstance(call, ast.Call)
        given = (item.value for item in call.keywords if item.arg == "mixed_precision")
        return next(given, None)


def accelerated_steps(view: AmpView) -> Iterator[AcceleratedStep]:
    """Steps of prepared optimizers in a file that calls `accelerator.backward`."""
    built = {
        origin.expression: origin
        for site in view.module.calls
        if site.method == "backward" and isinstance(site.node.func, ast.Attribute)
        for origin in view.values.origins.of(site.node.func.value, site.function).origins
        if _is_accelerator(origin)
    }
    for site in view.module.calls:
        if site.method != "step" or not isinstance(site.node.func, ast.Attribute):
            continue
        if view.roles.is_optimizer(site.node.func.value, site.function):
            yield from (AcceleratedStep(site, origin) for origin in built.values())


def _is_accelerator(origin: Origin) -> bool:
    node = origin.expression
    if not isinstance(node, ast.Call):
        return False
    dotted = origin.function.module.resolve(node.func) or ""
    return dotted.startswith("accelerate.") and dotted.endswith(".Accelerator")
