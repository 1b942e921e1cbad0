"""Which objects have their state saved and restored: `state_dict` and `load_state_dict`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from amplint.amp.view import AmpView
from amplint.code.arguments import bind
from amplint.code.dataflow import parameters
from amplint.code.expressions import path_text
from amplint.code.module import Function
from amplint.findings import PathStep

#: Helpers are followed through this many calls.
DEPTH = 2


@dataclass(frozen=True, slots=True, eq=False)
class StateUse:
    """A place of the checked file where the state of an object is read or restored.

    Args:
        owner: the object, as an expression of `function`.
        node: the call that stands in the checked file: of the method, or of a helper.
        function: the function that holds `node`.
        path: from `node` to the method, where a helper calls it.
    """

    owner: ast.expr
    node: ast.Call
    function: Function
    path: tuple[PathStep, ...] = ()


def state_uses(view: AmpView, method: str) -> Iterator[StateUse]:
    """Calls of `x.<method>()` in a file, and of helpers that call it on one of their arguments.

    Args:
        method: "state_dict" or "load_state_dict".
    """
    for site in view.module.calls:
        if site.method == method and isinstance(site.node.func, ast.Attribute):
            yield StateUse(site.node.func.value, site.node, site.function)
            continue
        helper = view.objects.callee(site.node, site.function)
        if helper is None or helper.name in (method, "__init__"):
            continue
        for name, path in parameter_uses(view, helper, method).items():
            given = bind(site.node, helper).given.get(name)
            if given is not None and not isinstance(given, ast.Constant):
                yield StateUse(given, site.node, site.function, path)


def parameter_uses(
    view: AmpView, function: Function, method: str, depth: int = DEPTH
) -> dict[str, tuple[PathStep, ...]]:
    """The parameters on which a function calls a method, each with the way to that call."""
    found: dict[str, tuple[PathStep, ...]] = {}
    names = parameters(function)
    for node in function.nodes:
        if not isinstance(node, ast.Call):
            continue
        callee = node.func
        if isinstance(callee, ast.Attribute) and callee.attr == method:
            name = path_text(callee.value) or ""
            if name in names:
                message = f"`{ast.unparse(callee)}` in `{function.name}`"
                found.setdefault(name, (view.step(node, function.module, message),))
        elif depth > 1:
            found.update(_passed_on(view, node, function, method, depth, found))
    return found


def _passed_on(
    view: AmpView,
    call: ast.Call,
    function: Function,
    method: str,
    depth: int,
    known: dict[str, tuple[PathStep, ...]],
) -> Iterator[tuple[str, tuple[PathStep, ...]]]:
    helper = view.objects.callee(call, function)
    if helper is None or helper is function:
        return
    for name, path in parameter_uses(view, helper, method, depth - 1).items():
        given = bind(call, helper).given.get(name)
        passed = path_text(given) if given is not None else None
        if passed in parameters(function) and passed not in known:
            step = view.step(call, function.module, f"`{function.name}` hands it on")
            yield str(passed), (step, *path)
