"""What tests on a path ask of inputs: each against the test itself."""

from __future__ import annotations

import ast

import pytest

from amplint.probe.preferences import demands, fits


@pytest.mark.parametrize(
    ("test", "holds", "wanted"),
    [
        ("(i + 1) % every != 0", True, {1: False, 2: True, 4: True}),
        ("(i + 1) % every == 0", False, {1: False, 2: True}),
        ("i % every == every - 1", False, {1: False, 3: True}),
        ("every > 2", True, {2: False, 3: True}),
        ("every", False, {0: True, 1: False}),
        # Every window ends at some batch.
        ("(i + 1) % every == 0", True, {}),
        ("(i + 1) % 4 != 0", True, {}),
    ],
)
def test_numbers(test: str, holds: bool, wanted: dict[int, bool]) -> None:
    asked = [
        each for path, each in demands(ast.parse(test, mode="eval").body, holds) if path == "every"
    ]
    assert bool(asked) is bool(wanted)
    for each in asked:
        assert {value: fits(value, each) for value in wanted} == wanted
