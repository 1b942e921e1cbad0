"""Calls that give a scaled loss: `scaler.scale(loss)`, and functions that return one.

`scaled(scaler, loss)` of another file is as much a scaled loss as what it returns, so it has to
be used, and only for backward.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from amplint.amp.reached_calls import as_caller_writes, calls_leading_to
from amplint.amp.roles import Role
from amplint.amp.scaler_calls import scaler_calls, trains
from amplint.amp.scaling import is_torch_scaler
from amplint.amp.view import AmpView
from amplint.code.arguments import bind
from amplint.code.dataflow import Binding, bindings_of, parameters, receiver
from amplint.code.definitions import returned
from amplint.code.expressions import path_text
from amplint.code.layout import layout_of
from amplint.code.module import CallSite, Function
from amplint.findings import PathStep

#: Functions that hand a scaled loss on are followed through this many calls.
_DEPTH = 3


@dataclass(frozen=True, slots=True, eq=False)
class Scaling:
    """A call of the checked file whose result is a scaled loss.

    Args:
        node: `scaler.scale(loss)`, or a call of a function that returns it.
        function: the function that holds `node`.
        loss: what is scaled, as an expression of `function`.
        scaler: the scaler as a reader of `function` would write it.
        trains: whether the scaler is surely one of gradients; `scale` is also a method of
            scalers of data.
        read: the scaler where it is asked to scale, and the function that does so.
        path: where the function that is called scales.
    """

    node: ast.Call
    function: Function
    loss: ast.expr
    scaler: str
    trains: bool
    read: tuple[ast.expr, Function]
    path: tuple[PathStep, ...] = ()

    @property
    def is_direct(self) -> bool:
        """Whether it is the scaler's own method."""
        return not self.path


def scalings(view: AmpView) -> Iterator[Scaling]:
    """The calls of a file that give a scaled loss, in source order."""
    direct = {site.node: site for site in scaler_calls(view, "scale")}
    for site in view.module.calls:
        if not view.is_judged(site.function):
            continue
        if site.node in direct:
            yield from _direct(view, site)
        elif _may_scale(view, site) and site.node in layout_of(site.function):
            found = _handed_on(view, site.node, site.function, _DEPTH)
            if found is not None:
                yield found


def _may_scale(view: AmpView, site: CallSite) -> bool:
    """Whether a function of that name scales: resolving every call of a file is dear."""
    return site.method == "scale" or view.may_reach("scale", site.node, site.function)


def _direct(view: AmpView, site: CallSite) -> Iterator[Scaling]:
    if site.node.args and site.node in layout_of(site.function):
        surely = (
            trains(view, site)
            or _is_built_as_scaler(view, site.node, site.function)
            or _is_stepped_elsewhere(view, site)
        )
        assert isinstance(site.node.func, ast.Attribute)
        read = site.node.func.value, site.function
        scaler = receiver(site.node)
        yield Scaling(site.node, site.function, site.node.args[0], scaler, surely, read)


def _is_stepped_elsewhere(view: AmpView, site: CallSite) -> bool:
    """Whether a function that is called here, or a caller, steps with the same scaler."""
    scaler, function = receiver(site.node), site.function
    if any(call.scaler == scaler for call in calls_leading_to(view, "step", function)):
        return True
    if scaler not in parameters(function):
        return False
    return any(
        _is_stepped_beside(ast.unparse(value), caller.function)
        for value, caller in view.objects.arguments(function, scaler).given
    )


def _handed_on(view: AmpView, call: ast.Call, function: Function, depth: int) -> Scaling | None:
    """A call of a project function that does nothing but return a scaled parameter."""
    callee = view.objects.callee(call, function) if depth else None
    if callee is None or callee.name == "__init__":
        return None
    value = _only_value(callee)
    if value is None:
        return None
    inner = _scale_call(view, value, callee) or _handed_on(view, value, callee, depth - 1)
    if inner is None or not isinstance(inner.loss, ast.Name):
        return None
    if inner.loss.id not in parameters(callee):
        return None
    loss = bind(call, callee).given.get(inner.loss.id)
    if loss is None:
        return None
    scales = view.step(inner.node, callee.module, f"`{callee.name}` scales the loss")
    path = (
        view.step(call, function.module, f"call of `{callee.name}`"),
        *(inner.path or (scales,)),
    )
    scaler = as_caller_writes(inner.scaler, callee, call)
    surely = inner.trains or _is_given_a_scaler(view, inner.scaler, callee, call, function)
    return Scaling(call, function, loss, scaler, surely, inner.read, path)


def _only_value(callee: Function) -> ast.Call | None:
    """The call whose result a function returns, if it does nothing else with it."""
    values = returned(callee)
    value: ast.expr | None = values[0] if len(values) == 1 else None
    if isinstance(value, ast.Name):
        bound = bindings_of(callee).get(value.id, [])
        value = bound[0].value if len(bound) == 1 and _is_read_once(callee, bound[0]) else None
    return value if isinstance(value, ast.Call) else None


def _is_read_once(callee: Function, bound: Binding) -> bool:
    """Whether a name is read once behind its only binding: by the return."""
    layout = layout_of(callee)
    name = path_text(bound.statement.targets[0]) if isinstance(bound.statement, ast.Assign) else ""
    reads = (node for node in layout.nodes if isinstance(node, ast.Name) and node.id == name)
    return sum(layout.before(bound.statement, node) for node in reads) == 1


def _scale_call(view: AmpView, call: ast.Call, callee: Function) -> Scaling | None:
    """`scaler.scale(loss)` in a function of whatever file."""
    method = call.func
    if not isinstance(method, ast.Attribute) or method.attr != "scale" or not call.args:
        return None
    if not view.roles_of(callee.module).is_scaler(method.value, callee):
        return None
    surely = view.roles_of(callee.module).role_of(method.value, callee) is Role.SCALER
    surely = (
        surely
        or _is_stepped_beside(receiver(call), callee)
        or _is_built_as_scaler(view, call, callee)
    )
    read = method.value, callee
    return Scaling(call, callee, call.args[0], ast.unparse(method.value), surely, read)


def _is_stepped_beside(scaler: str, function: Function) -> bool:
    """Whether the file of a function also steps or unscales with a scaler, in the same words."""
    return any(
        site.method in ("step", "unscale_") and receiver(site.node) == scaler
        for site in function.module.calls
    )


def _is_built_as_scaler(view: AmpView, call: ast.Call, function: Function) -> bool:
    """Whether a GradScaler of torch can be what `scale` is called on."""
    assert isinstance(call.func, ast.Attribute)
    found = view.values.origins.of(call.func.value, function)
    return any(is_torch_scaler(view, origin) for origin in found.origins)


def _is_given_a_scaler(
    view: AmpView, scaler: str, callee: Function, call: ast.Call, function: Function
) -> bool:
    """Whether the caller passes what it steps, or unscales, with."""
    if scaler not in parameters(callee):
        return False
    given = bind(call, callee).given.get(scaler)
    if given is None:
        return False
    text = ast.unparse(given)
    uses = scaler_calls(view, "step", "unscale_", "update")
    return any(receiver(site.node) == text for site in uses)


#: Functions of torch whose tensors have no graph unless `requires_grad` says so.
_CREATORS = frozenset(
    ("tensor", "ones", "zeros", "full", "empty", "rand", "randn", "arange", "as_tensor", "eye")
    + ("Tensor", "FloatTensor")
    + ("ones_like", "zeros_like", "full_like", "rand_like", "randn_like", "empty_like")
)
#: Methods that give the same values elsewhere, or as another type.
MOVES = frozenset(("to", "cuda", "cpu", "float", "half", "detach", "clone", "contiguous"))

#: So many of them, one after the other, are followed.
_MOST_MOVES = 4


def is_constant_tensor(view: AmpView, scaling: Scaling) -> bool:
    """Whether what is scaled was computed from nothing: it is no loss."""
    return _comes_from_nothing(view, scaling.loss, scaling.function, _MOST_MOVES)


def _comes_from_nothing(view: AmpView, node: ast.expr, function: Function, moves: int) -> bool:
    found = view.values.origins.of(node, function)
    return (
        found.complete
        and bool(found.origins)
        and all(_is_creation(view, item.expression, item.function, moves) for item in found.origins)
    )


def _is_creation(view: AmpView, node: ast.expr, function: Function, moves: int) -> bool:
    if isinstance(node, ast.Constant):
        return True
    if not isinstance(node, ast.Call) or any(
        item.arg in ("requires_grad", None) for item in node.keywords
    ):
        return False
    if isinstance(node.func, ast.Attribute) and node.func.attr in MOVES and moves:
        return _comes_from_nothing(view, node.func.value, function, moves - 1)
    dotted = function.module.resolve(node.func) or ""
    return dotted.startswith("torch.") and dotted.rpartition(".")[2] in _CREATORS
