"""The wrong example of each page, fixed: torch trains it like the right one, and amplint is silent."""

from __future__ import annotations

import ast

import pytest
from amplint.rules import load

from amplint.config import Settings
from amplint.fixing.fixer import Fixed, FixTask, fix
from amplint.inspection import Task
from amplint.selection import Selection
from amplint.source.reading import decode
from tests.rules.outcomes import OUTCOMES
from tests.rules.page_examples import RULE_CODES, Elsewhere, Page, Run, execute, read_page

pytest.importorskip("torch")

EVERY = Selection(Settings()).codes
FIXED = [code for code in RULE_CODES if load(code).RULE.fix in ("safe", "unsafe")]


def fixed(source: str, code: str) -> Fixed:
    """The outcome of all fixes, with the rule of the page switched on."""
    data, codes = source.encode(), EVERY | {code}
    return fix(FixTask(Task(decode(data, "example.py"), codes), codes, True, data))


@pytest.mark.parametrize("code", FIXED)
def test_the_example_is_fixed(code: str) -> None:
    before = read_page(code).example("Example")
    once = fixed(before, code)
    assert [finding.code for finding in once.fixed] == [code]
    assert once.refused == ()
    ast.parse(once.text)
    again = fixed(once.text, code)
    assert (again.text, again.fixed, again.refused) == (once.text, (), ())


#: Pages whose right example trains with other data (AMP122) or in another dtype than the fixed
#: one (AMP209): what is compared is that the exception is gone.
OTHER_TRAINING = {"AMP122", "AMP209"}


@pytest.mark.parametrize("code", FIXED)
def test_torch_trains_the_fixed_example_like_the_right_one(code: str) -> None:
    page, outcome = read_page(code), OUTCOMES[code]
    for package in outcome.packages if isinstance(outcome, Elsewhere) else ():
        pytest.importorskip(package)
    run, reference = execute(fixed(page.example("Example"), code).text), good(page)
    assert run.error is None
    if code not in OTHER_TRAINING:
        assert run.update == pytest.approx(reference.update, rel=0.02)


def good(page: Page) -> Run:
    """What the right example does."""
    reference = execute(page.example("Use instead"))
    assert reference.error is None
    return reference
