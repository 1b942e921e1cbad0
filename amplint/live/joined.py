"""What a run says about findings of the static analysis, and what none of them foresaw."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from amplint.findings import Evidence, Finding, Position, Severity, Span
from amplint.levels import seen_as
from amplint.live.catalogue import ENTRIES
from amplint.live.merge import Run, Seen
from amplint.rules import TABLE, load
from amplint.source.discovery import relative

CONFIRMED = "confirmed"
WITHOUT = "ran without it"
UNREACHED = "line not reached"
UNSEEN = "not observable by a run"
_CODES = frozenset(entry.code for entry in ENTRIES.values() if entry.code)


@dataclass(frozen=True, slots=True)
class Joined:
    """A static finding and its verdict; `seen` is what the run saw there, if it confirms it."""

    finding: Finding
    verdict: str
    seen: Seen | None = None

    def as_finding(self) -> Finding:
        """The finding, with what the run says as its evidence; nothing is said of what no run sees."""
        if self.verdict == CONFIRMED and self.seen is not None:
            detail = f"{self.seen.words} ({self.seen.count} times)"
            evidence = Evidence("observed", kind="live", detail=detail)
            return seen_as(self.finding, load(self.finding.code).RULE.severity, evidence)
        if self.verdict == WITHOUT:
            evidence = replace(self.finding.evidence, kind="live", detail=WITHOUT)
            return replace(self.finding, evidence=evidence)
        return self.finding


def join(findings: Iterable[Finding], run: Run) -> Iterator[Joined]:
    """The verdict on each finding.

    It is confirmed by the same code at its line, or by the broken rule that its path ends in. Only
    a line that had an event can have run without it; of others nothing is known.
    """
    reached = {(os.path.abspath(f), row) for each in run.processes for f, row in each.places}
    for finding in findings:
        rows = range(finding.span.start.row, finding.span.end.row + 1)
        file = os.path.abspath(finding.filename)
        slugs = {step.broken for step in finding.path if step.broken}
        seen = [each for each in run.findings if os.path.abspath(each.file) == file]
        here = [each for each in seen if each.row in rows]
        same = [each for each in here if each.code == finding.code or each.slug in slugs]
        if same:
            yield Joined(finding, CONFIRMED, same[0])
        elif finding.code not in _CODES and not slugs:
            yield Joined(finding, UNSEEN)
        elif any((file, row) in reached for row in rows):
            yield Joined(finding, WITHOUT)
        else:
            yield Joined(finding, UNREACHED)


def unforeseen(joined: Iterable[Joined], run: Run) -> list[Seen]:
    """What the run saw and no finding had said."""
    known = {id(each.seen) for each in joined if each.seen is not None}
    return [each for each in run.findings if id(each) not in known]


def live_finding(seen: Seen) -> Finding:
    """What a run saw, as a finding; the row is all that is known of its place, if that is."""
    position = Position(max(seen.row, 1), 1)
    return Finding(
        seen.code or seen.slug,
        TABLE.get(seen.code, seen.slug).replace("_", "-"),
        Severity(seen.level),
        seen.words,
        "",
        relative(seen.file) if seen.file else "",
        Span(position, position),
        evidence=Evidence("observed", kind="live", detail=f"{seen.words} ({seen.count} times)"),
    )


def files_of(run: Run) -> list[str]:
    """The user's files that had an event, as paths."""
    names = {file for each in run.processes for file, _ in each.places}
    return sorted(name for name in names if os.path.isfile(name))
