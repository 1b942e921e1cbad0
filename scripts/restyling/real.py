"""Real files as programs: what amplint says about each, alone, is what it has to say restyled."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from restyling.judging import Fixture, findings, marks
from restyling.program import DoesNotApplyError, Program

LIST = Path(__file__).with_name("real.tsv")


def real_files(folders: Sequence[Path]) -> list[Fixture]:
    """The listed files, each with the findings of today as comments in it.

    Args:
        folders: with the checkouts, as `<owner>__<name>@<first 12 digits of the commit>`.

    Raises:
        FileNotFoundError: a listed file is in none of them.
    """
    found = []
    for line in LIST.read_text("utf-8").splitlines():
        if line.startswith("#"):
            continue
        repository, commit, path = line.split("\t")
        checkout = f"{repository.replace('/', '__')}@{commit[:12]}"
        file = next(
            (each for folder in folders if (each := folder / checkout / path).is_file()), None
        )
        if file is None:
            raise FileNotFoundError(f"{checkout}/{path} is in none of the folders")
        text = file.read_bytes().decode("utf-8", "replace").replace("\r\n", "\n")
        found.append(Fixture(f"{repository}/{path}", marked(file.name, text), ()))
    return found


def marked(name: str, text: str) -> Program:
    """A program of one file, in which each finding has its comment.

    Raises:
        DoesNotApplyError: a finding is where no comment can stand.
    """
    wanted: dict[int, set[str]] = defaultdict(set)
    for code, places in findings(Program({name: text}), ()):
        wanted[places[0][1]].add(code)
    text = f"{text.rstrip()}\n"  # as the styles expect
    lines = text.splitlines(keepends=True)
    for row, codes in wanted.items():
        line = lines[row - 1].rstrip("\n")
        lines[row - 1] = f"{line}  # {' '.join(sorted(codes))}\n"
    program = Program({name: "".join(lines)})
    said = {(name, row, code) for row, codes in wanted.items() for code in codes}
    if marks(program) != said or ast.dump(ast.parse("".join(lines))) != ast.dump(ast.parse(text)):
        raise DoesNotApplyError("a finding is where no comment can stand")
    return program
