"""Every fixture with a fix: fixed once is fixed for good, and its bytes are otherwise its own.

And what torch says: the wrong example of a page, fixed, trains like the right one.
"""

from __future__ import annotations

import ast
import codecs
from functools import cache
from pathlib import Path

import pytest
from amplint.rules import load
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amplint.config import Settings
from amplint.fixing.fixer import Fixed, FixTask, fix
from amplint.fixing.run import FixedFile
from amplint.inspection import Task, inspect
from amplint.selection import Selection
from amplint.source.reading import decode
from tests.fixtures_runner import FIXTURES, expectations, fixture_files, read

EVERY = Selection(Settings()).codes
WITH_FIXES = {code for code in EVERY if load(code).RULE.fix in ("safe", "unsafe")}
#: Fixtures that stand alone: judged without the project around them, which is quicker.
FILES = [
    file
    for file in fixture_files()
    if file.parent.parent == FIXTURES
    and WITH_FIXES & {mark.code for mark in expectations(read(file)).now}
]


@cache
def fixed(data: bytes) -> tuple[Fixed, bytes]:
    """The outcome for the bytes of a file, and the bytes that would be written."""
    source = decode(data, "train.py")
    outcome = fix(FixTask(Task(source, EVERY), EVERY, True, data))
    return outcome, FixedFile("", source, data, outcome).encoded()


def codes_in(data: bytes) -> list[str]:
    result = inspect(Task(decode(data, "train.py"), EVERY))
    assert not result.errors
    return sorted(finding.code for finding in result.findings)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(FIXTURES).as_posix())
def test_a_fixture_is_fixed_for_good(file: Path) -> None:
    outcome, after = fixed(file.read_bytes())
    ast.parse(after)
    before, left = codes_in(file.read_bytes()), codes_in(after)
    assert all(before.count(code) >= left.count(code) for code in left)
    assert len(left) <= len(before) - len(outcome.fixed)
    again, same = fixed(after)
    assert again.fixed == ()
    assert same == after


def test_every_rule_that_fixes_has_a_fixture_that_is_fixed() -> None:
    done = {finding.code for file in FILES for finding in fixed(file.read_bytes())[0].fixed}
    # The mark of a fixture is a comment, and a statement with one is not taken away.
    assert WITH_FIXES - done == {"AMP104", "AMP303"}


NEWLINES = st.sampled_from([b"\n", b"\r\n", b"\r"])


@given(st.sampled_from(FILES), NEWLINES, st.booleans(), st.booleans())
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_line_ends_mark_and_last_newline_make_no_difference(
    file: Path, newline: bytes, mark: bool, ends: bool
) -> None:
    def dressed(data: bytes) -> bytes:
        data = data if ends else data.rstrip(b"\n")
        return (codecs.BOM_UTF8 if mark else b"") + data.replace(b"\n", newline)

    before = file.read_bytes()
    assert fixed(dressed(before))[1] == dressed(fixed(before)[1])


@pytest.mark.parametrize("code", ["AMP110", "AMP112", "AMP208", "AMP801"])
def test_the_fixed_example_trains_like_the_right_one(code: str) -> None:
    pytest.importorskip("torch")
    from tests.rules.page_examples import execute, read_page, update_ratio

    page = read_page(code)
    outcome, after = fixed(page.example("Example").encode())
    assert code in {finding.code for finding in outcome.fixed}
    run, reference = execute(after.decode()), execute(page.example("Use instead"))
    assert run.error is None
    assert update_ratio(run, reference) == pytest.approx(1.0, rel=1e-3)
