"""Attributes whose name is a string: `getattr(x, "name")`, `setattr(x, f"opt_{i}", value)`."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from fnmatch import fnmatchcase


def read_by_name(node: ast.AST) -> tuple[ast.expr, str] | None:
    """Object and attribute of a `getattr` call, with or without a default; else None.

    What an f-string fills in becomes `*`, and so does a name that is not known.
    """
    if not isinstance(node, ast.Call) or len(node.args) < 2 or not _is_named(node, "getattr"):
        return None
    return node.args[0], pattern_of(node.args[1])


def written_by_name(node: ast.AST) -> tuple[ast.Attribute, ast.expr] | None:
    """Target and value of a `setattr` call, as an assignment would have them; else None."""
    if not isinstance(node, ast.Call) or len(node.args) != 3 or not _is_named(node, "setattr"):
        return None
    target = ast.Attribute(node.args[0], pattern_of(node.args[1]), ast.Store())
    return ast.copy_location(target, node), node.args[2]


def matching(pattern: str, names: Iterable[str]) -> list[str]:
    """The names that a name of `read_by_name` may be; no special method is looked up so."""
    return [name for name in names if fnmatchcase(name, pattern) and not name.startswith("__")]


def _is_named(node: ast.Call, name: str) -> bool:
    return isinstance(node.func, ast.Name) and node.func.id == name


def pattern_of(node: ast.expr) -> str:
    """What is known of a name that an expression gives: `*` stands for the rest."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else "*" for part in node.values
        )
    return "*"
