"""Expectations on the line: what each fixture says about itself, against what amplint says.

A trailing comment names the codes expected on its row; rows without one must be silent:

    scaler.step(optimizer)  # AMP101
    scaler.step(optimizer)  # AMP101 AMP110
    scaler.step(optimizer)  # AMP101 -- why, in words
    model = build("float16")  # later: AMP401 -- a rule that does not exist yet; ignored

Rows are 1-based and those of a finding's first line. Rules that only give advice are off,
as by default, unless the file expects them or lies in their own folder. An unreadable file counts as AMP000.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from amplint.rules import TABLE

from amplint.findings import Finding
from amplint.plaindata import from_toml

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"

#: Groups whose projects lie one level deeper: incidents/<name>/before, silent/<name>/<variant>.
NESTED_GROUPS = frozenset({"incidents", "silent"})

_CODES = re.compile(r"AMP\d{3}(?:\s+AMP\d{3})*")
_LOOKS_LIKE_CODES = re.compile(r"AMP\d", re.IGNORECASE)
_EXPLANATION = re.compile(r"\s--(?:\s|$)")


class MalformedExpectation(ValueError):
    """A comment that begins like an expectation and is none; a typo must not pass for prose."""


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """A code on a row."""

    row: int
    code: str


@dataclass(frozen=True, slots=True)
class Expectations:
    """The marks of one file: for this release, and for rules to come."""

    now: frozenset[Mark]
    later: frozenset[Mark]


@dataclass(frozen=True, slots=True)
class Reported:
    """What amplint says on one row; `message` is shown where it was not expected.

    Args:
        finding: None for a file that could not be read.
    """

    mark: Mark
    message: str
    finding: Finding | None = None


@cache
def expectations(text: str) -> Expectations:
    """Read the expectations of a source text.

    Raises:
        MalformedExpectation: a comment starts like a code but is not a list of codes.
    """
    now: set[Mark] = set()
    later: set[Mark] = set()
    for row, comment in _comments(text):
        for part in _EXPLANATION.split(comment, maxsplit=1)[0].split("#"):
            part = part.strip()
            postponed = part.lower().startswith("later:")
            marks = _marks(row, part.partition(":")[2].strip() if postponed else part, postponed)
            (later if postponed else now).update(marks)
    return Expectations(frozenset(now), frozenset(later))


def _marks(row: int, part: str, postponed: bool) -> Iterator[Mark]:
    if _CODES.fullmatch(part):
        yield from (Mark(row, code) for code in part.split())
    elif postponed or _LOOKS_LIKE_CODES.match(part):
        raise MalformedExpectation(f"row {row}: expected codes like `AMP101 AMP110`, got `{part}`")


def _comments(text: str) -> Iterator[tuple[int, str]]:
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError):
        # A fixture for AMP000 need not be Python; then a `#` anywhere starts a comment.
        for row, line in enumerate(text.splitlines(), start=1):
            _, hash_sign, comment = line.partition("#")
            if hash_sign:
                yield row, "#" + comment
        return
    for token in tokens:
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


@cache
def outcome_files() -> dict[str, dict[str, Any]]:
    """What `outcome.toml` beside the fixtures of a rule says, by code.

    `claim` is the kind of link that carries what the rule's messages claim, one of them where
    there are several (`damage` if it is not said); `raises`, `changes` or `advice` is what the bad
    example of its page does (`tests/rules/page_examples.py` has the fields).
    """
    files = sorted(FIXTURES.glob("AMP*/outcome.toml"))
    return {file.parent.name: from_toml(file.read_text("utf-8")) for file in files}


def fixture_files(root: Path = FIXTURES) -> list[Path]:
    """Every Python file below the fixtures, sorted."""
    files = (path for path in root.rglob("*.py") if "__pycache__" not in path.parts)
    return sorted(files)


def project_of(file: Path, root: Path = FIXTURES) -> Path:
    """What is checked together with a fixture file: its project's folder, or itself.

    `AMP110/bad.py` stands alone, `AMP110/bad_two_files/*.py` are one project.
    """
    parts = file.relative_to(root).parts
    depth = 3 if parts[0] in NESTED_GROUPS else 2
    return root.joinpath(*parts[:depth])


def read(file: Path) -> str:
    """The text of a fixture; undecodable bytes, wanted in some, must not hide the marks."""
    return file.read_bytes().decode("utf-8", "replace")


def reported(file: Path) -> list[Reported]:
    """What amplint reports in one fixture file, its project checked as a whole."""
    project = project_of(file)
    expected = {mark.code for mark in expectations(read(file)).now}
    findings = _check(project, tuple(sorted(expected | _own_code(file))))
    return [item for path, item in findings if path == file.resolve()]


def _own_code(file: Path, root: Path = FIXTURES) -> set[str]:
    """The rule whose folder holds a fixture: advice that it must not give is switched on."""
    return {file.relative_to(root).parts[0]} & set(TABLE)


@cache
def _check(project: Path, extra_codes: tuple[str, ...]) -> tuple[tuple[Path, Reported], ...]:
    from amplint.checker import check_paths
    from amplint.config import Settings

    # Each is a project of its own: nothing around it calls it, and nothing is looked for there.
    root = project if project.is_dir() else project.parent
    settings = Settings(
        extend_select=extra_codes,
        exclude=(),
        respect_gitignore=False,
        jobs=1,
        cache=False,
        project_root=str(root),
    )
    report = check_paths([str(project)], settings)
    found = [
        (item.filename, Reported(Mark(item.span.start.row, item.code), item.message, item))
        for item in report.findings
    ]
    failed = [
        (item.filename, Reported(Mark(item.row, item.code), item.message)) for item in report.errors
    ]
    return tuple((Path(name).resolve(), item) for name, item in found + failed)


def difference(text: str, expected: Iterable[Mark], found: Iterable[Reported]) -> str:
    """What is missing and what is too much, one line each; empty where both agree."""
    found = list(found)
    wanted = set(expected)
    seen = {item.mark for item in found}
    lines = text.splitlines()
    notes = [(mark, f"missing     {_show(mark, lines)}") for mark in wanted - seen]
    for item in found:
        if item.mark not in wanted:
            shown = f"unexpected  {_show(item.mark, lines)}\n            {item.message}"
            notes.append((item.mark, shown))
    return "\n".join(note for _, note in sorted(notes))


def _show(mark: Mark, lines: list[str]) -> str:
    line = lines[mark.row - 1].strip() if 0 < mark.row <= len(lines) else "(no such row)"
    return f"{mark.code} row {mark.row}: {line}"
