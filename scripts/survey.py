"""Is what amplint says of code that nobody wrote for it true? A sheet to be judged, and its sums.

    python scripts/survey.py LIST CHECKOUTS > SHEET.tsv
    python scripts/survey.py --report SHEET.tsv [SHEET.tsv ...]
    python scripts/survey.py --links SHEET.tsv [SHEET.tsv ...]
    python scripts/survey.py --rules SHEET.tsv [SHEET.tsv ...]
    python scripts/survey.py --batches SHEET.tsv [SHEET.tsv ...]

The first form checks the repositories of LIST (`owner/name`, a tab, the commit; scripts/ecosystem.py)
and prints a sheet: one row for each error and warning of AMP1 to AMP6, with empty columns for whoever
reads the code. The second adds up judged sheets, in Markdown. The third asks what each standing of
a link is worth: a finding counts once for each of its links, copies of one pattern once. The fourth
asks the same of rules, at whatever level. The fifth gives each sheet one line.

* `verdict` is `true` (it happens, and does what the message says), `harmless` (it happens and does no
  harm there), `false` (it cannot happen) or `open` (reading and running did not decide).
* `class` names the question that was answered wrongly, `pattern` what the finding has in common with
  its copies: rows of one rule and one pattern have one verdict and are counted once by pattern.
* Rows of several readers, in one sheet or in several, are laid together: where verdicts differ, the
  finding is open, until a row whose reader is `execution` decides it.

Rows without a rule say what the sheet lacks: a repository that did not end, files that could not be
analysed, functions that were followed in part.
Exit status: 0, 2 (a list or a sheet is not of its form, or a checkout is missing).
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from ecosystem import REPOSITORY, Checkout, EcosystemError, finding_of, read_list, report

FAMILIES = ("AMP1", "AMP2", "AMP3", "AMP4", "AMP5", "AMP6")
LEVELS = ("error", "warning")
VERDICTS = ("true", "harmless", "false", "open")
#: From the firmest to the weakest; a finding stands as firmly as its weakest link.
STANDINGS = ("code", "library", "use", "option", "open", "harmless", "guess")
EXECUTION = "execution"
#: Of the normal distribution: 95 % lie within that many standard deviations.
_Z = 1.959964


class SurveyError(Exception):
    """A sheet is not of its form."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a sheet; all fields are text.

    Args:
        code, severity: "" where the row says what the sheet lacks.
        standing: `kind:standing` of each link, with spaces; "" where findings carry none.
        verdict: one of `VERDICTS`, or "" where nobody has judged it yet.
        wrong: the class of mistake, the column `class`.
    """

    repository: str
    commit: str
    file: str
    row: str
    code: str
    severity: str
    standing: str
    message: str
    verdict: str = ""
    wrong: str = ""
    pattern: str = ""
    reader: str = ""
    reason: str = ""

    @property
    def place(self) -> tuple[str, ...]:
        """What is the same in the sheets of several readers."""
        return (self.repository, self.commit, self.file, self.row, self.code, self.message)

    @property
    def weakest(self) -> str:
        """The weakest standing of its links, "" without links."""
        found = {link.rpartition(":")[2] for link in self.standing.split()}
        return max(found, key=STANDINGS.index, default="")


COLUMNS = tuple("class" if item.name == "wrong" else item.name for item in fields(Row))


@dataclass(frozen=True, slots=True)
class Tally:
    """How many of some findings have which verdict."""

    true: int = 0
    harmless: int = 0
    false: int = 0
    open: int = 0

    @classmethod
    def of(cls, verdicts: Iterable[str]) -> Tally:
        """Count verdicts; what has none is open."""
        counts = Counter(verdict or "open" for verdict in verdicts)
        return cls(*(counts[verdict] for verdict in VERDICTS))

    @property
    def judged(self) -> int:
        """Those that are not open."""
        return self.true + self.harmless + self.false


# -- making a sheet --------------------------------------------------------------------------


def survey(checkout: Checkout, folder: Path, tree: Path, seconds: float) -> list[Row]:
    """The rows of one checkout, in the order of the report.

    Raises:
        EcosystemError: there is no such checkout.
    """
    path = (folder / checkout.folder).resolve()
    if not path.is_dir():
        raise EcosystemError(f"no such folder: {path}")
    try:
        answer = report(tree, path, ("--select", ",".join(FAMILIES)), seconds)
    except EcosystemError as error:
        return [_note(checkout, str(error))]
    rows = [
        _row(checkout, record, tree, path)
        for record in answer["findings"]
        if record["severity"] in LEVELS
    ]
    parts = sum(len(file["functions"]) for file in answer.get("incomplete", ()))
    notes = {"not analysed, files": len(answer["errors"]), "followed in part, functions": parts}
    lacks = (f"{words}: {number}" for words, number in notes.items() if number)
    return rows + [_note(checkout, words) for words in lacks]


def _note(checkout: Checkout, words: str) -> Row:
    return Row(checkout.repository, checkout.commit, "", "", "", "", "", words)


def _row(checkout: Checkout, record: dict[str, Any], tree: Path, path: Path) -> Row:
    finding = finding_of(record, tree, path)
    links = sorted(f"{link['kind']}:{link['standing']}" for link in record.get("links", ()))
    return Row(
        checkout.repository,
        checkout.commit,
        finding.filename,
        str(finding.row),
        finding.code,
        finding.severity,
        " ".join(links),
        " ".join(finding.message.split()),
    )


def write_sheet(rows: Iterable[Row], file: TextIO) -> None:
    """Write rows as tab-separated values, with a line of names."""
    table = csv.writer(file, delimiter="\t", lineterminator="\n", quoting=csv.QUOTE_MINIMAL)
    table.writerow(COLUMNS)
    table.writerows(astuple(row) for row in rows)


# -- reading sheets --------------------------------------------------------------------------


def read_sheet(file: Path) -> list[Row]:
    """Read one sheet.

    Raises:
        SurveyError: a column or a verdict is not of the form.
    """
    with file.open(encoding="utf-8", newline="") as text:
        lines = list(csv.reader(text, delimiter="\t"))
    if not lines or tuple(lines[0]) != COLUMNS:
        raise SurveyError(f"{file}: expected the columns {', '.join(COLUMNS)}")
    rows = []
    for number, line in enumerate(lines[1:], start=2):
        if len(line) != len(COLUMNS):
            raise SurveyError(f"{file}: row {number} has {len(line)} of {len(COLUMNS)} columns")
        row = Row(*line)
        if row.verdict not in ("", *VERDICTS):
            raise SurveyError(f"{file}: row {number}: no such verdict: {row.verdict}")
        rows.append(row)
    return rows


def settle(sheets: Iterable[Sequence[Row]]) -> list[tuple[Row, str]]:
    """Each finding once, with the verdict that the readers of all sheets have come to."""
    readings: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for sheet in sheets:
        met: Counter[tuple[str, ...]] = Counter()
        for row in sheet:
            # A sheet may hold equal rows of one reader: two findings in one line.
            said = (*row.place, row.reader)
            readings[(*row.place, str(met[said]))].append(row)
            met[said] += 1
    return [(rows[0], _agreed(rows)) for rows in readings.values()]


def _agreed(rows: Sequence[Row]) -> str:
    decided = [row.verdict for row in rows if row.reader == EXECUTION]
    said = {row.verdict for row in rows if row.verdict} if not decided else {decided[-1]}
    return said.pop() if len(said) == 1 else "open"


def by_pattern(findings: Iterable[tuple[Row, str]]) -> list[tuple[Row, str]]:
    """The first finding of each rule and pattern; those without a pattern stay.

    Raises:
        SurveyError: copies of one pattern have different verdicts.
    """
    patterns: dict[object, tuple[Row, str]] = {}
    for number, (row, verdict) in enumerate(findings):
        key = (row.code, row.pattern) if row.pattern else number
        first = patterns.setdefault(key, (row, verdict))
        if first[1] != verdict:
            words = f"{row.code} {row.pattern} is both {first[1]} and {verdict}"
            raise SurveyError(f"{words} ({first[0].repository}, {row.repository})")
    return list(patterns.values())


def wilson(hits: int, total: int) -> tuple[float, float]:
    """The 95 % interval of a share by Wilson's score, both ends between 0 and 1."""
    if not total:
        return 0.0, 1.0
    share, square = hits / total, _Z * _Z
    middle = (share + square / (2 * total)) / (1 + square / total)
    half = math.sqrt(share * (1 - share) / total + square / (4 * total * total))
    half *= _Z / (1 + square / total)
    return max(0.0, middle - half), min(1.0, middle + half)


# -- the report ------------------------------------------------------------------------------

_HEAD = "| {0} | findings | true | harmless | false | open | true, of those judged | not false |"


def render(sheets: Sequence[Sequence[Row]]) -> str:
    """The sums of judged sheets, by finding and by pattern, in Markdown."""
    settled = settle(sheets)
    notes = [row for row, _ in settled if not row.code]
    findings = [(row, verdict) for row, verdict in settled if row.code]
    keys: Mapping[str, Callable[[Row], str]] = {
        "level": lambda row: row.severity,
        "rule": lambda row: f"{row.code} {row.severity}",
        "weakest link": lambda row: row.weakest,
        "mistake": lambda row: row.wrong,
    }
    units = {"By finding": findings, "By pattern (copies once)": by_pattern(findings)}
    blocks = [
        "\n".join(lines)
        for title, chosen in units.items()
        for name, key in keys.items()
        if (lines := list(_table(title, name, key, chosen)))
    ]
    blocks.append("\n".join(f"- {row.repository}: {row.message}" for row in notes))
    return "\n\n".join(blocks).rstrip()


def render_links(sheets: Sequence[Sequence[Row]]) -> str:
    """What findings with a link of each kind and standing are worth, by pattern, in Markdown."""
    return _worth(
        sheets, "link: standing", lambda row: {*row.standing.split(), f"{row.severity}: any"}
    )


def render_rules(sheets: Sequence[Sequence[Row]]) -> str:
    """What findings of each rule are worth at whatever level, by pattern, in Markdown."""
    return _worth(sheets, "rule", lambda row: {row.code})


def render_batches(sheets: Mapping[str, Sequence[Row]]) -> str:
    """What errors and warnings of each sheet were, by finding and by pattern, in Markdown.

    Args:
        sheets: by the name of their batch.
    """
    units = ("errors", "by pattern", "warnings", "by pattern")
    lines = [f"| batch | {' | '.join(units)} |", "|---" * (1 + len(units)) + "|"]
    for name, rows in sheets.items():
        findings = [(row, verdict) for row, verdict in settle([rows]) if row.code]
        tallies = (
            Tally.of(verdict for row, verdict in chosen if row.severity == level)
            for level in LEVELS
            for chosen in (findings, by_pattern(findings))
        )
        lines.append(f"| {name} | {' | '.join(map(_in_words, tallies))} |")
    return "\n".join(lines)


def _in_words(tally: Tally) -> str:
    """ "13 of 19 true, 1 harmless, 3 open"; a dash where there is no finding."""
    rest = [
        f"{number} {word}"
        for number, word in ((tally.harmless, "harmless"), (tally.open, "open"))
        if number
    ]
    if not tally.judged:
        return ", ".join(rest) or "-"
    return ", ".join((f"{tally.true} of {tally.judged} true", *rest))


def _worth(
    sheets: Sequence[Sequence[Row]], name: str, labels: Callable[[Row], Iterable[str]]
) -> str:
    groups: dict[str, list[str]] = defaultdict(list)
    for row, verdict in by_pattern([(row, said) for row, said in settle(sheets) if row.code]):
        for label in labels(row):
            groups[label].append(verdict)
    lines = (_line(label, Tally.of(groups[label])) for label in sorted(groups))
    return "\n".join((_HEAD.format(name), "|---" * 8 + "|", *lines))


def _table(
    title: str, name: str, key: Callable[[Row], str], findings: Iterable[tuple[Row, str]]
) -> Iterator[str]:
    groups: dict[str, list[str]] = defaultdict(list)
    for row, verdict in findings:
        groups[key(row)].append(verdict)
    if not any(groups):
        return
    yield f"{title}, by {name}:"
    yield ""
    yield _HEAD.format(name)
    yield "|---" * 8 + "|"
    for label in sorted(groups):
        yield _line(label or "none", Tally.of(groups[label]))
    if len(groups) > 1:
        yield _line("all", Tally.of(verdict for group in groups.values() for verdict in group))


def _line(label: str, tally: Tally) -> str:
    counts = " | ".join(str(count) for count in (tally.judged + tally.open, *astuple(tally)))
    shares = (tally.true, tally.true + tally.harmless)
    return f"| {label} | {counts} | {' | '.join(_share(hits, tally.judged) for hits in shares)} |"


def _share(hits: int, total: int) -> str:
    if not total:
        return "-"
    low, high = wilson(hits, total)
    return f"{hits / total:.0%} ({low:.0%} to {high:.0%})"


# -- command line ----------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    options = _parse(arguments)
    try:
        if options.batches:
            names = {_batch_of(file): read_sheet(file) for file in options.files}
            print(render_batches(names))
            return 0
        if options.report:
            print(render([read_sheet(file) for file in options.files]))
            return 0
        for wanted, table in ((options.links, render_links), (options.rules, render_rules)):
            if wanted:
                print(table([read_sheet(file) for file in options.files]))
                return 0
        checkouts = read_list(options.files[0])
        check = partial(
            survey, folder=options.files[1], tree=options.tree.resolve(), seconds=options.limit
        )
        with ThreadPoolExecutor(options.jobs) as pool:
            write_sheet((row for rows in pool.map(check, checkouts) for row in rows), sys.stdout)
    except (EcosystemError, SurveyError) as error:
        print(f"survey: {error}", file=sys.stderr)
        return 2
    return 0


def _batch_of(sheet: Path) -> str:
    """ "[W](survey/batch-w.md)" of `batch-w-sheet.tsv`, for a page beside the folder of sheets."""
    stem = sheet.stem.removesuffix("-sheet")
    return f"[{stem.rpartition('-')[2].upper()}]({sheet.parent.name}/{stem}.md)"


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="LIST CHECKOUTS")
    parser.add_argument("--report", action="store_true", help="add up judged sheets instead")
    parser.add_argument("--links", action="store_true", help="add them up by link instead")
    parser.add_argument("--rules", action="store_true", help="add them up by rule instead")
    parser.add_argument("--batches", action="store_true", help="one line for each sheet instead")
    parser.add_argument("--tree", type=Path, default=REPOSITORY, help="amplint's sources")
    parser.add_argument("--limit", type=float, default=120, help="seconds for each checkout")
    parser.add_argument("--jobs", type=int, default=1, help="checkouts at once (default: 1)")
    options = parser.parse_args(arguments)
    if (
        not (options.report or options.links or options.rules or options.batches)
        and len(options.files) != 2
    ):
        parser.error("expected LIST CHECKOUTS, or --report and sheets")
    return options


if __name__ == "__main__":
    sys.exit(main())
