"""What switches gradients off and on: `no_grad` and its like, and what makes tensors that keep them."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from amplint.code.arguments import is_decorated
from amplint.code.dataflow import arguments, constant_of
from amplint.code.definitions import returned
from amplint.code.expressions import last_name
from amplint.code.layout import layout_of
from amplint.code.module import Function, Module
from amplint.values.assumptions import definition_of
from amplint.values.objects import Objects

#: The text of a test -> how it comes out.
Assumed = Mapping[str, bool]

#: Dotted name -> kind. As a decorator each may stand with or without a call.
SWITCHES = {
    "torch.no_grad": "no_grad",
    "torch.autograd.no_grad": "no_grad",
    "torch.autograd.grad_mode.no_grad": "no_grad",
    "torch.inference_mode": "inference_mode",
    "torch.autograd.inference_mode": "inference_mode",
    "torch.autograd.grad_mode.inference_mode": "inference_mode",
    "torch.enable_grad": "enable_grad",
    "torch.autograd.enable_grad": "enable_grad",
    "torch.autograd.grad_mode.enable_grad": "enable_grad",
    "torch.set_grad_enabled": "set_grad_enabled",
    "torch.autograd.set_grad_enabled": "set_grad_enabled",
    "torch.autograd.grad_mode.set_grad_enabled": "set_grad_enabled",
}
ON = "on"
#: Tensors that gradients are kept for, unless they are told not to be.
_PARAMETERS = frozenset(("torch.nn.Parameter", "torch.nn.parameter.Parameter"))


def switched(expression: ast.expr, module: Module) -> str:
    """What an expression does to the grad mode, as a decorator or in a `with` statement.

    Returns:
        "no_grad" or "inference_mode" where it is off; "on" where it is on or may be; "" for
        anything else.
    """
    call = expression if isinstance(expression, ast.Call) else None
    kind = SWITCHES.get(module.resolve(call.func if call else expression) or "", "")
    if not kind:
        return ""
    if kind == "enable_grad":
        return ON
    argument = _argument(call)
    if kind == "set_grad_enabled":
        return "no_grad" if _constant(argument) is False else ON
    if kind == "inference_mode" and argument is not None and _constant(argument) is not True:
        # `@torch.inference_mode` hands over the function, which only looks like an argument.
        return ON
    return kind


def entered_mode(objects: Objects, expression: ast.expr, function: Function) -> str:
    """The same for a `with` item of a function that the project's own context managers may be.

    One that is entered in several ways, not all alike, leaves gradients as they were.
    """
    kind = switched(expression, function.module)
    if kind or not isinstance(expression, ast.Call):
        return kind
    manager = objects.callee(expression, function)
    if manager is None or manager is function:
        return ""
    if is_decorated(manager, "contextmanager"):
        kinds = [_around(node, manager) for node in manager.nodes if isinstance(node, ast.Yield)]
    else:
        kinds = [switched(value, manager.module) for value in returned(manager)]
    return kinds[0] if kinds and len(set(kinds)) == 1 else ""


def _around(node: ast.AST, function: Function) -> str:
    """The grad mode that the innermost block around a node sets."""
    blocks = layout_of(function).ancestors(node)
    items = [
        item
        for block in blocks
        if isinstance(block, (ast.With, ast.AsyncWith))
        for item in reversed(block.items)
    ]
    kinds = (switched(item.context_expr, function.module) for item in items)
    return next(filter(None, kinds), "")


def chosen(expression: ast.expr, function: Function) -> ast.IfExp | None:
    """The choice that a `with` statement enters the outcome of: `a() if flag else b()`."""
    known = definition_of(expression, function) or expression
    return known if isinstance(known, ast.IfExp) else None


def taken(expression: ast.expr, function: Function, assumed: Assumed) -> ast.expr:
    """What a `with` statement enters where some tests are known; the choice itself elsewhere."""
    choice = chosen(expression, function)
    side = assumed.get(ast.unparse(choice.test)) if choice is not None else None
    if choice is None or side is None:
        return expression
    return choice.body if side else choice.orelse


def _argument(call: ast.Call | None) -> ast.expr | None:
    if call is None:
        return None
    named = (item.value for item in call.keywords if item.arg == "mode")
    return call.args[0] if call.args else next(named, None)


def _constant(expression: ast.expr | None) -> object:
    return expression.value if isinstance(expression, ast.Constant) else None


def decorated(function: Function) -> tuple[str, ast.expr] | None:
    """The innermost decorator that switches the grad mode, and what it switches to."""
    decorators = getattr(function.node, "decorator_list", [])
    for decorator in reversed(decorators):
        kind = switched(decorator, function.module)
        if kind:
            return kind, decorator
    return None


def is_grad_switch(call: ast.Call, module: Module) -> bool:
    """Whether a call is `torch.set_grad_enabled(...)`."""
    return SWITCHES.get(module.resolve(call.func) or "") == "set_grad_enabled" or (
        last_name(call.func) == "set_grad_enabled"
    )


def makes_leaf(call: ast.Call, dotted: str | None) -> bool:
    """Whether a call makes a tensor that gradients are kept for: `torch.ones(1, requires_grad=True)`.

    A parameter is one unless it is told not to be.
    """
    given = {item.arg: constant_of(item.value) for item in call.keywords}
    if "requires_grad" in given:
        return given["requires_grad"] is not False
    return dotted in _PARAMETERS


def asks_for_gradients(call: ast.Call) -> bool:
    """Whether a call of `requires_grad_` asks for gradients, and does not refuse them."""
    return all(constant_of(item) is not False for item in arguments(call))
