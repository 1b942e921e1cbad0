"""Which tensors are float16 where autocast runs a forward.

Under autocast, matrix products and convolutions return float16; views, products with numbers
and activations keep it; softmax, norms, sums, logarithms and powers go to float32 on CUDA
(PyTorch, Automatic Mixed Precision package, "CUDA Ops that can autocast"). A parameter that is
added promotes to float32. What is not one of these is unknown, and unknown is not half.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from amplint.amp import names
from amplint.amp.view import AmpView
from amplint.code.dataflow import Binding, bindings_of, constant_of
from amplint.code.expressions import last_name
from amplint.code.module import Function
from amplint.values.bindings import reaching
from amplint.values.conditions import conditions_at

#: Operations that autocast runs in float16, by the name of the function or method.
LOWERED = frozenset(
    ("matmul", "mm", "bmm", "mv", "addmm", "addmv", "addbmm", "baddbmm", "einsum", "linear")
    + ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
    + ("scaled_dot_product_attention", "chain_matmul")
)
LOWERED_LAYERS = frozenset(
    ("Linear", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "LazyLinear")
)
#: Methods and functions whose result has the dtype of their first tensor.
_KEEPING = frozenset(
    ("view", "reshape", "transpose", "permute", "contiguous", "unsqueeze", "squeeze", "flatten")
    + ("unflatten", "expand", "repeat", "view_as", "expand_as", "t", "movedim", "clone", "detach")
    + ("chunk", "split", "unbind", "masked_fill", "masked_fill_", "dropout", "relu", "leaky_relu")
    + ("sigmoid", "tanh", "gelu", "silu", "abs", "clamp", "clamp_", "div", "div_", "mul", "mul_")
    + ("triu", "tril", "flip", "roll", "narrow", "select", "relu_", "sigmoid_", "neg", "cuda")
)
_NUMBERS = frozenset(("sqrt", "int", "float", "len", "size", "pow", "dim", "numel", "max", "min"))
_DEPTH = 8


def half_operation(view: AmpView, tensor: ast.expr, function: Function) -> ast.expr | None:
    """The operation that makes a tensor float16, there under autocast; None where none is known."""
    return _half_operation(view, tensor, function, _DEPTH)


def is_cast(operation: ast.expr) -> bool:
    """Whether an operation makes its result float16 without any autocast."""
    return isinstance(operation, ast.Call) and last_name(operation.func) in ("half", "to")


def _half_operation(
    view: AmpView, tensor: ast.expr, function: Function, depth: int
) -> ast.expr | None:
    """The operation that a tensor's dtype comes from, if that is float16 under autocast."""
    if not depth:
        return None
    if isinstance(tensor, ast.Name):
        return _bound_operation(view, tensor, function, depth)
    if isinstance(tensor, ast.Attribute) and tensor.attr in ("data", "T", "mT"):
        return _half_operation(view, tensor.value, function, depth - 1)
    if isinstance(tensor, ast.Subscript):
        return _half_operation(view, tensor.value, function, depth - 1)
    if isinstance(tensor, ast.UnaryOp) and isinstance(tensor.op, ast.USub):
        return _half_operation(view, tensor.operand, function, depth - 1)
    if isinstance(tensor, ast.BinOp):
        return _of_arithmetic(view, tensor, function, depth)
    if isinstance(tensor, ast.Call):
        return _of_call(view, tensor, function, depth)
    return None


def _bound_operation(
    view: AmpView, name: ast.Name, function: Function, depth: int
) -> ast.expr | None:
    """All bindings that reach the use have to agree; `x += y` leaves the dtype as it is."""
    groups = reaching(bindings_of(function).get(name.id, []), name, function)
    found = [_agreed(view, group, name, function, depth) for group in groups]
    return found[0] if all(found) else None


def _agreed(
    view: AmpView, bindings: Sequence[Binding], use: ast.Name, function: Function, depth: int
) -> ast.expr | None:
    """The operation of the last binding; None unless all that may be the last one have one."""
    for binding in reversed(bindings):
        statement = binding.statement
        if isinstance(statement, ast.AugAssign):
            continue
        value = binding.value
        if value is None and isinstance(statement, ast.Assign):
            value = statement.value
        found = _half_operation(view, value, function, depth - 1) if value is not None else None
        if found is None or not conditions_at(statement, function, use):
            return found
    return None


def _of_arithmetic(
    view: AmpView, node: ast.BinOp, function: Function, depth: int
) -> ast.expr | None:
    if isinstance(node.op, ast.MatMult):
        return node
    if not isinstance(node.op, (ast.Mult, ast.Div, ast.Add, ast.Sub)):
        return None
    if _is_number(view, node.right, function):
        return _half_operation(view, node.left, function, depth - 1)
    if _is_number(view, node.left, function):
        return _half_operation(view, node.right, function, depth - 1)
    left = _half_operation(view, node.left, function, depth - 1)
    return left if left and _half_operation(view, node.right, function, depth - 1) else None


def _of_call(view: AmpView, call: ast.Call, function: Function, depth: int) -> ast.expr | None:
    name = last_name(call.func)
    dotted = function.module.resolve(call.func) or ""
    is_torch = dotted.startswith("torch.")
    is_method = isinstance(call.func, ast.Attribute) and not dotted
    if name in LOWERED and (is_torch or is_method):
        return call
    if name == "half" and is_method:
        return call
    if name == "to" and is_method:
        given = [*call.args, *(item.value for item in call.keywords)]
        dtypes = [value.dtype for item in given for value in view.values.of(item, function).values]
        if "float16" in dtypes and "float32" not in dtypes:
            return call
        return None
    if name in _KEEPING:
        first = call.args[0] if is_torch and call.args else None
        if is_method:
            assert isinstance(call.func, ast.Attribute)
            first = call.func.value
        return _half_operation(view, first, function, depth - 1) if first is not None else None
    return call if _is_layer(view, call, function) else None


def _is_layer(view: AmpView, call: ast.Call, function: Function) -> bool:
    """Whether a call runs a layer of torch that autocast runs in float16."""
    if not isinstance(call.func, (ast.Name, ast.Attribute)):
        return False
    found = view.values.origins.of(call.func, function)
    return bool(found.origins) and all(
        isinstance(origin.expression, ast.Call)
        and (dotted := origin.function.module.resolve(origin.expression.func) or "").startswith(
            "torch.nn."
        )
        and dotted.rpartition(".")[2] in LOWERED_LAYERS
        for origin in found.origins
    )


def _is_number(view: AmpView, node: ast.expr, function: Function, depth: int = 3) -> bool:
    """Whether an operand is a Python number: it does not promote."""
    if isinstance(node, ast.Constant):
        return True
    if isinstance(node, ast.UnaryOp):
        return _is_number(view, node.operand, function, depth)
    if isinstance(node, ast.BinOp):
        sides = (node.left, node.right)
        return all(_is_number(view, side, function, depth) for side in sides)
    if isinstance(node, ast.Call):
        dotted = function.module.resolve(node.func) or ""
        return last_name(node.func) in _NUMBERS and not dotted.startswith("torch.")
    if isinstance(node, ast.Subscript):
        return last_name(node.value) == "shape"
    if not depth:
        return False
    if isinstance(node, ast.Name) and function.name == "__init__":
        return True  # a size that a constructor gets; parameters are made by calls
    found = view.values.origins.of(node, function)
    return bool(found.origins) and all(
        origin.expression is not node
        and _is_number(view, origin.expression, origin.function, depth - 1)
        for origin in found.origins
    )


def is_float16_autocast(view: AmpView, call: ast.expr, function: Function) -> bool:
    """Whether an expression builds an autocast of torch that may run in float16 on a GPU."""
    dotted = function.module.resolve(call.func) if isinstance(call, ast.Call) else None
    if not isinstance(call, ast.Call) or dotted not in names.AUTOCASTS:
        return False
    given = {item.arg: item.value for item in call.keywords}
    is_device_form = dotted in names.DEVICE_AUTOCASTS
    arguments = call.args if is_device_form else call.args[1:]
    enabled = given.get("enabled")
    if enabled is None and is_device_form and arguments:
        enabled = arguments[0]
    if enabled is not None and view.values.of(enabled, function).only() is False:
        return False
    dtype = given.get("dtype")
    if dtype is None and not is_device_form and arguments:
        dtype = arguments[0]
    if dtype is None:  # float16 on GPUs, bfloat16 on the CPU
        device = given.get("device_type") or (None if is_device_form else (*call.args, None)[0])
        return constant_of(device) != "cpu" and ".cpu." not in dotted
    return any(view.values.of(dtype, function).with_dtype("float16"))
