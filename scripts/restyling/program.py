"""A program as texts by file name, and edits of these texts that leave comments where they are."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property

from restyling.scopes import Scopes


class DoesNotApplyError(Exception):
    """A style has nothing to rewrite here, or cannot do it without changing behaviour."""


@dataclass(frozen=True)
class Program:
    """Texts by name relative to the folder of the program, with `/` between the parts."""

    texts: Mapping[str, str]

    @property
    def python(self) -> Iterator[Source]:
        """Its Python files, sorted by name."""
        return (source_of(name, self.texts[name]) for name in sorted(self.texts) if _is_code(name))

    def with_texts(self, changed: Mapping[str, str]) -> Program:
        """The program with some texts replaced or added."""
        return Program({**self.texts, **changed})

    def module_of(self, dotted: str) -> Source | None:
        """The file that `import dotted` reads, if it is one of the program."""
        stem = dotted.replace(".", "/")
        for name in (f"{stem}.py", f"{stem}/__init__.py"):
            if name in self.texts:
                return source_of(name, self.texts[name])
        return None

    def new_file(self, stem: str) -> str:
        """A module name at the top of the program that no file has."""
        while f"{stem}.py" in self.texts or f"{stem}/__init__.py" in self.texts:
            stem += "_"
        return stem


def _is_code(name: str) -> bool:
    return name.endswith(".py")


@dataclass(frozen=True)
class Edit:
    """Replace the characters from `start` to before `end`."""

    start: int
    end: int
    text: str


class Source:
    """One parsed file.

    Raises:
        DoesNotApplyError: it is no Python, or its lines end in another way than with a newline.
    """

    def __init__(self, name: str, text: str) -> None:
        if "\r" in text or "\f" in text or "\ufffd" in text:
            raise DoesNotApplyError("unusual characters")
        self.name = name
        self.text = text
        try:
            self.tree = ast.parse(text)
        except (SyntaxError, ValueError) as error:
            raise DoesNotApplyError("no Python") from error
        self.lines = text.splitlines(keepends=True)
        self._starts = [0]
        for line in self.lines:
            self._starts.append(self._starts[-1] + len(line))

    @cached_property
    def scopes(self) -> Scopes:
        """Who binds which name."""
        return Scopes(self.tree)

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """The node around each node."""
        return {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    @cached_property
    def rows_in_strings(self) -> frozenset[int]:
        """Rows that begin inside a string: their indentation is data."""
        rows: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type == tokenize.STRING:
                rows.update(range(token.start[0] + 1, token.end[0] + 1))
        return frozenset(rows)

    def offset(self, row: int, column: int) -> int:
        """Position in characters of a 1-based row and a column in UTF-8 bytes."""
        line = self.lines[row - 1] if row <= len(self.lines) else ""
        return self._starts[row - 1] + len(line.encode()[:column].decode())

    def start(self, node: ast.AST) -> int:
        """Where a node begins."""
        return self.offset(node.lineno, node.col_offset)

    def end(self, node: ast.AST) -> int:
        """Where a node ends."""
        return self.offset(node.end_lineno, node.end_col_offset)

    def of(self, node: ast.AST) -> str:
        """The text of a node."""
        return self.text[self.start(node) : self.end(node)]

    def row_start(self, row: int) -> int:
        """Where a 1-based row begins."""
        return self._starts[min(row - 1, len(self._starts) - 1)]

    def replace(self, node: ast.AST, text: str) -> Edit:
        """Another text for a node."""
        return Edit(self.start(node), self.end(node), text)

    def before_row(self, row: int, text: str) -> Edit:
        """Lines before a row."""
        return Edit(self.row_start(row), self.row_start(row), text)

    def rename(self, node: ast.AST, old: str, new: str) -> Edit:
        """Another name for a `Name`, `arg` or `keyword`, which begin with it, or an `Attribute`.

        Raises:
            DoesNotApplyError: the old name does not stand there (inside an f-string).
        """
        start = self.end(node) - len(old) if isinstance(node, ast.Attribute) else self.start(node)
        if self.text[start : start + len(old)] != old:
            raise DoesNotApplyError(f"no position for `{old}`")
        return Edit(start, start + len(old), new)

    def edited(self, edits: list[Edit]) -> str:
        """The text after some edits; those at one place stay in their order.

        Raises:
            DoesNotApplyError: two of them overlap.
        """
        parts: list[str] = []
        position = 0
        for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
            if edit.start < position:
                raise DoesNotApplyError("two rewrites meet in one place")
            parts += [self.text[position : edit.start], edit.text]
            position = edit.end
        return "".join([*parts, self.text[position:]])

    def import_row(self) -> int:
        """The row of the first statement behind the docstring and `from __future__`."""
        for statement in self.tree.body:
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                continue
            if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
                continue
            return first_row(statement)
        return len(self.lines) + 1

    def definition_row(self) -> int:
        """The row of the first statement behind the imports at the top of the file."""
        for statement in self.tree.body:
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                continue
            if not isinstance(statement, (ast.Import, ast.ImportFrom)):
                return first_row(statement)
        return len(self.lines) + 1

    def functions(self) -> Iterator[ast.FunctionDef]:
        """All functions and methods."""
        return (node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef))

    def method_class(self, function: ast.AST) -> ast.ClassDef | None:
        """The class whose body holds a function."""
        parent = self.parents.get(function)
        return parent if isinstance(parent, ast.ClassDef) else None


def first_row(statement: ast.stmt) -> int:
    """The first row of a statement, its decorators included."""
    decorators = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(decorator.lineno for decorator in decorators)])


@cache
def source_of(name: str, text: str) -> Source:
    """A parsed file; the same one for the same text."""
    return Source(name, text)


_CODES = re.compile(r"#\s*(?:AMP\d{3}\s*)+")


def codes_of_line(line: str) -> list[str]:
    """The codes that a trailing comment expects."""
    found = _CODES.search(line)
    return re.findall(r"AMP\d{3}", found.group()) if found else []


def arguments_of(function: ast.AST) -> list[ast.arg]:
    """All parameters of a function or lambda, in their order."""
    given = function.args
    stars = [star for star in (given.vararg, given.kwarg) if star is not None]
    return [*given.posonlyargs, *given.args, *given.kwonlyargs, *stars]


def dotted_name(node: ast.AST) -> str:
    """`a.b.c` of a chain of names, else an empty text."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        owner = dotted_name(node.value)
        return f"{owner}.{node.attr}" if owner else ""
    return ""
