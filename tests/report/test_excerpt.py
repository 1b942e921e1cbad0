"""Cutting and measuring source lines."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from amplint.findings import Position, Span
from amplint.report.excerpt import WIDTH, fit, mark_span
from amplint.report.text import char_width, lay_out

LINES = st.text(st.characters(exclude_characters="\r\n"), max_size=300)


def width_of(text: str) -> int:
    return sum(char_width(char) for char in text)


@given(LINES, st.integers(0, 320), st.integers(0, 320))
def test_a_fitted_line_is_never_wider_than_the_window(line: str, start: int, end: int) -> None:
    fitted = fit(line, start, end)
    assert width_of(fitted.text) <= WIDTH
    assert fitted.width >= 1
    assert 0 <= fitted.start <= WIDTH


@given(st.text("ab \t模😀", max_size=400), st.text("xyz", min_size=1, max_size=20))
def test_carets_start_at_the_marked_text(before: str, marked: str) -> None:
    fitted = fit(before + marked, len(before), len(before) + len(marked))
    column = text_start = 0
    while column < fitted.start:
        column += char_width(fitted.text[text_start])
        text_start += 1
    assert column == fitted.start
    assert fitted.text[text_start : text_start + len(marked)] == marked
    assert fitted.width == len(marked)


def test_a_long_line_is_cut_on_both_sides_of_the_range() -> None:
    fitted = fit("a" * 500 + "HERE" + "b" * 500, 500, 504)
    assert fitted.text.startswith("...a") and fitted.text.endswith("b...")
    assert fitted.text[fitted.start : fitted.start + fitted.width] == "HERE"


def test_tabs_stop_at_multiples_of_four() -> None:
    cells = lay_out("\ta\tb")
    assert "".join(cells.chars) == "    a   b"
    assert cells.columns == [0, 4, 5, 8, 9]


def test_control_characters_and_overrides_are_made_visible() -> None:
    assert "".join(lay_out("a\x1b[31m\u202eb").chars) == "a\ufffd[31m\ufffdb"


def test_a_combining_mark_takes_no_column() -> None:
    assert lay_out("e\u0301x").columns == [0, 1, 1, 2]


def block(count: int) -> list[str]:
    lines = [f"line {number}" for number in range(1, count + 1)]
    span = Span(Position(1, 1), Position(count, 7))
    return list(mark_span(lines, span, margin=2, style="error", color=False, context=0))


def test_a_block_has_a_bar_from_its_first_to_its_last_line() -> None:
    assert block(3) == [
        "   |",
        " 1 | / line 1",
        " 2 | | line 2",
        " 3 | | line 3",
        "   | |______^",
    ]


def test_the_middle_of_a_long_block_is_left_out() -> None:
    shown = block(40)
    assert " 4 | | line 4" in shown and "37 | | line 37" in shown
    assert not any("line 5" == line[-6:] for line in shown)
    assert sum(line.strip().startswith("...") for line in shown) == 1


def test_context_has_no_blank_edge() -> None:
    lines = ["", "before", "here", "", "after", ""]
    span = Span(Position(3, 1), Position(3, 5))
    shown = list(mark_span(lines, span, margin=1, style="error", color=False, context=2))
    assert shown == ["  |", "2 | before", "3 | here", "  | ^^^^", "5 | after"]
