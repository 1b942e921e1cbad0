"""Whether a model is frozen where a forward runs: autocast neither keeps its weights nor looks for kept ones.

Executed on torch 2.13: a float32 weight that was cast and kept is cast anew once it requires no
gradient, and the kept copy is used again when it requires one.
"""

from __future__ import annotations

import ast

from amplint.code.arguments import passed
from amplint.code.dataflow import bindings_of, constant_of
from amplint.code.expressions import last_name, path_text
from amplint.code.layout import layout_of
from amplint.code.module import Function
from amplint.code.tree import walk
from amplint.regions.regions import Regions
from amplint.values.wrappers import SAME_OBJECT

_DEPTH = 2
#: Methods that give parts of a module, and what switches one.
_PARTS = frozenset(
    ("parameters", "named_parameters", "modules", "named_modules", "children", "requires_grad_")
    + ("named_children", "values", "items", "list", "chain", "zip", "enumerate", "reversed", "next")
)


def may_be_frozen(regions: Regions, call: ast.Call, function: Function) -> bool:
    """Whether the last thing before a forward that says so has switched its gradients off.

    Only what the function of the forward runs counts; a switch by a value that is not in sight may
    do either.
    """
    layout, path = layout_of(function), path_text(call.func)
    if path is None or call not in layout:
        return False
    frozen: bool | None = False
    for node in layout.nodes:
        if node is call:
            break
        if layout.reaches(node, call) and path in _paths_in(node, function):
            switched = _switches(regions, node, function, _DEPTH)
            frozen = switched[-1] if switched else frozen
    return frozen is not False or _is_frozen_by_context(regions, call, function, path)


def _is_frozen_by_context(regions: Regions, call: ast.Call, function: Function, path: str) -> bool:
    """Whether a `with` around a forward enters a function of the project that freezes its model."""
    entered = [
        item.context_expr
        for node in layout_of(function).ancestors(call)
        if isinstance(node, (ast.With, ast.AsyncWith))
        for item in node.items
    ]
    for context in entered:
        callee = (
            regions.objects.callee(context, function) if isinstance(context, ast.Call) else None
        )
        if (
            callee is None
            or not _mentions(callee, path)
            and path not in _paths_in(context, function)
        ):
            continue
        switched = _switched_at_the_yield(regions, callee)
        if switched and switched[-1] is not False:
            return True
    return False


def _mentions(function: Function, path: str) -> bool:
    return any(path_text(node) == path for node in function.nodes if isinstance(node, ast.expr))


def _switched_at_the_yield(regions: Regions, generator: Function) -> list[bool | None]:
    """What a generator has switched when it yields for the first time."""
    found: list[bool | None] = []
    yields = [node.lineno for node in generator.nodes if isinstance(node, ast.Yield)]
    for node in generator.nodes:
        if yields and isinstance(node, (ast.Assign, ast.Call)) and node.lineno < min(yields):
            found += _switches(regions, node, generator, _DEPTH)
    return found


def _paths_in(node: ast.AST, function: Function) -> set[str]:
    """What a call, or the header of a loop, mentions, and what that is bound to."""
    header = node if isinstance(node, ast.Call) else getattr(node, "iter", None)
    found: set[str] = set()
    pending = [header] if isinstance(header, ast.expr) else []
    is_switch = isinstance(node, ast.Call) and last_name(node.func) == "requires_grad_"
    while pending:
        source = pending.pop()
        if is_switch and isinstance(source, ast.Call) and not _is_same(source):
            continue  # a tensor that was computed by the model is no part of it
        for part in walk(source):
            path = path_text(part) if isinstance(part, ast.expr) else None
            if path is not None and path not in found:
                found.add(path)
                bound = bindings_of(function).get(path, ())
                pending += [item.source for item in bound if item.source is not None]
    return found


def _is_same(call: ast.Call) -> bool:
    """Whether a call gives an object that was there before: what is switched, or a part of it."""
    return last_name(call.func) in SAME_OBJECT | _PARTS


def _switches(regions: Regions, node: ast.AST, function: Function, depth: int) -> list[bool | None]:
    """Whether gradients are switched off (True) or on by a call or a loop; None by a value."""
    if isinstance(node, ast.For):
        return [
            each
            for part in walk(node)
            if part is not node
            for each in _switches(regions, part, function, depth)
        ]
    if isinstance(node, ast.Assign):
        is_switch = any(last_name(item) == "requires_grad" for item in node.targets)
        return [_is_off(node.value)] if is_switch else []
    if not isinstance(node, ast.Call):
        return []
    given = passed(node).every()
    if last_name(node.func) == "requires_grad_":
        return [_is_off(given[0]) if given else False]
    callee = regions.objects.callee(node, function) if depth else None
    if callee is None:
        return []
    inner = [
        each
        for part in callee.nodes
        if isinstance(part, (ast.Assign, ast.Call))
        for each in _switches(regions, part, callee, depth - 1)
    ]
    constants = {_is_off(item) for item in given} - {None}
    by_caller = constants.pop() if len(constants) == 1 else None
    return [by_caller if each is None else each for each in inner]


def _is_off(value: ast.expr) -> bool | None:
    constant = constant_of(value)
    return not constant if isinstance(constant, bool) else None
