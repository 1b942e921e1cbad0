"""Where the arguments of a call begin and end in its text, their parentheses included.

`ast` places an argument inside its parentheses, and says nothing about commas: an edit of an
argument list needs both.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass

from amplint.findings import Position
from amplint.source.positions import LineTable, split_lines

_LAYOUT = frozenset(
    (tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT)
    + (tokenize.ENDMARKER,)
)


@dataclass(frozen=True, slots=True)
class CallText:
    """The argument list of a call; offsets are 0-based code points in the file.

    Args:
        opening: just behind the opening parenthesis.
        arguments: (start, end) of each argument, in source order.
    """

    opening: int
    arguments: tuple[tuple[int, int], ...]


def call_text(lines: LineTable, call: ast.Call) -> CallText | None:
    """The argument list of a call; None if its text does not agree with the tree."""
    start = lines.offset(lines.span_of(call.func).end)
    text = lines.source[start : lines.offset(lines.span_of(call).end)]
    tokens = list(_tokens(text))
    if not tokens or tokens[0][0] != "(":
        return None
    spans = tuple((start + first, start + last) for first, last in _arguments(tokens))
    if len(spans) != len(call.args) + len(call.keywords):
        return None  # a comma of a lambda, for example
    return CallText(start + tokens[0][2], spans)


def _tokens(text: str) -> Iterator[tuple[str, int, int]]:
    """The tokens that are no layout: string, start, end (offsets in the text)."""
    lines = LineTable(text)
    stream = io.StringIO("\n".join(split_lines(text)))
    try:
        for token in tokenize.generate_tokens(stream.readline):
            if token.type not in _LAYOUT:
                (row, column), (end_row, end_column) = token.start, token.end
                start = lines.offset(Position(row, column + 1))
                yield token.string, start, lines.offset(Position(end_row, end_column + 1))
    except (tokenize.TokenError, SyntaxError):
        return


def _arguments(tokens: list[tuple[str, int, int]]) -> Iterator[tuple[int, int]]:
    depth = 0
    first: int | None = None
    last = 0
    for string, start, end in tokens:
        if string in (")", "]", "}"):
            depth -= 1
        if depth == 0 and string == ")" or (depth == 1 and string == ","):
            if first is not None:
                yield first, last
            first = None
        elif depth >= 1:
            first = start if first is None else first
            last = end
        if string in ("(", "[", "{"):
            depth += 1
