"""Measure amplint on a list of real bugs and of correct code.

    python scripts/corpus.py LIST.jsonl DIR

LIST holds one JSON object per line. Only facts are listed (repository, commit, path, lines,
codes); the code itself is read from checkouts laid out as `DIR/<owner>__<name>@<commit12>`.

* A **bug** is found when a finding with one of its codes has its location, or a step of its
  path, at most five lines from a listed line.
* In a **clean** entry every error or warning that the entry does not allow is a false alarm.
  Codes of API age and hygiene (AMP8, AMP9) are not judged: they are true wherever old code is.

Exit status: 0, 1 (recall under `--min-recall`, or a false alarm), 2 (an entry could not be
checked, so the numbers would be about something else).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
AMPLINT = (sys.executable, "-m", "amplint")
TOLERANCE = 5  # lines between a listed line and a finding that is about it
UNJUDGED = ("AMP8", "AMP9")


class NoReportError(Exception):
    """amplint did not deliver a report."""


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file."""

    filename: Path
    row: int

    def near(self, other: Place, distance: int) -> bool:
        """Whether both are lines of one file, at most `distance` lines apart."""
        return self.filename == other.filename and abs(self.row - other.row) <= distance


@dataclass(frozen=True, slots=True)
class Finding:
    """What the corpus needs of one finding.

    Args:
        place: where it is reported.
        path: the lines of its witness.
    """

    code: str
    severity: str
    message: str
    place: Place
    path: tuple[Place, ...] = ()

    def is_near(self, place: Place, distance: int) -> bool:
        """Whether the finding or a step of its path is about `place`."""
        return any(own.near(place, distance) for own in (self.place, *self.path))


@dataclass(frozen=True, slots=True)
class Report:
    """The result of one run of amplint: findings, and the files it could not analyse."""

    findings: tuple[Finding, ...]
    unreadable: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the list.

    Args:
        files: what is checked, relative to the checkout.
        rows: the listed lines of a bug, as (file, row).
        codes: any of these is right for a bug.
        allowed: codes that are truly there in a clean entry.
        grey: not counted, whether found or not.
        advice: the codes are off by default and have to be selected.
    """

    id: str
    is_bug: bool
    checkout: str
    files: tuple[str, ...]
    rows: tuple[tuple[str, int], ...] = ()
    codes: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    needs: str = ""
    grey: bool = False
    advice: bool = False

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Entry:
        """Read one JSON object of the list."""
        is_bug = record["kind"] == "bug"
        rows = _listed_rows(record) if is_bug else []
        named = record.get("paths") or [record["path"]]
        return cls(
            id=record["id"],
            is_bug=is_bug,
            checkout=f"{record['repo'].replace('/', '__')}@{record['commit'][:12]}",
            files=tuple(dict.fromkeys([*named, *(file for file, _ in rows)])),
            rows=tuple(rows),
            codes=tuple(record.get("codes", ())),
            allowed=tuple(record.get("allowed", ())),
            needs=record.get("needs", ""),
            grey=record.get("grey", False),
            advice=record.get("tier") == "info",
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """What amplint said about one entry.

    Args:
        hits: findings that name the bug.
        false_alarms: findings in a clean entry that are not allowed.
        problem: why the entry could not be judged, empty if it could.
    """

    entry: Entry
    hits: tuple[Finding, ...] = ()
    false_alarms: tuple[Finding, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Tally:
    """All verdicts, sorted by what they mean."""

    verdicts: tuple[Verdict, ...]

    @property
    def unjudged(self) -> list[Verdict]:
        """Entries that could not be checked."""
        return [verdict for verdict in self.verdicts if verdict.problem]

    @property
    def found(self) -> list[Verdict]:
        """Bugs that amplint reports."""
        return [verdict for verdict in self._counted_bugs() if verdict.hits]

    @property
    def missed(self) -> list[Verdict]:
        """Bugs that amplint does not report."""
        return [verdict for verdict in self._counted_bugs() if not verdict.hits]

    @property
    def grey(self) -> list[Verdict]:
        """Debatable bugs, which count neither way."""
        return [verdict for verdict in self._judged_bugs() if verdict.entry.grey]

    @property
    def clean(self) -> list[Verdict]:
        """Entries of correct code."""
        return [v for v in self.verdicts if not v.entry.is_bug and not v.problem]

    @property
    def false_alarms(self) -> list[tuple[Entry, Finding]]:
        """Every finding that should not be there."""
        return [(verdict.entry, alarm) for verdict in self.clean for alarm in verdict.false_alarms]

    @property
    def recall(self) -> float:
        """Share of the counted bugs that are found; 1 if none is counted."""
        counted = self._counted_bugs()
        return len(self.found) / len(counted) if counted else 1.0

    def _judged_bugs(self) -> list[Verdict]:
        return [v for v in self.verdicts if v.entry.is_bug and not v.problem]

    def _counted_bugs(self) -> list[Verdict]:
        return [verdict for verdict in self._judged_bugs() if not verdict.entry.grey]


def check(paths: Sequence[Path], *options: str) -> Report:
    """Run `amplint check` over absolute paths.

    It runs in amplint's own repository, because `python -m` imports from the working
    directory: modules of the checked code must not be imported by accident.

    Raises:
        NoReportError: if the output is not a JSON report.
    """
    command = [*AMPLINT, "check", "--output-format", "json", "--no-cache", "--isolated"]
    report = _run_json([*command, *options, *map(str, paths)])
    return Report(
        findings=tuple(map(_read_finding, report["findings"])),
        unreadable=tuple(_read_place(error) for error in report["errors"]),
    )


def known_codes() -> frozenset[str]:
    """The codes that this amplint can report.

    Raises:
        NoReportError: if the catalogue cannot be read.
    """
    catalogue = _run_json([*AMPLINT, "rule", "--all", "--output-format", "json"])
    return frozenset(rule["code"] for rule in catalogue)


def judge(entry: Entry, folder: Path, codes: frozenset[str]) -> Verdict:
    """Check the files of one entry; findings with other codes than `codes` are ignored."""
    root = (folder / entry.checkout).resolve()
    files = [root / file for file in entry.files]
    absent = [file for file in files if not file.is_file()]
    if absent:
        return Verdict(entry, problem=f"no such file: {absent[0]}")

    select = ["--extend-select", ",".join(entry.codes)] if entry.advice else []
    try:
        report = check(files, *select)
    except NoReportError as failure:
        return Verdict(entry, problem=str(failure))
    if report.unreadable:
        return Verdict(entry, problem=f"amplint could not analyse {report.unreadable[0].filename}")

    findings = [finding for finding in report.findings if finding.code in codes]
    if entry.is_bug:
        places = [Place(root / file, row) for file, row in entry.rows]
        return Verdict(entry, hits=tuple(_hits(entry, findings, places)))
    return Verdict(entry, false_alarms=tuple(_false_alarms(entry, findings)))


def select_entries(
    entries: Iterable[Entry], *, codes: frozenset[str], needs: frozenset[str]
) -> list[Entry]:
    """Keep clean entries, and bugs with one of the codes and one of the needs (if any)."""
    return [
        entry
        for entry in entries
        if not entry.is_bug
        or (not codes.isdisjoint(entry.codes) and (not needs or entry.needs in needs))
    ]


def read_list(file: Path) -> list[Entry]:
    """Read a list, one JSON object per line."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return [Entry.from_record(json.loads(line)) for line in lines if line.strip()]


def summary(tally: Tally) -> str:
    """The last line: `16 of 17 found (94 %), 0 false alarms in 17 clean entries`."""
    found, counted = len(tally.found), len(tally.found) + len(tally.missed)
    return (
        f"{found} of {counted} found ({100 * tally.recall:.0f} %), "
        f"{len(tally.false_alarms)} false alarms in {len(tally.clean)} clean entries"
    )


def render_text(tally: Tally, folder: Path) -> str:
    """The report for people."""
    lines = [f"found   {_bug_line(verdict)}" for verdict in tally.found]
    lines += [f"missed  {_bug_line(verdict)}" for verdict in tally.missed]
    lines += [f"grey    {_bug_line(verdict)}" for verdict in tally.grey]
    lines += [
        f"false   {entry.id}: {_finding_line(alarm, folder)}" for entry, alarm in tally.false_alarms
    ]
    lines += [f"failed  {verdict.entry.id}: {verdict.problem}" for verdict in tally.unjudged]
    return "\n".join([*lines, summary(tally)])


def render_json(tally: Tally, folder: Path) -> str:
    """The report for programs."""
    document = {
        "found": [verdict.entry.id for verdict in tally.found],
        "missed": [verdict.entry.id for verdict in tally.missed],
        "grey": {verdict.entry.id: bool(verdict.hits) for verdict in tally.grey},
        "false_alarms": [
            {"id": entry.id, "finding": _finding_line(alarm, folder)}
            for entry, alarm in tally.false_alarms
        ],
        "failed": {verdict.entry.id: verdict.problem for verdict in tally.unjudged},
        "clean": len(tally.clean),
        "recall": round(tally.recall, 4),
    }
    return json.dumps(document, indent=2)


def exit_status(tally: Tally, min_recall: float) -> int:
    """2 if an entry was not judged, 1 if the result is not good enough, else 0."""
    if tally.unjudged:
        return 2
    return int(tally.recall < min_recall or bool(tally.false_alarms))


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    options = _parse(arguments)
    try:
        codes = options.codes or known_codes()
    except NoReportError as failure:
        print(f"corpus: {failure}", file=sys.stderr)
        return 2
    entries = select_entries(read_list(options.list), codes=codes, needs=options.needs)
    with ThreadPoolExecutor(options.jobs) as pool:
        verdicts = pool.map(lambda entry: judge(entry, options.folder, codes), entries)
        tally = Tally(tuple(verdicts))
    render = render_json if options.json else render_text
    print(render(tally, options.folder.resolve()))
    return exit_status(tally, options.min_recall)


def _listed_rows(record: Mapping[str, Any]) -> list[tuple[str, int]]:
    """The lines of the bug itself and of its further sites."""
    sites = [record, *record.get("sites", ())]
    return [(site["path"], row) for site in sites for row in site["lines"]]


def _hits(entry: Entry, findings: Iterable[Finding], places: Sequence[Place]) -> Iterable[Finding]:
    return (
        finding
        for finding in findings
        if finding.code in entry.codes
        and any(finding.is_near(place, TOLERANCE) for place in places)
    )


def _false_alarms(entry: Entry, findings: Iterable[Finding]) -> Iterable[Finding]:
    return (
        finding
        for finding in findings
        if finding.severity in ("error", "warning")
        and finding.code not in entry.allowed
        and not finding.code.startswith(UNJUDGED)
    )


def _run_json(command: Sequence[str]) -> Any:
    """Run a command that prints JSON, whatever its exit status."""
    result = subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, encoding="utf-8", check=False
    )
    try:
        return json.loads(result.stdout)
    except json.JSONDecodeError:
        last_words = (result.stderr.strip() or "no output").splitlines()[-1]
        raise NoReportError(
            f"amplint ended with status {result.returncode}: {last_words}"
        ) from None


def _read_finding(record: Mapping[str, Any]) -> Finding:
    return Finding(
        code=record["code"],
        severity=record["severity"],
        message=record["message"],
        place=_read_place(record),
        path=tuple(Place(_absolute(step["filename"]), step["row"]) for step in record["path"]),
    )


def _read_place(record: Mapping[str, Any]) -> Place:
    return Place(_absolute(record["filename"]), record["location"]["row"])


def _absolute(filename: str) -> Path:
    """Reports name files relative to the directory amplint ran in."""
    return (REPOSITORY / filename).resolve()


def _bug_line(verdict: Verdict) -> str:
    hits = sorted({f"{hit.code} at line {hit.place.row}" for hit in verdict.hits})
    said = ", ".join(hits) or "nothing"
    file, row = verdict.entry.rows[0]
    return f"{verdict.entry.id}: {file}:{row} is {'/'.join(verdict.entry.codes)}, reported: {said}"


def _finding_line(finding: Finding, folder: Path) -> str:
    file = finding.place.filename
    shown = file.relative_to(folder) if file.is_relative_to(folder) else file
    head = f"{shown.as_posix()}:{finding.place.row}"
    return f"{head}: {finding.severity} {finding.code} {finding.message}"


def _words(text: str) -> frozenset[str]:
    return frozenset(word.strip() for word in text.split(",") if word.strip())


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("list", type=Path, metavar="LIST.jsonl")
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder of checkouts")
    parser.add_argument(
        "--codes",
        type=_words,
        default=frozenset(),
        help="judge only these codes, comma separated (default: all that amplint knows)",
    )
    parser.add_argument(
        "--needs", type=_words, default=frozenset(), help="only bugs that need fn, class, project"
    )
    parser.add_argument("--min-recall", type=float, default=0.0, metavar="SHARE")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
