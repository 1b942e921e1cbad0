"""What a fix does, in verbs: which node becomes what, and which statement goes where.

A rule states its fix in these words; it costs nothing until somebody asks for the edits
(`fixing/codemods.py`), so a check alone never loads LibCST. Code is Python as text, nodes are
those of the checked file.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class Insert:
    """Put new statements in front of a statement, or behind it."""

    statement: ast.stmt
    code: str
    after: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Remove:
    """Take a statement away; comments above it stay."""

    statement: ast.stmt


@dataclass(frozen=True, slots=True, eq=False)
class Move:
    """Put a statement, with its comments, in front of another one, or behind it."""

    statement: ast.stmt
    to: ast.stmt
    after: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Unwrap:
    """Put the body of a `with` statement in its place."""

    statement: ast.With


@dataclass(frozen=True, slots=True, eq=False)
class Within:
    """Put a statement into the body of a new one, given by its header (`if scaler:`).

    It is put there with those of its block that follow it, up to `last` where that is given.
    """

    statement: ast.stmt
    header: str
    last: ast.stmt | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Write:
    """Write other code for an expression; `{}` in it stands for the expression as it is."""

    node: ast.expr
    code: str


@dataclass(frozen=True, slots=True, eq=False)
class Add:
    """Give a call one more argument.

    Args:
        index: of the argument that it goes in front of; None for the last place.
        keyword: its name, "" for none.
    """

    node: ast.Call
    code: str
    index: int | None = None
    keyword: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Name:
    """Give positional arguments of a call their keywords, by index."""

    node: ast.Call
    keywords: Mapping[int, str]


@dataclass(frozen=True, slots=True, eq=False)
class Drop:
    """Take the argument at an index of a call away."""

    node: ast.Call
    index: int


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """Give the literal of a dict one more entry, at its end."""

    node: ast.Dict
    key: str
    code: str


@dataclass(frozen=True, slots=True, eq=False)
class Decorate:
    """Put a decorator on a function, below those that it has."""

    node: ast.FunctionDef | ast.AsyncFunctionDef
    code: str


@dataclass(frozen=True, slots=True, eq=False)
class Rename:
    """Let names of an import statement come from another module.

    Args:
        modules: the module for an alias (for all of a `from … import`), None to take it away.
    """

    node: ast.Import | ast.ImportFrom
    modules: Mapping[ast.alias, str | None]


@dataclass(frozen=True, slots=True, eq=False)
class Import:
    """Import a dotted name at the top of the file, unless it is imported already.

    Args:
        name: of a module, or of what it holds if `module` is given.
    """

    name: str
    module: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Become:
    """Let a node become what a codemod of the rule makes of its LibCST form.

    Args:
        node: an expression or a statement.
        change: from the LibCST node to the one that replaces it; it raises `ValueError` where it
            cannot tell.
    """

    node: ast.expr | ast.stmt
    change: Callable[[Any], Any]


#: Verbs about one node, in any order; the others move statements.
Changing = Write | Add | Name | Drop | Entry | Decorate | Rename | Become
Verb = Insert | Remove | Move | Unwrap | Within | Import | Changing


@dataclass(frozen=True, slots=True, eq=False)
class Repair:
    """A fix that nobody has asked for yet.

    Args:
        applicability: "safe", "unsafe" or "display", as of a `Fix`.
    """

    applicability: str
    verbs: tuple[Verb, ...]


def safe(*verbs: Verb) -> Repair:
    """A fix after which the code does what it says, and nothing else."""
    return Repair("safe", verbs)


def unsafe(*verbs: Verb) -> Repair:
    """A fix that changes what training does."""
    return Repair("unsafe", verbs)
