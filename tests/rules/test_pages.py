"""Every page has the same headings, and its two examples do what it says.

The bad example gives findings of its own code alone and the good one none; and real torch,
which knows nothing of amplint, agrees: the bad one raises the exact error or does the
measured damage, the good one runs through.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from amplint import rules

from .outcomes import OUTCOMES
from .page_examples import (
    HEADINGS,
    RULE_CODES,
    Advice,
    Changes,
    Elsewhere,
    Page,
    Raises,
    execute,
    findings_of,
    read_page,
    update_ratio,
    without_scaling,
)

#: Codes whose examples need a package or a GPU that may be missing.
_ELSEWHERE = {code: item for code, item in OUTCOMES.items() if isinstance(item, Elsewhere)}


@pytest.mark.parametrize("code", rules.TABLE)
def test_the_page_has_its_title_and_headings(code: str) -> None:
    page, rule = read_page(code), rules.load(code).RULE
    assert page.title == f"{rule.name} ({code})"
    assert page.summary and "\n" not in page.summary
    assert tuple(heading for heading, _ in page.sections) == HEADINGS
    assert all(text.strip() for _, text in page.sections)


@pytest.mark.parametrize("code", RULE_CODES)
def test_the_module_name_is_the_rule_name(code: str) -> None:
    rule = rules.load(code).RULE
    assert (rule.code, rule.name.replace("-", "_")) == (code, rules.TABLE[code])


@pytest.mark.parametrize("code", RULE_CODES)
def test_the_bad_example_is_found_once(code: str) -> None:
    found = [finding.code for finding in findings_of(read_page(code).example("Example"), code)]
    assert found == [code]


@pytest.mark.parametrize("code", RULE_CODES)
def test_the_good_example_is_silent(code: str) -> None:
    assert list(findings_of(read_page(code).example("Use instead"), code)) == []


def test_every_rule_has_an_outcome() -> None:
    assert set(OUTCOMES) == set(RULE_CODES)


@pytest.fixture(autouse=True)
def port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Examples of distributed training take a port that the system chooses: theirs may be used."""
    monkeypatch.setenv("MASTER_PORT", "0")


@pytest.mark.parametrize("code", [code for code in RULE_CODES if code not in _ELSEWHERE])
def test_the_good_example_runs_and_trains(code: str) -> None:
    run = execute(read_page(code).example("Use instead"))
    assert run.error is None
    assert 0 < run.update < float("inf")


def _codes(kind: type) -> list[str]:
    return [code for code in RULE_CODES if isinstance(OUTCOMES.get(code), kind)]


@pytest.mark.parametrize("code", _codes(Raises))
def test_the_bad_example_raises(code: str) -> None:
    outcome, page = OUTCOMES[code], read_page(code)
    error = execute(page.example("Example")).error
    assert type(error).__name__ == outcome.exception
    assert str(error).partition("  ")[0] == outcome.text
    assert _mentions(page, outcome.text)


def _mentions(page: Page, text: str) -> bool:
    words = " ".join(" ".join(text for _, text in page.sections).split())
    return text in words


@pytest.mark.parametrize("code", _codes(Changes))
def test_the_bad_example_does_the_damage(code: str) -> None:
    outcome, page = OUTCOMES[code], read_page(code)
    bad = page.example("Example")
    other = page.example("Use instead") if outcome.reference == "good" else without_scaling(bad)
    run, reference = execute(bad), execute(other)
    assert run.error is None
    assert reference.error is None
    assert outcome.low <= (outcome.measure or update_ratio)(run, reference) <= outcome.high


@pytest.mark.parametrize("code", _codes(Advice))
def test_the_bad_example_of_an_advice_runs(code: str) -> None:
    run = execute(read_page(code).example("Example"))
    assert run.error is None
    assert OUTCOMES[code].why


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(code, marks=[pytest.mark.cuda] if outcome.cuda else [])
        for code, outcome in _ELSEWHERE.items()
    ],
)
def test_the_examples_where_their_packages_are(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, page = _ELSEWHERE[code], read_page(code)
    for package in expected.packages:
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    error = execute(page.example("Example")).error
    assert type(error).__name__ == expected.outcome.exception
    assert str(error).partition("  ")[0] == expected.outcome.text
    assert _mentions(page, expected.outcome.text)
    assert execute(page.example("Use instead")).error is None
