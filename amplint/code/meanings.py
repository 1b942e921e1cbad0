"""Scopes, what binds names in them, and what a name means by that: the nouns of `code/scopes.py`."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

#: Statements that bind the name of what they define.
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
#: Statements that evaluate before they bind.
PLAIN_STATEMENTS = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return, ast.Delete)


class Bound(NamedTuple):
    """One place that binds a name.

    Args:
        node: what binds: a name, a parameter, a part of an import, a definition, a handler.
        statement: the innermost statement around it; None for a parameter.
        always: whether it runs whenever the body of its scope has run so far.
    """

    node: ast.AST
    statement: ast.AST | None
    always: bool


@dataclass(slots=True, eq=False)
class Scope:
    """A module, a function, a lambda, a class body, a comprehension, or type parameters.

    Args:
        bindings: by name, what binds it here, in source order.
        reads: the names read here; they may be bound further out.
        elsewhere: names that `global` (True) or `nonlocal` (False) takes out of the scope.
    """

    node: ast.AST
    parent: Scope | None
    bindings: dict[str, list[Bound]] = field(default_factory=dict)
    reads: list[ast.Name] = field(default_factory=list)
    elsewhere: dict[str, bool] = field(default_factory=dict)

    @property
    def is_class(self) -> bool:
        """Whether the functions inside it do not see its names."""
        return isinstance(self.node, ast.ClassDef)

    @property
    def is_module(self) -> bool:
        """Whether its names are global."""
        return self.parent is None


@dataclass(frozen=True, slots=True, eq=False)
class Meaning:
    """What a name means at a place.

    Args:
        name: as the place spells it.
        scope: where it is bound; None for a builtin or an unknown name.
        bounds: what may have bound it by then, in source order; several in different branches.
        kind: "local", "closure", "global", "builtin" or "unknown".
    """

    name: str
    scope: Scope | None
    bounds: tuple[Bound, ...]
    kind: str

    @property
    def imports(self) -> tuple[Bound, ...]:
        """Those that are parts of imports."""
        return tuple(bound for bound in self.bounds if isinstance(bound.node, ast.alias))

    @property
    def definition(self) -> ast.AST | None:
        """The function or class statement that alone may have bound it, or None."""
        node = self.bounds[0].node if len(self.bounds) == 1 else None
        return node if isinstance(node, DEFINITIONS) else None

    @property
    def other_name(self) -> ast.expr | None:
        """`b` or `b.c` if `a = b` or `a = b.c` alone may have bound it, else None."""
        statement = self.bounds[0].statement if len(self.bounds) == 1 else None
        if not isinstance(statement, (ast.Assign, ast.AnnAssign)):
            return None
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        is_target = any(target is self.bounds[0].node for target in targets)
        return statement.value if is_target and is_chain(statement.value) else None


@dataclass(frozen=True, slots=True, eq=False)
class Imported:
    """A name that an import binds.

    Args:
        name: in the code.
        dotted: what it stands for; for `import a.b` that is `a`.
        alias: the part of the statement.
        statement: the import.
        scope: where the name is bound.
    """

    name: str
    dotted: str
    alias: ast.alias
    statement: ast.Import | ast.ImportFrom
    scope: Scope


def is_chain(expression: ast.expr | None) -> bool:
    """Whether an expression is a name, or an attribute of one."""
    while isinstance(expression, ast.Attribute):
        expression = expression.value
    return isinstance(expression, ast.Name)


def runs_before(bound: Bound, read: ast.Name) -> bool:
    """Whether a binding stands before a name of the same scope that reads it."""
    place: ast.AST = bound.node
    if isinstance(bound.statement, PLAIN_STATEMENTS):
        place = bound.statement  # its value is read before its target is bound
    if bound.statement is None:
        return True
    if isinstance(place, (*DEFINITIONS, ast.ExceptHandler)):
        return place.lineno <= read.lineno
    ends = (getattr(place, "end_lineno", 0), getattr(place, "end_col_offset", 0))
    return ends <= (read.lineno, read.col_offset)


def latest(bounds: Iterable[Bound]) -> tuple[Bound, ...]:
    """Bindings of which one is the last that ran: the last that always runs, and later ones."""
    found: list[Bound] = []
    for bound in bounds:
        if isinstance(getattr(bound.node, "ctx", None), ast.Del):
            continue
        found = [bound] if bound.always else [*found, bound]
    return tuple(found)
