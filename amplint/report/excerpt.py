"""Excerpts of source with carets under a span."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from amplint.findings import Span
from amplint.report.text import lay_out, paint

#: Widest source text of an excerpt, in terminal columns.
WIDTH = 120
#: Most lines of a multi-line span that are shown.
SPAN_LINES = 8
_ELLIPSIS = "..."


@dataclass(frozen=True, slots=True)
class Fitted:
    """A source line cut to `WIDTH`.

    Args:
        text: what to print.
        start: 0-based terminal column in `text` where the marked range starts.
        width: terminal columns of the marked range, at least 1.
    """

    text: str
    start: int
    width: int


def fit(line: str, start: int = 0, end: int = 0, width: int = WIDTH) -> Fitted:
    """Cut a line so that the range from `start` to `end` can be seen.

    Args:
        line: without its newline.
        start, end: 0-based code points, end exclusive; both may lie past the line's end.
    """
    line = line.rstrip()
    if len(line) > start + 4 * width:  # a minified line: nothing past this can be shown
        line = line[: start + 4 * width]
    start, end = min(start, len(line)), min(max(start, end), len(line))
    chars, columns = lay_out(line)
    low, high = _window(columns, start, end, width)
    before = _ELLIPSIS if low > 0 else ""
    after = _ELLIPSIS if high < len(chars) else ""
    shift = len(before) - columns[low]
    marked_end = columns[min(end, high)]
    return Fitted(
        before + "".join(chars[low:high]) + after,
        columns[start] + shift,
        max(1, marked_end - columns[start]),
    )


def _window(columns: Sequence[int], start: int, end: int, width: int) -> tuple[int, int]:
    """Code points [low, high) to show."""
    last = len(columns) - 1
    if columns[last] <= width:
        return 0, last
    low = 0
    if columns[end] + len(_ELLIPSIS) > width:
        # Keep some of what stands before the range, so that it can be recognised.
        target = max(0, columns[start] - width // 4)
        low = next(index for index in range(start + 1) if columns[index] >= target)
    room = width - 2 * len(_ELLIPSIS)
    high = low
    while high < last and columns[high + 1] - columns[low] <= room:
        high += 1
    return low, high


def gutter(margin: int, color: bool, row: int | None = None, mark: str = "|") -> str:
    """The left margin of an excerpt line: the row, or blank, and a bar."""
    number = "" if row is None else str(row)
    return paint(f"{number:>{margin}} {mark}", "gutter", color)


def source_line(lines: Sequence[str], row: int) -> str | None:
    """Line `row` (1-based), or None past the end of the file."""
    return lines[row - 1] if 0 < row <= len(lines) else None


def mark_span(
    lines: Sequence[str], span: Span, *, margin: int, style: str, color: bool, context: int
) -> Iterator[str]:
    """The lines of a span, carets under it, and `context` lines around it."""
    first, last = span.start.row, span.end.row
    if source_line(lines, first) is None:
        return
    yield gutter(margin, color)
    indent = "  " if last > first else ""  # beside the bar of a block
    yield from _around(lines, range(first - context, first), margin, indent, color)
    if last > first:
        yield from _mark_block(lines, span, margin, style, color)
    else:
        fitted = fit(lines[first - 1], span.start.column - 1, span.end.column - 1)
        yield f"{gutter(margin, color, first)} {fitted.text}".rstrip()
        carets = paint("^" * fitted.width, style, color)
        yield f"{gutter(margin, color)} {' ' * fitted.start}{carets}"
    yield from _around(lines, range(last + 1, last + 1 + context), margin, indent, color)


def _around(
    lines: Sequence[str], rows: range, margin: int, indent: str, color: bool
) -> Iterator[str]:
    """Context lines, without blank ones at the outer and inner edge."""
    shown = [row for row in rows if source_line(lines, row) is not None]
    while shown and not lines[shown[0] - 1].strip():
        shown.pop(0)
    while shown and not lines[shown[-1] - 1].strip():
        shown.pop()
    for row in shown:
        yield f"{gutter(margin, color, row)} {indent}{fit(lines[row - 1]).text}".rstrip()


def _mark_block(
    lines: Sequence[str], span: Span, margin: int, style: str, color: bool
) -> Iterator[str]:
    """A span of several lines, with a bar from its first line to a caret under its end."""
    first, last = span.start.row, min(span.end.row, len(lines))
    rows = list(range(first, last + 1))
    if len(rows) > SPAN_LINES:
        half = SPAN_LINES // 2
        rows = rows[:half] + rows[-half:]
    previous = first
    for row in rows:
        if row - previous > 1:
            yield f"{paint(_ELLIPSIS.rjust(margin + 2), 'gutter', color)} {paint('|', style, color)}"
        bar = paint("/" if row == first else "|", style, color)
        yield f"{gutter(margin, color, row)} {bar} {fit(lines[row - 1]).text}".rstrip()
        previous = row
    fitted = fit(lines[last - 1], max(0, span.end.column - 2), span.end.column - 1)
    under = paint("|_" + "_" * fitted.start + "^", style, color)
    yield f"{gutter(margin, color)} {under}"
