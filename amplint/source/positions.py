"""Every conversion between the positions of Python's parser, of editors and of formats.

Inside amplint a position is a 1-based row and a 1-based column in code points
(`findings.Position`); a span's end is exclusive. Python's `ast` has 0-based columns in
UTF-8 bytes, SARIF counts UTF-16 units. No other module converts between them.
"""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from functools import cached_property

from amplint.findings import Position, Span

#: What ends a line for Python's parser. `str.splitlines` also splits at form feeds and at
#: Unicode separators, which the parser does not.
_NEWLINE = re.compile(r"\r\n|\r|\n")


def split_lines(source: str) -> list[str]:
    """The lines of a source text as Python's parser counts them, without line ends.

    A text that ends in a newline has an empty last line, so that a position just behind
    the last newline has a row.
    """
    return _NEWLINE.split(source)


class LineTable:
    """Positions in one source text.

    Args:
        source: the decoded text without a byte order mark; any mix of LF, CRLF and CR.
    """

    def __init__(self, source: str) -> None:
        self.source = source

    @cached_property
    def lines(self) -> list[str]:
        """The lines without their line ends; never empty."""
        return split_lines(self.source)

    @cached_property
    def _starts(self) -> list[int]:
        """Code point offset of the first character of each line."""
        return [0, *(match.end() for match in _NEWLINE.finditer(self.source))]

    def line(self, row: int) -> str:
        """The text of a 1-based row without its line end; "" outside the file."""
        return self.lines[row - 1] if 1 <= row <= len(self.lines) else ""

    def clamp(self, row: int, column: int) -> Position:
        """The nearest position inside the file for a 1-based row and column."""
        row = min(max(row, 1), len(self.lines))
        return Position(row, min(max(column, 1), len(self.lines[row - 1]) + 1))

    def position(self, row: int, utf8_column0: int) -> Position:
        """Convert a position of an ast node.

        Args:
            row: 1-based line, as `ast` gives it.
            utf8_column0: 0-based offset into the line in UTF-8 bytes, as `ast` gives it.

        Before Python 3.12 nodes inside f-strings can lie outside the file; they are moved
        to the nearest position inside.
        """
        row = min(max(row, 1), len(self.lines))
        line = self.lines[row - 1]
        if line.isascii():
            return self.clamp(row, utf8_column0 + 1)
        before = line.encode("utf-8", "surrogatepass")[: max(utf8_column0, 0)]
        return Position(row, len(before.decode("utf-8", "ignore")) + 1)

    def span_of(self, node: ast.AST) -> Span:
        """The span of an ast node; the first line for a module, which has no position."""
        row = getattr(node, "lineno", None)
        if row is None:
            return Span(Position(1, 1), self.clamp(1, len(self.lines[0]) + 1))
        column0 = node.col_offset  # type: ignore[attr-defined]
        start = self.position(row, column0)
        end_row = getattr(node, "end_lineno", None) or row
        end_column0 = getattr(node, "end_col_offset", None)
        end = self.position(end_row, column0 if end_column0 is None else end_column0)
        return Span(start, max(start, end))

    def offset(self, position: Position) -> int:
        """The code point offset of a position in the source text, for edits."""
        place = self.clamp(position.row, position.column)
        return self._starts[place.row - 1] + place.column - 1

    def position_at(self, offset: int) -> Position:
        """The position of a code point offset; one inside a CRLF is the line's end."""
        offset = min(max(offset, 0), len(self.source))
        index = bisect_right(self._starts, offset) - 1
        return self.clamp(index + 1, offset - self._starts[index] + 1)

    def text(self, span: Span) -> str:
        """The source text of a span, line ends as in the file."""
        return self.source[self.offset(span.start) : self.offset(span.end)]


def utf16_column(line: str, column: int) -> int:
    """1-based column in UTF-16 code units of a 1-based column in code points (LSP)."""
    return len(line[: column - 1].encode("utf-16-le", "surrogatepass")) // 2 + 1
