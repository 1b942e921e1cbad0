"""Text edits: what collides, what comes out, where the rest lies afterwards."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplint.findings import Edit, Position, Span
from amplint.fixing.edits import Change, apply, collide, disjoint, moved, resolve
from amplint.source.positions import LineTable


def at(row: int, column: int) -> Span:
    return Span(Position(row, column), Position(row, column))


@pytest.mark.parametrize(
    ("text", "row", "expected"),
    [
        ("a\nb\n", 1, "a\nNEW\nb\n"),
        ("a\r\nb\r\n", 1, "a\r\nNEW\r\nb\r\n"),
        ("a\rb\r", 1, "a\rNEW\rb\r"),
        ("a\nb\r\nc", 2, "a\nb\r\nNEW\r\nc"),
    ],
)
def test_line_ends_are_those_of_the_edited_line(text: str, row: int, expected: str) -> None:
    changes = resolve((Edit(at(row, 2), "\nNEW"),), LineTable(text), "?")
    assert apply(text, changes) == expected


def test_a_text_without_line_ends_gets_the_given_one() -> None:
    assert resolve((Edit(at(1, 2), "\n"),), LineTable("a"), "\r\n") == (Change(1, 1, "\r\n"),)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (Change(0, 2, "x"), Change(1, 3, "y"), True),
        (Change(0, 2, "x"), Change(2, 2, "y"), True),
        (Change(2, 2, "x"), Change(2, 2, "y"), True),
        (Change(0, 2, "x"), Change(3, 4, "y"), False),
    ],
)
def test_edits_that_meet_collide(first: Change, second: Change, expected: bool) -> None:
    assert collide([first], [second]) is collide([second], [first]) is expected
    assert disjoint([first, second]) is not expected


@st.composite
def texts_with_changes(draw: st.DrawFn) -> tuple[str, list[Change]]:
    text = draw(st.text("ab\r\n😀", min_size=1, max_size=30))
    places = sorted(draw(st.sets(st.integers(0, len(text)), max_size=8)))
    pairs = zip(places[::2], places[1::2], strict=False)
    changes = [Change(start, end, draw(st.text("XY\n", max_size=4))) for start, end in pairs]
    return text, [change for change in changes if disjoint(sorted(changes))]


@given(texts_with_changes())
def test_what_is_not_edited_stays_and_is_found_again(case: tuple[str, list[Change]]) -> None:
    text, changes = case
    after = apply(text, changes)
    for offset, char in enumerate(text):
        if not any(change.start <= offset < change.end for change in changes):
            assert after[moved(offset, changes)] == char


def test_what_follows_an_insertion_moves() -> None:
    assert moved(3, [Change(3, 3, "new")]) == 6


def test_what_was_replaced_is_where_its_replacement_starts() -> None:
    assert moved(5, [Change(0, 1, ""), Change(3, 7, "new")]) == 2
