"""What is done to a model, under all the names that functions have for it.

The model is a path in one function (`model`, `self.net`). Calls that are given it are followed
into the functions that they run, where a parameter holds it; a call of an unknown function may do
anything to what it is given, and nothing to what it is not.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from amplint.amp.casts import cast_of
from amplint.amp.grad_modes import is_off
from amplint.amp.view import AmpView
from amplint.code.dataflow import arguments, bindings_of, parameters
from amplint.code.expressions import last_name, path_text
from amplint.code.layout import layout_of
from amplint.code.looking import only_looks
from amplint.code.module import Function, enclosing_class
from amplint.values.provenance import Origin

#: Calls are followed through this many functions at once.
_DEPTH = 4
#: Functions of libraries that cast the models that they are given, to `dtype`.
_CASTING = frozenset(("diffusers.training_utils.cast_training_params",))
#: Packages that leave a model as it is, unless they cast it by name.
_PACKAGES = sys.stdlib_module_names | {"torch"}
_DISPLAYS = (ast.List, ast.Tuple, ast.Set)
_BACKWARDS = frozenset(("backward", "manual_backward"))


@dataclass(frozen=True, slots=True, eq=False)
class Use:
    """One call that a model takes part in.

    Args:
        call: runs it, is a method of it, or is given it.
        function: where the call stands.
        path: what the function calls the model.
        followed: whether all that the call does to the model is among the uses.
    """

    call: ast.Call
    function: Function
    path: str
    followed: bool = True


def uses_of(
    view: AmpView, path: str, function: Function, nodes: Iterable[ast.AST], depth: int = _DEPTH
) -> Iterator[Use]:
    """The calls among some nodes of a function, and in what they run, that a model takes part in.

    Args:
        path: what the function calls the model.
    """
    nodes = list(nodes)
    for name in _taken_out(function, path, nodes) if depth else ():
        yield from uses_of(view, name, function, nodes, depth - 1)
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        if _runs(node, path):
            yield Use(node, function, path)
        elif _is_given(node, path):
            yield from _handed(view, node, function, path, depth)


def _taken_out(function: Function, path: str, nodes: list[ast.AST]) -> set[str]:
    """What loops among some nodes call the model that they take out of a list: `[model, ema]`."""
    found = set()
    for node in nodes:
        if not isinstance(node, ast.For) or not isinstance(node.target, ast.Name):
            continue
        kept = bindings_of(function).get(path_text(node.iter) or "", ())
        lists = [node.iter, *(binding.value for binding in kept)]
        if any(isinstance(each, _DISPLAYS) and _holds(each, path) for each in lists):
            found.add(node.target.id)
    return found - {path}


def _runs(call: ast.Call, path: str) -> bool:
    """Whether a call is of the model itself, or of one of its methods."""
    callee = path_text(call.func)
    if callee is None and isinstance(call.func, ast.Attribute):
        return isinstance(call.func.value, ast.Call) and _runs(call.func.value, path)
    return callee is not None and (callee == path or callee.startswith((path + ".", path + "[")))


def _is_given(call: ast.Call, path: str) -> bool:
    """Whether a call is handed the model, in a list or an object that holds it, too."""
    if isinstance(call.func, ast.Attribute) and _holds(call.func.value, path):
        return True
    return any(_holds(argument, path) for argument in arguments(call))


def _path(expression: ast.expr) -> str | None:
    """A path as text; `super()` is `self`."""
    if isinstance(expression, ast.Call) and last_name(expression.func) == "super":
        return "self"
    return path_text(expression)


def _holds(argument: ast.expr, path: str) -> bool:
    text = _path(argument)
    if text is not None:
        return path == text or path.startswith(text + ".")
    if isinstance(argument, ast.Starred):
        return _holds(argument.value, path)
    if isinstance(argument, _DISPLAYS):
        return any(_holds(item, path) for item in argument.elts)
    return isinstance(argument, ast.Dict) and any(_holds(item, path) for item in argument.values)


def _handed(
    view: AmpView, call: ast.Call, function: Function, path: str, depth: int
) -> Iterator[Use]:
    targets = view.objects.targets(call, function)
    dotted = function.module.resolve(call.func)
    if dotted is not None:
        outside = dotted.partition(".")[0] not in _PACKAGES
    else:
        outside = not only_looks(call, function)
    inner = [
        (callee, name)
        for callee in targets.functions
        for name in _names_in(view, call, function, callee, path)
    ]
    followed = bool(inner and depth and not targets.unknown) if targets.functions else not outside
    yield Use(call, function, path, followed)
    for callee, name in inner if depth else ():
        yield from uses_of(view, name, callee, layout_of(callee).nodes, depth - 1)


def _names_in(
    view: AmpView, call: ast.Call, caller: Function, callee: Function, path: str
) -> Iterator[str]:
    """What a called function calls the model."""
    bound = view.objects.bind(call, caller, callee)
    given = dict(bound.given)
    if bound.receiver and isinstance(call.func, ast.Attribute):
        given[bound.receiver] = call.func.value
    for name, argument in given.items():
        text = _path(argument)
        if text is not None and (path == text or path.startswith(text + ".")):
            yield name + path[len(text) :]
        elif text is None and _holds(argument, path):
            yield from _elements(callee, name)


def _elements(function: Function, name: str) -> Iterator[str]:
    """What the loops of a function call the elements of a list."""
    for node in layout_of(function).nodes:
        if isinstance(node, (ast.For, ast.comprehension)) and path_text(node.iter) == name:
            target = path_text(node.target)
            if target is not None:
                yield target


# -- what the uses amount to -----------------------------------------------------------------------


def casts_to(view: AmpView, use: Use) -> str | None:
    """The dtype that a use casts the model to, "" if it is not known; None if it casts nothing."""
    callee = use.call.func
    if use.function.module.resolve(callee) in _CASTING:
        given = [item.value for item in use.call.keywords if item.arg == "dtype"]
        possible = [view.values.of(item, use.function).only() for item in given]
        return getattr(possible[0], "name", "") if possible else "float32"
    if not isinstance(callee, ast.Attribute):
        return None
    inner = callee.value
    while isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute):
        inner = inner.func.value  # `model.half().float()`
    if path_text(inner) != use.path:
        return None
    cast = cast_of(view, use.call, Origin(use.call, use.function))
    return cast.dtype if cast is not None else None


def is_trained(view: AmpView, path: str, function: Function, nodes: list[ast.AST]) -> bool:
    """Whether some nodes of a function, or what they run with the model, train it.

    They run a backward, and the model is the one whose parameters the function uses; where it
    uses those of none, one whose outputs they compute with gradients.
    """
    frames: dict[Function, tuple[str, list[ast.AST]]] = {function: (path, nodes)}
    for use in uses_of(view, path, function, nodes):
        frames.setdefault(use.function, (use.path, layout_of(use.function).nodes))
    return any(_trains(view, name, where, inner) for where, (name, inner) in frames.items())


def _trains(view: AmpView, path: str, function: Function, nodes: list[ast.AST]) -> bool:
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    if not any(last_name(call.func) in _BACKWARDS for call in calls):
        return False
    owners = view.once(_owners, function)
    if owners:
        return plain(path) in owners
    return any(
        _computes(view, call, function, path) and not is_off(view.objects, call, function)
        for call in calls
    )


def _computes(view: AmpView, call: ast.Call, function: Function, path: str) -> bool:
    """Whether a call has outputs of the model: `model(x)`, or a method of a class in sight.

    Tensors have methods, too, and what is called is no tensor.
    """
    callee = path_text(call.func)
    if callee is not None and plain(callee.removesuffix(".forward")) == plain(path):
        return True
    if not _runs(call, path) or not isinstance(call.func, ast.Attribute):
        return False
    owner = view.objects.class_of(call.func.value, function)
    return owner is not None and view.objects.is_module(owner)


def _owners(view: AmpView, function: Function) -> frozenset[str]:
    """The paths before `.parameters()` in a function, and in the other methods for `self`."""
    owner = enclosing_class(function)
    others = [item for item in function.module.functions if enclosing_class(item) is owner]
    found: set[str] = set()
    for place in [function, *(others if owner is not None else ())]:
        paths = {
            plain(path_text(node.value) or "")
            for node in layout_of(place).nodes
            if isinstance(node, ast.Attribute) and node.attr in ("parameters", "named_parameters")
        }
        found |= {path for path in paths if place is function or path.startswith("self.")}
    return frozenset(found - {""})


def plain(path: str) -> str:
    """A path without the `.module` of a wrapper at its end."""
    return path.removesuffix(".module")


def renewals(path: str, function: Function) -> list[ast.AST]:
    """The statements of a function that bind a path to something else than it was."""
    layout, root = layout_of(function), path.partition(".")[0].partition("[")[0]
    names = {path, root} - {"self", "cls"}
    return [
        binding.statement
        for name in names
        for binding in bindings_of(function).get(name, ())
        if binding.statement in layout
        and (binding.value is None or name not in _paths_in(binding.value))
    ]


def _paths_in(expression: ast.expr) -> set[str | None]:
    return {path_text(node) for node in ast.walk(expression) if isinstance(node, ast.expr)}


def same_model(path: str, function: Function) -> str:
    """The path that a local name was given once: `self.net` for `net = self.net`."""
    for _ in range(_DEPTH):
        found = bindings_of(function).get(path, [])
        if path in parameters(function) or len(found) != 1 or found[0].value is None:
            break
        text = path_text(found[0].value)
        if text is None or text == path:
            break
        path = text
    return path
