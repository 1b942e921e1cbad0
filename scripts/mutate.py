"""Break correct training loops, one statement at a time, and count what amplint notices.

    python scripts/mutate.py DIR

Correct code alone says little about a linter, because silence is easy. So every file under
DIR that holds a scaler loop on which amplint is silent is broken by the recipes of
`mutators.py`. A mutant counts as found if a finding with one of the recipe's codes, or a step
of its path, is at most 40 lines from the edit. (The unchanged file has none of these codes, so
any such finding is new.) A file and its mutants are checked alone, away from their project; with
`--in-project` where they lie, in copies of the folders directly below DIR.

Exit status: 0, 1 (recall under `--min-recall`), 2 (nothing to break, or no report).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from corpus import Finding, NoReportError, Place, Report, check
from mutators import PROTOCOL_CODES, RECIPES, Recipe, holds_scaler_loop
from scaler_source import Source, read_source

DISTANCE = 40  # lines between an edit and a finding that is about it

#: What amplint reports for each of some files that have these texts.
CheckTexts = Callable[[Sequence[tuple[Path, str]]], list[list["Finding"]]]


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


def find_loops(folder: Path, per_project: int | None = None) -> dict[Path, Source]:
    """The different files below a folder that step through a scaler, sorted by path.

    Test files are left out: they often run a single step, where nothing can come twice.

    Args:
        per_project: so many of each folder directly below; None for all.
    """
    seen: set[str] = set()
    projects: Counter[str] = Counter()
    found: dict[Path, Source] = {}
    for file in sorted(folder.rglob("*.py")):
        if not file.is_file() or file.name.startswith("test_"):
            continue
        source = read_source(file)
        if source is None or not holds_scaler_loop(source):
            continue
        digest = hashlib.sha256(source.text.encode()).hexdigest()
        project = file.relative_to(folder).parts[0]
        if digest not in seen and (per_project is None or projects[project] < per_project):
            seen.add(digest)
            projects[project] += 1
            found[file] = source
    return found


def make_mutants(file: Path, source: Source, recipes: Iterable[Recipe]) -> Iterator[Mutant]:
    """All mutants of one file."""
    for recipe in recipes:
        for mutation in recipe.breaks(source):
            yield Mutant(recipe, file, mutation.row, source.apply(mutation.edits))


def check_alone(texts: Sequence[tuple[Path, str]], jobs: int) -> list[list[Finding]]:
    """The protocol findings of each text, every one in a project of its own.

    A text that amplint cannot analyse has one finding, AMP000.

    Raises:
        NoReportError: if amplint does not deliver a report.
    """
    with tempfile.TemporaryDirectory(prefix="mutate-") as name:
        root = Path(name).resolve()
        files = [root / f"project{n}" / file.name for n, (file, _) in enumerate(texts)]
        for file, (_, text) in zip(files, texts, strict=True):
            file.parent.mkdir()
            (file.parent / "pyproject.toml").touch()  # ends the search for the project's root
            file.write_text(text, encoding="utf-8")
        report = check([root], "--jobs", str(jobs))
    return _by_file(report, files)


def _by_file(report: Report, files: Iterable[Path]) -> list[list[Finding]]:
    """The protocol findings of each file of a report; AMP000 for one that was not analysed."""
    by_file: defaultdict[Path, list[Finding]] = defaultdict(list)
    for finding in report.findings:
        if finding.code in PROTOCOL_CODES:
            by_file[finding.place.filename].append(finding)
    for place in report.unreadable:
        by_file[place.filename] = [Finding("AMP000", "error", "not analysed", place)]
    return [by_file[file] for file in files]


def check_in_project(
    texts: Sequence[tuple[Path, str]], folder: Path, jobs: int
) -> list[list[Finding]]:
    """The protocol findings of each text where its file lies, in a copy of its project.

    Args:
        texts: of files in projects, which are the folders directly below `folder`.

    Raises:
        NoReportError: if amplint does not deliver a report.
    """
    by_project: defaultdict[str, list[int]] = defaultdict(list)
    for number, (file, _) in enumerate(texts):
        by_project[file.relative_to(folder).parts[0]].append(number)

    def check_project(project: str) -> dict[int, list[Finding]]:
        numbers = by_project[project]
        return dict(
            zip(numbers, _check_copies(folder, project, [texts[n] for n in numbers]), strict=True)
        )

    found: dict[int, list[Finding]] = {}
    with ThreadPoolExecutor(jobs) as pool:
        for part in pool.map(check_project, sorted(by_project)):
            found |= part
    return [found[number] for number in range(len(texts))]


def _check_copies(
    folder: Path, project: str, texts: Sequence[tuple[Path, str]]
) -> Iterator[list[Finding]]:
    """The findings of texts of one project, one after the other in the same copy of it."""
    with tempfile.TemporaryDirectory(prefix="mutate-") as name:
        copy = Path(name).resolve() / project
        shutil.copytree(
            folder / project,
            copy,
            symlinks=True,
            ignore=shutil.ignore_patterns(".git"),
            copy_function=_link,
        )
        for original, text in texts:
            file = Path(name).resolve() / original.relative_to(folder)
            file.unlink()  # a link to the original, which stays as it is
            file.write_text(text, encoding="utf-8")
            yield _by_file(check([file], "--select", ",".join(sorted(PROTOCOL_CODES))), [file])[0]
            file.unlink()
            _link(original, file)


def _link(original: Path | str, copy: Path | str) -> None:
    """Make a hard link; a copy where the system makes none."""
    try:
        os.link(original, copy)
    except OSError:
        shutil.copy2(original, copy)


def run(
    loops: Mapping[Path, Source], recipes: Sequence[Recipe], check_texts: CheckTexts
) -> Outcome:
    """Check the unchanged files, then the mutants of those without findings."""
    unchanged = check_texts([(file, source.text) for file, source in loops.items()])
    reported = {file: tuple(found) for file, found in zip(loops, unchanged, strict=True) if found}
    mutants = [
        mutant
        for file, source in loops.items()
        if file not in reported
        for mutant in make_mutants(file, source, recipes)
    ]
    results = check_texts([(mutant.origin, mutant.text) for mutant in mutants])
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
    loops = dict(list(find_loops(folder, options.per_project).items())[: options.limit])
    if not loops:
        print(f"mutate: no scaler loop below {options.folder}", file=sys.stderr)
        return 2

    def check_texts(texts: Sequence[tuple[Path, str]]) -> list[list[Finding]]:
        if options.in_project:
            return check_in_project(texts, folder, options.jobs)
        return check_alone(texts, options.jobs)

    try:
        outcome = run(loops, recipes, check_texts)
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
    parser.add_argument(
        "--per-project", type=int, metavar="N", help="at most N files of a folder below DIR"
    )
    parser.add_argument(
        "--in-project", action="store_true", help="check files where they lie, not alone"
    )
    parser.add_argument("--misses", action="store_true", help="list the mutants not noticed")
    parser.add_argument("--min-recall", type=float, default=0.9, metavar="SHARE")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
