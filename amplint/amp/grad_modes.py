"""Where autograd records: what switches it off and on, around a place and in all that call it.

And what makes tensors that gradients are kept for.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

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
#: It is on, whatever surrounds it.
ON = "on"
#: A flag decides: it is on or off.
OPEN = "open"
OFF = frozenset(("no_grad", "inference_mode"))
_BY_FLAG = {True: ON, False: "no_grad"}
#: Callers of callers are asked so many times.
_DEPTH = 3
#: Tensors that gradients are kept for, unless they are told not to be.
_PARAMETERS = frozenset(("torch.nn.Parameter", "torch.nn.parameter.Parameter"))


def switched(expression: ast.expr, module: Module) -> str:
    """What an expression does to the grad mode, as a decorator or in a `with` statement.

    Returns:
        "no_grad" or "inference_mode" where it is off; "on" where it is on; "open" where a flag
        decides; "" for anything else.
    """
    call = expression if isinstance(expression, ast.Call) else None
    kind = SWITCHES.get(module.resolve(call.func if call else expression) or "", "")
    if not kind:
        return ""
    if kind == "enable_grad":
        return ON
    argument = _argument(call)
    value = argument.value if isinstance(argument, ast.Constant) else None
    if kind == "set_grad_enabled":
        return _BY_FLAG.get(value, OPEN) if isinstance(value, bool) else OPEN
    # `@torch.inference_mode` hands over the function, which only looks like an argument.
    if argument is None or value is True:
        return kind
    return ON if value is False else OPEN


def mode_at(objects: Objects, node: ast.AST, function: Function, depth: int = _DEPTH) -> str:
    """The grad mode in which a node of a function runs, as `switched` names it.

    The innermost switch around it decides, or else whoever calls the function, where all are in sight
    and agree. "" where nothing switches.

    Args:
        node: in the function, or a decorator of it.
        depth: callers of callers are asked so many times.
    """
    kind = _around(objects, node, function)
    if kind:
        return kind
    sites = objects.every_call_of(function) if depth else ()
    if not sites:
        return ""
    kinds = {mode_at(objects, site.node, site.function, depth - 1) for site in sites}
    if len(kinds) > 1:
        return "no_grad" if kinds <= OFF else ""
    return kinds.pop()


def is_off(objects: Objects, node: ast.AST, function: Function) -> bool:
    """Whether no graph is recorded where a node of a function, or its decorator, runs."""
    return mode_at(objects, node, function) in OFF


def entered_mode(
    objects: Objects, expression: ast.expr, function: Function, depth: int = _DEPTH
) -> str:
    """The same as `switched` for a `with` item of a function.

    It may be a name, a choice, or one of the project's own context managers.

    Args:
        depth: choices, and managers that enter others, are followed so many times.
    """
    known = definition_of(expression, function) or expression
    if isinstance(known, ast.IfExp) and depth:
        sides = (known.body, known.orelse)
        return _agreed(entered_mode(objects, side, function, depth - 1) for side in sides)
    kind = switched(known, function.module)
    if kind or not isinstance(known, ast.Call):
        return kind
    manager = objects.callee(known, function)
    if manager is None or manager is function or not depth:
        return ""
    if is_decorated(manager, "contextmanager"):
        yields = (node for node in manager.nodes if isinstance(node, ast.Yield))
        return _agreed(_around(objects, node, manager, depth - 1) for node in yields)
    return _agreed(switched(value, manager.module) for value in returned(manager))


def _agreed(kinds: Iterable[str]) -> str:
    """What several ways to enter a block come to; they may enter none of them."""
    found = set(kinds)
    if len(found) < 2:
        return found.pop() if found else ""
    return OPEN


def _around(objects: Objects, node: ast.AST, function: Function, depth: int = _DEPTH) -> str:
    """The grad mode that the innermost block around a node sets, or a decorator of its function."""
    layout = layout_of(function)
    for block in layout.ancestors(node) if node in layout else ():
        items = block.items if isinstance(block, (ast.With, ast.AsyncWith)) else ()
        for item in reversed(items):
            kind = entered_mode(objects, item.context_expr, function, depth)
            if kind:
                return kind
    found = decorated(function)
    return found[0] if found is not None else ""


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
