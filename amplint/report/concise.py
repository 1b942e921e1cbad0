"""One line per finding: `path:line:col: severity CODE message`; "[*] " marks what `--fix` fixes.

The problem matchers in `amplint/data` read this format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from amplint.report.text import SEVERITY_WORD, evidence_notes, paint, printable

if TYPE_CHECKING:
    from amplint.checker import Report

#: Longest help that goes on the line of its finding, in characters; else the rule's page is named.
SHORT = 60


def render(
    report: Report, *, sources: Callable[[str], list[str] | None], color: bool
) -> Iterator[str]:
    """Findings by path and row, then the files that could not be analysed."""
    for finding in report.findings:
        start = finding.span.start
        word = paint(SEVERITY_WORD[finding.severity], finding.severity.value, color)
        code = paint(finding.code, "bold", color)
        place = f"{printable(finding.filename)}:{start.row}:{start.column}"
        mark = "[*] " if report.is_fixable(finding) else ""
        advice = finding.help if 0 < len(finding.help) <= SHORT else f"amplint rule {finding.code}"
        yield f"{place}: {word} {code} {mark}{printable(finding.message)} [{printable(advice)}]"
        for kind, words in evidence_notes(finding.evidence):
            yield paint(f"  {kind}: {printable(words)}", "dim", color)
    for error in report.errors:
        word = paint("error", "error", color)
        code = paint(error.code, "bold", color)
        place = f"{printable(error.filename)}:{error.row}:{error.column}"
        yield f"{place}: {word} {code} {printable(error.message)}"
