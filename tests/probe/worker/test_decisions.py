"""Which values a path gets: assigned, preferred, declared, or what the code asks for."""

from __future__ import annotations

from typing import Any

import pytest

from amplint.probe.messages import Domain, Plan, Request
from amplint.probe.worker.decisions import Decisions

OPTIONS = (
    Domain("*.mode", ("fast", "slow"), "default"),
    Domain("*.patch", (1,), "default"),
    Domain("*.half", (False, True), "default"),
    Domain("config.patch", (3, 4), "guard"),
)


@pytest.mark.parametrize(
    ("path", "asked", "chosen", "origin"),
    [
        ("opt.mode", ("other",), "fast", "default"),
        ("self.opt.patch", (2, 1, 3), 1, "default"),
        ("opt.half", (True, False), False, "default"),
        ("config.patch", (2, 1, 3), 3, "guard"),
        # a name of its own, something made of the option, another kind of value
        ("patch", (2, 1, 3), 2, "invented"),
        ("opt.patch()", (2, 1, 3), 2, "invented"),
        ("len(opt.patch)", (2, 1, 3), 2, "invented"),
        ("opt.patch is None", (False, True), False, "invented"),
        ("opt.mode", (True, False), True, "invented"),
        ("opt.half", (2, 1), 2, "invented"),
    ],
)
def test_what_is_called_like_an_option(
    path: str, asked: tuple[Any, ...], chosen: Any, origin: str
) -> None:
    decisions = Decisions(Request(Plan((), "train", (), domains=OPTIONS)))
    assert decisions.choose(path, asked) == chosen
    (made,) = decisions.made()
    assert made.origin == origin
    assert {*asked} <= {*made.options} or path == "config.patch"


def test_an_assignment_comes_first() -> None:
    request = Request(Plan((), "train", (), domains=OPTIONS), {"opt.patch": 7})
    assert Decisions(request).choose("opt.patch", (2, 3)) == 7
