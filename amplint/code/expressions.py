"""Expressions as text: the last name of a chain, and the canonical path of one."""

from __future__ import annotations

import ast

from amplint.code.by_name import read_by_name


def last_name(expression: ast.expr) -> str:
    """The name that a reader sees last: "scaler" for `self.amp.scaler["G"]`.

    Of what `from tqdm import tqdm as progress` binds, the name that the library has for it.
    """
    while isinstance(expression, (ast.Subscript, ast.Starred, ast.Await)):
        expression = expression.value
    if isinstance(expression, ast.Attribute):
        return expression.attr
    if not isinstance(expression, ast.Name):
        return ""
    return getattr(expression, "imported_as", expression.id)


def is_none(expression: ast.AST | None) -> bool:
    """Whether an expression is the constant None."""
    return isinstance(expression, ast.Constant) and expression.value is None


def binder_of(callee: ast.expr) -> ast.Call | None:
    """The callee `partial(f, x)` of `partial(f, x)(y)`, called on the spot; None for others."""
    if not isinstance(callee, ast.Call) or not callee.args or last_name(callee.func) != "partial":
        return None
    return None if isinstance(callee.args[0], ast.Starred) else callee


def callee_of(call: ast.Call) -> ast.expr:
    """What a call runs, as an expression: the `f` of `f(x)`, and of `partial(f, x)(y)`."""
    callee = call.func
    while (binder := binder_of(callee)) is not None:
        callee = binder.args[0]
    return callee


def path_text(expression: ast.AST) -> str | None:
    """Canonical text of a name, attribute or subscript chain; None for anything else.

    Constant subscripts are kept (`scalers['G']`), all others become `[*]`.
    """
    if isinstance(expression, ast.Name):
        return expression.id
    if isinstance(expression, ast.Attribute):
        base = path_text(expression.value)
        return None if base is None else f"{base}.{expression.attr}"
    if isinstance(expression, ast.Subscript):
        base = path_text(expression.value)
        if base is None:
            return None
        index = expression.slice
        return f"{base}[{index.value!r}]" if isinstance(index, ast.Constant) else f"{base}[*]"
    named = read_by_name(expression)
    if named is not None:
        base = path_text(named[0])
        return None if base is None else f"{base}.{named[1]}"
    return None


def condition_text(test: ast.expr, holds: bool) -> str:
    """A condition as the reader would say it, on one line: the test, negated in its else branch."""
    if not holds and isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, holds = test.operand, True
    text = " ".join(ast.unparse(test).split())
    if holds:
        return text
    is_simple = isinstance(test, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
    return f"not {text}" if is_simple else f"not ({text})"


def asks_for_start(test: ast.expr) -> bool:
    """Whether a test asks if its file is the program that runs: `__name__ == "__main__"`."""
    return any(isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(test))
