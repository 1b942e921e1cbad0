"""The last line of a report, and the table of `--statistics`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from amplint.findings import Finding, Severity
from amplint.report.text import EVIDENCE_WORD

if TYPE_CHECKING:
    from amplint.checker import Report


def count_severities(findings: Iterable[Finding]) -> dict[str, int]:
    """Findings per severity, worst first; every severity is a key."""
    counts = Counter(finding.severity for finding in findings)
    return {severity.value: counts[severity] for severity in Severity}


def summarise(report: Report) -> str:
    """One sentence about the run; it never says that all is well where a file was skipped."""
    checked = f"{_plural(report.files, 'file')} checked{_in_part(report)}"
    unread = len({error.filename for error in report.errors})
    failed = f"{_plural(unread, 'file')} could not be analysed"
    if report.findings or report.fixed:
        every = (*report.findings, *report.fixed)
        parts = [
            _plural(count, severity) for severity, count in count_severities(every).items() if count
        ]
        places = len({finding.filename for finding in every})
        found = f"Found {', '.join(parts)}{_fixed(report)} in {_plural(places, 'file')}"
        return f"{found}; {failed} ({checked})." if report.errors else f"{found} ({checked})."
    if report.errors:
        return f"No findings, but {failed} ({checked})."
    if not report.files:
        return "No Python files to check."
    in_part = _in_part(report).removeprefix(", ")
    note = f" ({in_part})" if in_part else ""
    return f"No AMP misuse found in {_plural(report.files, 'file')}{note}."


def _in_part(report: Report) -> str:
    count = len(report.incomplete)
    return f", {_plural(count, 'file')} followed in part" if count else ""


def _fixed(report: Report) -> str:
    if not report.fixed:
        return ""
    return f" ({len(report.fixed)} fixed, {len(report.findings)} remaining)"


def fixable(report: Report) -> Iterator[str]:
    """A line about what `--fix` would do, if it would do anything."""
    now = sum(report.is_fixable(finding) for finding in report.findings)
    with_unsafe = replace(report, unsafe_fixes=True)
    unsafe = sum(with_unsafe.is_fixable(finding) for finding in report.findings) - now
    hidden = f"{unsafe} unsafe {'fix' if unsafe == 1 else 'fixes'} available with "
    hidden = f"{hidden}`--fix --unsafe-fixes`" if unsafe else ""
    if now:
        yield f"[*] {now} fixable with `--fix`" + (f" ({hidden})." if hidden else ".")
    elif hidden:
        yield f"{hidden}."


def summarise_evidence(findings: Iterable[Finding]) -> str:
    """ "7 findings: 5 confirmed, 1 conditional, 1 not reached"; "" where nothing was executed."""
    findings = list(findings)
    counts = Counter(finding.evidence.status for finding in findings)
    if not any(counts[status] for status in EVIDENCE_WORD):
        return ""
    parts = [f"{counts[status]} {word}" for status, word in EVIDENCE_WORD.items() if counts[status]]
    return f"{_plural(len(findings), 'finding')}: {', '.join(parts)}."


def statistics(report: Report) -> Iterator[str]:
    """A table of count, code and name, most frequent first."""
    counts = Counter((finding.code, finding.name) for finding in report.findings)
    counts.update((error.code, "unreadable-file") for error in report.errors)
    width = len(str(max(counts.values(), default=0)))
    for (code, name), count in sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])):
        yield f"{count:>{width}}  {code}  {name}"


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
