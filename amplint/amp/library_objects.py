"""Which objects of a file are instances of a training library's classes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.amp.libraries import CLASSES, LibraryClass, class_row
from amplint.code.expressions import is_none, last_name
from amplint.code.module import CallSite, Function, Module
from amplint.values.objects import Objects
from amplint.values.provenance import Origin


def library_class_of(
    expression: ast.expr, function: Function, objects: Objects
) -> LibraryClass | None:
    """The library's class of an object: by its constructor, in whatever file, else by its usual name.

    A name alone counts only in a file that imports the library.
    """
    known = constructed_class(expression, function, objects)
    if known is not None:
        return known
    name = last_name(expression)
    for row in CLASSES:
        if row.usual is None or not row.usual.search(name):
            continue
        if imports_library(function.module, row):
            return row
    return None


def constructed_class(
    expression: ast.expr, function: Function, objects: Objects
) -> LibraryClass | None:
    """The library's class whose constructor makes an object, here or in a function that passes it on."""
    bound = objects.bindings(expression, function) or ()
    made: list[tuple[ast.expr, Function]]
    made = [(item.value, item.function) for item in bound if isinstance(item.value, ast.Call)]
    if not made:
        found = objects.origins.of(expression, function).origins
        made = [(item.expression, item.function) for item in found]
    rows = (_constructed(value, where.module) for value, where in made)
    return next((row for row in rows if row is not None), None)


def _constructed(value: ast.expr, module: Module) -> LibraryClass | None:
    return class_row(module.resolve(value.func)) if isinstance(value, ast.Call) else None


def makers(place: ast.expr, function: Function, objects: Objects) -> tuple[str, ...]:
    """The dotted names of the imported callables that may have made an object, in whatever file.

    None of them where something else may have; that the place may hold None does not count.
    """
    found = objects.origins.of(place, function)
    made = [item for item in found.origins if not is_none(item.expression)]
    names = [_imported_maker(item) for item in made]
    return tuple(filter(None, names)) if found.complete and all(names) else ()


def _imported_maker(origin: Origin) -> str | None:
    call, module = origin.expression, origin.function.module
    if not isinstance(call, ast.Call) or not module.imported_once(call.func):
        return None
    return module.resolve(call.func)


def imports_library(module: Module, row: LibraryClass) -> bool:
    """Whether a module imports something from the library of a class."""
    packages = {name.partition(".")[0] for name in (row.name, *row.aliases)}
    imported = {name.partition(".")[0] for name in module.scopes.aliases.values()}
    return bool(packages & imported)


def names_training(module: Module, besides: str = "") -> bool:
    """Whether a module makes, inherits or hands on a class of a library that trains.

    What it only imports does nothing, and `transformers.AutoModel` is no trainer.

    Args:
        besides: a class that does not count.
    """
    rows = (
        class_row(module.resolve(node))
        for node in module.nodes()
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load)
    )
    return any(row is not None and row.name != besides for row in rows)


def calls_on(objects: Objects, module: Module, row_name: str, *methods: str) -> Iterator[CallSite]:
    """Calls of these methods on instances of one library class."""
    for site in module.calls:
        callee = site.node.func
        if site.method not in methods or not isinstance(callee, ast.Attribute):
            continue
        row = library_class_of(callee.value, site.function, objects)
        if row is not None and row.name == row_name:
            yield site
