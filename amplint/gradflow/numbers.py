"""What is no tensor: counts, sizes and settings, which bring nothing into a graph."""

from __future__ import annotations

import ast

from amplint.code.arguments import parameters
from amplint.code.dataflow import constant_of
from amplint.code.expressions import last_name
from amplint.code.module import Function
from amplint.values.values import Values

#: Builtins whose result holds nothing of what they are given.
_COUNTING = frozenset(
    ("all", "any", "bool", "callable", "hasattr", "hash", "id", "isinstance", "issubclass", "len")
    + ("print", "range", "repr", "str", "type")
)
#: Methods of a tensor that say how large it is (`torch/_C/__init__.pyi`).
_SIZES = frozenset(("size", "numel", "nelement", "dim", "ndimension", "element_size", "stride"))


def counts(call: ast.Call, function: Function) -> bool:
    """Whether a call gives a number, a text or a bool: `len(batch)`, `images.size(0)`."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr in _SIZES
    if not isinstance(call.func, ast.Name) or call.func.id not in _COUNTING:
        return False
    return function.module.scopes.resolve(call.func).kind == "builtin"


def is_number(values: Values, node: ast.expr, function: Function) -> bool:
    """Whether a name or an attribute is a number: by its values, or declared as a whole one.

    Losses are declared as `float` though they are tensors, so that word says nothing.
    """
    possible = values.of(node, function)
    if possible.values and possible.complete:
        return all(isinstance(item.content, (int, float)) for item in possible.values)
    if isinstance(node, ast.Name):
        return _is_whole(node, function)
    stored = values.origins.objects.bindings(node, function) or ()
    return bool(stored) and all(_is_whole(item.value, item.function) for item in stored)


def _is_whole(node: ast.expr | None, function: Function) -> bool:
    """Whether an expression is a number, or a parameter that is declared as a whole one.

    A whole number as its default declares it, too.
    """
    if isinstance(node, ast.Constant):
        return isinstance(node.value, (int, float))
    known = parameters(function).get(node.id) if isinstance(node, ast.Name) else None
    if known is None:
        return False
    is_int = last_name(known.annotation or ast.Name("")) == "int"
    return is_int or isinstance(constant_of(known.default), int)
