"""Suppression comments: the tables below are the specification."""

from __future__ import annotations

import ast

import pytest
from amplint.rules import TABLE
from hypothesis import given
from hypothesis import strategies as st

from amplint.source.suppressions import UnusedSuppression, codes_of, collect

CODES = sorted(TABLE)


def silenced(source: str, row: int) -> list[str]:
    """The codes that are silenced at a row."""
    ast.parse(source)
    suppressions = collect(source)
    return [code for code in CODES if suppressions.match(code, row)]


def unused(source: str, *reported: tuple[str, int]) -> list[UnusedSuppression]:
    """What is unused after the given findings, (code, row) each."""
    ast.parse(source)
    suppressions = collect(source)
    for code, row in reported:
        assert suppressions.match(code, row)
    return list(suppressions.unused(CODES))


ALL = "ALL"
AMP1 = [code for code in CODES if code.startswith("AMP1")]


@pytest.mark.parametrize(
    ("comment", "expected"),
    [
        # noqa, with and without codes
        ("# noqa", ALL),
        ("#noqa", ALL),
        ("# NOQA", ALL),
        ("# NoQA", ALL),
        ("# noqa AMP110", ALL),  # no colon: flake8 and ruff read a bare noqa, too
        ("# noqa: because I say so", ALL),
        ("# noqa: AMP110", ["AMP110"]),
        ("#noqa:AMP110", ["AMP110"]),
        ("# noqa : AMP110", ["AMP110"]),
        ("# noqa:AMP110,AMP101", ["AMP101", "AMP110"]),
        ("# noqa: AMP110, AMP101", ["AMP101", "AMP110"]),
        ("# noqa: AMP110 AMP101", ["AMP101", "AMP110"]),
        ("# noqa: AMP110,", ["AMP110"]),
        ("# noqa: amp110", ["AMP110"]),
        ("# noqa: AMP110 the threshold is scaled", ["AMP110"]),
        ("# noqa: AMP110: the threshold is scaled", ["AMP110"]),
        ("# noqa: AMP110  # noqa: AMP101", ["AMP101", "AMP110"]),
        ("# noqa: AMP1", AMP1),
        ("# noqa: F401", []),
        ("# noqa: F401, AMP110", ["AMP110"]),
        ("# noqa: AMP110,F401", ["AMP110"]),
        ("# noqa: E501 W291", []),
        ("# type: ignore  # noqa: AMP110", ["AMP110"]),
        ("# noqa: AMP110  # type: ignore", ["AMP110"]),
        ("# clipped on purpose # noqa: AMP110", ["AMP110"]),
        ("# noqa: AMP999", []),
        ("# noqa-file", []),
        ("# see noqa: AMP110", []),
        ("# noqaAMP110", []),
        ("# ruff: noqa: AMP110", []),
        # amplint's own
        ("# amplint: ignore[AMP110]", ["AMP110"]),
        ("#amplint:ignore[AMP110]", ["AMP110"]),
        ("# AMPLINT: IGNORE[amp110]", ["AMP110"]),
        ("# amplint : ignore [ AMP110 ]", ["AMP110"]),
        ("# amplint: ignore[AMP110] the threshold is scaled", ["AMP110"]),
        ("# amplint: ignore[AMP110, AMP101]", ["AMP101", "AMP110"]),
        ("# amplint: ignore[AMP110,AMP101,]", ["AMP101", "AMP110"]),
        ("# amplint: ignore[AMP1]", AMP1),
        ("# amplint: ignore[clip-without-unscale]", ["AMP110"]),
        ("# amplint: ignore[Clip-Without-Unscale, AMP101]", ["AMP101", "AMP110"]),
        ("# amplint: ignore[AMP110] # noqa: AMP101", ["AMP101", "AMP110"]),
        ("# noqa: F401  # amplint: ignore[AMP110]", ["AMP110"]),
        ("# amplint: ignore[F401]", []),
        ("# amplint: ignore[ALL]", []),
        ("# amplint: ignore[]", []),
        ("# amplint: ignore[AMP110", []),
        ("# amplint: ignore", []),
        ("# amplint: ignores[AMP110]", []),
        ("# amplint: disable=AMP110", []),
        ("# see amplint: ignore[AMP110]", []),
        ("# pylint: disable=all", []),
        ("# nothing", []),
    ],
)
def test_comment(comment: str, expected: list[str] | str) -> None:
    source = f"scaler.step(optimizer)  {comment}\n"
    assert silenced(source, 1) == (CODES if expected == ALL else expected)


N = "# noqa: AMP110"


@pytest.mark.parametrize(
    ("source", "rows"),
    [
        # one line, several statements
        (f"a()  {N}\nb()\n", [1]),
        (f"a(); b()  {N}\n", [1]),
        (f"if a: b()  {N}\n", [1]),
        # a statement over several lines, the comment on any of them
        (f"a(  {N}\n    b,\n    c,\n)\nd()\n", [1, 2, 3, 4]),
        (f"a(\n    b,  {N}\n    c,\n)\nd()\n", [1, 2, 3, 4]),
        (f"a(\n    b,\n    {N}\n    c,\n)\nd()\n", [1, 2, 3, 4, 5]),
        (f"a(\n    b,\n)  {N}\nd()\n", [1, 2, 3]),
        (f"a(\n    b,\n\n\n)  {N}\nd()\n", [1, 2, 3, 4, 5]),
        (f"x = a + \\\n    b  {N}\nc()\n", [1, 2]),
        (f"x = '''\na\n'''  {N}\nc()\n", [1, 2, 3]),
        (f"x = [i for i in\n     y]; z()  {N}\nc()\n", [1, 2]),
        # the header of a compound statement
        (f"with a:  {N}\n    b()\n", [1]),
        (f"with a(\n    c,\n):  {N}\n    b()\n", [1, 2, 3]),
        (f"with a(  {N}\n    c,\n):\n    b()\n", [1, 2, 3]),
        (f"for a in b:  {N}\n    c()\nelse:\n    d()\n", [1]),
        (f"for a in b:\n    c()\nelse:  {N}\n    d()\n", [3]),
        (f"if a:\n    b()\nelif c:  {N}\n    d()\n", [3]),
        (f"try:\n    a()\nexcept B:  {N}\n    c()\nfinally:\n    d()\n", [3]),
        (f"class A(\n    B,\n):  {N}\n    x = 1\n", [1, 2, 3]),
        (f"match a:\n    case 1:  {N}\n        b()\n", [2]),
        # decorators belong to the header
        (f"@a\ndef b():  {N}\n    c()\n", [1, 2]),
        (f"@a  {N}\ndef b():\n    c()\n", [1, 2]),
        (f"@a\n@b(\n    c,\n)\n@d  {N}\nclass E:\n    x = 1\n", [1, 2, 3, 4, 5, 6]),
        (f"@a\n\n{N}\ndef b():\n    c()\n", []),
        (f"@a\ndef b():\n    c()  {N}\n@d\ndef e():\n    f()\n", [3]),
        (f"class A:\n    @a\n    def b(self):  {N}\n        c()\n    x = 1\n", [2, 3]),
        (f"async def a():\n    async with b:  {N}\n        await c()\n", [2]),
        # alone on a line it belongs to no statement
        (f"{N}\na()\n", []),
        (f"a()\n{N}\n", []),
        (f"if a:\n    {N}\n    b()\n", []),
        # not a comment
        (f"x = '{N}'\n", []),
        (f"x = '''\n{N}\n'''\n", []),
        (f"x = f'{N}'\n", []),
        # line ends, indentation, the end of the file
        (f"a()\r\nb()  {N}\r\nc()\r\n", [2]),
        (f"a()\rb()  {N}\rc()\r", [2]),
        (f"a()\n\f\nb()  {N}\n", [3]),
        (f"if a:\n\tb()  {N}\n\tc()\n", [2]),
        (f"a()  {N}", [1]),
        (f"a()\n\n\n  {N}", []),
        (f"é = '😀'  {N}\n", [1]),
        ("x = '\\\n'  " + N + "\nb()\n", [1, 2]),
    ],
)
def test_place(source: str, rows: list[int]) -> None:
    last = len(source.splitlines())
    assert [row for row in range(1, last + 1) if "AMP110" in silenced(source, row)] == rows


@pytest.mark.parametrize(
    ("comment", "expected"),
    [
        ("# amplint: ignore-file", ALL),
        ("# amplint: ignore-file  generated", ALL),
        ("# amplint: ignore-file[AMP110]", ["AMP110"]),
        ("# amplint: ignore-file[AMP110, step-twice] legacy", ["AMP104", "AMP110"]),
        ("# flake8: noqa: AMP110", ["AMP110"]),
        ("# flake8: noqa: F401,AMP110", ["AMP110"]),
        ("# flake8: noqa", []),  # about flake8's own codes
        ("# flake8: noqa: F401", []),
    ],
)
@pytest.mark.parametrize("where", ["{}\nscaler.step(o)\n", "scaler.step(o)\n\nx = 1  {}\n"])
def test_whole_file(comment: str, expected: list[str] | str, where: str) -> None:
    source = where.format(comment)
    row = source.splitlines().index("scaler.step(o)") + 1
    assert silenced(source, row) == (CODES if expected == ALL else expected)
    assert collect(source).whole_file == (expected == ALL)


@pytest.mark.parametrize(
    ("comment", "reported", "words"),
    [
        ("# noqa: AMP110", [], ["suppression of AMP110 silences nothing"]),
        ("# noqa: AMP110", ["AMP110"], []),
        ("# noqa: AMP110, AMP101", ["AMP110"], ["suppression of AMP101 silences"]),
        ("# noqa: AMP110, AMP101", [], ["suppression of AMP110, AMP101 silences"]),
        ("# noqa: F401", [], []),
        ("# noqa: F401, AMP110", [], ["suppression of AMP110 silences"]),
        ("# noqa", [], []),
        ("# noqa: AMP1", [], ["suppression of AMP1 silences"]),
        ("# noqa: AMP1", ["AMP113"], []),
        ("# noqa: AMP999", [], ["no rule is called `AMP999`"]),
        ("# amplint: ignore[AMP110]", ["AMP110"], []),
        ("# amplint: ignore[clip-without-unscale]", [], ["of clip-without-unscale silences"]),
        ("# amplint: ignore[AMP110] # noqa: AMP110", ["AMP110"], []),
        ("# amplint: ignore[AMP11O, AMP110]", ["AMP110"], ["no rule is called `AMP11O`"]),
        ("# amplint: ignore[F401]", [], ["no rule is called `F401`"]),
        ("# amplint: ignore[]", [], ["list of rules is empty or not closed"]),
        ("# amplint: ignore[AMP110", [], ["list of rules is empty or not closed"]),
        ("# amplint: ignore", [], ["names no rule"]),
        ("# amplint: ignore AMP110", [], ["names no rule"]),
        ("# amplint: disable=AMP110", [], ["`amplint: disable=AMP110` is no suppression"]),
        ("# amplint:", [], ["is no suppression"]),
        ("# amplint: ignore-file[AMP110]", [], ["AMP110 silences nothing in this file"]),
        ("# amplint: ignore-file[AMP110]", ["AMP110"], []),
        ("# amplint: ignore-file", [], []),
        ("# flake8: noqa: AMP110", [], ["AMP110 silences nothing in this file"]),
        ("# noqa: AMP900", [], []),
        ("# noqa: AMP000", [], ["of AMP000 silences nothing"]),
    ],
)
def test_unused(comment: str, reported: list[str], words: list[str]) -> None:
    source = f"x = '😀'  {comment}\n"
    found = unused(source, *((code, 1) for code in reported))
    assert len(found) == len(words)
    for item, expected in zip(found, words):
        assert expected in item.message
        assert item.help
        assert item.span.start.row == 1
        assert item.span.start.column == 10


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("AMP11O", "did you mean `AMP110`?"),
        ("AMP1100", "did you mean `AMP110`?"),
        ("clip-without-unscaling", "did you mean `clip-without-unscale`?"),
        ("nothing-like-it", "run `amplint rule --all` for every code and name"),
    ],
)
def test_unknown_names_get_a_hint(name: str, hint: str) -> None:
    assert [item.help for item in unused(f"a()  # amplint: ignore[{name}]\n")] == [hint]


def test_alone_on_a_line_says_where_to_put_it() -> None:
    [found] = unused("# noqa: AMP110\na()\n")
    assert "at the end of a line of the statement" in found.help


@pytest.mark.parametrize(
    ("comment", "advice"),
    [
        ("# noqa: AMP110", "remove the comment"),
        ("# noqa: AMP110, AMP101", "remove AMP110 from the comment"),
        ("# noqa: AMP110, F401", "remove AMP110 from the comment"),
        ("# flake8: noqa: AMP110", "remove the comment"),
    ],
)
def test_says_what_to_remove(comment: str, advice: str) -> None:
    suppressions = collect(f"a()  {comment}\n")
    assert [item.help for item in suppressions.unused({"AMP110"})] == [advice]


def test_only_rules_that_ran_are_judged() -> None:
    suppressions = collect("a()  # noqa: AMP110, AMP101\n")
    [found] = suppressions.unused({"AMP101"})
    assert found.help == "remove AMP101 from the comment"
    assert list(suppressions.unused(set())) == []


def test_a_prefix_is_judged_if_all_but_the_notices_ran() -> None:
    suppressions = collect("a()  # noqa: AMP12\n")
    covered = codes_of("AMP12")
    assert list(suppressions.unused(covered - {"AMP128"})) == []
    assert len(list(suppressions.unused(covered - {"AMP128"}, {"AMP128"}))) == 1


SELECTORS = st.sampled_from([*CODES, *(module.replace("_", "-") for module in TABLE.values())])


@given(st.lists(SELECTORS, min_size=1, max_size=5), st.text("ab #:[]é😀", max_size=10))
def test_what_is_written_is_read(selectors: list[str], reason: str) -> None:
    source = f"a()  # amplint: ignore[{', '.join(selectors)}] {reason}\n"
    expected = sorted({code for selector in selectors for code in codes_of(selector)})
    assert silenced(source, 1) == expected
    assert unused(source, *((code, 1) for code in expected)) == []


@given(st.text("#noqa:AMP10[],amplintgre- é😀\t'\"", max_size=60))
def test_any_comment_is_read(text: str) -> None:
    for item in unused(f"a()  # {text}\n"):
        assert item.message
        assert "\n" not in item.message + item.help
        assert item.span.end.column <= len(f"a()  # {text}") + 1
