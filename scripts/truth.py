"""Say what calls run, and let Python be the judge: contained, unknown or wrong.

    python scripts/truth.py                                  the fixtures that tests/incidents runs
    python scripts/truth.py --packages FOLDER [NAME ...]     test suites of real packages, too
    python scripts/truth.py --recordings FILE ...            what was recorded before

Programs are run under `truth_recorder.py`, and every call whose function lies inside the project is
compared with amplint's static answer (`truth_compare.py`). Packages are fetched from the package
index, at the versions of `PACKAGES`, into FOLDER, where recordings are kept, too.

Exit status: 0, 1 (a wrong answer), 2 (a program could not be fetched or recorded).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from truth_compare import CONTAINED, UNKNOWN, WRONG, Comparison, Verdict, compare, read_recording

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent
FIXTURES = "fixtures"
_PYTEST = ("pytest", "-q", "-p", "no:cacheprovider", "--assert=plain")


class NotRecordedError(Exception):
    """A program could not be fetched or run; the message says why."""


@dataclass(frozen=True, slots=True)
class Package:
    """A package of the index, with the tests of its source distribution.

    Args:
        path: folder of the sources below the unpacked distribution.
        tests: what pytest is given.
        needs: what the tests need besides, each with its version.
    """

    version: str
    path: str
    tests: tuple[str, ...]
    needs: tuple[str, ...] = ()


PACKAGES: Mapping[str, Package] = {
    "marshmallow": Package(
        "4.4.0", "src", ("tests", "--ignore=tests/mypy_test_cases"), ("simplejson==3.20.2",)
    ),
    "jinja2": Package("3.1.6", "src", ("tests",), ("trio==0.35.0",)),
    "docutils": Package(
        "0.23",
        ".",
        ("test/test_nodes.py", "test/test_parsers/test_rst/test_directives")
        + ("test/test_readers", "test/test_statemachine.py", "test/test_transforms")
        + ("test/test_writers",),
    ),
    "sqlglot": Package(
        "30.30.0",
        ".",
        ("tests/test_build.py", "tests/test_generator.py", "tests/test_transforms.py")
        + ("tests/dialects/test_postgres.py",),
    ),
    "pytorch-ignite": Package(
        "0.5.5", ".", ("tests/ignite/engine", "tests/ignite/base", "-k", "not distrib and not xla")
    ),
}


@dataclass(frozen=True, slots=True)
class Program:
    """A program and its recording."""

    name: str
    recording: Path

    def compared(self) -> Comparison:
        """The comparison of the recording with amplint's answers of now."""
        return compare(read_recording(self.recording), own_roots=self.name == FIXTURES)


# -- recording ---------------------------------------------------------------------------------


def _record(out: Path, root: Path, paths: Sequence[Path], command: Sequence[str]) -> None:
    """Record a run of a program in its own process.

    Raises:
        NotRecordedError: there is no recording afterwards.
    """
    recorder = [sys.executable, str(HERE / "truth_recorder.py"), str(out), str(root)]
    path = os.pathsep.join(map(str, paths))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    folder = REPOSITORY if root.is_relative_to(REPOSITORY) else root
    done = subprocess.run(
        [*recorder, *command],
        check=False,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    if not out.exists():
        raise NotRecordedError(f"{root}: {done.stdout[-500:]}{done.stderr[-500:]}")
    closing = done.stdout.strip().splitlines()[-1:] or ["no output"]
    print(f"{out.stem}: {closing[0]}", file=sys.stderr)


def record_fixtures(folder: Path, tests: Sequence[str] = ("tests/incidents",)) -> Program:
    """Run the fixtures as `tests/incidents` does.

    Raises:
        NotRecordedError: that cannot be done.
    """
    out = folder / f"{FIXTURES}.json"
    _record(out, REPOSITORY / FIXTURES, [REPOSITORY], [*_PYTEST, *tests])
    return Program(FIXTURES, out)


def record_package(name: str, folder: Path) -> Program:
    """Run the tests of a package, fetched into the folder if it is not there; once.

    Raises:
        NotRecordedError: it cannot be fetched or run.
    """
    package = PACKAGES[name]
    out = folder / f"{name}.json"
    if not out.exists():
        root = _fetched(name, package, folder)
        needs = folder / f"{name}-needs"
        for need in package.needs if not needs.exists() else ():
            _pip("install", "--quiet", "--target", str(needs), need)
        _record(out, root, [root / package.path, needs], [*_PYTEST, *package.tests])
    return Program(name, out)


def _fetched(name: str, package: Package, folder: Path) -> Path:
    """The unpacked source distribution."""
    wanted = f"{name.replace('-', '_')}-{package.version}"
    if not (folder / wanted).is_dir():
        source = ("--no-deps", "--no-binary", ":all:", "--dest", str(folder))
        _pip("download", "--quiet", *source, f"{name}=={package.version}")
        with tarfile.open(folder / f"{wanted}.tar.gz") as archive:
            archive.extractall(folder, filter="data")
    return folder / wanted


def _pip(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", *arguments], check=False, capture_output=True, text=True
    )
    if done.returncode:
        raise NotRecordedError(done.stderr.strip()[-500:])


# -- printing ----------------------------------------------------------------------------------


def table(compared: Mapping[str, Comparison]) -> Iterator[str]:
    """Lines of Markdown: a table by program, then one by the form of the call and the reason."""
    yield "| program | calls | contained | unknown | wrong | class: exact | base | unknown | wrong |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for name, found in compared.items():
        yield _row(name, [found])
    yield _row("all", list(compared.values()))
    yield ""
    verdicts = [verdict for found in compared.values() for verdict in found.verdicts]
    yield from _by("form of the call", verdicts)
    yield ""
    yield "| why unknown | calls |"
    yield "|---|---|"
    reasons = Counter(
        re.sub("`[^`]*`", "`…`", verdict.reason)
        for verdict in verdicts
        if verdict.outcome == UNKNOWN
    )
    yield from (f"| {reason} | {count} |" for reason, count in reasons.most_common())


def _row(name: str, found: Sequence[Comparison]) -> str:
    counts = Counter(verdict.outcome for item in found for verdict in item.verdicts)
    receivers = [item.receivers for item in found]
    cells = [
        counts.total(),
        *(_share(counts[outcome], counts.total()) for outcome in (CONTAINED, UNKNOWN)),
        counts[WRONG],
        *(sum(getattr(each, kind) for each in receivers) for kind in ("exact", "base", "unknown")),
        sum(len(each.wrong) for each in receivers),
    ]
    return f"| {name} | {' | '.join(map(str, cells))} |"


def _by(title: str, verdicts: Sequence[Verdict]) -> Iterator[str]:
    yield f"| {title} | calls | contained | unknown | wrong |"
    yield "|---|---|---|---|---|"
    totals = Counter(verdict.shape for verdict in verdicts)
    counts = Counter((verdict.shape, verdict.outcome) for verdict in verdicts)
    for shape, total in totals.most_common():
        known, unknown = (_share(counts[shape, kind], total) for kind in (CONTAINED, UNKNOWN))
        yield f"| `{shape}` | {total} | {known} | {unknown} | {counts[shape, WRONG]} |"


def _share(count: int, total: int) -> str:
    return f"{count} ({100 * count / total:.0f} %)" if total else "0"


def document(compared: Mapping[str, Comparison]) -> dict[str, object]:
    """Everything as JSON values, by program."""
    return {name: asdict(found) for name, found in compared.items()}


def wrong_answers(compared: Mapping[str, Comparison]) -> Iterator[str]:
    """One line for each wrong answer about a call, and for each about a class."""
    for name, found in compared.items():
        for verdict in found.verdicts:
            if verdict.outcome == WRONG:
                place = f"{name}: {verdict.file}:{verdict.line}"
                yield f"{place}: {verdict.text[:60]}: {verdict.reason}"
        yield from (f"{name}: class: {line}" for line in found.receivers.wrong)


# -- command -----------------------------------------------------------------------------------


def _programs(options: argparse.Namespace, folder: Path) -> list[Program]:
    if options.recordings:
        return [Program(path.stem, path) for path in options.recordings]
    programs = [record_fixtures(folder)] if not options.names else []
    if options.packages is not None:
        programs += [record_package(name, folder) for name in options.names or PACKAGES]
    return programs


def main() -> int:
    """Record what is wanted, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--packages", type=Path, metavar="FOLDER")
    parser.add_argument("--recordings", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--json", action="store_true", help="every judgement, as JSON")
    parser.add_argument("--wrong", action="store_true", help="list the wrong answers, too")
    parser.add_argument("names", nargs="*", metavar="NAME", help="of PACKAGES; all if none")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.packages or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        try:
            programs = _programs(options, folder)
        except NotRecordedError as error:
            print(f"truth: {error}", file=sys.stderr)
            return 2
        compared = {program.name: program.compared() for program in programs}
    wrong = list(wrong_answers(compared))
    print(json.dumps(document(compared)) if options.json else "\n".join(table(compared)))
    if options.wrong and not options.json:
        print("", *wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
