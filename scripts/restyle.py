"""Rewrite programs so that they do the same, and count where amplint answers something else.

    python scripts/restyle.py [--style S]... [--fixture NAME] [--table] [--misses] [--write DIR]
    python scripts/restyle.py --execute [--style S]... [--fixture NAME]
    python scripts/restyle.py --real DIR... --listed

Each style of `restyling/table.py` rewrites each fixture, or says why it does not apply. The marks
of a fixture stand on statements and go where these go. A mark is found if a finding with its code,
or a step of the finding's path, is on the marked row or on the call that leads there. A bad
fixture counts as found if all its marks are; a good one as accused if there is any finding.
`--execute` runs the original and the restyled program under torch and compares.

`--real` takes the files of `restyling/real.tsv` instead of fixtures, out of folders with checkouts:
what amplint says about a file as it stands is expected of it in every style. `--listed` compares
with `restyling/listed.tsv`, where each known violation has its reason.

Exit status: 0, 1 (a share below `--min-found`, a good fixture accused, another behaviour; with
`--listed` only a violation that is not listed), 2 (no such style, fixture or file).
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent)]

from restyling.judging import Fixture, Verdict, fixtures, judge, restyled, write
from restyling.listed import compared
from restyling.program import DoesNotApplyError
from restyling.real import real_files
from restyling.table import STYLES

HEADER = (
    "| style | does not apply | bad: applied | bad: found | good: applied | good: accused |\n"
    "|---|---:|---:|---:|---:|---:|"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the script; returns the exit status."""
    options = _options(arguments)
    unknown = set(options.style) - set(STYLES)
    if unknown:
        print(f"no such style: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    try:
        every = real_files(options.real) if options.real else fixtures()
    except FileNotFoundError as error:
        print(error, file=sys.stderr)
        return 2
    chosen = [one for one in every if one.name.startswith(options.fixture)]
    if not chosen:
        print(f"no fixture begins with {options.fixture}", file=sys.stderr)
        return 2
    chosen = chosen[options.offset :: options.every]
    styles = options.style or list(STYLES)
    if options.write:
        return _write(styles, chosen, Path(options.write))
    if options.execute:
        return _execute(styles, chosen)
    return _judge(styles, chosen, options)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--style", action="append", default=[], help="only this style; repeatable")
    parser.add_argument("--fixture", default="", help="only fixtures whose name begins like this")
    parser.add_argument("--every", type=int, default=1, help="only every n-th fixture")
    parser.add_argument(
        "--offset", type=int, default=0, help="how many fixtures --every leaves out"
    )
    parser.add_argument(
        "--real", nargs="+", type=Path, metavar="DIR", help="real files out of these checkouts"
    )
    parser.add_argument("--listed", action="store_true", help="compare with what is listed")
    parser.add_argument("--table", action="store_true", help="print a Markdown table")
    parser.add_argument("--misses", action="store_true", help="list misses and false alarms")
    parser.add_argument("--reasons", action="store_true", help="count why styles do not apply")
    parser.add_argument("--write", default="", help="write the programs into this folder")
    parser.add_argument("--execute", action="store_true", help="run the programs under torch")
    parser.add_argument("--min-found", type=float, default=0.95, help="least share of each style")
    return parser.parse_args(arguments)


def _write(styles: Iterable[str], chosen: Sequence[Fixture], folder: Path) -> int:
    for style in styles:
        for fixture in chosen:
            try:
                program = restyled(style, fixture)
            except DoesNotApplyError as error:
                print(f"{style} {fixture.name}: does not apply, {error}")
                continue
            write(program, folder / style / fixture.name.removesuffix(".py"))
    return 0


def _execute(styles: Iterable[str], chosen: Sequence[Fixture]) -> int:
    from restyling.execution import differences

    compared, different = 0, 0
    for style in styles:
        for fixture in chosen:
            try:
                program = restyled(style, fixture)
            except DoesNotApplyError:
                continue
            count, notes = differences(fixture, program)
            compared += count
            different += len(notes)
            for note in notes:
                print(f"{style} {fixture.name}: {note}")
    print(f"{compared} runs compared, {different} differ")
    return 1 if different else 0


def _judge(styles: Sequence[str], chosen: Sequence[Fixture], options: argparse.Namespace) -> int:
    verdicts: dict[str, list[Verdict]] = {}
    rows = []
    print(HEADER)
    for style in styles:
        verdicts[style] = [judge(style, fixture) for fixture in chosen]
        rows.append(Row.of(style, verdicts[style]))
        print(rows[-1], flush=True)
    print(Row.sum([row for row in rows if row.style != "unchanged"]))
    if options.misses:
        _list(verdict for style in styles for verdict in verdicts[style])
    if options.reasons:
        for style in styles:
            counts = Counter(one.reason for one in verdicts[style] if one.reason)
            print(f"{style}: {dict(counts.most_common())}")
    if options.listed:
        return _compare(verdict for style in styles for verdict in verdicts[style])
    failed = any(row.share < options.min_found or row.accused for row in rows)
    return 1 if failed else 0


def _compare(verdicts: Iterable[Verdict]) -> int:
    new, gone = compared(verdicts)
    for one in new:
        print("not listed:", *one, sep="\t")
    for one in gone:
        print("listed, but no more:", *one, sep="\t")
    print(f"{len(new)} violations that are not listed, {len(gone)} listed ones that are no more")
    return 1 if new else 0


def _list(verdicts: Iterable[Verdict]) -> None:
    for verdict in verdicts:
        what = "miss" if verdict.fixture.is_bad else "alarm"
        for place in verdict.missed:
            print(f"miss {verdict.style} {verdict.fixture.name} {place}")
        for place in verdict.accused:
            kind = "extra" if what == "miss" else "alarm"
            print(f"{kind} {verdict.style} {verdict.fixture.name} {place}")


class Row:
    """A row of the table: fixtures, not marks."""

    def __init__(self, style: str, numbers: Sequence[int]) -> None:
        self.style = style
        self.numbers = tuple(numbers)
        self.skipped, self.bad, self.found, self.good, self.accused = self.numbers

    @classmethod
    def of(cls, style: str, verdicts: Sequence[Verdict]) -> Row:
        """The row of a style."""
        applied = [one for one in verdicts if one.applied]
        bad = [one for one in applied if one.fixture.is_bad]
        good = [one for one in applied if not one.fixture.is_bad]
        found = sum(not one.missed for one in bad)
        accused = sum(bool(one.accused) for one in good)
        return cls(style, (len(verdicts) - len(applied), len(bad), found, len(good), accused))

    @classmethod
    def sum(cls, rows: Sequence[Row]) -> Row:
        """All rows as one."""
        numbers = [sum(column) for column in zip(*(row.numbers for row in rows), strict=True)]
        return cls("all", numbers or [0] * 5)

    @property
    def share(self) -> float:
        """Found of applied; 1 where there are none."""
        return self.found / self.bad if self.bad else 1.0

    def __str__(self) -> str:
        share = f"{self.found} ({self.share:.1%})"
        return (
            f"| {self.style} | {self.skipped} | {self.bad} | {share} "
            f"| {self.good} | {self.accused} |"
        )


if __name__ == "__main__":
    sys.exit(main())
