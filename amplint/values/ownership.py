"""Which modules an optimizer trains: from its constructor call to the models behind it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from amplint.project.dataflow import constant_of
from amplint.project.module import Function
from amplint.project.roles import last_name
from amplint.values.provenance import Activation, Origin

if TYPE_CHECKING:
    from amplint.rule import FileView

_DEPTH = 6
_PARAMETER_METHODS = frozenset(("parameters", "named_parameters"))
#: Calls that hand on what they are given.
_PASS_ON = frozenset(("list", "tuple", "chain", "sorted", "iter", "from_iterable", "filter"))
#: A comprehension or filter with one of these words takes only some parameters.
_SELECTS = re.compile(r"requires_grad|lora|adapter|trainable|startswith|\bin\b.*\bname|name")
_OPTIMIZER_CLASS = re.compile(
    r"^(?:Adam|AdamW|NAdam|RAdam|SparseAdam|Adamax|SGD|RMSprop|Adagrad|Adadelta|Rprop|LBFGS|ASGD"
    r"|Lion|Adafactor|AdaBelief|LARS|LAMB|Lamb|Ranger|MADGRAD|Adan|Muon|AdamWeightDecay"
    r"|Novograd|NovoGrad|AdaBound)$"
)


@dataclass(frozen=True, slots=True, eq=False)
class Owned:
    """A module whose parameters an optimizer holds.

    Args:
        module: the expression before `.parameters()`, where it is evaluated; its steps and
            conditions lead to the optimizer.
        optimizer: the constructor call.
        selected: whether only some of the parameters are taken.
    """

    module: Origin
    optimizer: Origin
    selected: bool


def owned_modules(
    view: FileView,
    optimizer: ast.expr,
    function: Function,
    activation: Activation | None = None,
) -> Iterator[Owned]:
    """The modules behind the optimizer that an expression stands for."""
    for built in view.values.origins.aliases(optimizer, function, activation):
        call = built.expression
        if isinstance(call, ast.Call) and is_optimizer_call(view, built):
            given = call.args[:1] or [k.value for k in call.keywords if k.arg == "params"]
            for parameters in given:
                yield from _modules(view, built.at(parameters, *_place(built)), built, False, 0)


def _place(origin: Origin) -> tuple[Function, Activation | None]:
    return origin.function, origin.activation


def is_optimizer_call(view: FileView, origin: Origin) -> bool:
    """Whether an expression builds an optimizer of torch, or one that is called like it."""
    node = origin.expression
    if not isinstance(node, ast.Call):
        return False
    if _is_optimizer_class(node.func, origin.function):
        return True
    if not isinstance(node.func, (ast.Name, ast.Attribute)) or "opt" not in last_name(node.func):
        return False
    found = view.values.origins.of(node.func, origin.function, origin.activation)
    return any(_is_optimizer_class(item.expression, item.function) for item in found.origins)


def _is_optimizer_class(callee: ast.expr, function: Function) -> bool:
    dotted = function.module.resolve(callee) or ""
    if dotted.startswith("torch.optim.") and ".lr_scheduler" not in dotted:
        return True
    return bool(_OPTIMIZER_CLASS.match(last_name(callee)))


def is_fused(built: Origin) -> bool:
    """Whether an optimizer is asked to be fused; it then takes float16 gradients (H05)."""
    call = built.expression
    assert isinstance(call, ast.Call)
    return any(
        item.arg == "fused" and constant_of(item.value) is not False for item in call.keywords
    )


def _modules(
    view: FileView, place: Origin, built: Origin, selected: bool, depth: int
) -> Iterator[Owned]:
    """Modules in an expression that yields parameters, or groups of them."""
    node = place.expression
    if depth > _DEPTH:
        return
    if isinstance(node, ast.Call) and _lists_parameters(node):
        assert isinstance(node.func, ast.Attribute)
        yield Owned(place.at(node.func.value, *_place(place)), built, selected)
        return
    for inner, some in _inside(node):
        there = place.at(inner, *_place(place))
        yield from _modules(view, there, built, selected or some, depth + 1)
    if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) or _is_project_call(view, place):
        for origin in view.values.origins.of(node, *_place(place)).origins:
            if origin.expression is not node:
                seen = origin.then(place.standing, place.steps, place.conditions)
                yield from _modules(view, seen, built, selected, depth + 1)


def _lists_parameters(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in _PARAMETER_METHODS


def _is_project_call(view: FileView, place: Origin) -> bool:
    node = place.expression
    if not isinstance(node, ast.Call) or last_name(node.func) in _PASS_ON:
        return False
    return view.objects.callee(node, place.function) is not None


def _inside(node: ast.expr) -> Iterator[tuple[ast.expr, bool]]:
    """The parts that parameters come from, each with whether it takes only some of them."""
    if isinstance(node, ast.Call) and last_name(node.func) in _PASS_ON:
        is_filter = last_name(node.func) == "filter"
        given = node.args[1:] if is_filter else node.args
        yield from ((item, is_filter) for item in given)
    elif isinstance(node, (ast.List, ast.Tuple)):
        yield from ((item, False) for item in node.elts)
    elif isinstance(node, ast.Starred):
        yield node.value, False
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values):
            if constant_of(key) == "params":
                yield value, False
    elif isinstance(node, ast.BinOp):
        yield node.left, False
        yield node.right, False
    elif isinstance(node, (ast.ListComp, ast.GeneratorExp)):
        tests = " ".join(ast.unparse(test) for part in node.generators for test in part.ifs)
        yield node.generators[0].iter, bool(tests and _SELECTS.search(tests))
        yield from ((part, True) for part, _ in _inside(node.elt))
