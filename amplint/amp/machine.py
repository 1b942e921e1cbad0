"""What the machine decides: calls that raise on one without CUDA, and what torch says of one with it.

Run with torch 2.13 on such a machine: `.cuda()` and `.to("cuda")` of a tensor and of a module with
parameters, `torch.cuda.set_device` and its like, and process groups of NCCL raise.
"""

from __future__ import annotations

import ast
from types import MappingProxyType

from amplint.code.arguments import bind, parameters
from amplint.code.dataflow import constant_of, names_in, root_of
from amplint.code.expressions import path_text
from amplint.code.layout import layout_of
from amplint.code.module import Function, Module
from amplint.code.tree import COMPREHENSIONS, TRIES

#: What torch says on every GPU since 2.3, which brought `torch.amp.GradScaler`, too: bfloat16 is emulated
#: where the hardware has none (torch/cuda/__init__.py, `is_bf16_supported(including_emulation=True)`).
ON_A_GPU = MappingProxyType({"torch.cuda.is_available": True, "torch.cuda.is_bf16_supported": True})
_CUDA_FUNCTIONS = frozenset(
    f"torch.cuda.{name}"
    for name in ("set_device", "synchronize", "current_device", "get_device_name")
)
_PROCESS_GROUP = "torch.distributed.init_process_group"
#: So many calls back what a parameter holds is looked for.
_CALLERS = 4

#: What may leave the calls inside it out.
_BRANCHES = (
    ast.If,
    ast.IfExp,
    ast.While,
    ast.BoolOp,
    ast.Lambda,
    *TRIES,
    ast.Match,
    *COMPREHENSIONS,
)


def needs_cuda(function: Function, place: ast.AST | None = None) -> bool:
    """Whether a run of a function cannot go on without CUDA: such a call stands in no branch.

    Args:
        place: where the run arrives: the loops around it run at least once.
    """
    layout = layout_of(function)
    return any(
        all(
            place is not None and place in layout and layout.holds(loop, place)
            for loop in layout.loops(call)
        )
        for call in function.once(_calls_that_need)
    )


def _calls_that_need(function: Function) -> list[ast.Call]:
    layout = layout_of(function)
    returns = [node for node in layout.nodes if isinstance(node, ast.Return)]
    return [
        node
        for node in layout.nodes
        if isinstance(node, ast.Call) and _needs_cuda(node, function)
        if not any(_is_branch(outer) for outer in layout.ancestors(node))
        if not any(layout.before(other, node) for other in returns)
    ]


def _is_branch(outer: ast.AST) -> bool:
    """Whether a node may leave out what it holds; a `try` without handlers runs all of it."""
    return isinstance(outer, _BRANCHES) and bool(getattr(outer, "handlers", True))


def _needs_cuda(call: ast.Call, function: Function) -> bool:
    callee = call.func
    dotted = function.module.resolve(callee)
    if dotted in _CUDA_FUNCTIONS:
        return True
    if dotted == _PROCESS_GROUP:
        given = [*call.args[:1], *(item.value for item in call.keywords if item.arg == "backend")]
        return any(constant_of(item) == "nccl" for item in given)
    if not isinstance(callee, ast.Attribute) or dotted is not None:
        return False
    moves = callee.attr == "cuda" or (
        callee.attr == "to"
        and any(str(constant_of(item)).startswith("cuda") for item in call.args[:1])
    )
    return moves and _holds_tensors(callee.value, call, function)


def _holds_tensors(
    moved: ast.expr, call: ast.Call, function: Function, depth: int = _CALLERS
) -> bool:
    """Whether there is something to move: a loss without parameters goes anywhere.

    A parameter holds what some call of the file hands in.
    """
    path = path_text(moved)
    if path is None:
        return False
    if path in function.module.once(_with_parameters):
        return True
    loops = (loop for loop in layout_of(function).loops(call) if not isinstance(loop, ast.While))
    if any(root_of(path) in names_in(loop.target) for loop in loops):  # type: ignore[attr-defined]
        return True
    if not depth or path not in parameters(function):
        return False
    calls = (site for site in function.module.calls if site.method == function.name)
    handed = ((site, bind(site.node, function).given.get(path)) for site in calls)
    return any(
        given is not None and _holds_tensors(given, site.node, site.function, depth - 1)
        for site, given in handed
    )


def _with_parameters(module: Module) -> frozenset[str | None]:
    """What a file asks for its parameters, as it writes it."""
    return frozenset(
        path_text(site.node.func.value)
        for site in module.calls
        if site.method == "parameters" and isinstance(site.node.func, ast.Attribute)
    )
