"""Hooks that limit the gradients of parameters while a backward computes them.

A hook runs inside of the backward, so it gets what the loss was multiplied by, whatever comes
afterwards (`torch.Tensor.register_hook`: what it returns replaces the gradient).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from amplint.amp import names
from amplint.amp.clips import CLAMPS, says_the_same
from amplint.amp.connected import connected_files
from amplint.amp.parameter_loops import loops_behind
from amplint.amp.parameter_sets import parameters_in
from amplint.amp.view import AmpView
from amplint.code.arguments import parameters, receiver_of
from amplint.code.dataflow import arguments, bindings_of, names_in
from amplint.code.definitions import returned
from amplint.code.expressions import last_name, path_text
from amplint.code.layout import layout_of
from amplint.code.module import CallSite, Function, walk
from amplint.values.conditions import conditions_at
from amplint.values.provenance import Condition, Origin, Step

#: What registers a hook -> whether the hook is given the parameter, and not its gradient.
_REGISTERS = {"register_hook": False, "register_post_accumulate_grad_hook": True}
#: What a file that registers one says.
_WORD = "register_"
#: Methods and functions of torch that keep each number of a tensor between two limits.
_CLAMPS = CLAMPS | {"clamp", "clip"}
_BOUNDS = ("min", "max")
_NORMS = ("max_norm", "clip_value")
#: Through so many computations a limit is followed back.
_STEPS = 3
#: Other names of one tensor.
_SAME = frozenset(("data", "detach"))


@dataclass(frozen=True, slots=True, eq=False)
class ClippingHook:
    """A hook on parameters that clips each gradient.

    Args:
        site: the call that registers it.
        modules: those whose parameters it is registered on.
        clip: the call in the hook that clips.
        place: the parameter in the loop over all of them.
        about: the names of parameters and limits, as tests about them write them.
    """

    site: CallSite
    modules: tuple[Origin, ...]
    clip: ast.Call
    place: Origin
    about: frozenset[str]


def clipping_hooks(view: AmpView, *, around: bool) -> Iterator[ClippingHook]:
    """Those that a file registers, with limits that mention no scale.

    Args:
        around: whether those of the files around it count, too.
    """
    project, every = view.objects.project, {view.module: None}
    if around and any(any(project.mentioning(view.module, name)) for name in _REGISTERS):
        every.update(dict.fromkeys(connected_files(project, view.module).modules))
    for site in (site for each in every if _WORD in each.source for site in each.calls):
        if site.method not in _REGISTERS or not isinstance(site.node.func, ast.Attribute):
            continue
        hook = _hook(view, site)
        clip = _clip(view, hook, takes=_REGISTERS[site.method]) if hook is not None else None
        if hook is None or clip is None:
            continue
        receiver, origins = site.node.func.value, view.values.origins
        for place, target, iterable in loops_behind(receiver, site.function, origins):
            modules = tuple(item.module for item in parameters_in(view, iterable))
            about = {*names_in(target), *map(ast.unparse, _limits(clip, hook))}
            yield ClippingHook(site, modules, clip, place, frozenset(about))


def _hook(view: AmpView, site: CallSite) -> Function | None:
    """The one function that is registered, with nothing of it bound beforehand."""
    given = arguments(site.node)
    if not given:
        return None
    run = ast.copy_location(ast.Call(given[0], [], []), given[0])
    return view.objects.targets(run, site.function).only


def _clip(view: AmpView, hook: Function, *, takes: bool) -> ast.Call | None:
    """The call by which a hook clips the gradient.

    Args:
        takes: whether the hook is given the parameter.
    """
    own = [name for name in parameters(hook) if name not in ("self", "cls")]
    if not own or any("scale" in (path_text(node) or "") for node in hook.nodes):
        return None
    for node in hook.nodes:
        if not isinstance(node, ast.Call) or not _clips(node, own[0], hook, takes=takes):
            continue
        is_other = any(item.value is not node for item in bindings_of(hook).get(own[0], ()))
        limits = _limits(node, hook)
        if is_other or not all(_is_fixed(view, limit, hook) for limit in limits):
            return None
        if not all(_says_the_same(view, limit, hook) for limit in limits):
            return node
    return None


def _clips(call: ast.Call, name: str, hook: Function, *, takes: bool) -> bool:
    """Whether a call clips the gradient that a hook is given, or that its parameter has."""
    if takes and hook.module.resolve(call.func) in names.CLIP_FUNCTIONS:
        given = arguments(call)[:1]
        return any(path_text(part) == name for item in given for part in walk(item))
    tensor = _clamped(call, hook)
    if tensor is None or _whole(tensor) != (f"{name}.grad" if takes else name):
        return False
    return last_name(call.func).endswith("_") or (not takes and _is_returned(call, hook))


def _clamped(call: ast.Call, hook: Function) -> ast.expr | None:
    """The tensor that a call clamps; None for other calls."""
    if last_name(call.func) not in _CLAMPS:
        return None
    if _is_of_torch(call, hook):
        return next(iter(arguments(call)), None)
    return call.func.value if isinstance(call.func, ast.Attribute) else None


def _is_of_torch(call: ast.Call, hook: Function) -> bool:
    return (hook.module.resolve(call.func) or "").startswith("torch.")


def _whole(tensor: ast.expr) -> str | None:
    """The path of a tensor, without what names the same one: `grad` for `grad.data`."""
    while True:
        if isinstance(tensor, ast.Call) and not arguments(tensor):
            tensor = tensor.func
        elif isinstance(tensor, ast.Attribute) and tensor.attr in _SAME:
            tensor = tensor.value
        else:
            return path_text(tensor)


def _is_returned(call: ast.Call, hook: Function) -> bool:
    """Whether what a call computes is what the hook returns, as it is."""
    layout = layout_of(hook)
    results = returned(hook)
    for value in results:
        choices = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
        if call in choices:
            return True
    bound = layout.parents.get(call)
    targets = bound.targets if isinstance(bound, ast.Assign) else []
    return bool({path_text(item) for item in targets} & {path_text(item) for item in results})


def _limits(call: ast.Call, hook: Function) -> list[ast.expr]:
    """The expressions of the limits of a clip."""
    named = [item.value for item in call.keywords if item.arg in (*_BOUNDS, *_NORMS)]
    return [*call.args[1 if _is_of_torch(call, hook) else 0 :], *named]


def _is_fixed(view: AmpView, limit: ast.expr, function: Function, depth: int = _STEPS) -> bool:
    """Whether nothing that a limit is computed from mentions a scale.

    Args:
        depth: through so many computations it is followed.
    """
    paths = [part for part in walk(limit) if isinstance(part, ast.expr) and path_text(part)]
    if any("scale" in (path_text(part) or "") for part in paths):
        return False
    return not depth or all(
        _is_fixed(view, item.expression, item.function, depth - 1)
        for part in paths
        for item in view.values.origins.aliases(part, function)
        if item.expression is not part
    )


def _says_the_same(view: AmpView, limit: ast.expr, hook: Function) -> bool:
    """Whether a limit is none, or the same for every scale."""
    return view.values.of(limit, hook).always(says_the_same)


def ways_onto(view: AmpView, hook: ClippingHook, owned: Origin) -> Iterator[tuple[Condition, ...]]:
    """The conditions of each way by which a hook comes onto parameters of a module.

    Args:
        owned: the module, as of one that an optimizer owns.
    """
    every = [{_identity(item) for item in items} for items in _wholes(view, owned)]
    for module in hook.modules:
        for place in _constructed(view, module, owned):
            yield _conditions(view, hook, place.steps)
        for depth, origins in enumerate(_wholes(view, module)):
            theirs = set().union(*(every if depth == 0 else every[:1]))
            for origin in origins:
                if _identity(origin) in theirs:
                    yield _conditions(view, hook, (*module.steps, *origin.steps))


def _conditions(
    view: AmpView, hook: ClippingHook, steps: tuple[Step, ...]
) -> tuple[Condition, ...]:
    """What has to hold for a registration, and for the calls by which a module comes there."""
    found: list[Condition] = []
    calls = {step.node for step in (*hook.place.steps, *steps) if step.to is not None}
    pending: list[tuple[ast.AST, Function]] = [(hook.site.node, hook.site.function)]
    for node, function in pending:
        found += conditions_at(node, function)
        ways = ((each.node, each.function) for each in view.objects.calls_of(function))
        pending += [way for way in ways if way[0] in calls and way not in pending]
    return tuple(item for item in found if not _texts(item.test) & hook.about)


def _texts(test: ast.expr) -> set[str]:
    return {ast.unparse(part) for part in walk(test) if isinstance(part, ast.expr)}


def _wholes(view: AmpView, module: Origin) -> list[tuple[Origin, ...]]:
    """What has created a module, and then what has created those that it is a part of."""
    found = []
    part: ast.expr | None = module.expression
    while part is not None and path_text(part) not in (None, "self"):
        found.append(view.values.origins.of(part, module.function, module.activation).origins)
        part = part.value if isinstance(part, (ast.Attribute, ast.Subscript)) else None
    return found


def _identity(origin: Origin) -> object:
    """The call that created something, or the place where it comes into sight."""
    path = path_text(origin.expression)
    return origin.expression if path is None else (path, origin.function)


def _constructed(view: AmpView, module: Origin, owned: Origin) -> Iterator[Origin]:
    """The places where a constructor of what is owned has a module as its own, or as itself."""
    made = view.objects.class_of(owned.expression, owned.function)
    every = view.objects.ancestry(made) if made is not None else ()
    aliases = view.values.origins.aliases
    for place in aliases(module.expression, module.function, module.activation):
        root = (path_text(place.expression) or "").partition(".")[0]
        is_constructor = place.function.name == "__init__" and place.function.owner in every
        if is_constructor and root == receiver_of(place.function):
            yield place
