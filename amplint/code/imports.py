"""Import statements: the names that they bind, and the dotted names that those stand for."""

from __future__ import annotations

import ast
from collections.abc import Iterator


def taken_from(
    node: ast.Import | ast.ImportFrom, package: str
) -> Iterator[tuple[ast.alias, str, str]]:
    """Each part of an import but `*`: itself, the name it binds, what that stands for.

    Args:
        package: dotted name of the package that holds the module, for relative imports.
    """
    if isinstance(node, ast.Import):
        for alias in node.names:
            root = alias.name.partition(".")[0]
            yield alias, alias.asname or root, alias.name if alias.asname else root
        return
    base = _base(node, package)
    for alias in node.names:
        if alias.name != "*":
            yield alias, alias.asname or alias.name, f"{base}.{alias.name}"


def star_module(node: ast.Import | ast.ImportFrom, package: str) -> str | None:
    """The module of `from module import *`; None for other imports."""
    if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
        return _base(node, package)
    return None


def _base(node: ast.ImportFrom, package: str) -> str:
    """The module that a from-import names; relative ones keep their dots if they lead out."""
    base = node.module or ""
    if not node.level:
        return base
    parents = package.split(".") if package else []
    parents = parents[: len(parents) - node.level + 1]
    if not parents:
        return "." * node.level + base
    return ".".join((*parents, *([base] if base else [])))
