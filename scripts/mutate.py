"""Break correct training loops, one statement at a time, and count what amplint notices.

    python scripts/mutate.py DIR

Correct code alone says little about a linter, because silence is easy. So every file under
DIR that holds a scaler loop on which amplint is silent is broken by the recipes of
`mutators.py`. A mutant counts as found if a finding with one of the recipe's codes, or a step
of its path, is at most 40 lines from the edit. (The unchanged file has none of these codes, so
any such finding is new.) A file and its mutants are checked alone, away from their project.

Exit status: 0, 1 (recall under `--min-recall`), 2 (nothing to break, or no report).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from corpus import Finding, NoReportError, Place, check
from mutators import PROTOCOL_CODES, RECIPES, Recipe, holds_scaler_loop
from scaler_source import Source, read_source

DISTANCE = 40  # lines between an edit and a finding that is about it


@dataclass(frozen=True, slots=True)
class Mutant:
    """A broken copy of a file.

    Args:
        origin: the unchanged file.
        row: the line of the edit.
    """

    recipe: Recipe
    origin: Path
    row: int
    text: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """A mutant, and the right codes that amplint reports for it."""

    mutant: Mutant
    codes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run.

    Args:
        verdicts: one per mutant.
        reported: unchanged files that have findings, hence no mutants.
    """

    verdicts: tuple[Verdict, ...]
    reported: Mapping[Path, tuple[Finding, ...]]

    @property
    def misses(self) -> list[Mutant]:
        """Mutants that amplint does not notice."""
        return [verdict.mutant for verdict in self.verdicts if not verdict.codes]

    @property
    def recall(self) -> float:
        """Share of the mutants that amplint notices; 1 if there are none."""
        if not self.verdicts:
            return 1.0
        return 1 - len(self.misses) / len(self.verdicts)

    def of(self, recipe: Recipe) -> list[Verdict]:
        """The verdicts on one recipe's mutants."""
        return [verdict for verdict in self.verdicts if verdict.mutant.recipe is recipe]


def find_loops(folder: Path) -> dict[Path, Source]:
    """The different files below a folder that step through a scaler, sorted by path.

    Test files are left out: they often run a single step, where nothing can come twice.
    """
    seen: set[str] = set()
    found: dict[Path, Source] = {}
    for file in sorted(folder.rglob("*.py")):
        if not file.is_file() or file.name.startswith("test_"):
            continue
        source = read_source(file)
        if source is None or not holds_scaler_loop(source):
            continue
        digest = hashlib.sha256(source.text.encode()).hexdigest()
        if digest not in seen:
            seen.add(digest)
            found[file] = source
    return found


def make_mutants(file: Path, source: Source, recipes: Iterable[Recipe]) -> Iterator[Mutant]:
    """All mutants of one file."""
    for recipe in recipes:
        for mutation in recipe.breaks(source):
            yield Mutant(recipe, file, mutation.row, source.apply(mutation.edits))


def check_alone(named_texts: Sequence[tuple[str, str]], jobs: int) -> list[list[Finding]]:
    """The protocol findings of each text, every one in a project of its own.

    A text that amplint cannot analyse has one finding, AMP000.

    Raises:
        NoReportError: if amplint does not deliver a report.
    """
    with tempfile.TemporaryDirectory(prefix="mutate-") as name:
        root = Path(name).resolve()
        files = [root / f"project{n}" / file for n, (file, _) in enumerate(named_texts)]
        for file, (_, text) in zip(files, named_texts, strict=True):
            file.parent.mkdir()
            (file.parent / "pyproject.toml").touch()  # ends the search for the project's root
            file.write_text(text, encoding="utf-8")
        report = check([root], "--jobs", str(jobs))
    by_file: defaultdict[Path, list[Finding]] = defaultdict(list)
    for finding in report.findings:
        if finding.code in PROTOCOL_CODES:
            by_file[finding.place.filename].append(finding)
    for place in report.unreadable:
        by_file[place.filename] = [Finding("AMP000", "error", "not analysed", place)]
    return [by_file[file] for file in files]


def run(loops: Mapping[Path, Source], recipes: Sequence[Recipe], jobs: int) -> Outcome:
    """Check the unchanged files, then the mutants of those without findings."""
    unchanged = check_alone([(file.name, source.text) for file, source in loops.items()], jobs)
    reported = {file: tuple(found) for file, found in zip(loops, unchanged, strict=True) if found}
    mutants = [
        mutant
        for file, source in loops.items()
        if file not in reported
        for mutant in make_mutants(file, source, recipes)
    ]
    results = check_alone([(mutant.origin.name, mutant.text) for mutant in mutants], jobs)
    verdicts = (
        Verdict(mutant, _right_codes(mutant, findings))
        for mutant, findings in zip(mutants, results, strict=True)
    )
    return Outcome(tuple(verdicts), reported)


def _right_codes(mutant: Mutant, findings: Iterable[Finding]) -> frozenset[str]:
    """The codes of findings that are about the edit."""
    return frozenset(
        finding.code
        for finding in findings
        if finding.code in mutant.recipe.codes
        and finding.is_near(Place(finding.place.filename, mutant.row), DISTANCE)
    )


def render_text(outcome: Outcome, recipes: Iterable[Recipe], folder: Path, misses: bool) -> str:
    """A table of the recipes, and what needs to be looked at."""
    lines = [_table_row(recipe.name, outcome.of(recipe)) for recipe in recipes]
    lines.append(_table_row("all", outcome.verdicts))
    if misses:
        lines += ["", "misses"]
        lines += [f"  {_line(miss.origin, folder, miss)}" for miss in outcome.misses]
    lines += ["", f"unchanged files with findings: {len(outcome.reported)}"]
    lines += [
        f"  {file.relative_to(folder).as_posix()}:{finding.place.row} {finding.code}"
        for file, findings in outcome.reported.items()
        for finding in findings
    ]
    return "\n".join(lines)


def render_json(outcome: Outcome, recipes: Iterable[Recipe], folder: Path) -> str:
    """The same for programs."""
    document = {
        "recipes": {
            recipe.name: {
                "found": sum(bool(verdict.codes) for verdict in outcome.of(recipe)),
                "total": len(outcome.of(recipe)),
                "codes": dict(_codes(outcome.of(recipe))),
            }
            for recipe in recipes
        },
        "misses": [_line(miss.origin, folder, miss) for miss in outcome.misses],
        "reported": {
            file.relative_to(folder).as_posix(): sorted({f.code for f in findings})
            for file, findings in outcome.reported.items()
        },
        "recall": round(outcome.recall, 4),
    }
    return json.dumps(document, indent=2)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    options = _parse(arguments)
    recipes = [r for r in RECIPES if not options.recipe or r.name in options.recipe]
    folder = options.folder.resolve()
    loops = dict(list(find_loops(folder).items())[: options.limit])
    if not loops:
        print(f"mutate: no scaler loop below {options.folder}", file=sys.stderr)
        return 2
    try:
        outcome = run(loops, recipes, options.jobs)
    except NoReportError as failure:
        print(f"mutate: {failure}", file=sys.stderr)
        return 2
    if options.json:
        print(render_json(outcome, recipes, folder))
    else:
        print(render_text(outcome, recipes, folder, options.misses))
    return int(outcome.recall < options.min_recall)


def _codes(verdicts: Iterable[Verdict]) -> list[tuple[str, int]]:
    """How often each code is reported, most frequent first."""
    return Counter(code for verdict in verdicts for code in verdict.codes).most_common()


def _table_row(name: str, verdicts: Sequence[Verdict]) -> str:
    found = sum(bool(verdict.codes) for verdict in verdicts)
    share = f"{100 * found / len(verdicts):.0f} %" if verdicts else "-"
    codes = ", ".join(f"{code} {count}" for code, count in _codes(verdicts)[:3])
    return f"{name:<22} {found:>5}/{len(verdicts):<5} {share:>5}  {codes}".rstrip()


def _line(file: Path, folder: Path, mutant: Mutant) -> str:
    return f"{file.relative_to(folder).as_posix()}:{mutant.row} {mutant.recipe.name}"


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument(
        "--recipe",
        action="append",
        choices=[recipe.name for recipe in RECIPES],
        help="only this recipe (repeatable)",
    )
    parser.add_argument("--limit", type=int, metavar="N", help="at most N files")
    parser.add_argument("--misses", action="store_true", help="list the mutants not noticed")
    parser.add_argument("--min-recall", type=float, default=0.9, metavar="SHARE")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
