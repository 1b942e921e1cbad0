"""Every fixture is judged as it says: exactly these codes on exactly these rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from amplint.rules import TABLE

from amplint.findings import Finding, Link, Position, Severity, Span, Standing
from tests.fixtures_runner import (
    FIXTURES,
    MalformedExpectation,
    Mark,
    Reported,
    difference,
    expectations,
    fixture_files,
    outcome_files,
    project_of,
    read,
    reported,
)

FILES = fixture_files()


def name_of(file: Path) -> str:
    return file.relative_to(FIXTURES).as_posix()


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_fixture(file: Path) -> None:
    text = read(file)
    problems = difference(text, expectations(text).now, reported(file))
    if problems:
        pytest.fail(f"{name_of(file)}\n{problems}", pytrace=False)
    unfounded = [
        text
        for item in reported(file)
        if item.finding is not None
        for text in what_is_missing(item.finding)
    ]
    assert not unfounded


#: In characters, with the longest names of the fixtures; half of the messages have at most 93.
LONGEST_MESSAGE = 155
#: Rules about spellings: the text alone decides, and nothing else takes part.
OF_SPELLINGS = frozenset({"AMP801", "AMP802", "AMP900"})


def what_is_missing(finding: Finding) -> list[str]:
    """What a finding above info does not rest on although it should; an error's guesses."""
    where = f"{finding.code} on line {finding.span.start.row}"
    if len(finding.message) > LONGEST_MESSAGE:
        return [f"{where}: a message of {len(finding.message)} characters"]
    if finding.severity is Severity.INFO or finding.code in OF_SPELLINGS:
        return []
    kinds = {link.kind for link in finding.links}
    claims = set(outcome_files().get(finding.code, {}).get("claim", "damage").split())
    found = [] if "object" in kinds else [f"{where}: no object"]
    found += [] if kinds & claims else [f"{where}: none of {claims}"]
    guesses = [link.subject for link in finding.links if link.standing is Standing.GUESS]
    return found + [f"{where}: guesses {subject}" for subject in guesses]


def test_a_finding_that_rests_on_nothing_is_noticed() -> None:
    place = Span(Position(3, 1), Position(3, 2))
    bare = Finding("AMP110", "", Severity.ERROR, "", "", "a.py", place)
    assert what_is_missing(bare) == [
        "AMP110 on line 3: no object",
        "AMP110 on line 3: none of {'damage'}",
    ]
    guessed = Link("object", Standing.GUESS, "it", "is the scaler")
    damage = Link("damage", Standing.LIBRARY, "it()", "raises")
    assert what_is_missing(replace(bare, links=(guessed, damage))) == [
        "AMP110 on line 3: guesses it"
    ]
    assert what_is_missing(replace(bare, severity=Severity.INFO)) == []


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_fixture_expects_what_exists(file: Path) -> None:
    """A `later:` mark must be promoted as soon as its rule is there."""
    marks = expectations(read(file))
    assert not {mark for mark in marks.now if mark.code not in TABLE}
    assert not {mark for mark in marks.later if mark.code in TABLE}


def test_there_are_fixtures_of_both_kinds() -> None:
    marked = [file for file in FILES if expectations(read(file)).now]
    assert marked
    assert len(marked) < len(FILES)


@pytest.mark.parametrize(
    ("line", "now", "later"),
    [
        ("f()", (), ()),
        ("f()  # AMP101", ("AMP101",), ()),
        ("f()  #AMP101", ("AMP101",), ()),
        ("f()  # AMP101 AMP110", ("AMP101", "AMP110"), ()),
        ("f()  # AMP101 -- why, see AMP110", ("AMP101",), ()),
        ("f()  # AMP101 --", ("AMP101",), ()),
        ("f()  # later: AMP401", (), ("AMP401",)),
        ("f()  # later: AMP401 AMP404 -- why", (), ("AMP401", "AMP404")),
        ("f()  # AMP101  # later: AMP401 -- why", ("AMP101",), ("AMP401",)),
        ("f()  # noqa: AMP110", (), ()),
        ("f()  # noqa: AMP110  # AMP900", ("AMP900",), ()),
        ("f()  # see AMP110", (), ()),
        ("f()  # AMP is on here", (), ()),
        ("f('# AMP101')", (), ()),
        ("f(  # AMP101\n    1)", ("AMP101",), ()),
        ("def broken(:  # AMP000", ("AMP000",), ()),
        ("'''unterminated  # AMP000", ("AMP000",), ()),
    ],
)
def test_expectations(line: str, now: tuple[str, ...], later: tuple[str, ...]) -> None:
    marks = expectations("import torch\n" + line + "\n")
    assert marks.now == {Mark(2, code) for code in now}
    assert marks.later == {Mark(2, code) for code in later}


@pytest.mark.parametrize(
    "comment",
    ["# AMP101, AMP110", "# AMP101: why", "# AMP101 why", "# AMP11", "# amp101", "# later: soon"],
)
def test_a_typo_is_no_prose(comment: str) -> None:
    with pytest.raises(MalformedExpectation, match="row 3"):
        expectations(f"\n\nf()  {comment}\n")


def test_difference_is_empty_where_both_agree() -> None:
    found = [Reported(Mark(1, "AMP101"), "message"), Reported(Mark(1, "AMP101"), "again")]
    assert difference("f()\n", [Mark(1, "AMP101")], found) == ""


def test_difference_shows_row_and_message() -> None:
    text = "first()\nsecond()\nthird()\n"
    found = [Reported(Mark(3, "AMP110"), "clips scaled"), Reported(Mark(9, "AMP105"), "?")]
    assert difference(text, [Mark(2, "AMP101")], found).splitlines() == [
        "missing     AMP101 row 2: second()",
        "unexpected  AMP110 row 3: third()",
        "            clips scaled",
        "unexpected  AMP105 row 9: (no such row)",
        "            ?",
    ]


@pytest.mark.parametrize(
    ("file", "project"),
    [
        ("AMP110/bad_loop.py", "AMP110/bad_loop.py"),
        ("AMP110/bad_helper/clip.py", "AMP110/bad_helper"),
        ("AMP110/bad_helper/inner/clip.py", "AMP110/bad_helper"),
        ("incidents/0_x/before/trainer.py", "incidents/0_x/before"),
        ("incidents/0_x/before/methods/trainer.py", "incidents/0_x/before"),
        ("silent/01_x/wrapper.py", "silent/01_x/wrapper.py"),
        ("silent/01_x/package/engine.py", "silent/01_x/package"),
    ],
)
def test_project_of(file: str, project: str) -> None:
    root = Path("fixtures")
    assert project_of(root / file, root) == root / project
