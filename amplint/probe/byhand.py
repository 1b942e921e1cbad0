"""Gradients that code makes, changes or hands on itself."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amplint.code.expressions import last_name

if TYPE_CHECKING:
    from typing import TypeGuard

_HOOKS = frozenset(
    {
        *("register_hook", "register_post_accumulate_grad_hook"),
        *("register_full_backward_hook", "register_full_backward_pre_hook"),
    }
)
#: Attributes of a gradient that only tell something about it.
_TELLING = frozenset(
    {
        *("norm", "abs", "max", "min", "mean", "std", "sum", "isnan", "isinf", "isfinite"),
        *("shape", "dtype", "device", "is_sparse", "numel", "size", "dim"),
    }
)
#: The mark of optimizers that do what a scaler would.
_SCALES_ITSELF = "_step_supports_amp_scaling"
#: Other names of the same tensor.
_SAME = frozenset({"data", "detach"})
#: Functions that only tell something about a tensor.
_ASKING = frozenset({"isnan", "isinf", "isfinite", "norm", "vector_norm", "print", "is_tensor"})


def is_by_hand(node: ast.AST) -> TypeGuard[ast.expr | ast.stmt]:
    """`x.backward(g)`, `autograd.grad(...)`, a hook, `p.grad = g`; `p.grad = None` only clears."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr == "backward":
            return bool(node.args) or any(item.arg == "gradient" for item in node.keywords)
        if node.func.attr in _HOOKS:
            return True
        return node.func.attr == "grad" and last_name(node.func.value) == "autograd"
    if isinstance(node, (ast.Assign, ast.AugAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        cleared = isinstance(node.value, ast.Constant) and node.value.value is None
        return not cleared and any(
            isinstance(inner, ast.Attribute) and inner.attr == "grad"
            for target in targets
            for inner in ast.walk(target)
        )
    return False


def may_be_fused(tree: ast.AST) -> bool:
    """Whether an optimizer may take the scale and divide by it: by declaration, or by its setting
    `fused`, an argument, an attribute, a key, or a name of a module or class.

    What a function calls `fused` for itself reaches no optimizer under that name.
    """
    pending: list[tuple[ast.AST, bool]] = [(tree, False)]
    while pending:
        node, is_local = pending.pop()
        name = _set_name(node)
        if name == _SCALES_ITSELF or (
            name == "fused" and not (is_local and isinstance(node, ast.Name))
        ):
            return True
        is_local = is_local or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        pending += [(child, is_local) for child in ast.iter_child_nodes(node)]
    return False


def _set_name(node: ast.AST) -> object:
    """The name that a node gives a value, or may give one as a key."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        return node.attr
    if isinstance(node, ast.keyword):
        return node.arg
    return node.value if isinstance(node, ast.Constant) else None


def first_touch(tree: ast.AST) -> int:
    """The first row on which gradients may be changed, or get a name; 0 where none is.

    Asking about them (`p.grad is None`, `p.grad.norm()`) leaves them as they are.
    """
    told = {id(node) for asking in ast.walk(tree) for node in _told(asking)}
    rows = [
        node.lineno
        for node in ast.walk(tree)
        if is_by_hand(node)
        or (
            isinstance(node, ast.Attribute)
            and node.attr == "grad"
            and isinstance(node.ctx, ast.Load)
            and id(node) not in told
            and last_name(node.value) != "autograd"
        )
    ]
    return min(rows, default=0)


def touch_in_step(tree: ast.AST, name: str) -> int:
    """The row of the `step` of a class that stores gradients, or reads something about a scale."""
    for step in (
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and node.name == name
        for inner in node.body
        if isinstance(inner, ast.FunctionDef) and inner.name == "step"
    ):
        names = (getattr(node, "attr", getattr(node, "id", "")) for node in ast.walk(step))
        if any("scale" in name for name in names) or any(map(is_by_hand, ast.walk(step))):
            return step.lineno
    return 0


def _told(node: ast.AST) -> list[ast.expr]:
    """What an expression only asks something about."""
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    if isinstance(node, (ast.If, ast.IfExp, ast.While)):
        return [node.test]
    if isinstance(node, ast.BoolOp):
        return node.values
    if isinstance(node, ast.UnaryOp):
        return [node.operand]
    if isinstance(node, ast.Attribute) and node.attr in _TELLING:
        return [_itself(node.value)]
    if isinstance(node, ast.Call) and last_name(node.func) in _ASKING:
        return [_itself(argument) for argument in node.args]
    return []


def _itself(expression: ast.expr) -> ast.expr:
    """`p.grad` of `p.grad.data` and `p.grad.detach()`."""
    while True:
        if isinstance(expression, ast.Call) and last_name(expression.func) in _SAME:
            expression = expression.func
        elif isinstance(expression, ast.Attribute) and expression.attr in _SAME:
            expression = expression.value
        else:
            return expression
