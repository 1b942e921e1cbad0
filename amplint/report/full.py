"""The format for people: source, carets, the path that leads there, and the help."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from amplint.findings import FileError, Finding, PathStep, Position, Severity, Span, Standing
from amplint.report.excerpt import fit, gutter, mark_span, source_line
from amplint.report.steps import words_of
from amplint.report.text import evidence_notes, paint, printable

if TYPE_CHECKING:
    from amplint.checker import Report

Sources = Callable[[str], "list[str] | None"]

#: How it is known that a link holds, in words.
GROUNDS = {
    Standing.CODE: "code in sight",
    Standing.LIBRARY: "what the library documents",
    Standing.USE: "how it is used",
    Standing.OPTION: "an option",
    Standing.OPEN: "unless code out of sight does otherwise",
    Standing.HARMLESS: "harmless",
    Standing.GUESS: "a guess",
}
#: Lines of a path that are shown before its middle is left out.
PATH_LINES = 14
_HEAD, _TAIL = 4, 6
#: Lines around a finding that has no path to explain it.
_CONTEXT = 2


def render(report: Report, *, sources: Sources, color: bool) -> Iterator[str]:
    """Every finding as a block of its own, then the files that could not be analysed."""
    for finding in report.findings:
        yield from _render_finding(finding, sources, color, report)
        yield ""
    for error in report.errors:
        yield from _render_error(error, sources, color)
        yield ""


def _render_finding(
    finding: Finding, sources: Sources, color: bool, report: Report
) -> Iterator[str]:
    fixable = report.is_fixable(finding)
    style = finding.severity.value
    rows = [finding.span.end.row + _CONTEXT, *(step.row for step in finding.path)]
    margin = len(str(max(rows)))
    yield _title(style, finding.code, finding.name, finding.message, color, fixable=fixable)
    yield _arrow(finding.filename, finding.span.start, margin, color)
    lines = sources(finding.filename) or []
    context = 0 if finding.path else _CONTEXT
    yield from mark_span(
        lines, finding.span, margin=margin, style=style, color=color, context=context
    )
    yield gutter(margin, color)
    if finding.help:
        yield _note(margin, "help", finding.help, color)
    if finding.path:
        yield _note(margin, "path that leads here", "", color)
        yield from _render_path(finding, sources, margin, color)
        yield gutter(margin, color)
    for kind, words in evidence_notes(finding.evidence):
        yield _note(margin, kind, words, color)
    for link in finding.links if report.explain else ():
        words = f"`{link.subject}` {link.claim} ({GROUNDS[link.standing]})"
        yield _note(margin, "rests on", words, color)


def _render_error(error: FileError, sources: Sources, color: bool) -> Iterator[str]:
    margin = len(str(error.row))
    style = Severity.ERROR.value
    yield _title(style, error.code, "unreadable-file", error.message, color)
    start = Position(error.row, error.column)
    yield _arrow(error.filename, start, margin, color)
    span = Span(start, Position(error.row, error.column + 1))
    lines = sources(error.filename) or []
    yield from mark_span(lines, span, margin=margin, style=style, color=color, context=0)


def _title(
    style: str, code: str, name: str, message: str, color: bool, *, fixable: bool = False
) -> str:
    head = paint(f"{style}[{code}]", style, color) + (" [*]" if fixable else "")
    return f"{head} {paint(name, 'bold', color)}: {printable(message)}"


def _arrow(filename: str, start: Position, margin: int, color: bool, arrow: str = "-->") -> str:
    place = f"{printable(filename)}:{start.row}:{start.column}"
    return f"{' ' * margin}{paint(arrow, 'gutter', color)} {place}"


def _note(margin: int, word: str, text: str, color: bool) -> str:
    bullet = paint("=", "gutter", color)
    body = f" {printable(text)}" if text else ""
    return f"{' ' * margin} {bullet} {paint(word + ':', 'help', color)}{body}"


def _render_path(finding: Finding, sources: Sources, margin: int, color: bool) -> Iterator[str]:
    """The witness: each line of source once per visit, and what happened there."""
    visits = [
        list(steps)
        for _, steps in groupby(finding.path, key=lambda step: (step.filename, step.row))
    ]
    shown = select_visits(visits)
    filename = finding.filename
    previous = -1
    for index in shown:
        if index - previous > 1:
            yield _hidden(index - previous - 1, margin, color)
        previous = index
        step = visits[index][0]
        if step.filename != filename:
            filename = step.filename
            yield _arrow(filename, Position(step.row, step.column), margin, color, arrow=":::")
        yield from _render_visit(visits[index], sources(filename) or [], margin, color)


def select_visits(visits: Sequence[Sequence[PathStep]]) -> list[int]:
    """Indexes of the visits to show: all of a short path; of a long one its two ends, and
    from the middle the last places where the scaler's state changed."""
    count = len(visits)
    if count <= PATH_LINES:
        return list(range(count))
    middle = range(_HEAD, count - _TAIL)
    changes = [index for index in middle if any(words_of(step)[1] for step in visits[index])]
    kept = changes[-(PATH_LINES - _HEAD - _TAIL) :]
    return [*range(_HEAD), *kept, *range(count - _TAIL, count)]


def _hidden(count: int, margin: int, color: bool) -> str:
    noun = "line" if count == 1 else "lines"
    dots = paint("...".rjust(margin + 2), "gutter", color)
    return f"{dots} {paint(f'({count} {noun} of the path not shown)', 'dim', color)}"


def _render_visit(
    steps: Sequence[PathStep], lines: Sequence[str], margin: int, color: bool
) -> Iterator[str]:
    text = source_line(lines, steps[0].row) or ""
    indent = fit(text, len(text) - len(text.lstrip())).start if text.strip() else 0
    yield f"{gutter(margin, color, steps[0].row)} {fit(text).text}".rstrip()
    told: set[tuple[str, str]] = set()
    for message, state in map(words_of, steps):
        if (message, state) in told or not (message or state):
            continue
        told.add((message, state))
        shown = paint(f"[{printable(state)}]", "state", color) if state else ""
        words = " ".join(part for part in (printable(message), shown) if part)
        yield f"{gutter(margin, color)} {' ' * indent}{paint('>', 'help', color)} {words}"
