"""GitHub Actions workflow commands: `::error file=...,line=...::message`.

The escapes and the limits are those of the runner: https://docs.github.com/en/actions,
"Workflow commands". The message repeats place and code, so that the plain log can be read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from amplint.findings import FileError, Finding
from amplint.report.text import SEVERITY_WORD, evidence_notes, printable

if TYPE_CHECKING:
    from amplint.checker import Report

#: GitHub shows this many annotations of each severity per step and drops the others.
SHOWN_PER_STEP = 10


def render(
    report: Report, *, sources: Callable[[str], list[str] | None], color: bool
) -> Iterator[str]:
    """Unreadable files, then findings, the worst first: GitHub drops the last ones."""
    for error in report.errors:
        yield _error(error)
    by_severity = sorted(report.findings, key=lambda finding: -finding.severity.rank)
    for finding in by_severity:
        yield _finding(finding)
    counts = Counter(SEVERITY_WORD[finding.severity] for finding in by_severity)
    counts["error"] += len(report.errors)
    if max(counts.values(), default=0) > SHOWN_PER_STEP:
        yield (
            f"GitHub shows at most {SHOWN_PER_STEP} annotations of each severity per step; "
            "this log has all of them."
        )


def _finding(finding: Finding) -> str:
    start, end = finding.span.start, finding.span.end
    properties: dict[str, object] = {
        "title": f"amplint ({finding.code})",
        "file": printable(finding.filename),
        "line": start.row,
        "endLine": end.row,
    }
    if start.row == end.row:  # the runner refuses columns for a range of several lines
        properties |= {"col": start.column, "endColumn": end.column}
    place = f"{printable(finding.filename)}:{start.row}:{start.column}"
    message = f"{place}: {finding.code} {_printable_lines(finding.message)}"
    if finding.help:
        message += f"\n  help: {printable(finding.help)}"
    notes = evidence_notes(finding.evidence)
    message += "".join(f"\n  {kind}: {printable(words)}" for kind, words in notes)
    return _command(SEVERITY_WORD[finding.severity], properties, message)


def _error(error: FileError) -> str:
    properties = {
        "title": f"amplint ({error.code})",
        "file": printable(error.filename),
        "line": error.row,
        "col": error.column,
    }
    place = f"{printable(error.filename)}:{error.row}:{error.column}"
    return _command("error", properties, f"{place}: {error.code} {_printable_lines(error.message)}")


def _command(level: str, properties: Mapping[str, object], message: str) -> str:
    joined = ",".join(f"{name}={escape_property(str(value))}" for name, value in properties.items())
    return f"::{level} {joined}::{escape_data(message)}"


def _printable_lines(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))


def escape_data(text: str) -> str:
    """Escape a message; `%` first, because the escapes hold it."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def escape_property(text: str) -> str:
    """Escape the value of a property."""
    return escape_data(text).replace(":", "%3A").replace(",", "%2C")
