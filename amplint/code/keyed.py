"""What the tables and the registries of a project hold under a key, through imports."""

from __future__ import annotations

import ast
import functools
import itertools
from collections.abc import Callable, Container

from amplint.code.expressions import last_name
from amplint.code.module import Class, Function, Module
from amplint.code.project import Project
from amplint.code.registries import Request, registered_in, registries_of, request_of
from amplint.code.tables import Table, registered, tables_of

#: Entries are looked for in this many files that mention the name.
_FILES = 20
#: Tables are followed through this many imports.
_DEPTH = 3


def table_of(expression: ast.expr, module: Module, project: Project) -> tuple[Table, Module] | None:
    """The table that an expression names, and the module that holds it."""
    found = _holder(expression, module, project, tables_of)
    return (tables_of(found[1])[found[0]], found[1]) if found is not None else None


def registered_under(
    key: str, table: Table, home: Module, project: Project
) -> Function | Class | None:
    """What some module registers in a table under a key, if it is one thing."""
    found = _registered(key, table, home, project)
    return found[0] if len(found) == 1 else None


def entries_of(entry: ast.Subscript, module: Module, project: Project) -> list[Function | Class]:
    """What decorators of a project have put under a key into a table that only they fill.

    Under a key that is not known: everything that they have put there.
    """
    found = table_of(entry.value, module, project)
    if found is None or found[0].entries or not found[0].registrars:
        return []
    if not isinstance(entry.slice, ast.Constant):
        return _registered(None, *found, project)
    only = registered_under(str(entry.slice.value), *found, project)
    return [only] if only is not None else []


def _registered(
    key: str | None, table: Table, home: Module, project: Project
) -> list[Function | Class]:
    found: list[Function | Class] = []
    for registrar in table.registrars:
        others = project.mentioning(home, registrar.name)
        for module in (home, *itertools.islice(others, _FILES)):
            found += registered(module, key, _names(registrar, module, project))
    return found


def requested(
    call: ast.Call, function: Function, project: Project
) -> tuple[Function | Class, Request] | None:
    """What a call asks a registry of the project for: `STEPS.build(dict(type="AmpStep"))`."""
    request = request_of(call, function)
    if request is None:
        return None
    registry = _holder(request.registry, function.module, project, registries_of)
    if registry is None:
        return None

    def is_registry(module: Module, expression: ast.expr) -> bool:
        return _holder(expression, module, project, registries_of) == registry

    name, home = registry
    others = project.mentioning(home, name)
    found: list[Function | Class] = []
    for module in dict.fromkeys((home, function.module, *itertools.islice(others, _FILES))):
        found += registered_in(module, request.key, functools.partial(is_registry, module))
    return (found[0], request) if len(found) == 1 else None


def _holder(
    expression: ast.expr,
    module: Module,
    project: Project,
    held: Callable[[Module], Container[str]],
    depth: int = _DEPTH,
) -> tuple[str, Module] | None:
    """The name of a table or a registry, and the module that holds it.

    Args:
        held: the names of those of a module.
    """
    dotted = module.resolve(expression)
    if dotted is None:
        name = expression.id if isinstance(expression, ast.Name) else ""
        return (name, module) if name in held(module) else None
    parent, _, name = dotted.rpartition(".")
    home = project.module_named(parent, module) if parent else None
    if home is None or not depth:
        return None
    return _holder(ast.Name(name, ast.Load()), home, project, held, depth - 1)


def _names(wanted: Function, module: Module, project: Project) -> Callable[[ast.expr], bool]:
    """Whether an expression at the top of a module names a function."""

    def named(expression: ast.expr) -> bool:
        if module is wanted.module and module.resolve(expression) is None:
            return last_name(expression) == wanted.name
        return project.named(expression, module.body) is wanted

    return named
