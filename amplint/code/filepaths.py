"""Paths that code builds from where its file lies, and the folders that it adds to `sys.path`."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Mapping

from amplint.code.expressions import last_name
from amplint.code.module import Module

#: Calls that leave open which file a path names as little as it did before.
_SAME = frozenset(
    [
        *("Path", "PurePath", "resolve", "absolute", "abspath", "realpath", "normpath"),
        *("expanduser", "str", "fspath", "as_posix"),
    ]
)
_GROWING = frozenset(("append", "insert", "extend"))
_GROWN = frozenset(f"sys.path.{name}" for name in _GROWING)
#: Names of a module are followed through this many assignments.
_DEPTH = 6


def is_own_file(path: ast.expr) -> bool:
    """Whether a path is `__file__`, in whatever form."""
    return isinstance(inner := _unwrapped(path), ast.Name) and inner.id == "__file__"


def added_folders(module: Module, path: str) -> list[str]:
    """The folders that a file adds to `sys.path`, in the order of the file.

    Args:
        path: where the file lies. A relative folder starts where it lies, or where the program is
            started: both are answered, the second one relative.
    """
    if "sys.path" not in module.source:
        return []
    names = _constants(module)
    folders = [
        folder
        for site in module.calls
        if site.method in _GROWING and site.node.args
        if module.scopes.dotted(site.node.func) in _GROWN
        for entry in _entries(site.node)
        if (folder := _text_of(entry, path, names, _DEPTH)) is not None
    ]
    return list(dict.fromkeys(os.path.normpath(folder) for folder in folders))


def _entries(call: ast.Call) -> list[ast.expr]:
    given = call.args[-1]
    return given.elts if isinstance(given, (ast.List, ast.Tuple)) else [given]


def _constants(module: Module) -> dict[str, ast.expr]:
    """What the body of a file binds to names, once each."""
    found: dict[str, ast.expr] = {}
    again: set[str] = set()
    for node in module.body.nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            again |= {name} & found.keys()
            found[name] = node.value
    return {name: value for name, value in found.items() if name not in again}


def _text_of(
    path: ast.expr, filename: str, names: Mapping[str, ast.expr], depth: int
) -> str | None:
    """The path that an expression gives; None where its text does not say it."""

    def text(node: ast.expr) -> str | None:
        return _text_of(node, filename, names, depth - 1)

    path = _unwrapped(path)
    if isinstance(path, ast.Constant):
        return path.value if isinstance(path.value, str) else None
    if depth <= 0:
        return None
    if isinstance(path, ast.Name):
        if path.id == "__file__":
            return filename
        return text(names[path.id]) if path.id in names else None
    if isinstance(path, ast.BinOp) and isinstance(path.op, (ast.Div, ast.Add)):
        left, right = text(path.left), text(path.right)
        if left is None or right is None:
            return None
        return left + right if isinstance(path.op, ast.Add) else os.path.join(left, right)
    if isinstance(path, ast.Attribute) and path.attr == "parent":
        return _above(text(path.value), 1)
    if isinstance(path, ast.Subscript):
        return _numbered(path, text)
    return _called(path, text) if isinstance(path, ast.Call) else None


def _called(call: ast.Call, text: Callable[[ast.expr], str | None]) -> str | None:
    name = last_name(call.func)
    if name == "dirname" and call.args:
        return _above(text(call.args[0]), 1)
    if name in ("getcwd", "cwd"):
        return os.curdir
    if name not in ("join", "joinpath", "Path"):
        return None
    owner = [call.func.value] if name == "joinpath" and isinstance(call.func, ast.Attribute) else []
    parts = [text(part) for part in (*owner, *call.args)]
    known = [part for part in parts if part is not None]
    return os.path.join(*known) if known and len(known) == len(parts) else None


def _numbered(path: ast.Subscript, text: Callable[[ast.expr], str | None]) -> str | None:
    """`Path(__file__).parents[1]`."""
    index = path.slice
    if not isinstance(path.value, ast.Attribute) or path.value.attr != "parents":
        return None
    if not isinstance(index, ast.Constant) or not isinstance(index.value, int) or index.value < 0:
        return None
    return _above(text(path.value.value), index.value + 1)


def _above(path: str | None, levels: int) -> str | None:
    for _ in range(levels):
        path = os.path.dirname(path) if path else None
    return path


def _unwrapped(path: ast.expr) -> ast.expr:
    """A path without what makes another form of it."""
    while isinstance(path, ast.Call) and last_name(path.func) in _SAME and len(path.args) <= 1:
        if path.args:
            path = path.args[0]
        elif isinstance(path.func, ast.Attribute):
            path = path.func.value
        else:
            break
    return path
