"""What one call does to the dtype of the model that it is called on."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from amplint.amp.view import AmpView
from amplint.code.arguments import first_parameter
from amplint.code.expressions import last_name, path_text
from amplint.code.layout import layout_of
from amplint.code.module import Class, Function
from amplint.code.tree import walk
from amplint.values.conditions import conditions_at
from amplint.values.provenance import Condition, Origin
from amplint.values.values import Value

_CASTS = {"half": "float16", "float": "float32", "bfloat16": "bfloat16", "double": "float64"}
#: Methods that cast to the dtype they are given.
_CONVERTERS = frozenset(("to", "type", "cuda"))
#: Keywords that hold a dtype.
DTYPE_KEYWORDS = frozenset(("dtype", "torch_dtype"))


@dataclass(frozen=True, slots=True, eq=False)
class Cast:
    """What one call does to the dtype of what it is called on.

    Args:
        dtype: canonical name; "" where it may be several or is not known.
        value: the argument's value where it is float16 (or whatever was asked for).
    """

    dtype: str
    value: Value | None = None


def cast_of(view: AmpView, call: ast.Call, place: Origin, wanted: str = "float16") -> Cast | None:
    """What dtype a method call casts to; None if it casts nothing.

    Args:
        place: the function and activation that evaluate the call.
        wanted: the dtype that is looked for among several.
    """
    if not isinstance(call.func, ast.Attribute):
        return None
    name = call.func.attr
    if name in _CASTS and not call.args:
        return Cast(_CASTS[name])
    if name == "apply":
        return Cast(wanted) if _applies_cast(view, call, place, wanted) else None
    if name not in _CONVERTERS:
        return None
    candidates = [item.value for item in call.keywords if item.arg in DTYPE_KEYWORDS]
    if not candidates:
        candidates = [item for item in call.args[:2] if not isinstance(item, ast.Constant)]
    for argument in candidates:
        possible = view.values.of(argument, place.function, place.activation)
        found = [value for value in possible.values if value.dtype is not None]
        for value in sorted(found, key=lambda value: -value.firmness):
            if value.dtype == wanted:
                return Cast(wanted, value)
        if found:
            return Cast(found[0].dtype or "")
        if any(item.arg in DTYPE_KEYWORDS for item in call.keywords):
            return Cast("")
    return None


def _applies_cast(view: AmpView, call: ast.Call, place: Origin, wanted: str) -> bool:
    """Whether `model.apply(function)` surely casts some of the layers that a model is built of."""
    assert isinstance(call.func, ast.Attribute)
    function = view.objects.symbol(call.args[0], place.function) if len(call.args) == 1 else None
    layer = first_parameter(function) if isinstance(function, Function) else ""
    if not isinstance(function, Function) or not layer:
        return False
    for node in layout_of(function).nodes:
        taken = _cast_in_place(node, layer)
        cast = cast_of(view, taken, Origin(taken, function), wanted) if taken is not None else None
        if cast is None or cast.dtype != wanted:
            continue
        tests = conditions_at(node, function)
        if all(_has_layers(view, item, layer, call.func.value, place) for item in tests):
            return True
    return False


def _cast_in_place(node: ast.AST, layer: str) -> ast.Call | None:
    """The cast in `layer.half()` as a statement, and in `layer.weight.data = layer.weight.half()`."""
    call = node.value if isinstance(node, (ast.Expr, ast.Assign)) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return None
    of = path_text(call.func.value) or ""
    if not isinstance(node, ast.Assign):
        return call if of == layer else None
    target = path_text(node.targets[0]) or ""
    is_same = target.endswith(".data") and target[:-5] == of.removesuffix(".data")
    return call if is_same and of.startswith(f"{layer}.") else None


def _has_layers(view: AmpView, item: Condition, layer: str, model: ast.expr, place: Origin) -> bool:
    """Whether a test asks for a class that the model is built of."""
    test = item.test
    if not isinstance(test, ast.Call) or last_name(test.func) != "isinstance" or not item.side:
        return False
    if len(test.args) != 2 or path_text(test.args[0]) != layer:
        return False
    kinds = test.args[1].elts if isinstance(test.args[1], ast.Tuple) else [test.args[1]]
    asked = {item.function.module.resolve(kind) for kind in kinds} - {None}
    return not asked.isdisjoint(_classes_built(view, model, place))


def _classes_built(view: AmpView, model: ast.expr, place: Origin) -> Iterator[str | None]:
    """The classes whose objects a model is, or its constructor builds; not what is inside those."""
    for source in view.values.origins.aliases(model, place.function, place.activation):
        if not isinstance(source.expression, ast.Call):
            continue
        parts = [(part, source.function) for part in walk(source.expression)]
        owner = view.objects.symbol(source.expression.func, source.function)
        init = view.objects.method(owner, "__init__") if isinstance(owner, Class) else None
        if init is not None:
            parts += [(node, init) for node in init.nodes]
        for part, function in parts:
            if isinstance(part, ast.Call):
                yield function.module.resolve(part.func)
