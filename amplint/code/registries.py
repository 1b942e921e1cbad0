"""Registries that are objects: `STEPS = Registry("steps")`, as libraries of configurations have them.

By convention: a class whose name says registry, decorators `@STEPS.register_module()` and
`@STEPS.register("name")`, and what asks: `STEPS.get("name")`, `STEPS.build(dict(type="name", ...))`.
Without a name a thing is registered under its own.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from amplint.code.dataflow import bindings_of
from amplint.code.expressions import last_name
from amplint.code.module import Class, Function, Module

_REGISTRY = re.compile(r"registry|registrar", re.IGNORECASE)
_REGISTERS = frozenset({"register", "register_module"})
#: Methods that give what is registered, and those that build it at once.
GIVES, BUILDS = frozenset({"get"}), frozenset({"build"})


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """What code asks a registry for.

    Args:
        registry: the expression that names the registry.
        key: the name that is asked for.
        options: with which keywords to build it; None if the class itself is wanted.
    """

    registry: ast.expr
    key: str
    options: tuple[ast.keyword, ...] | None = None


@lru_cache(maxsize=64)
def registries_of(module: Module) -> frozenset[str]:
    """Names that a module binds once, at its top, to a registry."""
    bound = [
        (target.id, statement.value)
        for statement in module.tree.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    ]
    names = [name for name, _ in bound]
    return frozenset(
        name
        for name, value in bound
        if names.count(name) == 1
        and isinstance(value, ast.Call)
        and _REGISTRY.search(last_name(value.func))
    )


def request_of(call: ast.Call, function: Function) -> Request | None:
    """What a call asks a registry for, if it looks like that and the name is a constant."""
    if not isinstance(call.func, ast.Attribute) or len(call.args) != 1 or call.keywords:
        return None
    asked = call.args[0]
    if call.func.attr in GIVES:
        is_name = isinstance(asked, ast.Constant) and isinstance(asked.value, str)
        return Request(call.func.value, asked.value) if is_name else None  # type: ignore[attr-defined]
    if call.func.attr not in BUILDS:
        return None
    options = _options(asked, function)
    kind = next((word.value for word in options if word.arg == "type"), None)
    if not isinstance(kind, ast.Constant) or not isinstance(kind.value, str):
        return None
    rest = tuple(word for word in options if word.arg != "type")
    return Request(call.func.value, kind.value, rest)


def _options(node: ast.expr, function: Function) -> list[ast.keyword]:
    """The entries of a configuration: a dict display, `dict(...)`, or a name of one; else none."""
    if isinstance(node, ast.Name):
        bound = bindings_of(function).get(node.id, [])
        value = bound[0].value if len(bound) == 1 else None
        return _options(value, function) if value is not None and value is not node else []
    if isinstance(node, ast.Call) and last_name(node.func) == "dict" and not node.args:
        return node.keywords if all(word.arg for word in node.keywords) else []
    if not isinstance(node, ast.Dict):
        return []
    pairs = list(zip(node.keys, node.values, strict=True))
    if not all(isinstance(key, ast.Constant) for key, _ in pairs):
        return []
    return [ast.keyword(str(key.value), value) for key, value in pairs]  # type: ignore[union-attr]


def registered_in(
    module: Module, key: str, is_registry: Callable[[ast.expr], bool]
) -> Iterator[Function | Class]:
    """What decorators of a module register under a key.

    Args:
        is_registry: whether an expression at the top of the module names the registry.
    """
    for statement in module.tree.body:
        if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        for decorator in statement.decorator_list:
            method = decorator.func if isinstance(decorator, ast.Call) else decorator
            if (
                isinstance(method, ast.Attribute)
                and method.attr in _REGISTERS
                and _key(decorator, statement.name) == key
                and is_registry(method.value)
            ):
                found = module.classes.get(statement.name) or module.body.nested.get(statement.name)
                if found is not None and found.node is statement:
                    yield found


def _key(decorator: ast.expr, name: str) -> str | None:
    """Under which name a decorator registers; None if that is no constant."""
    if not isinstance(decorator, ast.Call):
        return name
    words = [word.value for word in decorator.keywords if word.arg in ("name", "module_name")]
    given = [*decorator.args, *words]
    if not given:
        return name
    only = given[0]
    return only.value if isinstance(only, ast.Constant) and isinstance(only.value, str) else None
