"""Whether a forward uses weights that autocast keeps: what it casts once until a region ends.

Autocast keeps the cast copy of a float32 leaf that requires a gradient and is no view. Layers of
torch multiply by their weights as they are; a product of two parameters, a slice or a transposed
weight is cast anew each time. The cache is emptied when the outermost region of any thread ends,
so a region that autograd enters in its own thread (on a GPU) empties it: `custom_bwd`, and the
second forward of a checkpoint (both run on torch 2.13).
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from amplint.amp.half_tensors import LOWERED, LOWERED_LAYERS
from amplint.code.dataflow import bindings_of
from amplint.code.expressions import last_name, path_text
from amplint.code.module import Class, Function
from amplint.regions.islands import applied_function, casting
from amplint.regions.regions import Region, Regions
from amplint.values.kinds import same_object
from amplint.values.wrappers import MODULE_BASES

#: Calls that empty autocast's cache of weights.
CLEARS_CACHE = frozenset(("clear_autocast_cache", "autocast_decrement_nesting"))
_CHECKPOINTS = frozenset(
    f"torch.utils.checkpoint.{name}" for name in ("checkpoint", "checkpoint_sequential")
)
_CONTAINERS = frozenset(("torch.nn.Sequential", "torch.nn.ModuleList", "torch.nn.ModuleDict"))
_PARAMETERS = frozenset(("torch.nn.Parameter", "torch.nn.parameter.Parameter"))
_DEPTH = 6


def clears_cache(regions: Regions, region: Region) -> bool:
    """Whether something that runs in a region empties the cache before the region ends."""
    return any(
        last_name(item.call.func) in CLEARS_CACHE
        or (
            region.cast.devices != frozenset({"cpu"})
            and _clears_in_backward(regions, item.call, item.function)
        )
        for item in regions.until_end(region)
    )


def _clears_in_backward(regions: Regions, call: ast.Call, function: Function) -> bool:
    """Whether the backward of a call enters and leaves an autocast of its own."""
    if function.module.resolve(call.func) in _CHECKPOINTS:
        return True
    owner = applied_function(regions, call, function)
    backward = regions.objects.method(owner, "backward") if owner is not None else None
    if backward is None:
        return False
    return bool(casting(regions.objects, backward) or regions.spans(backward))


def keeps_weights(
    regions: Regions, model: ast.expr, function: Function, depth: int = _DEPTH
) -> bool | None:
    """Whether a module that an expression stands for uses kept weights; None if not in sight."""
    if model not in regions.keepers:
        regions.keepers[model] = None  # `net = net.to(device)` ends here
        found = regions.objects.origins.of(model, function)
        answers = [_built(regions, item.expression, item.function, depth) for item in found.origins]
        open_ = not found.complete or not answers
        regions.keepers[model] = _any([*answers, None] if open_ else answers)
    return regions.keepers[model]


def _any(answers: Iterable[bool | None]) -> bool | None:
    """True if one is, None if one is not known."""
    known = set(answers)
    return True if True in known else None if None in known else False


def _built(regions: Regions, node: ast.expr, function: Function, depth: int) -> bool | None:
    """The same for what an expression creates."""
    if not depth:
        return None
    if isinstance(node, (ast.List, ast.Tuple)):
        return _any(_built(regions, item, function, depth - 1) for item in node.elts)
    if not isinstance(node, ast.Call):
        return None
    inner = same_object(node)
    if inner is not None:
        return keeps_weights(regions, inner, function, depth - 1)
    dotted = function.module.resolve(node.func) or ""
    if dotted in _CONTAINERS:
        return _any(_built(regions, item, function, depth - 1) for item in node.args)
    if dotted.startswith("torch.nn."):
        return dotted.rpartition(".")[2] in LOWERED_LAYERS
    owner = regions.objects.symbol(node.func, function)
    return _class_keeps(regions, owner, depth - 1) if isinstance(owner, Class) else None


def _class_keeps(regions: Regions, owner: Class, depth: int) -> bool | None:
    """The same for objects of a class; asked once for each."""
    if owner not in regions.keepers:
        regions.keepers[owner] = None  # a class that holds its like ends here
        regions.keepers[owner] = _find_kept(regions, owner, depth)
    return regions.keepers[owner]


def _find_kept(regions: Regions, owner: Class, depth: int) -> bool | None:
    """By what the constructors of a class build, and how its methods multiply."""
    known = regions.objects.ancestry(owner)
    foreign = regions.objects.base_names(owner) - MODULE_BASES - _CONTAINERS
    answers: list[bool | None] = [None] if foreign else []
    weights: set[str] = set()
    for item in known:
        init = item.methods.get("__init__")
        if init is None:
            continue
        for path, bindings in bindings_of(init).items():
            for value in (binding.value for binding in bindings):
                if not path.startswith("self.") or not isinstance(value, ast.Call):
                    continue
                if init.module.resolve(value.func) in _PARAMETERS:
                    weights.add(path)
                else:
                    answers.append(_built(regions, value, init, depth))
        for call in _base_calls(init):
            answers += (_built(regions, part, init, depth) for part in call.args)
    methods = [method for item in known for method in item.methods.values()]
    if any(_multiplies_by(method, weights) for method in methods):
        return True
    return _any(answers)


def _base_calls(init: Function) -> list[ast.Call]:
    """`super().__init__(...)`, which gives a container its layers."""
    return [
        node
        for node in init.nodes
        if isinstance(node, ast.Call)
        and last_name(node.func) == "__init__"
        and any(isinstance(part, ast.Call) for part in node.args)
    ]


def _multiplies_by(method: Function, weights: set[str]) -> bool:
    """Whether a matrix product of a method takes a parameter as it is."""
    for node in method.nodes:
        operands: list[ast.expr] = []
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            operands = [node.left, node.right]
        elif isinstance(node, ast.Call) and last_name(node.func) in LOWERED:
            operands = [*node.args, *(item.value for item in node.keywords)]
        if any(path_text(item) in weights for item in operands):
            return True
    return False
