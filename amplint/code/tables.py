"""Tables of functions and classes: dicts at the top of a module, and what decorators put in.

A table is known if the module binds it once, to a display, and fills it only there: by
statements with constant keys, or by the decorator `register("name")`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from amplint.code.arguments import first_parameter, passed
from amplint.code.expressions import callee_of, last_name
from amplint.code.module import Class, Function, Module


@dataclass(frozen=True, slots=True)
class Table:
    """One table of a module.

    Args:
        entries: key -> what stands there, in the words of the module.
        registrars: functions of the module that put in what they decorate, under the name that
            they are given.
    """

    entries: dict[str, ast.expr] = field(default_factory=dict)
    registrars: list[Function] = field(default_factory=list)


@lru_cache(maxsize=64)
def tables_of(module: Module) -> dict[str, Table]:
    """The tables of a module by name."""
    found: dict[str, Table] = {}
    unknown: set[str] = set()
    for statement in module.tree.body:
        for target, value in _assigned(statement):
            if isinstance(target, ast.Name):
                if target.id in found or not isinstance(value, ast.Dict):
                    unknown.add(target.id)
                else:
                    found[target.id] = Table(_display(value))
            elif isinstance(target, ast.Subscript) and last_name(target.value) in found:
                key = target.slice
                if isinstance(key, ast.Constant) and value is not None:
                    found[last_name(target.value)].entries[str(key.value)] = value
    for function in module.functions[1:]:
        for name in _filled_by(function) & found.keys():
            registrar = _registrar(function, name)
            if registrar is None:
                unknown.add(name)
            else:
                found[name].registrars.append(registrar)
    return {name: table for name, table in found.items() if name not in unknown}


def registered(
    module: Module, key: str | None, is_registrar: Callable[[ast.expr], bool]
) -> Iterator[Function | Class]:
    """What a module registers under a key: `@register("key")`, also as `@steps.register("key")`.

    Args:
        key: None for any.
        is_registrar: whether an expression names the decorator of the table.
    """
    for statement in module.tree.body:
        if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        if not any(
            isinstance(item, ast.Call) and _registers(item, key) and is_registrar(callee_of(item))
            for item in statement.decorator_list
        ):
            continue
        found: Function | Class | None = module.body.nested.get(statement.name)
        if isinstance(statement, ast.ClassDef):
            found = module.classes.get(statement.name)
        if found is not None and found.node is statement:
            yield found


def _registers(decorator: ast.Call, key: str | None) -> bool:
    first = passed(decorator).every()[:1]
    return any(
        key is None or (isinstance(item, ast.Constant) and item.value == key) for item in first
    )


def _assigned(statement: ast.stmt) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    if isinstance(statement, ast.Assign):
        for target in statement.targets:
            yield target, statement.value
    elif isinstance(statement, (ast.AnnAssign, ast.AugAssign)):
        yield statement.target, statement.value


def _display(node: ast.Dict) -> dict[str, ast.expr]:
    return {
        str(key.value): value
        for key, value in zip(node.keys, node.values)
        if isinstance(key, ast.Constant)
    }


def _filled_by(function: Function) -> set[str]:
    """Names of containers in which a function stores something."""
    return {
        last_name(node.value)
        for node in function.nodes
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)
    }


def _registrar(function: Function, table: str) -> Function | None:
    """The decorator factory around `TABLE[name] = item`, `name` being its first parameter."""
    outer = function.parent
    if outer is None or outer.parent is not None:
        return None
    first = first_parameter(outer)
    keys = [
        node.slice
        for node in function.nodes
        if isinstance(node, ast.Subscript)
        and isinstance(node.ctx, ast.Store)
        and last_name(node.value) == table
    ]
    return outer if all(isinstance(key, ast.Name) and key.id == first for key in keys) else None
