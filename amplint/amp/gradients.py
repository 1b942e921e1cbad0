"""What happens to gradients inside one function: sizes taken of them, and scale arithmetic."""

from __future__ import annotations

import ast

from amplint.amp.roles import Roles
from amplint.amp.view import AmpView
from amplint.code.dataflow import Binding, bindings_of, names_in
from amplint.code.expressions import last_name
from amplint.code.layout import Layout
from amplint.code.module import Function
from amplint.code.tree import walk

#: What measures the size of a gradient.
MEASURES = frozenset(
    ("norm", "vector_norm", "matrix_norm", "abs", "pow", "square", "sum", "mean", "max", "amax")
    + ("std",)
)
#: Tests that are as right on scaled gradients as on unscaled ones.
FINITENESS = frozenset(("isnan", "isinf", "isfinite"))


def words_of(nodes: list[ast.AST]) -> set[str]:
    """The names and attribute names among some nodes."""
    return {getattr(node, "attr", "") or getattr(node, "id", "") for node in nodes}


def is_measured(layout: Layout, gradient: ast.AST) -> bool:
    """Whether the size of a gradient is taken in its statement, for more than finiteness."""
    statement = layout.statement(gradient)
    expressions = [node for node in layout.inside(statement) if isinstance(node, ast.expr)]
    if words_of(expressions) & FINITENESS:  # type: ignore[arg-type]
        return False
    for node in layout.ancestors(gradient):
        if node is statement:
            return False
        if isinstance(node, ast.Attribute) and node.attr in MEASURES:
            return True
        if isinstance(node, ast.Call) and last_name(node.func) in MEASURES:
            return True
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            return True
    return False


def derived_names(layout: Layout, statement: ast.stmt) -> set[str]:
    """The names that an assignment binds, and those computed from them further down."""
    names: set[str] = set()
    for node in layout.nodes:
        if not isinstance(node, (ast.Assign, ast.AugAssign)):
            continue
        follows = layout.before(statement, node) and names & names_in(node.value)
        if node is statement or follows:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {name for target in targets for name in names_in(target)}
    return names


def scaler_of(roles: Roles, layout: Layout, expression: ast.expr) -> str:
    """What `scaler.scale(...)` in an expression, or in the only value of a name, is called on."""
    values = [expression]
    if isinstance(expression, ast.Name):
        bindings = bindings_of(layout.function).get(expression.id, [])
        values = [binding.value for binding in bindings if binding.value is not None]
    for node in ast.walk(values[0]) if len(values) == 1 else ():
        callee = node.func if isinstance(node, ast.Call) else None
        if not isinstance(callee, ast.Attribute) or callee.attr != "scale":
            continue
        if roles.is_scaler(callee.value, layout.function):
            return ast.unparse(callee.value)
    return ""


def enters_a_loss(view: AmpView, layout: Layout, call: ast.Call, names: set[str]) -> bool:
    """Whether what is computed from the gradients is backpropagated, and never normalised.

    Here, or in a function that is given it.
    """
    rest = [node for node in layout.nodes if layout.before(call, node)]
    if any(
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Div)
        and names & names_in(node.left)
        and names & names_in(node.right)
        for node in rest
    ):
        return False
    calls = [node for node in rest if isinstance(node, ast.Call) and names & names_in(node)]
    return any(
        _goes_backward(node) or _goes_backward_in(view, layout.function, node, names)
        for node in calls
    )


def _goes_backward(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in ("backward", "scale")


def _goes_backward_in(view: AmpView, function: Function, call: ast.Call, names: set[str]) -> bool:
    """Whether a called function of the project backpropagates what it is given of some names."""
    callee = view.objects.callee(call, function)
    if callee is None or callee is function:
        return False
    given = view.objects.bind(call, function, callee).given
    taken = {word for word, argument in given.items() if names & names_in(argument)}
    inner = [node for node in callee.nodes if isinstance(node, ast.Call)]
    return any(_goes_backward(node) and taken & names_in(node) for node in inner)


def scale_change(layout: Layout, node: ast.AST) -> str:
    """Say "divides" or "multiplies" where a node changes gradients by the loss scale, else ""."""
    target: ast.expr
    if isinstance(node, ast.AugAssign) and isinstance(node.op, (ast.Div, ast.Mult)):
        target, factor, is_division = node.target, node.value, isinstance(node.op, ast.Div)
    elif isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp):
        target, factor = node.targets[0], node.value.right
        is_division = isinstance(node.value.op, ast.Div)
    elif isinstance(node, ast.Call) and last_name(node.func) in ("div_", "mul_") and node.args:
        assert isinstance(node.func, (ast.Attribute, ast.Name))
        target, factor, is_division = node.func, node.args[0], last_name(node.func) == "div_"
    else:
        return ""
    if not any(isinstance(part, ast.Attribute) and part.attr == "grad" for part in walk(target)):
        return ""
    values = [binding.value for name in names_in(factor) for binding in _bound(layout, name)]
    text = " ".join(ast.unparse(value) for value in (factor, *values) if value is not None)
    if "get_scale" not in text:
        return ""
    is_inverse = "/" in text or "reciprocal" in text
    return "divides" if is_division != is_inverse else "multiplies"


def _bound(layout: Layout, name: str) -> list[Binding]:
    return bindings_of(layout.function).get(name, [])
