"""A view answers what it is asked, and finds out nothing that nobody asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from amplint.rules import TABLE

from amplint.checker import check_source
from amplint.config import Settings
from amplint.findings import Finding
from tests.fixtures_runner import FIXTURES

#: Rules for which paths of the protocol are followed; all others do without.
FOLLOWING = frozenset(
    ("AMP101", "AMP102", "AMP103", "AMP104", "AMP105", "AMP106", "AMP107", "AMP108", "AMP109")
    + ("AMP110", "AMP111", "AMP112", "AMP113", "AMP114", "AMP115", "AMP116", "AMP117", "AMP119")
    + ("AMP122", "AMP123", "AMP124", "AMP126", "AMP127", "AMP130", "AMP131", "AMP201", "AMP202")
    + ("AMP302",)
)
#: One fixture of each rule that it reports.
BAD = {
    code: file
    for code in sorted(TABLE)
    for file in sorted((FIXTURES / code).glob("bad*.py"), reverse=True)
}


class Followed(Exception):
    """Somebody had the paths followed."""


@pytest.fixture
def _no_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> object:
        raise Followed

    monkeypatch.setattr("amplint.flow.engine.find_misuses", fail)


def found(file: Path, *codes: str) -> list[Finding]:
    """The findings of some rules, run on a file without a project."""
    result = check_source(file.name, file.read_bytes(), Settings(select=codes, jobs=1))
    if result.errors:
        raise Followed(result.errors)
    return list(result.findings)


@pytest.mark.usefixtures("_no_paths")
@pytest.mark.parametrize("code", sorted(BAD.keys() - FOLLOWING))
def test_paths_are_not_followed_for_nothing(code: str) -> None:
    assert {finding.code for finding in found(BAD[code], code)} == {code}


@pytest.mark.usefixtures("_no_paths")
def test_an_idle_suppression_is_found_without_paths(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("import torch.amp  # noqa: AMP802\n", encoding="utf-8")
    assert [finding.code for finding in found(file, "AMP802", "AMP900")] == ["AMP900"]
    assert found(file, "AMP801", "AMP900") == []  # nobody looked for AMP802


@pytest.mark.usefixtures("_no_paths")
@pytest.mark.parametrize("code", sorted(BAD.keys() & FOLLOWING))
def test_rules_about_paths_ask_for_them(code: str) -> None:
    with pytest.raises(Followed):
        found(BAD[code], code)


@pytest.mark.parametrize("code", sorted(BAD))
def test_a_rule_finds_alone_what_it_finds_among_all(code: str) -> None:
    among = [finding for finding in found(BAD[code], "ALL") if finding.code == code]
    assert found(BAD[code], code) == among
