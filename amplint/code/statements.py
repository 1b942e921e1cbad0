"""What statements consist of: blocks of others, expressions of their own, names that they bind."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.code.by_name import written_by_name
from amplint.code.tree import NESTED, walk


def block_of(statement: ast.stmt, parent: ast.AST) -> list[ast.stmt]:
    """The statements beside a statement inside its parent, itself included."""
    blocks = (value for _, value in ast.iter_fields(parent))
    holding = (each for each in blocks if isinstance(each, list) and statement in each)
    return next(holding, [statement])


def blocks_of(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """The blocks of a compound statement; a definition runs none of its own."""
    if isinstance(statement, NESTED):
        return
    for name in ("body", "orelse", "finalbody"):
        block = getattr(statement, name, None)
        if isinstance(block, list):
            yield block
    for handler in getattr(statement, "handlers", ()):
        yield handler.body
    for case in getattr(statement, "cases", ()):
        yield case.body


def expressions_of(statement: ast.stmt) -> Iterator[ast.expr]:
    """The expressions that belong to the statement itself, not to its blocks."""
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.expr):
            yield child
        elif isinstance(child, ast.withitem):
            yield child.context_expr


def assignments_of(
    statement: ast.stmt, *, inside: bool = True
) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """(target, value) of everything a statement binds; value None where it is unknown.

    Args:
        inside: whether to look for `:=` in its expressions, too.
    """
    if isinstance(statement, ast.Assign):
        for target in statement.targets:
            yield target, statement.value
    elif isinstance(statement, (ast.AugAssign, ast.AnnAssign)):
        yield statement.target, statement.value
    elif isinstance(statement, (ast.For, ast.AsyncFor)):
        yield statement.target, statement.iter
    elif isinstance(statement, (ast.With, ast.AsyncWith)):
        for item in statement.items:
            if item.optional_vars is not None:
                yield item.optional_vars, item.context_expr
    elif isinstance(statement, ast.Expr):
        written = written_by_name(statement.value)
        if written is not None:
            yield written
    for expression in expressions_of(statement) if inside else ():
        for node in walk(expression):
            if isinstance(node, ast.NamedExpr):
                yield node.target, node.value


def test_of_case(subject: ast.expr, case: ast.match_case) -> ast.expr | None:
    """The test that the pattern of a `case` stands for; None for any but values."""
    pattern = case.pattern
    if isinstance(pattern, ast.MatchValue):
        return ast.copy_location(ast.Compare(subject, [ast.Eq()], [pattern.value]), subject)
    if isinstance(pattern, ast.MatchSingleton):
        constant = ast.copy_location(ast.Constant(pattern.value), subject)
        return ast.copy_location(ast.Compare(subject, [ast.Is()], [constant]), subject)
    if isinstance(pattern, ast.MatchOr):
        values = [part.value for part in pattern.patterns if isinstance(part, ast.MatchValue)]
        if len(values) == len(pattern.patterns):
            options = ast.copy_location(ast.Tuple(values, ast.Load()), subject)
            return ast.copy_location(ast.Compare(subject, [ast.In()], [options]), subject)
    return None


def catches_all(case: ast.match_case) -> bool:
    """Whether the pattern of a `case` is a name, or `_`."""
    return isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None
