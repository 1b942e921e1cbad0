"""What amplint says about a program, against what the comments of the program expect."""

from __future__ import annotations

import ast
import re
import tempfile
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from restyling.flags import other_way
from restyling.program import DoesNotApplyError, Program, source_of
from restyling.table import STYLES
from tests.fixtures_runner import FIXTURES, expectations, fixture_files, project_of

_LEADS = re.compile(r"# leads to (\S+): ((?:AMP\d{3} ?)+)$")

#: Names that the styles bring with them; a program that has one of them is left alone.
_BROUGHT = re.compile(
    r"\b(kept|Kept|Wrapped|CONFIG|SETTINGS|OPTIONS|PARSER|Settings|listener|never_called|restyled_nn"
    r"|(part|build|drive|flag|read)_\d+|CALLBACKS_\d+|(Callback|Base|Derived|Parts)\d+)\b"
)

#: Styles that let somebody choose what was fixed. What the other choice gets is no false alarm.
CHOSEN = frozenset({"flags-from-click"})

#: File, row and code.
Mark = tuple[str, int, str]


@dataclass(frozen=True)
class Fixture:
    """A fixture: a file that stands alone, or a folder.

    Args:
        name: relative to `fixtures/`.
        codes: rules that are switched on for it beside the default ones.
    """

    name: str
    program: Program
    codes: tuple[str, ...]

    @cached_property
    def is_bad(self) -> bool:
        """Whether anything is expected in it."""
        return bool(marks(self.program))


@dataclass(frozen=True)
class Verdict:
    """What amplint says about one restyled fixture.

    Args:
        missed: expectations that no finding meets, as `file:row code`.
        accused: findings that meet no expectation, as `file:row code`.
        reason: why the style does not apply; empty where it does.
    """

    style: str
    fixture: Fixture
    missed: tuple[str, ...] = ()
    accused: tuple[str, ...] = ()
    reason: str = ""

    @property
    def applied(self) -> bool:
        """Whether there was anything to judge."""
        return not self.reason


def fixtures(wanted: str = "") -> list[Fixture]:
    """All fixtures whose name begins with `wanted`, sorted by name."""
    return [one for one in _every_fixture() if one.name.startswith(wanted)]


@cache
def _every_fixture() -> tuple[Fixture, ...]:
    return tuple(_read(path) for path in dict.fromkeys(map(project_of, fixture_files())))


def _read(path: Path) -> Fixture:
    from amplint.rules import TABLE

    root = path if path.is_dir() else path.parent
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    texts = {
        file.relative_to(root).as_posix(): file.read_bytes().decode("utf-8", "replace")
        for file in files
        if file.is_file() and file.suffix != ".pyc"
    }
    name = path.relative_to(FIXTURES).as_posix()
    program = Program(texts)
    codes = {code for _, _, code in marks(program)}
    return Fixture(name, program, tuple(sorted(codes | {name.partition("/")[0]} & set(TABLE))))


def marks(program: Program) -> set[Mark]:
    """The expectations of all files: name, row and code."""
    return {
        (name, mark.row, mark.code)
        for name, text in program.texts.items()
        if name.endswith(".py")
        for mark in expectations(text).now
    }


def _answers(program: Program, wanted: set[Mark]) -> dict[Mark, set[Mark]]:
    """For each expectation the places where a finding is right: its row, and calls of its block."""
    answers = {mark: {mark} for mark in wanted}
    for name, text in program.texts.items():
        for row, line in enumerate(text.splitlines(), start=1):
            found = _LEADS.search(line)
            if found is None:
                continue
            target, codes = found.group(1), found.group(2).split()
            for mark in wanted:
                if mark[2] in codes and (target == "*" or target in _around(program, mark)):
                    answers[mark].add((name, row, mark[2]))
    return answers


def _around(program: Program, mark: Mark) -> set[str]:
    """The functions and classes that a row of a program stands in."""
    name, row, _ = mark
    return {
        node.name
        for node in ast.walk(source_of(name, program.texts[name]).tree)
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
        and node.lineno <= row <= node.end_lineno
    }


def restyled(style: str, fixture: Fixture) -> Program:
    """The fixture in another style.

    Raises:
        DoesNotApplyError: the style has nothing to do here.
    """
    if style != "unchanged" and any(map(_BROUGHT.search, fixture.program.texts.values())):
        raise DoesNotApplyError("has a name that a style brings with it")
    program = STYLES[style](fixture.program)
    if style != "unchanged" and program == fixture.program:
        raise DoesNotApplyError("nothing to rewrite")
    for name, text in program.texts.items():
        if name.endswith(".py"):
            compile(text, name, "exec")
    if {code for *_, code in marks(program)} != {code for *_, code in marks(fixture.program)}:
        raise AssertionError(f"{style} loses an expectation of {fixture.name}")
    return program


def judge(style: str, fixture: Fixture) -> Verdict:
    """What amplint says about a fixture in another style."""
    try:
        program = restyled(style, fixture)
    except DoesNotApplyError as error:
        return Verdict(style, fixture, reason=str(error))
    wanted = marks(program)
    answers = _answers(program, wanted)
    found = findings(program, fixture.codes)
    missed = [
        mark
        for mark in wanted
        if not any(
            code == mark[2] and any((*place, code) in answers[mark] for place in places)
            for code, places in found
        )
    ]
    every = set().union(*answers.values())
    accused = {
        (*places[0], code)
        for code, places in found
        if not any((*place, code) in every for place in places)
    }
    if accused and style in CHOSEN:
        chosen = {code for code, _ in findings(other_way(fixture.program), fixture.codes)}
        accused = {place for place in accused if place[2] not in chosen}
    return Verdict(style, fixture, _shown(missed), _shown(accused))


def _shown(places) -> tuple[str, ...]:
    return tuple(f"{name}:{row} {code}" for name, row, code in sorted(places))


def findings(program: Program, codes: tuple[str, ...]) -> list[tuple[str, list[tuple[str, int]]]]:
    """Codes with the places of the finding and of the steps of its path, the finding's first."""
    from amplint.checker import check_paths
    from amplint.config import Settings

    with tempfile.TemporaryDirectory(prefix="restyled") as folder:
        root = Path(folder).resolve()
        write(program, root)
        settings = Settings(
            extend_select=codes,
            exclude=(),
            respect_gitignore=False,
            jobs=1,
            cache=False,
            project_root=str(root),
        )
        report = check_paths([str(root)], settings)

        def place(name: str, row: int) -> tuple[str, int]:
            path = Path(name).resolve()
            inside = path.is_relative_to(root)
            return (path.relative_to(root).as_posix() if inside else name), row

        found = [
            (
                one.code,
                [
                    place(one.filename, one.span.start.row),
                    *(place(step.filename, step.row) for step in one.path),
                ],
            )
            for one in report.findings
        ]
        return found + [(one.code, [place(one.filename, one.row)]) for one in report.errors]


def write(program: Program, folder: Path) -> None:
    """Write the files of a program below a folder."""
    for name, text in program.texts.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
