"""From the verbs of a fix to edits of the file, by LibCST.

The rows of the statements concerned are parsed, changed and printed again; what differs is the
edit. Whoever imports this module loads LibCST: only where edits are wanted.
"""

from __future__ import annotations

import ast
import io
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from functools import cached_property
from os.path import commonprefix
from typing import Any

import libcst as cst
from libcst.codemod import CodemodContext
from libcst.codemod.visitors import AddImportsVisitor

from amplint.code.module import Module
from amplint.code.statements import block_of
from amplint.errors import UnreadableFile
from amplint.findings import Edit, Fix, Position, Span
from amplint.fixing.transformer import CannotFix, Place, Plan
from amplint.fixing.verbs import Changing, Import, Move, Remove, Repair, Verb, Within
from amplint.source.parsing import concrete_syntax
from amplint.source.positions import LineTable, split_lines

_OPENING = "if 1:\n"


def made(repair: Repair, module: Module) -> Fix | None:
    """The fix with its edits; None where the code is written so that they cannot be made."""
    try:
        edits = tuple(_Maker(module, repair.verbs).edits())
    except (CannotFix, UnreadableFile, ValueError, cst.CSTLogicError, cst.CSTValidationError):
        return None
    return Fix(repair.applicability, edits) if edits else None


class _Maker:
    """The edits of one fix."""

    def __init__(self, module: Module, verbs: Sequence[Verb]) -> None:
        self._module = module
        self._imports = [verb for verb in verbs if isinstance(verb, Import)]
        self._verbs = [verb for verb in verbs if not isinstance(verb, Import)]
        self._parents = module.scopes.parents
        self._lines = LineTable(module.source)

    def edits(self) -> list[Edit]:
        """The edits in the order of the file.

        Raises:
            CannotFix: one of them cannot be made.
        """
        found = list(self._importing()) if self._imports else []
        for first, last in _merged(map(self._rows_of, self._verbs)):
            found += self._edits_of(first, last)
        return sorted(found, key=lambda edit: edit.span)

    # -- which rows ----------------------------------------------------------------------------

    def _rows_of(self, verb: Verb) -> tuple[int, int]:
        """The rows that a verb concerns, 1-based, both included.

        Raises:
            CannotFix: the node is not where it says: inside an f-string, for example.
        """
        nodes = _nodes(verb)
        if isinstance(nodes[0], ast.expr) and not self._stands_there(nodes[0]):
            raise CannotFix
        # What goes takes the comments above it along, and must not leave its block empty.
        return self._rows(nodes, int(isinstance(verb, (Remove, Move))))

    def _rows(self, nodes: Sequence[ast.AST], before: int) -> tuple[int, int]:
        """The rows of the statements of one block that hold nodes, and of what shares a row.

        A row says how far in a statement is, and belongs to its block, only if it begins with the
        statement. Where it does not, the rows are those of the statement around.

        Args:
            before: how many statements in front of them have to be there, too.
        """
        block, held = self._block_of(nodes)
        parent = self._parents[held[0]]
        indices = [block.index(each) for each in held]
        start, end = min(indices) - before, max(indices)
        if start >= 0 and self._begins_row(block[start]):
            first = _first_row(block[start])
        elif isinstance(parent, ast.Module):
            first = 1
        else:
            return self._rows([parent], 0)
        last = block[end].end_lineno or 0
        for other in block[end + 1 :]:
            if other.lineno <= last:
                last = other.end_lineno or last
        return first, last

    def _block_of(self, nodes: Sequence[ast.AST]) -> tuple[list[ast.stmt], list[ast.stmt]]:
        """The innermost block with a statement for each node that is it or holds it; these."""
        chains = [list(self._statements_around(node)) for node in nodes]
        for one in chains[0]:
            block = block_of(one, self._parents[one])
            held = [each for chain in chains for each in chain if each in block]
            if len(held) == len(nodes):
                return block, held
        raise CannotFix

    def _statements_around(self, node: ast.AST) -> Iterator[ast.stmt]:
        """A node and those around it that are statements, innermost first."""
        while True:
            if isinstance(node, ast.stmt):
                yield node
            if node not in self._parents:
                return
            node = self._parents[node]

    def _begins_row(self, statement: ast.stmt) -> bool:
        start = self._lines.span_of(statement).start
        above = self._lines.line(_first_row(statement))[: start.column - 1]
        is_elif = self._lines.line(start.row).startswith("elif", start.column - 1)
        return not above.strip() and not is_elif

    def _stands_there(self, node: ast.expr) -> bool:
        """Whether the text at the place of an expression is the expression."""
        text = "\n".join(split_lines(self._lines.text(self._lines.span_of(node))))
        try:
            read = ast.parse(f"({text})", mode="eval").body
        except SyntaxError:
            return False
        return ast.dump(read) == ast.dump(node)

    # -- edits ---------------------------------------------------------------------------------

    def _edits_of(self, first: int, last: int) -> Iterator[Edit]:
        """What the verbs change in rows that LibCST can parse alone.

        Raises:
            CannotFix: LibCST does not see them as Python does, or a verb does not suit them.
        """
        rows = self._lines.lines[first - 1 : last]
        text = "\n".join(rows) + ("\n" if last < len(self._lines.lines) else "")
        prefix = _OPENING if first > 1 and rows[0][:1] in (" ", "\t", "\f") else ""
        skipped = first - 1 - prefix.count("\n")

        def place(node: ast.AST) -> Place:
            start, end = (span := self._lines.span_of(node)).start, span.end
            return (start.row - skipped, start.column - 1), (end.row - skipped, end.column - 1)

        tree = _exactly(prefix + text)
        verbs = [verb for verb in self._verbs if first <= _nodes(verb)[0].lineno <= last]
        after = tree.visit(Plan.of(verbs, tree, place, self._indent)).code
        if not after.startswith(prefix):
            raise CannotFix
        yield from self._differences(first, text, after[len(prefix) :])

    def _importing(self) -> Iterator[Edit]:
        text = "\n".join(self._lines.lines)
        tree = _exactly(text)
        context = CodemodContext()
        for item in self._imports:
            module, name = (item.module, item.name) if item.module else (item.name, None)
            AddImportsVisitor.add_needed_import(context, module, name)
        after = AddImportsVisitor(context).transform_module(tree).code
        yield from self._differences(1, text, after)

    def _differences(self, row: int, before: str, after: str) -> Iterator[Edit]:
        """Edits from one text to another; of a line that stays, only what is different in it.

        Args:
            row: of the first line of `before`.
        """
        old, new = io.StringIO(before).readlines(), io.StringIO(after).readlines()
        for tag, first, last, start, end in SequenceMatcher(None, old, new, False).get_opcodes():
            if tag == "replace" and last - first == end - start:
                pairs = enumerate(zip(old[first:last], new[start:end], strict=True), row + first)
                yield from (_inside(at, *pair) for at, pair in pairs if pair[0] != pair[1])
            elif tag != "equal":
                span = Span(self._start(row + first), self._start(row + last))
                yield Edit(span, "".join(new[start:end]))

    def _start(self, row: int) -> Position:
        """Where a row begins; behind the last one, where the file ends."""
        return (
            self._lines.position_at(len(self._lines.source))
            if row > len(self._lines.lines)
            else Position(row, 1)
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


def _nodes(verb: Verb) -> list[Any]:
    """The nodes of the file that a verb concerns, the one that it is about first."""
    if isinstance(verb, Changing):
        return [verb.node]
    assert not isinstance(verb, Import)
    other = verb.to if isinstance(verb, Move) else verb.last if isinstance(verb, Within) else None
    return [verb.statement, *([other] if other is not None else [])]


def _merged(regions: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Rows from and to, those that overlap made one."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(regions):
        if found and first <= found[-1][1]:
            first, last = found[-1][0], max(last, found.pop()[1])
        found.append((first, last))
    return found


def _first_row(statement: ast.stmt) -> int:
    decorators: Iterable[ast.expr] = getattr(statement, "decorator_list", ())
    return min([statement.lineno, *(item.lineno for item in decorators)])


def _exactly(text: str) -> cst.Module:
    """The tree of a text that it gives back as it is."""
    tree = concrete_syntax(text)
    if tree.code != text:
        raise CannotFix
    return tree


def _inside(row: int, before: str, after: str) -> Edit:
    """The edit of a line, without the characters that stay at its ends."""
    first = len(commonprefix((before, after)))
    rest = len(commonprefix((before[first:][::-1], after[first:][::-1])))
    span = Span(Position(row, first + 1), Position(row, len(before) - rest + 1))
    return Edit(span, after[first : len(after) - rest])
