"""One text: what is applied together, what is taken back, where it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
from amplint.rules import TABLE

from amplint import rules
from amplint.findings import Edit, Finding, Fix, Position, Severity, Span
from amplint.fixing.fixer import Fixed, FixTask, fix
from amplint.inspection import Task
from amplint.source.reading import decode
from amplint.view import FileView

Check = Callable[[FileView], Iterator[Finding]]


def every(word: str, code: str, *edits: tuple[int, int, str], safe: bool = True) -> Check:
    """A rule that finds each `word`; edits are (start, end, content) relative to it."""

    def check(view: FileView) -> Iterator[Finding]:
        for row, line in enumerate(view.module.source.splitlines(), start=1):
            column = line.find(word) + 1
            if column:
                yield Finding(
                    code=code,
                    name=word,
                    severity=Severity.ERROR,
                    message=word,
                    help="",
                    filename=view.module.filename,
                    span=Span(Position(row, column), Position(row, column + len(word))),
                    fix=_fix(row, column, edits, safe) if edits else None,
                )

    return check


def _fix(row: int, column: int, edits: tuple[tuple[int, int, str], ...], safe: bool) -> Fix:
    def place(offset: int) -> Position:
        return Position(row, column + offset)

    changes = (Edit(Span(place(start), place(end)), content) for start, end, content in edits)
    return Fix("safe" if safe else "unsafe", tuple(changes))


@pytest.fixture
def fixed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Fixed]:
    """`fixed(text, AMP101=check, ...)`: the outcome with these rules and no other ones."""

    def run(text: str, *, unsafe: bool = False, codes: str = "", **checks: Check) -> Fixed:
        def load(code: str) -> SimpleNamespace:
            return SimpleNamespace(check=checks.get(code, lambda view: ()))

        monkeypatch.setattr(rules, "load", load)
        source = decode(text.encode(), "train.py")
        wanted = frozenset(codes.split()) if codes else frozenset(checks)
        return fix(FixTask(Task(source, wanted), frozenset(checks), unsafe, text.encode()))

    assert "AMP101" in TABLE
    return run


def test_all_fixes_that_leave_each_other_alone_are_applied(fixed: Callable[..., Fixed]) -> None:
    outcome = fixed("bad\nx\nbad\n", AMP101=every("bad", "AMP101", (0, 3, "good")))
    assert outcome.text == "good\nx\ngood\n"
    assert [finding.span.start.row for finding in outcome.fixed] == [1, 3]
    assert outcome.refused == ()


def test_fixes_that_collide_are_applied_one_after_the_other(fixed: Callable[..., Fixed]) -> None:
    outcome = fixed(
        "aabb\n",
        AMP101=every("aa", "AMP101", (0, 2, "x")),
        AMP102=every("bb", "AMP102", (0, 2, "y")),
    )
    assert outcome.text == "xy\n"
    assert [finding.code for finding in outcome.fixed] == ["AMP101", "AMP102"]


def test_a_fix_shared_by_findings_is_applied_once(fixed: Callable[..., Fixed]) -> None:
    outcome = fixed(
        "bad\n",
        AMP101=every("bad", "AMP101", (0, 3, "good")),
        AMP102=every("bad", "AMP102", (0, 3, "good")),
    )
    assert outcome.text == "good\n"
    assert len(outcome.fixed) == 2


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("bad", "AMP101 would still be found"),
        ("(", "afterwards the file cannot be parsed"),
        ("worse", "it would cause AMP102 in line 2"),
    ],
)
def test_a_fix_that_does_harm_is_taken_back(
    fixed: Callable[..., Fixed], content: str, reason: str
) -> None:
    outcome = fixed(
        "x\nbad\n",
        AMP101=every("bad", "AMP101", (0, 3, content)),
        AMP102=every("worse", "AMP102"),
        codes="AMP101",
    )
    assert outcome.text == "x\nbad\n"
    assert outcome.fixed == ()
    (refusal,) = outcome.refused
    assert refusal.reason.startswith(reason)


def test_the_others_are_applied_although_one_does_harm(fixed: Callable[..., Fixed]) -> None:
    outcome = fixed(
        "good1\nbad\ngood2\ngood3\n",
        AMP101=every("bad", "AMP101", (0, 3, "(")),
        AMP102=every("good", "AMP102", (0, 4, "x")),
    )
    assert outcome.text == "x1\nbad\nx2\nx3\n"
    assert [refusal.finding.code for refusal in outcome.refused] == ["AMP101"]


def test_what_collides_with_a_fix_that_does_harm_is_applied(fixed: Callable[..., Fixed]) -> None:
    outcome = fixed(
        "aabb\n",
        AMP101=every("aa", "AMP101", (0, 2, "(")),
        AMP102=every("bb", "AMP102", (0, 2, "y")),
    )
    assert outcome.text == "aay\n"
    assert [refusal.finding.code for refusal in outcome.refused] == ["AMP101"]


def test_a_finding_may_move_with_its_line(fixed: Callable[..., Fixed]) -> None:
    outcome = fixed(
        "bad\nworse\nend\n",
        AMP101=every("bad", "AMP101", (0, 10, ""), (10, 10, "worse\n")),
        AMP102=every("worse", "AMP102"),
    )
    assert outcome.refused == ()


def test_a_finding_that_was_there_may_stay_and_move(fixed: Callable[..., Fixed]) -> None:
    outcome = fixed(
        "bad\nworse\n",
        AMP101=every("bad", "AMP101", (0, 0, "new\n"), (0 + 1, 3, "")),
        AMP102=every("worse", "AMP102"),
    )
    assert outcome.text == "new\nb\nworse\n"


@pytest.mark.parametrize(("unsafe", "text"), [(False, "bad\n"), (True, "good\n")])
def test_unsafe_fixes_are_applied_on_request(
    fixed: Callable[..., Fixed], unsafe: bool, text: str
) -> None:
    check = every("bad", "AMP101", (0, 3, "good"), safe=False)
    assert fixed("bad\n", unsafe=unsafe, AMP101=check).text == text


def test_what_is_not_selected_is_not_fixed(fixed: Callable[..., Fixed]) -> None:
    check = every("bad", "AMP101", (0, 3, "good"))
    assert fixed("bad\n", codes="AMP102", AMP101=check).text == "bad\n"


def test_what_is_suppressed_is_not_fixed(fixed: Callable[..., Fixed]) -> None:
    check = every("bad", "AMP101", (0, 3, "good"))
    text = "bad  # noqa: AMP101\n"
    assert fixed(text, AMP101=check).text == text


def test_a_fix_with_edits_that_collide_is_left_out(fixed: Callable[..., Fixed]) -> None:
    check = every("bad", "AMP101", (0, 2, "x"), (1, 3, "y"))
    assert fixed("bad\n", AMP101=check).text == "bad\n"


def test_a_file_that_cannot_be_parsed_stays(fixed: Callable[..., Fixed]) -> None:
    check = every("bad", "AMP101", (0, 3, "good"))
    assert fixed("bad (\n", AMP101=check).text == "bad (\n"
