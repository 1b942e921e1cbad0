"""Positions: `ast` and `str` are the ground truth, for any text Python accepts."""

from __future__ import annotations

import ast
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplint.findings import Position, Span
from amplint.source.positions import (
    LineTable,
    split_lines,
    utf16_column,
)

NEWLINES = st.sampled_from(["\n", "\r\n", "\r"])
#: Inside a comment or a string: everything that has another width in some encoding, and the
#: characters that `str.splitlines` takes for line ends and Python's parser does not.
PIECES = st.text(st.sampled_from("aé字😀\t\f\v\x1c\u2028\u0085 "), max_size=6)
TEXTS = st.lists(st.sampled_from("aé😀\t\f\n\r"), max_size=30).map("".join)


@st.composite
def programs(draw: st.DrawFn) -> str:
    """Statements `name = ('text', call())` with odd characters and line ends everywhere."""
    newline = draw(NEWLINES)
    lines = []
    for _ in range(draw(st.integers(1, 4))):
        text = draw(PIECES)
        comment = draw(PIECES)
        lines.append(f"{draw(st.sampled_from(['', chr(12)]))}{draw(st.sampled_from(['x', 'é']))} =")
        lines[-1] += f" ('{text}', f(  # {comment}"
        lines.append(f"\t'{text}',) ); y = ''' {text}{newline} {text}'''.z")
    return newline.join(lines) + draw(st.sampled_from(["", newline]))


@given(programs())
def test_a_span_holds_the_text_that_the_parser_means(source: str) -> None:
    table = LineTable(source)
    for node in ast.walk(ast.parse(source)):
        if hasattr(node, "lineno"):
            segment = ast.get_source_segment(source, node)
            assert table.text(table.span_of(node)) == segment


@given(programs())
def test_rows_are_those_of_the_parser(source: str) -> None:
    last = ast.parse(source).body[-1]
    assert last.end_lineno == len(split_lines(source.rstrip("\r\n")))


@given(TEXTS)
def test_lines_are_universal_newlines(text: str) -> None:
    expected = io.StringIO(text, newline=None).read().split("\n")
    assert split_lines(text) == expected
    assert LineTable(text).lines == expected


@given(TEXTS, st.data())
def test_offset_and_position_are_inverse(text: str, data: st.DataObject) -> None:
    table = LineTable(text)
    row = data.draw(st.integers(1, len(table.lines)))
    column = data.draw(st.integers(1, len(table.line(row)) + 1))
    place = Position(row, column)
    assert table.position_at(table.offset(place)) == place


@given(TEXTS, st.integers(-3, 40), st.integers(-3, 99))
def test_any_position_is_moved_into_the_file(text: str, row: int, column: int) -> None:
    table = LineTable(text)
    place = table.position(row, column)
    assert 1 <= place.row <= len(table.lines)
    assert 1 <= place.column <= len(table.line(place.row)) + 1


@given(st.text(st.sampled_from("aé字😀\t")), st.data())
def test_columns_of_formats(line: str, data: st.DataObject) -> None:
    column = data.draw(st.integers(1, len(line) + 1))
    before = line[: column - 1]
    assert utf16_column(line, column) == len(before.encode("utf-16-le")) // 2 + 1


@pytest.mark.parametrize(
    ("source", "span"),
    [
        ("autocast()", Span(Position(1, 1), Position(1, 11))),
        ("s='😀'; autocast()", Span(Position(1, 8), Position(1, 18))),
        ("if 1:\n\tautocast()", Span(Position(2, 2), Position(2, 12))),
        ("\fautocast()", Span(Position(1, 2), Position(1, 12))),
        ("x\r\nautocast(\r\n)", Span(Position(2, 1), Position(3, 2))),
        ("x\rautocast()", Span(Position(2, 1), Position(2, 11))),
    ],
)
def test_the_call_in(source: str, span: Span) -> None:
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    assert [LineTable(source).span_of(call) for call in calls] == [span]


def test_a_module_is_its_first_line() -> None:
    span = LineTable("import torch\nx = 1\n").span_of(ast.parse("import torch\nx = 1\n"))
    assert span == Span(Position(1, 1), Position(1, 13))


def test_a_row_outside_the_file_has_no_text() -> None:
    assert [LineTable("a\nb").line(row) for row in (0, 1, 2, 3)] == ["", "a", "b", ""]
