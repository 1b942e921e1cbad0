"""What the static analysis says about the values that a function reads, for the worker.

A constructor or an annotation comes first, then what is done with the value. The name alone
is the last resort, and marked so.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from amplint.amp.roles import Role as StaticRole
from amplint.amp.roles import Roles
from amplint.code.dataflow import parameters
from amplint.code.expressions import last_name, path_text
from amplint.code.module import Function
from amplint.flow.facts import BACKWARD, PLAIN_STEP, SCALE, STEP, UNSCALE, UPDATE, protocol_word
from amplint.probe.messages import Role

_SCHEDULER = re.compile(r"sched", re.IGNORECASE)
#: Functions that iterate over what they are given.
_ITERATING = frozenset(("enumerate", "zip", "tqdm", "trange", "islice", "iter", "track", "cycle"))


def with_nested(function: Function) -> Iterator[Function]:
    """The function and those defined inside it; a module's body without its functions."""
    yield function
    if function.name == "<module>":
        return  # functions of a module run when they are called
    for inner in function.nested.values():
        yield from with_nested(inner)


def roles_in(function: Function, roles: Roles) -> Iterator[Role]:
    """Roles of the paths that a function reads, by origin first and by use second."""
    for path, expression in _paths(function):
        role = roles.declared_role(expression, function)
        if role is StaticRole.SCALER:
            yield Role(path, "scaler", "constructor")
        elif role is StaticRole.OPTIMIZER:
            yield Role(path, "optimizer", "constructor")
        elif role is StaticRole.SCHEDULER:
            yield Role(path, "scheduler", "constructor")
    for inner in with_nested(function):
        for node in inner.nodes:
            if isinstance(node, ast.Call):
                yield from _roles_by_use(node, inner, roles)
            elif isinstance(node, (ast.For, ast.AsyncFor)) and _holds_backward(node):
                for path in _iterated(node.iter):
                    yield Role(path, "loader", "use")
            elif isinstance(node, ast.Attribute) and _is_optimizer(node, inner, roles):
                yield from _role(node.value, "optimizer", "use")


def _is_optimizer(node: ast.Attribute, function: Function, roles: Roles) -> bool:
    return node.attr in ("zero_grad", "param_groups") and roles.is_optimizer(node.value, function)


def _roles_by_use(call: ast.Call, function: Function, roles: Roles) -> Iterator[Role]:
    callee = call.func
    if not isinstance(callee, ast.Attribute):
        return
    word = protocol_word(call, callee.attr, function, roles)
    receiver = callee.value
    if word in (SCALE, STEP, UPDATE, UNSCALE):
        yield from _role(receiver, "scaler", "use")
        if call.args and word in (STEP, UNSCALE):
            yield from _role(call.args[0], "optimizer", "use")
        elif call.args and word == SCALE:
            yield from _role(call.args[0], "loss", "use")
    elif word == PLAIN_STEP:
        yield from _role(receiver, "optimizer", "name")
    elif word == BACKWARD:
        yield from _role(receiver, "loss", "use")
    elif callee.attr == "step" and _SCHEDULER.search(path_text(receiver) or ""):
        yield from _role(receiver, "scheduler", "name")
    elif callee.attr in ("parameters", "named_parameters"):
        yield from _role(receiver, "model", "use")


def _role(expression: ast.expr, kind: str, origin: str) -> Iterator[Role]:
    path = path_text(expression)
    if path is not None and "[*]" not in path:
        yield Role(path, kind, origin)


def _paths(function: Function) -> Iterator[tuple[str, ast.expr]]:
    for name in parameters(function):
        yield name, ast.Name(name, ast.Load())
    for inner in with_nested(function):
        for node in inner.nodes:
            if isinstance(node, (ast.Name, ast.Attribute)):
                path = path_text(node)
                if path is not None:
                    yield path, node


def _holds_backward(loop: ast.For | ast.AsyncFor) -> bool:
    return any(
        isinstance(node, ast.Attribute) and node.attr in ("backward", "manual_backward")
        for node in ast.walk(loop)
    )


def _iterated(expression: ast.expr) -> Iterator[str]:
    """The loaders behind `enumerate(tqdm(loader))` and `zip(a, b)`."""
    if isinstance(expression, ast.Call):
        if last_name(expression.func) in _ITERATING:
            for argument in expression.args:
                yield from _iterated(argument)
        return
    path = path_text(expression)
    if path is not None and "[*]" not in path:
        yield path
