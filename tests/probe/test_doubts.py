"""Doubts are data; this is what a reader is told of them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from amplint.probe.doubts import DOUBTS, in_words, words_of
from amplint.probe.messages import Note

PROBE = Path(__file__).resolve().parents[2] / "amplint" / "probe"

SAID = [
    (Note("connected", "the loss"), "`the loss` passes gradients on"),
    (Note("optimizer-class", "Lion"), "`Lion` behaves like an optimizer of torch.optim"),
    (Note("scaler-class", "Mine"), "`Mine` behaves like torch's GradScaler"),
    (Note("launcher", "engine.run", detail="train"), "`engine.run` does nothing but call `train`"),
    (Note("arguments", "main", detail="cfg, net"), "somebody gives `main` its cfg, net"),
    (Note("loop", row=4, detail="6"), "loop in row 4 left after 6 rounds"),
    (Note("skipped", row=5, detail="TypeError"), "line 5 was skipped (TypeError)"),
    (
        Note("untouched", "{x}.log", 7),
        "`{x}.log` in line 7 does not touch scaler, optimizer or gradients",
    ),
    (
        Note("repaired", "AMP101", 3),
        "line 3 is repaired first: AMP101 ends every run before this one",
    ),
    (
        Note("unfilled", "argv", 3),
        "nobody fills `argv`, which is looked into in line 3",
    ),
    (Note("unfilled", "argv"), "nobody fills `argv`, which is looked into"),
    (
        Note("never-passed", detail="`n` = 0"),
        "a caller passes `n` = 0: none was seen to do it",
    ),
]


@pytest.mark.parametrize(("note", "words"), SAID)
def test_words(note: Note, words: str) -> None:
    assert words_of(note) == words


def test_a_failure_may_be_as_long_as_it_likes() -> None:
    words = words_of(Note("skipped-in-part", row=12, detail="ValueError: " + "x" * 500))
    assert words.startswith("skipped in a model or data set: line 12 (ValueError: xxx")
    assert len(words) == 160


def test_each_is_said_once() -> None:
    notes = [Note("loop", row=4, detail="6"), Note("graphs"), Note("loop", row=4, detail="6")]
    assert in_words(notes) == (words_of(notes[0]), words_of(notes[1]))


def kinds_that_are_made() -> set[str]:
    """The kinds of all notes that the probe's sources make: `Note(...)`, `run.note(...)`."""
    found = set()
    for path in PROBE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name not in ("Note", "note"):
                continue
            kinds = [part for part in ast.walk(node.args[0]) if isinstance(part, ast.Constant)]
            found.update(str(part.value) for part in kinds)
    return found


def test_every_kind_has_words_and_is_used() -> None:
    assert kinds_that_are_made() == set(DOUBTS)
