"""Builtins that only look at what they are given."""

from __future__ import annotations

import ast
import builtins

from amplint.code.module import Function

#: Builtins that may run or change what they are given, or run code that stands in a string.
_RUNNING = frozenset(("eval", "exec", "filter", "map", "next", "sorted", "__import__"))
_CHANGING = frozenset(("setattr", "delattr"))
_LOOKING = frozenset(dir(builtins)) - _RUNNING - _CHANGING


def only_looks(call: ast.Call, function: Function) -> bool:
    """Whether a call is one of a builtin that runs and changes nothing: `getattr(self, name)`."""
    callee = call.func
    if not isinstance(callee, ast.Name) or callee.id not in _LOOKING:
        return False
    return function.module.scopes.resolve(callee).kind == "builtin"
