"""Calls of scalers' methods in the functions that a call leads to, in whatever file."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from amplint.amp.scaler_calls import scaler_calls
from amplint.amp.view import AmpView
from amplint.code.arguments import bind
from amplint.code.dataflow import bindings_of, receiver
from amplint.code.expressions import last_name
from amplint.code.layout import layout_of
from amplint.code.module import CallSite, Function, Module
from amplint.findings import PathStep
from amplint.values.conditions import conditions_at
from amplint.values.provenance import Activation

#: Calls are followed through this many functions.
DEPTH = 3
#: Method of a scaler -> the word of the flow analysis, for the cheap question.
_WORDS = {"scale": "scale", "step": "step", "update": "update", "unscale_": "unscale"}


@dataclass(frozen=True, slots=True, eq=False)
class ScalerCall:
    """A call of a scaler's method, seen from the checked file.

    Args:
        node: the call in the checked file: of the method, or of a function that leads to it.
        method: `scaler.<method>(...)` itself, in whatever file.
        function: the function that holds `method`.
        scaler: the scaler as the function that holds `node` would write it.
        given: the first argument of `method`, written likewise; "" where there is none in sight
            (`step(*optimizers)`), or where it is a local of another function.
        path: from `node` to `method`; empty where they are one.
        tests: what is asked in the functions on the way, where nothing in sight says the answer.
    """

    node: ast.Call
    method: ast.Call
    function: Function
    scaler: str
    given: str
    path: tuple[PathStep, ...] = ()
    tests: tuple[ast.expr, ...] = ()


def calls_leading_to(view: AmpView, method: str, function: Function) -> Iterator[ScalerCall]:
    """The calls of one function that are `scaler.<method>(...)`, or may lead there."""
    return iter(view.once(_calls_leading_to, method, function))


def _calls_leading_to(view: AmpView, method: str, function: Function) -> list[ScalerCall]:
    found: list[ScalerCall] = []
    direct = {site.node for site in scaler_calls(view, method, within=function)}
    layout = layout_of(function)
    for site in view.module.once(_sites).get(function, ()):
        if site.node not in layout:
            continue
        if site.node in direct:
            given = _first_argument(site.node)
            found.append(ScalerCall(site.node, site.node, function, receiver(site.node), given))
        else:
            found += reached(view, site.node, function, method)
    return found


def _sites(module: Module) -> dict[Function, list[CallSite]]:
    """The calls of a file by the functions that hold them."""
    found: dict[Function, list[CallSite]] = {}
    for site in module.calls:
        found.setdefault(site.function, []).append(site)
    return found


def reached(
    view: AmpView,
    call: ast.Call,
    function: Function,
    method: str,
    depth: int = DEPTH,
    outer: Activation | None = None,
) -> Iterator[ScalerCall]:
    """Where a call of a project function may lead to `scaler.<method>(...)`.

    Args:
        outer: the call by which `function` was entered; None for any.
    """
    if not depth or not view.may_reach(_WORDS[method], call, function):
        return
    callee = view.objects.callee(call, function)
    if callee is None or callee.name == "__init__":
        return
    roles = view.roles_of(callee.module)
    called = view.step(call, function.module, f"call of `{callee.name}`")
    activation = Activation(callee, call, function, outer)
    for node in layout_of(callee).nodes:
        if not isinstance(node, ast.Call):
            continue
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        if owner is None or last_name(node.func) != method or not roles.is_scaler(owner, callee):
            every = list(reached(view, node, callee, method, depth - 1, activation))
        else:
            step = view.step(node, callee.module, f"`{ast.unparse(node.func)}` runs")
            given = _first_argument(node)
            every = [ScalerCall(node, node, callee, ast.unparse(owner), given, (step,))]
        tests = _open_tests(view, node, activation) if every else None
        if tests is not None:
            for inner in every:
                yield _seen_from(inner, callee, call, called, tests)


def _open_tests(
    view: AmpView, node: ast.AST, activation: Activation
) -> tuple[ast.expr, ...] | None:
    """The tests before a node that one call of its function leaves open; None if one fails."""
    found: list[ast.expr] = []
    for item in conditions_at(node, activation.callee):
        truth = view.values.truth(item.test, item.function, activation)
        if item.side not in truth:
            return None
        if len(truth) > 1:
            found.append(item.test)
    return tuple(found)


def _seen_from(
    found: ScalerCall,
    callee: Function,
    call: ast.Call,
    called: PathStep,
    tests: tuple[ast.expr, ...],
) -> ScalerCall:
    """A call in a function, seen from a call of that function, which these tests do not forbid."""
    root = found.given.partition(".")[0].partition("[")[0]
    is_local = root in bindings_of(callee)
    return ScalerCall(
        call,
        found.method,
        found.function,
        as_caller_writes(found.scaler, callee, call),
        "" if is_local else as_caller_writes(found.given, callee, call),
        (called, *found.path),
        (*tests, *found.tests),
    )


def _first_argument(call: ast.Call) -> str:
    first = call.args[0] if call.args else None
    return "" if first is None or isinstance(first, ast.Starred) else ast.unparse(first)


def as_caller_writes(text: str, callee: Function, call: ast.Call) -> str:
    """`self.scaler` of a method as `precision.scaler`, a parameter as its argument.

    Args:
        text: a name, or a dotted path, as `callee` writes it.
        call: of `callee`.
    """
    root, dot, rest = text.partition(".")
    given = bind(call, callee).given.get(root)
    return f"{ast.unparse(given)}{dot}{rest}" if given is not None else text
