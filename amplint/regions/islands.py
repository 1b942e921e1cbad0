"""What computes in float32 inside, or before, an autocast region, so that its backward suffers.

Autograd runs the backward of an operation in the dtype of its operands. With autocast on, the
matrix products of a backward are cast once more: that changes a gradient only where the forward
multiplied in float32. Elsewhere the gradients are equal bit for bit (measured, torch 2.13).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from amplint.amp.half_tensors import LOWERED
from amplint.code.dataflow import bindings_of, names_in
from amplint.code.expressions import last_name, path_text
from amplint.code.layout import layout_of
from amplint.code.module import Class, Function
from amplint.regions.regions import Inside, Region, Regions, is_off
from amplint.values.callables import KEEPING
from amplint.values.decorators import Decorator, decorators_of
from amplint.values.objects import Objects

#: Functions and layers of torch whose forward autocast leaves in float32, or whose backward
#: multiplies float32 operands all the same; each was run with the backward inside and behind.
_ISLANDS = frozenset(
    ("torch.cdist", "torch.inverse", "torch.cholesky", "torch.linalg.cholesky")
    + ("torch.linalg.inv", "torch.linalg.solve", "torch.nn.Bilinear")
    + ("torch.nn.functional.bilinear", "torch.nn.utils.parametrizations.spectral_norm")
)
_LAYERS = frozenset(
    ("Linear", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "LSTM", "GRU")
    + ("ConvTranspose3d", "RNN", "MultiheadAttention", "TransformerEncoderLayer", "Bilinear")
)
#: Names of the class that custom autograd functions derive from.
AUTOGRAD_FUNCTIONS = frozenset(("torch.autograd.Function", "torch.autograd.function.Function"))
#: Decorators that leave alone under which autocast a method runs.
_HARMLESS = KEEPING - {"custom_fwd", "custom_bwd", "autocast"}
_DEPTH = 4


@dataclass(frozen=True, slots=True, eq=False)
class Island:
    """Something that multiplies in float32.

    Args:
        node: the call or product.
        function: where it stands.
        words: what it is, for the message and the path.
    """

    node: ast.AST
    function: Function
    words: str


def island_of(regions: Regions, region: Region, backward: Inside) -> Island | None:
    """What makes a backward in a region differ from one behind it; None where nothing in sight."""
    found = next(_functions(regions, region, backward), None)
    found = found or next(_switched_off(regions, region), None)
    return found or next(_before(regions, region, backward), None)


def _functions(regions: Regions, region: Region, backward: Inside) -> Iterator[Island]:
    """Calls in a region that multiply in float32 by themselves, or in their backward."""
    for item in regions.inside(region):
        if not _is_of_loss(region.function, _seen_from(item), _seen_from(backward)):
            continue
        if item.function.module.resolve(item.call.func) in _ISLANDS or _is_built_as(
            regions, item.call, item.function, _ISLANDS
        ):
            yield Island(item.call, item.function, "computes in float32")
        owner = applied_function(regions, item.call, item.function)
        if owner is not None and _multiplies_backward(regions, owner):
            yield Island(item.call, item.function, "has no `custom_bwd`")


def _seen_from(item: Inside) -> ast.Call:
    """The call in the region's own function that leads to a call."""
    return item.trail[0][0] if item.trail else item.call


def _is_of_loss(function: Function, call: ast.Call, backward: ast.Call) -> bool:
    """Whether the loss of a backward may be computed by a call: through names, and what fills them."""
    layout = layout_of(function)
    if backward not in layout or call not in layout:
        return True
    fills: dict[str, list[ast.AST]] = {}
    for node in layout.nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            fills.setdefault(path_text(node.func.value) or "", []).append(node)
    if not any(True for _ in _sources(function, _started_from(backward))):
        return True  # the loss comes from elsewhere
    pending: list[ast.AST] = [backward]
    seen: set[str] = set()
    while pending:
        for part in layout.inside(pending.pop()):
            if part is call:
                return True
            path = path_text(part) if isinstance(part, ast.expr) else None
            if path and path not in seen:
                seen.add(path)
                pending += fills.get(path, ())
                pending += _sources(function, path)
    return False


def _started_from(backward: ast.Call) -> str:
    """The path of the loss in `loss.backward()`, `scaler.scale(loss).backward()`, `run(loss)`."""
    callee = backward.func
    inner = callee.value if isinstance(callee, ast.Attribute) else None
    given = inner.args if isinstance(inner, ast.Call) else backward.args
    loss = given[0] if given else inner
    return (path_text(loss) if loss is not None else None) or ""


def _sources(function: Function, path: str) -> Iterator[ast.AST]:
    """What gives a path its values: assignments, and what loops and blocks take them from."""
    for item in bindings_of(function).get(path, ()):
        if item.source is not None:
            yield item.source


def applied_function(regions: Regions, call: ast.Call, function: Function) -> Class | None:
    """The project's autograd function that a call applies: `Owner.apply(...)`, or a name for it."""
    callee: ast.expr | None = call.func
    if isinstance(callee, ast.Name):
        found = regions.objects.bindings(callee, function) or []
        values = [(item.value, item.function) for item in found if item.value is not None]
        callee, function = values[0] if len(values) == 1 else (None, function)
    if not isinstance(callee, ast.Attribute) or callee.attr != "apply":
        return None
    owner = regions.objects.symbol(callee.value, function)
    if not isinstance(owner, Class):
        return None
    return owner if regions.objects.base_names(owner) & AUTOGRAD_FUNCTIONS else None


def _multiplies_backward(regions: Regions, owner: Class) -> bool:
    """Whether the backward of a function multiplies with autocast as it finds it."""
    backward = regions.objects.method(owner, "backward")
    if backward is None or regions.spans(backward) or casting(regions.objects, backward):
        return False
    return _product(regions, backward, backward.nodes) is not None


def casting(objects: Objects, method: Function) -> list[Decorator]:
    """The decorators by which a method of an autograd function runs under an autocast of its own.

    `custom_fwd` and `custom_bwd`, by whatever name, and those that nobody in sight knows.
    """
    found = decorators_of(objects, method)
    return [item for item in found if item.dotted.rpartition(".")[2] not in _HARMLESS]


def _switched_off(regions: Regions, region: Region) -> Iterator[Island]:
    """Products under `autocast(enabled=False)` in what a region runs."""
    own = [node for part in region.parts for node in layout_of(region.function).inside(part)]
    places = [(region.function, frozenset(own))]
    places += [(known, frozenset(known.nodes)) for known, _ in regions.enters(region)]
    for function, nodes in places:
        layout = layout_of(function)
        for span, found in regions.spans(function):
            inner = [node for part in span.parts for node in layout.inside(part) if node in nodes]
            product = _product(regions, function, inner) if is_off(found) else None
            if product is not None:
                yield Island(product, function, "computes in float32")


def _before(regions: Regions, region: Region, backward: Inside) -> Iterator[Island]:
    """Products before a region, in the function that opens it, that the loss comes from."""
    function, layout = region.function, layout_of(region.function)
    call = backward.trail[0][0] if backward.trail else backward.call
    pending = names_in(call)
    for _ in range(_DEPTH):
        bindings = [item for name in pending for item in bindings_of(function).get(name, ())]
        pending = set()
        for item in bindings:
            if item.value is None or not layout.reaches(item.statement, call):
                continue
            if regions.around(item.value, function) is not None:
                pending |= names_in(item.value)
                continue
            product = _product(regions, function, layout.inside(item.value))
            if product is not None:
                yield Island(product, function, "computed in float32, before the region")


def _product(
    regions: Regions, function: Function, nodes: list[ast.AST], depth: int = _DEPTH
) -> ast.AST | None:
    """A matrix product among some nodes, or in what they run: an operator, a function, a layer."""
    for node in nodes:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            return node
        if not isinstance(node, ast.Call):
            continue
        dotted = function.module.resolve(node.func) or ""
        by_method = isinstance(node.func, ast.Attribute) and not dotted
        if last_name(node.func) in LOWERED and (by_method or dotted.startswith("torch.")):
            return node
        layers = frozenset(f"torch.nn.{name}" for name in _LAYERS)
        if dotted in _ISLANDS or _is_built_as(regions, node, function, layers):
            return node
        known = regions.objects.callee(node, function) if depth else None
        if known is not None and known.name != "__init__":
            if known not in regions.multiplying:
                regions.multiplying[known] = False  # recursion ends here
                inner = _product(regions, known, known.nodes, depth - 1)
                regions.multiplying[known] = inner is not None
            if regions.multiplying[known]:
                return node
    return None


def _is_built_as(
    regions: Regions, call: ast.Call, function: Function, names: frozenset[str]
) -> bool:
    """Whether what is called was built by one of some classes or functions of torch."""
    if not isinstance(call.func, (ast.Name, ast.Attribute, ast.Subscript)):
        return False
    origins = regions.objects.origins.of(call.func, function).origins
    return any(
        isinstance(item.expression, ast.Call)
        and item.function.module.resolve(item.expression.func) in names
        for item in origins
    )
