"""From the verbs of a fix to edits of the file, by LibCST.

The text of the statements or the expression concerned is parsed, changed and printed again; what
differs is the edit. Whoever imports this module loads LibCST: only where edits are wanted.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from itertools import chain
from typing import cast

import libcst as cst
from libcst.codemod import CodemodContext
from libcst.codemod.visitors import AddImportsVisitor

from amplint.code.module import Module
from amplint.errors import UnreadableFile
from amplint.findings import Edit, Fix, Position, Span
from amplint.fixing.transformer import CannotFix, Place, Plan
from amplint.fixing.verbs import (
    Changing,
    Import,
    Insert,
    Move,
    Remove,
    Repair,
    Unwrap,
    Verb,
    Within,
)
from amplint.source.parsing import concrete_syntax
from amplint.source.positions import LineTable

_OPENING = "if 1:\n"


def made(repair: Repair, module: Module) -> Fix | None:
    """The fix with its edits; None where the code is written so that they cannot be made."""
    try:
        edits = tuple(_Maker(module, repair.verbs).edits())
    except (CannotFix, UnreadableFile, ValueError, cst.CSTLogicError, cst.CSTValidationError):
        return None
    return Fix(repair.applicability, edits) if edits else None


class _Maker:
    """The edits of one fix.

    Statements are taken by whole rows, because a statement alone does not say how it is indented;
    expressions outside of them are taken alone.
    """

    def __init__(self, module: Module, verbs: Sequence[Verb]) -> None:
        self._module = module
        self._verbs = verbs
        self._parents = module.scopes.parents
        self._lines = LineTable(module.source)

    def edits(self) -> Iterator[Edit]:
        """The edits in the order of the file.

        Raises:
            CannotFix: one of them cannot be made.
        """
        imports = [verb for verb in self._verbs if isinstance(verb, Import)]
        pieces = sorted(self._pieces(), key=lambda piece: piece.start)
        found = [*self._importing(imports), *chain.from_iterable(map(self._edits_of, pieces))]
        yield from sorted(found, key=lambda edit: edit.span)

    def _pieces(self) -> Iterator[_Piece]:
        """The parts of the file that change, each with the verbs about it."""
        regions = _merged(self._rows_of(verb) for verb in self._verbs if _moves(verb))
        alone: list[Changing] = []
        for first, last in regions:
            inside = [verb for verb in self._verbs if self._is_in(verb, first, last)]
            yield _Piece.of_rows(self._lines, first, last, tuple(inside))
        for verb in self._verbs:
            if not isinstance(verb, Changing) or isinstance(verb.node, ast.stmt):
                continue
            if not any(self._is_in(verb, *region) for region in regions):
                alone.append(verb)
        for group in _nested(alone, self._lines):
            yield _Piece.of_expression(self._lines, group)

    def _is_in(self, verb: Verb, first: int, last: int) -> bool:
        if isinstance(verb, Import):
            return False
        node = verb.node if isinstance(verb, Changing) else verb.statement
        return first <= node.lineno <= last

    def _rows_of(self, verb: Verb) -> tuple[int, int]:
        """The rows that a verb about statements concerns, 1-based, both included."""
        assert not isinstance(verb, Import)
        if isinstance(verb, Changing):
            return self._rows(cast("ast.stmt", verb.node))
        if isinstance(verb, Move):
            return self._rows_of_move(verb)
        first, last = self._rows(verb.statement)
        if isinstance(verb, Within) and verb.last is not None:
            return first, self._rows(verb.last)[1]
        if isinstance(verb, Remove):
            beside = self._rows(self._neighbour(verb.statement))
            return min(first, beside[0]), max(last, beside[1])
        return first, last

    def _rows_of_move(self, verb: Move) -> tuple[int, int]:
        """From one statement to the other, each with what holds it in the block they share."""
        chains = [list(self._chain(each)) for each in (verb.statement, verb.to)]
        for one in chains[0]:
            for other in chains[1]:
                if other in self._beside(one):
                    pairs = self._rows(one), self._rows(other)
                    first, last = min(pair[0] for pair in pairs), max(pair[1] for pair in pairs)
                    return self._with_comments(first), last
        raise CannotFix

    def _chain(self, statement: ast.stmt) -> Iterator[ast.stmt]:
        """A statement and those around it, innermost first."""
        yield statement
        node: ast.AST = statement
        while node in self._parents:
            node = self._parents[node]
            if isinstance(node, ast.stmt):
                yield node

    def _neighbour(self, statement: ast.stmt) -> ast.stmt:
        """A statement of the same block, one in front of it if there is one.

        Raises:
            CannotFix: there is none, so that the block would be empty.
        """
        block = self._beside(statement)
        if len(block) < 2:
            raise CannotFix
        index = block.index(statement)
        return block[index - 1] if index else block[1]

    def _rows(self, statement: ast.stmt) -> tuple[int, int]:
        """The rows of a statement and of all that share a row with it."""
        first, last = _first_row(statement), statement.end_lineno or statement.lineno
        for other in self._beside(statement):
            if _first_row(other) <= last and (other.end_lineno or 0) >= first:
                first, last = min(first, _first_row(other)), max(last, other.end_lineno or 0)
        if self._starts_with_sibling(statement, first) and not self._is_elif(statement):
            return first, last
        return self._rows(self._statement_around(statement))

    def _starts_with_sibling(self, statement: ast.stmt, row: int) -> bool:
        """Whether the row begins with one of the statements of the block."""
        line = self._lines.line(row)
        indent = len(line) - len(line.lstrip(" \t\f"))
        starts = (self._lines.span_of(other).start for other in self._beside(statement))
        return line[indent : indent + 1] == "@" or Position(row, indent + 1) in starts

    def _is_elif(self, statement: ast.stmt) -> bool:
        start = self._lines.offset(self._lines.span_of(statement).start)
        return isinstance(statement, ast.If) and self._lines.source.startswith("elif", start)

    def _beside(self, statement: ast.stmt) -> list[ast.stmt]:
        parent = self._parents[statement]
        for name in ("body", "orelse", "finalbody"):
            block = getattr(parent, name, None)
            if isinstance(block, list) and statement in block:
                return block
        return [statement]

    def _statement_around(self, node: ast.AST) -> ast.stmt:
        outer = self._parents[node]
        while not isinstance(outer, ast.stmt):
            if outer not in self._parents:
                raise CannotFix
            outer = self._parents[outer]
        return outer

    def _with_comments(self, row: int) -> int:
        """The first of the comments that stand right above a row, as far in as the row."""
        line = self._lines.line(row)
        start = line[: len(line) - len(line.lstrip())] + "#"
        while self._lines.line(row - 1).startswith(start):
            row -= 1
        return row

    # -- edits ---------------------------------------------------------------------------------

    def _edits_of(self, piece: _Piece) -> Iterator[Edit]:
        after = piece.changed(self._indent)
        if piece.is_rows:
            yield from _line_edits(self._lines, piece.start.row, piece.text, after)
        elif after != piece.text:
            yield _trimmed(self._lines, piece.start, piece.text, after)

    def _importing(self, imports: Sequence[Import]) -> Iterator[Edit]:
        if not imports:
            return
        text = _plain("\n".join(self._lines.lines))
        tree = concrete_syntax(text)
        if tree.code != text:
            raise CannotFix
        context = CodemodContext()
        for item in imports:
            module, name = (item.module, item.name) if item.module else (item.name, None)
            AddImportsVisitor.add_needed_import(context, module, name)
        yield from _line_edits(
            self._lines, 1, text, AddImportsVisitor(context).transform_module(tree).code
        )

    @cached_property
    def _indent(self) -> str:
        """One level of indentation, as the file's first indented statement has it."""
        for node in ast.walk(self._module.tree):
            body = getattr(node, "body", None)
            if isinstance(node, ast.stmt) and isinstance(body, list) and body[0].col_offset:
                line = self._lines.line(body[0].lineno)
                return line[node.col_offset : len(line) - len(line.lstrip())] or " " * 4
        return " " * 4


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of the file that LibCST can parse alone, and what is to be done to it.

    Args:
        start: where `text` begins in the file.
        text: with "\\n" for every line end.
        prefix, suffix: what stands around the text while it is parsed.
        is_rows: whole rows with statements; else one expression.
    """

    lines: LineTable
    start: Position
    text: str
    verbs: tuple[Verb, ...]
    prefix: str = ""
    suffix: str = ""
    is_rows: bool = True

    @classmethod
    def of_rows(cls, lines: LineTable, first: int, last: int, verbs: tuple[Verb, ...]) -> _Piece:
        """The rows from first to last."""
        rows = lines.lines[first - 1 : last]
        end = "\n" if last < len(lines.lines) else ""
        prefix = _OPENING if rows[0][:1] in (" ", "\t", "\f") else ""
        return cls(lines, Position(first, 1), "\n".join(rows) + end, verbs, prefix)

    @classmethod
    def of_expression(cls, lines: LineTable, verbs: Sequence[Changing]) -> _Piece:
        """The text of the first verb's node, which holds those of the others.

        Raises:
            CannotFix: the text is not the node's: inside an f-string, for example.
        """
        node = verbs[0].node
        span = lines.span_of(node)
        text = _plain(lines.text(span))
        piece = cls(lines, span.start, text, tuple(verbs), "_(", ")", is_rows=False)
        try:
            read = ast.parse(f"({text})", mode="eval").body
        except SyntaxError as error:
            raise CannotFix from error
        if ast.dump(read) != ast.dump(node):
            raise CannotFix
        return piece

    def changed(self, indent: str) -> str:
        """The text after all verbs.

        Raises:
            CannotFix: LibCST does not see the text as Python does, or a verb does not suit it.
        """
        whole = self.prefix + self.text + self.suffix
        tree = concrete_syntax(whole)
        if tree.code != whole:
            raise CannotFix
        after = tree.visit(Plan.of(self.verbs, tree, self._place_of, indent)).code
        if not after.startswith(self.prefix) or not after.endswith(self.suffix):
            raise CannotFix
        return after[len(self.prefix) : len(after) - len(self.suffix)]

    def _place_of(self, node: ast.AST) -> Place:
        span = self.lines.span_of(node)
        return self._place(span.start), self._place(span.end)

    def _place(self, position: Position) -> tuple[int, int]:
        row = position.row - self.start.row + 1
        column = position.column - 1
        if not self.is_rows:
            return row, column - (self.start.column - 1 - len(self.prefix) if row == 1 else 0)
        return row + self.prefix.count("\n"), column


def _moves(verb: Verb) -> bool:
    """Whether a verb is about statements."""
    node = verb.node if isinstance(verb, Changing) else None
    return isinstance(verb, (Insert, Remove, Move, Unwrap, Within)) or isinstance(node, ast.stmt)


def _merged(regions: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Rows from and to, those that overlap made one."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(regions):
        if found and first <= found[-1][1]:
            first, last = found[-1][0], max(last, found.pop()[1])
        found.append((first, last))
    return found


def _nested(verbs: Sequence[Changing], lines: LineTable) -> list[list[Changing]]:
    """Verbs by the outermost of their expressions, which comes first."""
    groups: list[list[Changing]] = []
    end = Position(0, 0)
    spans = {id(verb): lines.span_of(verb.node) for verb in verbs}
    for verb in sorted(verbs, key=lambda one: (spans[id(one)].start, _reversed(spans[id(one)]))):
        if spans[id(verb)].end <= end:
            groups[-1].append(verb)
        else:
            groups.append([verb])
            end = spans[id(verb)].end
    return groups


def _reversed(span: Span) -> tuple[int, int]:
    return -span.end.row, -span.end.column


def _first_row(statement: ast.stmt) -> int:
    decorators = getattr(statement, "decorator_list", ())
    return min([statement.lineno, *(item.lineno for item in decorators)])


# -- texts -------------------------------------------------------------------------------------


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _line_edits(lines: LineTable, row: int, before: str, after: str) -> Iterator[Edit]:
    """Edits of whole lines.

    Args:
        row: of the first line of `before`.
    """
    old, new = _lines_of(before), _lines_of(after)
    for tag, first, last, start, end in SequenceMatcher(None, old, new, False).get_opcodes():
        if tag != "equal":
            span = Span(_start(lines, row + first), _start(lines, row + last))
            yield Edit(span, "".join(new[start:end]))


def _start(lines: LineTable, row: int) -> Position:
    """Where a row begins; behind the last one, where the file ends."""
    if row <= len(lines.lines):
        return Position(row, 1)
    return Position(row - 1, len(lines.line(row - 1)) + 1)


def _lines_of(text: str) -> list[str]:
    """Lines with their ends; only "\\n" ends one."""
    lines = [f"{line}\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _trimmed(lines: LineTable, start: Position, before: str, after: str) -> Edit:
    """The edit of an expression, without the characters that stay at its ends."""
    first = _common(before, after)
    rest = _common(before[first:][::-1], after[first:][::-1])
    begin, end = first, len(before) - rest
    span = Span(_moved(start, before[:begin]), _moved(start, before[:end]))
    return Edit(span, after[first : len(after) - rest])


def _common(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    pairs = zip(one, other, strict=False)
    different = (index for index, (left, right) in enumerate(pairs) if left != right)
    return next(different, min(len(one), len(other)))


def _moved(start: Position, text: str) -> Position:
    """The position behind a text that begins at a position."""
    rows = text.count("\n")
    column = len(text) - text.rfind("\n") if rows else start.column + len(text)
    return Position(start.row + rows, column)
