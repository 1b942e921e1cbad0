"""Whether anything in a function decides about reaching one of its lines."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amplint.code.expressions import last_name

#: Statements after which those that follow may not run.
_LEAVING = (ast.Return, ast.Raise, ast.Break, ast.Continue, ast.Assert)
#: Functions that end the program.
_ENDING = frozenset({"exit", "quit", "_exit", "abort", "error", "skip"})
#: Expressions parts of which may not be evaluated, or later.
_CHOOSING = (ast.IfExp, ast.BoolOp, ast.Lambda, ast.ListComp, ast.GeneratorExp, ast.DictComp)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def is_straight(body: Iterable[ast.stmt], row: int) -> bool:
    """Whether a row is reached whenever these statements run, if every loop has a round and
    nothing raises that is not in sight."""
    for statement in body:
        if not statement.lineno <= row <= (statement.end_lineno or statement.lineno):
            if statement.lineno > row or _may_leave(statement):
                return False
            continue
        if isinstance(statement, ast.Try):
            return is_straight(statement.body, row)
        if isinstance(statement, (ast.For, ast.AsyncFor, ast.With, ast.AsyncWith)):
            header = statement.body[0].lineno > row
            return _is_simple(statement, row) if header else is_straight(statement.body, row)
        if isinstance(statement, ast.If) and _is_main(statement.test):
            return is_straight(statement.body, row)
        compound = isinstance(statement, (ast.If, ast.While, ast.Match, *_SCOPES))
        return not compound and _is_simple(statement, row)
    return False


def _is_simple(statement: ast.stmt, row: int) -> bool:
    """Whether a statement evaluates all that stands in a row."""
    return not any(
        isinstance(node, _CHOOSING) and node.lineno <= row <= (node.end_lineno or row)
        for node in ast.walk(statement)
    )


def _may_leave(statement: ast.stmt) -> bool:
    return any(
        isinstance(node, _LEAVING)
        or (isinstance(node, ast.Call) and last_name(node.func) in _ENDING)
        for node in _own(statement)
    )


def _own(statement: ast.stmt) -> Iterator[ast.AST]:
    """The nodes of a statement without those of functions that it defines."""
    queue: list[ast.AST] = [statement]
    while queue:
        node = queue.pop()
        yield node
        if not isinstance(node, _SCOPES):
            queue += ast.iter_child_nodes(node)


def _is_main(test: ast.expr) -> bool:
    return any(isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(test))
