"""Averages of weights: where a program keeps one, how slowly it follows, and in which module."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from amplint.amp.names import PARAMETERS
from amplint.amp.view import AmpView
from amplint.code.dataflow import arguments, bindings_of
from amplint.code.expressions import last_name
from amplint.code.layout import layout_of
from amplint.code.module import CallSite, Function, Module
from amplint.code.statements import block_of
from amplint.values.provenance import Origin

_AVERAGED_MODEL = "torch.optim.swa_utils.AveragedModel"
#: Make the function of an `AveragedModel` that keeps an exponential average; torch's own default.
_EXPONENTIAL = ("get_ema_multi_avg_fn", "get_ema_avg_fn")
_DEFAULT_DECAY = 0.999
#: What a loop over the state of a module takes of the dict.
_PAIRS = frozenset(("items", "values"))


@dataclass(frozen=True, slots=True, eq=False)
class Average:
    """One place that moves an exponential average of weights a little, or builds what does.

    Args:
        node: the call or assignment that moves it.
        module: the expression of the module that is the average, or that it is a copy of.
        share: how much of the difference one update takes over; None where nothing says so.
    """

    node: ast.AST
    module: Origin
    share: float | None


def averages_of(view: AmpView) -> Iterator[Average]:
    """The averages that the functions of a file keep."""
    for site in view.module.calls:
        if site.dotted == _AVERAGED_MODEL and site.node.args:
            share = _share_of_function(view, site)
            if share is not None:
                yield Average(site.node, Origin(site.node.args[0], site.function), share)
    for loop, function in view.module.once(_loops_over_weights):
        yield from _updates(view, loop, function)


def _share_of_function(view: AmpView, site: CallSite) -> float | None:
    for given in arguments(site.node):
        if isinstance(given, ast.Call) and last_name(given.func) in _EXPONENTIAL:
            decays = arguments(given)
            return _rest(view, decays[0], site.function) if decays else 1 - _DEFAULT_DECAY
    return None


def _loops_over_weights(module: Module) -> list[tuple[ast.For, Function]]:
    """Loops over the parameters or the state of a module, or of two at once."""
    return [
        (node, function)
        for function in module.functions
        for node in function.nodes
        if isinstance(node, ast.For)
        and any(_owner(item, function) is not None for _, item in _paired(node))
    ]


def _paired(loop: ast.For) -> list[tuple[ast.expr, ast.expr]]:
    """What a loop goes over, each with its target: what is zipped one by one."""
    iterable, target = loop.iter, loop.target
    if not isinstance(iterable, ast.Call) or last_name(iterable.func) != "zip":
        return [(target, iterable)]
    return list(zip(target.elts, iterable.args)) if isinstance(target, ast.Tuple) else []


def _owner(iterable: ast.expr, function: Function) -> ast.expr | None:
    """`model` of `model.parameters()`, `model.state_dict().items()` and a name for such a dict."""
    taken = _called_on(iterable, _PAIRS)
    if taken is not None:
        return _called_on(_behind_names(taken, function), ("state_dict",))
    return _called_on(iterable, PARAMETERS)


def _called_on(node: ast.expr, names: Collection[str]) -> ast.expr | None:
    """What a node calls one of some methods of."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.value if node.func.attr in names else None
    return None


def _updates(view: AmpView, loop: ast.For, function: Function) -> Iterator[Average]:
    owners = {
        _element(target): owner
        for target, item in _paired(loop)
        if (owner := _owner(item, function)) is not None
    }
    layout = layout_of(function)
    for statement in loop.body:
        for node in layout.inside(statement):
            moved = _moved(view, node, function)
            if moved is None or _takes_gradients(node):
                continue
            target, share = moved
            name = _root(_behind_names(target, function))
            if name in owners:
                yield Average(node, Origin(owners[name], function), share)


def _takes_gradients(node: ast.AST) -> bool:
    """Whether a weight is moved along its gradient, as an optimizer does: that is no average."""
    return any(isinstance(part, ast.Attribute) and part.attr == "grad" for part in ast.walk(node))


def _element(target: ast.expr) -> str:
    """The name of a parameter in a loop's target: `p`, or `(name, p)`."""
    if isinstance(target, ast.Tuple) and len(target.elts) == 2:
        target = target.elts[1]
    return target.id if isinstance(target, ast.Name) else ""


def _root(expression: ast.expr) -> str:
    """`p` of `p`, `p.data` and `p.detach()`."""
    while True:
        if isinstance(expression, ast.Call) and last_name(expression.func) == "detach":
            expression = expression.func
        if not isinstance(expression, ast.Attribute) or expression.attr not in ("data", "detach"):
            return expression.id if isinstance(expression, ast.Name) else ""
        expression = expression.value


def _behind_names(target: ast.expr, function: Function) -> ast.expr:
    """What a name is bound to, if to one thing alone: `old = p.data`."""
    if isinstance(target, ast.Name):
        found = bindings_of(function).get(target.id, [])
        if len(found) == 1 and found[0].value is not None:
            return found[0].value
    return target


def _moved(
    view: AmpView, node: ast.AST, function: Function
) -> tuple[ast.expr, float | None] | None:
    """The tensor that a node moves in place towards another, and by which share."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        return _mixed(view, node.targets[0], node.value, function)
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        return _after_shrinking(view, node, function)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    target, given = node.func.value, arguments(node)
    if node.func.attr == "copy_" and given:
        return _mixed(view, target, given[0], function)
    if node.func.attr == "lerp_" and len(given) == 2:
        return target, _number(view, given[1], function)
    if (
        node.func.attr == "add_"
        and isinstance(target, ast.Call)
        and isinstance(target.func, ast.Attribute)
        and target.func.attr == "mul_"
        and target.args
    ):
        return target.func.value, _rest(view, target.args[0], function)
    return None


def _after_shrinking(
    view: AmpView, node: ast.AugAssign, function: Function
) -> tuple[ast.expr, float | None] | None:
    """`average += (1 - decay) * new` right behind `average *= decay`."""
    block = block_of(node, layout_of(function).parents[node])
    before = block[block.index(node) - 1] if block.index(node) else None
    if not isinstance(before, ast.AugAssign) or not isinstance(before.op, ast.Mult):
        return None
    if ast.unparse(before.target) != ast.unparse(node.target):
        return None
    return node.target, _rest(view, before.value, function)


def _mixed(
    view: AmpView, target: ast.expr, value: ast.expr, function: Function
) -> tuple[ast.expr, float | None] | None:
    """`average = decay * average + (1 - decay) * new`, in whatever order."""
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Add):
        return None
    root = _root(target)
    for side in (value.left, value.right):
        if not isinstance(side, ast.BinOp) or not isinstance(side.op, ast.Mult):
            continue
        for kept, decay in ((side.left, side.right), (side.right, side.left)):
            if root and _root(kept) == root and isinstance(target, ast.Attribute | ast.Name):
                return target, _rest(view, decay, function)
    return None


def _rest(view: AmpView, decay: ast.expr, function: Function) -> float | None:
    known = _number(view, decay, function)
    return None if known is None else 1 - known


def _number(view: AmpView, expression: ast.expr, function: Function) -> float | None:
    """The number that an expression is, or is by default."""
    for value in view.values.of(expression, function).by_default():
        if isinstance(value.content, (int, float)) and not isinstance(value.content, bool):
            return float(value.content)
    return None
