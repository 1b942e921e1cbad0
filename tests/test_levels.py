"""What findings rest on decides what they are: the table, and its words in a message."""

from __future__ import annotations

import itertools

import pytest

from amplint.findings import Link, Severity, Standing
from amplint.levels import CEILING, level, naming_options

ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO


def link(standing: Standing, subject: str = "scaler") -> Link:
    return Link("object", standing, subject, "is the gradient scaler")


CLIP, DEEPSPEED = link(Standing.OPTION, "args.clip"), link(Standing.OPTION, "args.deepspeed")
OPEN, HARMLESS = map(link, (Standing.OPEN, Standing.HARMLESS))
SURE, USED, GUESSED = map(link, (Standing.CODE, Standing.USE, Standing.GUESS))


@pytest.mark.parametrize(
    ("severity", "links", "expected"),
    [
        (ERROR, (), ERROR),
        (ERROR, (SURE, USED), WARNING),
        (ERROR, (SURE, GUESSED), INFO),
        (WARNING, (GUESSED,), INFO),
        (ERROR, (CLIP,), ERROR),
        (ERROR, (CLIP, CLIP), ERROR),
        (ERROR, (CLIP, DEEPSPEED), WARNING),
        (ERROR, (OPEN,), WARNING),
        (ERROR, (HARMLESS,), INFO),
        (WARNING, (CLIP,), INFO),
        (INFO, (CLIP, DEEPSPEED), INFO),
        (ERROR, (CLIP, DEEPSPEED, GUESSED), INFO),
    ],
)
def test_level(severity: Severity, links: tuple[Link, ...], expected: Severity) -> None:
    assert level(severity, links) is expected


def test_every_standing_has_a_ceiling_and_no_link_raises_a_level() -> None:
    assert set(CEILING) == set(Standing)
    every = [link(standing, subject) for standing in Standing for subject in ("a", "b")]
    for severity, pair in itertools.product(Severity, itertools.combinations(every, 2)):
        assert level(severity, pair).rank <= level(severity, pair[:1]).rank <= severity.rank


@pytest.mark.parametrize(
    ("links", "message"),
    [
        ((SURE,), "stops"),
        ((CLIP,), "stops (with `args.clip`)"),
        ((DEEPSPEED, CLIP), "stops (with `args.clip` and `args.deepspeed`)"),
    ],
)
def test_a_message_names_the_options(links: tuple[Link, ...], message: str) -> None:
    assert naming_options("stops", links) == message


def test_an_option_is_named_once() -> None:
    assert naming_options("stops when `args.clip`", [CLIP]) == "stops when `args.clip`"
