"""Calls that end the program, written as the raise that they are.

`sys.exit(1)` raises SystemExit, so `raise sys.exit(1)` does the same. Written so, it ends its block for
everybody who knows that a `raise` does, and a handler takes it or not as it takes SystemExit. What
`os._exit` and `os.abort` do no handler takes at all; that none names SystemExit around them is
assumed.
"""

from __future__ import annotations

import ast

from amplint.code.expressions import last_name
from amplint.code.scopes import Scopes
from amplint.code.tree import walk

#: Functions that end the program (docs.python.org, `sys`, `os`, and constants added by `site`).
_FUNCTIONS = frozenset(("sys.exit", "os._exit", "os.abort"))
_BUILTINS = frozenset(("exit", "quit"))
_NAMES = _BUILTINS | {name.rpartition(".")[2] for name in _FUNCTIONS}
#: Fields that hold statements.
_BLOCKS = ("body", "orelse", "finalbody")


def write_exits_as_raises(tree: ast.Module, source: str, scopes: Scopes) -> None:
    """Replace each statement `sys.exit(...)` of a tree by `raise sys.exit(...)`, at its place.

    Args:
        source: of the tree.
        scopes: of the tree; they stay right, as no name is added or lost.
    """
    if not any(name in source for name in _NAMES):
        return
    renamed = {name for name, dotted in scopes.aliases.items() if dotted in _FUNCTIONS}
    for node in walk(tree):
        for name in _BLOCKS:
            block = getattr(node, name, None)
            if not isinstance(block, list):
                continue
            for index, statement in enumerate(block):
                call = statement.value if isinstance(statement, ast.Expr) else None
                if isinstance(call, ast.Call) and _ends_program(call.func, scopes, renamed):
                    raised = ast.Raise(exc=call, cause=None)
                    block[index] = ast.copy_location(raised, statement)


def is_exit(raised: ast.expr) -> bool:
    """Whether what a `raise` raises is a call that ends the program."""
    return isinstance(raised, ast.Call) and last_name(raised.func) in _NAMES


def _ends_program(callee: ast.expr, scopes: Scopes, renamed: set[str]) -> bool:
    if isinstance(callee, ast.Attribute):
        return callee.attr in _NAMES and (
            scopes.dotted(callee) in _FUNCTIONS or _is_starred(callee, scopes)
        )
    if not isinstance(callee, ast.Name) or callee.id not in _BUILTINS | renamed:
        return False
    return scopes.resolve(callee).kind == "builtin" or scopes.dotted(callee) in _FUNCTIONS


def _is_starred(callee: ast.Attribute, scopes: Scopes) -> bool:
    """Whether nothing but a star can have bound the module: `from common import *`, `sys.exit()`."""
    module = callee.value
    if not isinstance(module, ast.Name) or f"{module.id}.{callee.attr}" not in _FUNCTIONS:
        return False
    return bool(scopes.stars) and scopes.resolve(module).kind == "unknown"
