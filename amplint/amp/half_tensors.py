"""Which tensors are float16 where autocast runs a forward.

Under autocast, matrix products and convolutions return float16; views, products with numbers
and activations keep it; softmax, norms, sums, logarithms and powers go to float32 on CUDA
(PyTorch, Automatic Mixed Precision package, "CUDA Ops that can autocast"). A parameter that is
added promotes to float32. What is not one of these is unknown, and unknown is not half.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from amplint.amp.library_objects import makers
from amplint.amp.view import AmpView
from amplint.code.dataflow import Binding, bindings_of, constant_of
from amplint.code.definitions import returned
from amplint.code.expressions import last_name
from amplint.code.module import Function
from amplint.values.bindings import reaching
from amplint.values.conditions import conditions_at
from amplint.values.kinds import same_object

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
SAME_DTYPE = frozenset(
    ("view", "reshape", "transpose", "permute", "contiguous", "unsqueeze", "squeeze", "flatten")
    + ("unflatten", "expand", "repeat", "view_as", "expand_as", "t", "movedim", "clone", "detach")
    + ("chunk", "split", "unbind", "masked_fill", "masked_fill_", "dropout", "relu", "leaky_relu")
    + ("sigmoid", "tanh", "gelu", "silu", "abs", "clamp", "clamp_", "div", "div_", "mul", "mul_")
    + ("triu", "tril", "flip", "roll", "narrow", "select", "relu_", "sigmoid_", "neg", "cuda")
    + ("amax", "amin", "sqrt", "mean", "var")
)
#: Layers whose result has the dtype of what they get.
_KEEPING_LAYERS = frozenset(
    ("ReLU", "LeakyReLU", "GELU", "SiLU", "ELU", "Tanh", "Sigmoid", "Hardtanh", "ReLU6", "Mish")
    + ("Dropout", "Dropout1d", "Dropout2d", "Identity", "Flatten", "MaxPool2d")
)
#: What autocast runs in float32, and what keeps the dtype where no autocast runs.
_RAISED = frozenset(
    ("sum", "prod", "cumsum", "cumprod", "norm", "softmax", "log_softmax", "exp", "log", "pow")
    + ("rsqrt", "normalize", "layer_norm")
)
#: Losses of torch.nn that autocast runs in float32, and gives in float32 (ATen's autocast_mode.h,
#: AT_FORALL_FP32), with their functions; tests/amp/test_raised_losses.py runs each.
RAISED_LOSSES = {
    "BCEWithLogitsLoss": "binary_cross_entropy_with_logits",
    "CosineEmbeddingLoss": "cosine_embedding_loss",
    "CrossEntropyLoss": "cross_entropy",
    "HingeEmbeddingLoss": "hinge_embedding_loss",
    "HuberLoss": "huber_loss",
    "KLDivLoss": "kl_div",
    "L1Loss": "l1_loss",
    "MSELoss": "mse_loss",
    "MarginRankingLoss": "margin_ranking_loss",
    "MultiMarginLoss": "multi_margin_loss",
    "NLLLoss": "nll_loss",
    "PoissonNLLLoss": "poisson_nll_loss",
    "SmoothL1Loss": "smooth_l1_loss",
    "SoftMarginLoss": "soft_margin_loss",
    "TripletMarginLoss": "triplet_margin_loss",
}
_CASTS = frozenset(("to", "type"))
_NUMBERS = frozenset(("sqrt", "int", "float", "len", "size", "pow", "dim", "numel", "max", "min"))
#: What makes a layer one that autocast on a GPU leaves alone.
_LEFT = frozenset(("double", "cpu"))
_DEPTH = 16

#: An expression, and the function that evaluates it.
Place = tuple[ast.expr, Function]


def is_raised_loss(view: AmpView, call: ast.Call, function: Function) -> bool:
    """Whether a call computes one of torch's losses that autocast runs in float32."""
    dotted = function.module.resolve(call.func)
    if dotted is not None:
        home, _, name = dotted.rpartition(".")
        return home == "torch.nn.functional" and name in RAISED_LOSSES.values()
    if not isinstance(call.func, (ast.Name, ast.Attribute)):
        return False
    made = makers(call.func, function, view.objects)
    return bool(made) and all(map(_is_raised_class, made))


def _is_raised_class(dotted: str) -> bool:
    home, _, name = dotted.rpartition(".")
    return home in ("torch.nn", "torch.nn.modules.loss") and name in RAISED_LOSSES


@dataclass(frozen=True, slots=True)
class Source:
    """The operation that makes a tensor float16, and the function that computes it."""

    node: ast.expr
    function: Function

    @property
    def is_cast(self) -> bool:
        """Whether it does so without any autocast."""
        return isinstance(self.node, ast.Call) and last_name(self.node.func) in ("half", *_CASTS)


@dataclass(frozen=True, slots=True)
class HalfReading:
    """Reads which tensors are float16.

    Args:
        autocast: whether float16 autocast is on; without it only casts make a tensor float16, and
            sums and norms leave it so.
        given: what calls in sight pass for a parameter of a function.
    """

    view: AmpView
    autocast: bool = True
    given: Callable[[Function, str], Iterable[Place]] = lambda function, name: ()

    def of(self, tensor: ast.expr, function: Function, depth: int = _DEPTH) -> Source | None:
        """The operation that a tensor's dtype comes from if that is float16, None if unknown."""
        if not depth:
            return None
        if isinstance(tensor, ast.Name):
            return self._bound(tensor, function, depth)
        if isinstance(tensor, ast.Attribute) and tensor.attr in ("data", "T", "mT"):
            return self.of(tensor.value, function, depth - 1)
        if isinstance(tensor, ast.Subscript):
            found = self.of(tensor.value, function, depth - 1)
            return found or self._entry(tensor, function, depth)
        if isinstance(tensor, ast.UnaryOp) and isinstance(tensor.op, ast.USub):
            return self.of(tensor.operand, function, depth - 1)
        if isinstance(tensor, ast.BinOp):
            return self._arithmetic(tensor, function, depth)
        if isinstance(tensor, ast.Call):
            return self._call(tensor, function, depth)
        return None

    def of_dtype(self, dtype: ast.expr, function: Function, depth: int = _DEPTH) -> Source | None:
        """The operation behind `x.dtype`, also where that is handed to a function."""
        if not depth:
            return None
        if isinstance(dtype, ast.Attribute) and dtype.attr == "dtype":
            return self.of(dtype.value, function, depth - 1)
        if not isinstance(dtype, ast.Name):
            return None
        sources = [self.of_dtype(*place, depth - 1) for place in self._behind(dtype, function)]
        return sources[0] if sources and all(sources) else None

    def _behind(self, node: ast.expr, function: Function) -> list[Place]:
        """What a name is given, by all calls for a parameter, or what a call returns, if known."""
        back = self.view.values.origins.back(node, function, None)
        if back is not None:
            is_whole = back.complete and not any(place.part for place in back.places)
            return [(item.expression, item.function) for item in back.places if is_whole]
        if not isinstance(node, ast.Call):
            return []
        run = self.view.objects.targets(node, function)
        return [] if run.unknown else [(item, it) for it in run.functions for item in returned(it)]

    def _returned(self, call: ast.Call, function: Function, depth: int) -> Source | None:
        """What a function of the project returns, whichever `return` it comes to."""
        sources = [self.of(*place, depth - 1) for place in self._behind(call, function)]
        return sources[0] if sources and all(sources) else None

    def _passed(self, name: ast.Name, function: Function, depth: int) -> Source | None:
        """What one of the calls passes for a parameter: each is a way of its own to get there."""
        sources = (self.of(*place, depth - 1) for place in self.given(function, name.id))
        return next(filter(None, sources), None)

    def _entry(self, node: ast.Subscript, function: Function, depth: int) -> Source | None:
        """What stands under a constant key of the dicts that a value may be."""
        key = constant_of(node.slice)
        entries = self._entries((node.value, function), key, depth) if key is not ... else []
        sources = [place and self.of(*place, depth - 1) for place in entries]
        return sources[0] if sources and all(sources) else None

    def _entries(self, place: Place, key: object, depth: int) -> list[Place | None]:
        """The entries of all dicts that a value may be; None for what is no dict in sight."""
        display, function = place
        if isinstance(display, ast.Dict):
            value = _only_entry(display, key)
            return [None if value is None else (value, function)]
        behind = self._behind(display, function) if depth else []
        return [e for each in behind for e in self._entries(each, key, depth - 1)] or [None]

    def _bound(self, name: ast.Name, function: Function, depth: int) -> Source | None:
        """All bindings that reach the use have to agree; `x += y` leaves the dtype as it is."""
        bindings = bindings_of(function).get(name.id, [])
        if not bindings:  # a parameter that stays as it was passed
            return self._passed(name, function, depth)
        groups = reaching(bindings, name, function)
        found = [self._agreed(group, name, function, depth) for group in groups]
        return found[0] if all(found) else None

    def _agreed(
        self, bindings: Sequence[Binding], use: ast.Name, function: Function, depth: int
    ) -> Source | None:
        """Of the last binding; None unless all that may be the last one have one."""
        for binding in reversed(bindings):
            statement = binding.statement
            if isinstance(statement, ast.AugAssign):
                continue
            value = binding.value
            if value is None and isinstance(statement, ast.Assign):
                value = statement.value
            found = self.of(value, function, depth - 1) if value is not None else None
            if found is None or not conditions_at(statement, function, use):
                return found
        return None

    def _arithmetic(self, node: ast.BinOp, function: Function, depth: int) -> Source | None:
        if isinstance(node.op, ast.MatMult):
            return self._product(node, [node.left, node.right], function, depth)
        if not isinstance(node.op, (ast.Mult, ast.Div, ast.Add, ast.Sub)):
            return None
        if _is_number(self.view, node.right, function):
            return self.of(node.left, function, depth - 1)
        if _is_number(self.view, node.left, function):
            return self.of(node.right, function, depth - 1)
        return self._both([node.left, node.right], function, depth)

    def _both(self, parts: Sequence[ast.expr], function: Function, depth: int) -> Source | None:
        """Float16 only if all parts are: another dtype would promote the result."""
        sources = [self.of(part, function, depth - 1) for part in parts]
        return sources[0] if sources and all(sources) else None

    def _product(
        self, node: ast.expr, factors: Sequence[ast.expr], function: Function, depth: int
    ) -> Source | None:
        """Autocast computes it in float16 whatever the factors are."""
        return Source(node, function) if self.autocast else self._both(factors, function, depth)

    def _call(self, call: ast.Call, function: Function, depth: int) -> Source | None:
        name = last_name(call.func)
        dotted = function.module.resolve(call.func) or ""
        is_torch = dotted.startswith("torch.")
        is_method = isinstance(call.func, ast.Attribute) and not dotted
        if not (is_torch or is_method):
            return self._layer(call, function) or self._returned(call, function, depth)
        receiver = [call.func.value] if is_method and isinstance(call.func, ast.Attribute) else []
        tensors = [*receiver, *call.args]
        if name in LOWERED:
            factors = [item for item in tensors if not isinstance(item, ast.Constant)]
            return self._product(call, factors, function, depth)
        if name == "half" and is_method:
            return Source(call, function)
        if name in _CASTS and is_method:
            return self._cast(call, function, depth)
        if name in SAME_DTYPE or (name in _RAISED and not self.autocast):
            return self.of(tensors[0], function, depth - 1) if tensors else None
        return self._layer(call, function) or self._returned(call, function, depth)

    def _cast(self, call: ast.Call, function: Function, depth: int) -> Source | None:
        given = [*call.args, *(item.value for item in call.keywords)]
        values = self.view.values
        dtypes = [value.dtype for item in given for value in values.of(item, function).values]
        if "float16" in dtypes:
            return Source(call, function) if "float32" not in dtypes else None
        sources = (self.of_dtype(item, function, depth - 1) for item in given)
        return next((source for source in sources if source is not None), None)

    def _layer(self, call: ast.Call, function: Function) -> Source | None:
        """A call of a layer of torch that autocast runs in float16."""
        if not self.autocast or not isinstance(call.func, (ast.Name, ast.Attribute, ast.Subscript)):
            return None
        found = self.view.values.origins.of(call.func, function)
        runs = [_is_lowered_layer(item.expression, item.function) for item in found.origins]
        return Source(call, function) if runs and all(runs) else None


def _only_entry(display: ast.Dict, key: object) -> ast.expr | None:
    """The value under a key of a dict display, if no other may be."""
    pairs = zip(display.keys, display.values)
    found = [value for name, value in pairs if name is None or constant_of(name) in (key, ...)]
    return found[0] if len(found) == 1 else None


def _is_lowered_layer(built: ast.expr, function: Function) -> bool:
    """Whether autocast runs the layer that an expression builds, or its last part, in float16."""
    if not isinstance(built, ast.Call):
        return False
    inner = same_object(built)
    if inner is not None:  # `Linear(2, 2).to(device)`
        return last_name(built.func) not in _LEFT and _is_lowered_layer(inner, function)
    dotted = function.module.resolve(built.func) or ""
    if not dotted.startswith("torch.nn."):
        return False
    name = dotted.rpartition(".")[2]
    if name != "Sequential":
        return name in LOWERED_LAYERS
    for part in reversed(built.args):
        dotted = (function.module.resolve(part.func) or "") if isinstance(part, ast.Call) else ""
        if dotted.rpartition(".")[2] not in _KEEPING_LAYERS:
            return _is_lowered_layer(part, function)
    return False


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
