"""What a change of amplint changes on real code: findings that appear, findings that go.

    python scripts/ecosystem.py BEFORE AFTER LIST DIR

BEFORE and AFTER are two states of this repository: a folder (a checkout or a worktree), or
anything that git calls a commit. LIST names repositories, one on each line: `owner/name`, a tab
and the commit; what follows a second tab, and lines that begin with `#`, are for people. The code
is read from checkouts laid out as `DIR/<owner>__<name>@<commit12>`.

Both run over each checkout, in processes of their own, without a cache and without the checkout's
configuration. Files that could not be analysed count as findings (AMP000).

Exit status: 0 (the same findings), 1 (some appeared or went), 2 (a checkout is missing, or one of
the two did not deliver a report; the rest is compared and printed all the same).
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
#: What `amplint` needs to run from a source tree (amplint/__init__.py).
SOURCES = ("amplint", "rules", "pyproject.toml")


class EcosystemError(Exception):
    """Something that should be compared cannot be had."""


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One finding, as far as it can change.

    Args:
        filename: relative to the checkout, forward slashes.
        row, column: 1-based.
    """

    code: str
    filename: str
    row: int
    column: int
    severity: str
    message: str

    def __str__(self) -> str:
        place = f"{self.filename}:{self.row}:{self.column}"
        return f"{place}: {self.severity} {self.code} {self.message}"


@dataclass(frozen=True, slots=True)
class Checkout:
    """One line of the list.

    Args:
        repository: `owner/name`.
        commit: 40 hexadecimal digits.
    """

    repository: str
    commit: str

    @property
    def folder(self) -> str:
        """The name of its folder."""
        return f"{self.repository.replace('/', '__')}@{self.commit[:12]}"


@dataclass(frozen=True, slots=True)
class Difference:
    """What changed in one checkout.

    Args:
        appeared: only reported after, sorted.
        went: only reported before, sorted.
        problem: why it could not be compared, "" where it was.
    """

    checkout: Checkout
    appeared: tuple[Finding, ...] = ()
    went: tuple[Finding, ...] = ()
    problem: str = ""


def read_list(file: Path) -> list[Checkout]:
    """Read the list.

    Raises:
        EcosystemError: a line is not of its form.
    """
    checkouts = []
    for number, line in enumerate(file.read_text("utf-8").splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = line.split("\t")
        if len(fields) < 2 or "/" not in fields[0] or len(fields[1].strip()) < 12:
            raise EcosystemError(f"{file}:{number}: expected owner/name, a tab and a commit")
        checkouts.append(Checkout(fields[0].strip(), fields[1].strip()))
    return list(dict.fromkeys(checkouts))


@contextmanager
def source_tree(name: str) -> Iterator[Path]:
    """A folder with the sources of one state of this repository.

    Args:
        name: a folder, or a commit; of a commit the sources are unpacked for the time being.

    Raises:
        EcosystemError: it is neither.
    """
    if Path(name).is_dir():
        yield Path(name).resolve()
        return
    archive = subprocess.run(
        ["git", "-C", str(REPOSITORY), "archive", "--format=tar", name, *SOURCES],
        capture_output=True,
        check=False,
    )
    if archive.returncode:
        reason = archive.stderr.decode(errors="replace").strip()
        raise EcosystemError(f"{name} is neither a folder nor a commit: {reason}")
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
            files.extractall(folder)
        yield Path(folder).resolve()


def report(
    tree: Path, checkout: Path, options: Sequence[str], seconds: float | None = None
) -> dict[str, Any]:
    """The JSON report of a source tree's amplint on a checkout.

    Args:
        seconds: wall time after which it is stopped.

    Raises:
        EcosystemError: it does not deliver a report.
    """
    command = [sys.executable, "-m", "amplint", "check", "--isolated", "--no-cache"]
    try:
        done = subprocess.run(
            [*command, "--output-format", "json", *options, str(checkout)],
            # `python -m` imports from the working directory: that must not be the checked code.
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree)},
            capture_output=True,
            check=False,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        raise EcosystemError(f"did not end in {seconds:g} s") from None
    try:
        return json.loads(done.stdout)
    except ValueError:
        words = done.stderr.decode(errors="replace").strip() or "no output"
        raise EcosystemError(
            f"amplint of {tree} ended with status {done.returncode}: {words.splitlines()[-1]}"
        ) from None


def findings(tree: Path, checkout: Path, options: Sequence[str]) -> Counter[Finding]:
    """What the amplint of a source tree reports on a checkout.

    Raises:
        EcosystemError: it does not deliver a report.
    """
    answer = report(tree, checkout, options)
    records = [*answer["findings"], *({**error, "severity": "error"} for error in answer["errors"])]
    return Counter(finding_of(record, tree, checkout) for record in records)


def compare(
    checkout: Checkout, folder: Path, before: Path, after: Path, options: Sequence[str] = ()
) -> Difference:
    """Run both states over one checkout."""
    path = (folder / checkout.folder).resolve()
    if not path.is_dir():
        return Difference(checkout, problem=f"no such folder: {path}")
    try:
        old, new = findings(before, path, options), findings(after, path, options)
    except EcosystemError as error:
        return Difference(checkout, problem=str(error))
    appeared, went = (new - old).elements(), (old - new).elements()
    return Difference(checkout, tuple(sorted(appeared)), tuple(sorted(went)))


def exit_status(differences: Iterable[Difference]) -> int:
    """2 if something was not compared, 1 if findings appeared or went, else 0."""
    differences = list(differences)
    if any(item.problem for item in differences):
        return 2
    return int(any(item.appeared or item.went for item in differences))


def summary(differences: Sequence[Difference]) -> str:
    """`3 findings appeared and 1 went, in 2 of 40 checkouts`."""
    appeared = sum(len(item.appeared) for item in differences)
    went = sum(len(item.went) for item in differences)
    changed = sum(bool(item.appeared or item.went) for item in differences)
    plural = "" if appeared == 1 else "s"
    words = f"{appeared} finding{plural} appeared and {went} went"
    failed = sum(bool(item.problem) for item in differences)
    rest = f"; {failed} not compared" if failed else ""
    return f"{words}, in {changed} of {len(differences)} checkouts{rest}"


def by_code(difference: Difference) -> Iterator[tuple[str, list[str]]]:
    """Each code that changed, with lines `+ finding` and `- finding`, in the order of places."""
    marked = [(item, "+") for item in difference.appeared]
    marked += [(item, "-") for item in difference.went]
    for code, group in groupby(sorted(marked), key=lambda pair: pair[0].code):
        yield code, [f"{mark} {item}" for item, mark in group]


def render_text(differences: Sequence[Difference]) -> str:
    """The report for a terminal."""
    lines = []
    for item in differences:
        if item.problem:
            lines += [f"{_title(item)}: not compared: {item.problem}", ""]
        elif item.appeared or item.went:
            lines.append(f"{_title(item)}: {_counts(item)}")
            for code, changes in by_code(item):
                lines += [f"  {code}", *(f"    {change}" for change in changes)]
            lines.append("")
    return "\n".join([*lines, summary(differences)])


def render_markdown(differences: Sequence[Difference]) -> str:
    """The report for a comment on a pull request."""
    lines = [f"**{summary(differences)}**", ""]
    totals = list(_totals(differences))
    if totals:
        lines += ["| code | appeared | went |", "|---|---|---|"]
        lines += [f"| {code} | {appeared} | {went} |" for code, appeared, went in totals]
        lines.append("")
    for item in differences:
        if item.problem:
            lines += [f"**{_title(item)}**: not compared: {item.problem}", ""]
        elif item.appeared or item.went:
            lines += [f"<details><summary>{_title(item)}: {_counts(item)}</summary>", ""]
            for code, changes in by_code(item):
                lines += [f"{code}", "", "```diff", *changes, "```", ""]
            lines += ["</details>", ""]
    return "\n".join(lines).rstrip()


def render_json(differences: Sequence[Difference]) -> str:
    """The report for programs."""
    checkouts = [
        {
            "repository": item.checkout.repository,
            "commit": item.checkout.commit,
            "appeared": [_record(finding) for finding in item.appeared],
            "went": [_record(finding) for finding in item.went],
            "problem": item.problem or None,
        }
        for item in differences
        if item.appeared or item.went or item.problem
    ]
    return json.dumps({"compared": len(differences), "changed": checkouts}, indent=2)


RENDER = {"text": render_text, "markdown": render_markdown, "json": render_json}


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    options = _parse(arguments)
    try:
        checkouts = read_list(options.list)
        with source_tree(options.before) as before, source_tree(options.after) as after:
            select = ("--select", options.select) if options.select else ()
            with ThreadPoolExecutor(options.jobs) as pool:
                found = pool.map(
                    lambda item: compare(item, options.folder, before, after, select), checkouts
                )
                differences = sorted(found, key=attrgetter("checkout.repository"))
    except EcosystemError as error:
        print(f"ecosystem: {error}", file=sys.stderr)
        return 2
    print(RENDER[options.format](differences))
    return exit_status(differences)


def finding_of(record: dict[str, Any], tree: Path, checkout: Path) -> Finding:
    """One record of a report, its file relative to the checkout."""
    # Reports name files relative to the directory amplint ran in.
    absolute = os.path.normpath(os.path.join(tree, record["filename"]))
    filename = os.path.relpath(absolute, checkout).replace(os.sep, "/")
    location = record["location"]
    return Finding(
        record["code"],
        filename,
        location["row"],
        location["column"],
        record["severity"],
        record["message"],
    )


def _title(difference: Difference) -> str:
    checkout = difference.checkout
    return f"{checkout.repository}@{checkout.commit[:12]}"


def _counts(difference: Difference) -> str:
    return f"+{len(difference.appeared)} -{len(difference.went)}"


def _totals(differences: Iterable[Difference]) -> Iterator[tuple[str, int, int]]:
    """Code, how often it appeared, how often it went."""
    differences = list(differences)
    appeared = Counter(finding.code for item in differences for finding in item.appeared)
    went = Counter(finding.code for item in differences for finding in item.went)
    for code in sorted({*appeared, *went}):
        yield code, appeared[code], went[code]


def _record(finding: Finding) -> dict[str, object]:
    return dict(zip(Finding.__slots__, astuple(finding), strict=True))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("before", help="a folder with amplint's sources, or a commit")
    parser.add_argument("after", help="the same for the changed amplint")
    parser.add_argument("list", type=Path, metavar="LIST", help="owner/name, a tab, a commit")
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder of checkouts")
    parser.add_argument("--select", metavar="RULES", help="as for amplint check; ALL for advice")
    parser.add_argument("--jobs", type=int, default=1, help="checkouts at once (default: 1)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--markdown", dest="format", action="store_const", const="markdown")
    form.add_argument("--json", dest="format", action="store_const", const="json")
    parser.set_defaults(format="text")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
