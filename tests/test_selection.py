"""Which rules run."""

from __future__ import annotations

from pathlib import Path

import pytest
from amplint.rules import TABLE, load

from amplint.config import Settings
from amplint.errors import ConfigError
from amplint.findings import Severity
from amplint.selection import Selection
from amplint.selectors import rule_names

SELECTABLE = frozenset(TABLE) - {"AMP000"}
NOTICES = frozenset(code for code in TABLE if load(code).RULE.severity is Severity.INFO)
DEFAULT = SELECTABLE - NOTICES


def starting(*prefixes: str) -> frozenset[str]:
    return frozenset(code for code in SELECTABLE if code.startswith(prefixes))


def test_there_are_notices() -> None:
    assert NOTICES
    assert Selection(Settings()).off_by_default == NOTICES


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (Settings(), DEFAULT),
        (Settings(select=("ALL",)), SELECTABLE),
        (Settings(select=("all",)), SELECTABLE),
        (Settings(select=("AMP",)), SELECTABLE),
        (Settings(select=("AMP110",)), {"AMP110"}),
        (Settings(select=("amp110",)), {"AMP110"}),
        (Settings(select=("clip-without-unscale",)), {"AMP110"}),
        (Settings(select=("clip_without_unscale",)), {"AMP110"}),
        (Settings(select=("AMP1",)), starting("AMP1")),
        (Settings(select=("AMP1", "AMP208")), starting("AMP1", "AMP208")),
        (Settings(extend_select=("AMP128",)), DEFAULT | {"AMP128"}),
        (Settings(extend_select=("private-scaler-state",)), DEFAULT | {"AMP128"}),
        (Settings(extend_select=("ALL",)), SELECTABLE),
        (Settings(select=("AMP110",), extend_select=("AMP101",)), {"AMP101", "AMP110"}),
        (Settings(ignore=("AMP110",)), DEFAULT - {"AMP110"}),
        (Settings(ignore=("AMP1",)), DEFAULT - starting("AMP1")),
        (Settings(ignore=("ALL",)), frozenset()),
        (Settings(ignore=("AMP000",)), DEFAULT),
        # the longer selector wins, ignore wins a tie
        (Settings(select=("AMP110",), ignore=("AMP1",)), {"AMP110"}),
        (Settings(select=("AMP1",), ignore=("AMP110",)), starting("AMP1") - {"AMP110"}),
        (Settings(select=("AMP110",), ignore=("AMP110",)), frozenset()),
        (Settings(select=("ALL",), ignore=("AMP1",)), SELECTABLE - starting("AMP1")),
        (
            Settings(extend_select=("AMP12",), ignore=("AMP1",)),
            DEFAULT - starting("AMP1") | starting("AMP12"),
        ),
        (Settings(select=("AMP000",)), frozenset()),
    ],
)
def test_codes(settings: Settings, expected: frozenset[str]) -> None:
    assert Selection(settings).codes == expected


@pytest.mark.parametrize(
    ("pattern", "path", "ignored"),
    [
        ("tests", "tests/a.py", True),
        ("tests/*", "tests/a.py", True),
        ("tests/*", "tests/s/a.py", True),
        ("tests/*", "src/tests/a.py", False),
        ("**/tests/*", "src/tests/a.py", True),
        ("a.py", "src/a.py", True),
        ("/a.py", "src/a.py", False),
        ("*_old.py", "src/a_old.py", True),
        ("src/a.py", "src/a.py", True),
        ("./src/a.py", "src/a.py", True),
        ("src/a.py", "a.py", False),
    ],
)
def test_per_file_ignores(
    pattern: str, path: str, ignored: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    selection = Selection(Settings(per_file_ignores=((pattern, ("AMP110", "AMP2")),)))
    lost = starting("AMP110", "AMP2") & DEFAULT
    assert selection.codes_for(path) == (DEFAULT - lost if ignored else DEFAULT)
    assert selection.codes_for(str(tmp_path / path)) == selection.codes_for(path)


def test_every_matching_pattern_counts() -> None:
    pairs = (("tests/*", ("AMP110",)), ("a.py", ("AMP101",)))
    assert Selection(Settings(per_file_ignores=pairs)).codes_for("tests/a.py") == DEFAULT - {
        "AMP101",
        "AMP110",
    }


def test_a_malformed_pattern() -> None:
    with pytest.raises(ConfigError, match="malformed pattern"):
        Selection(Settings(per_file_ignores=(("!", ("AMP110",)),))).codes_for("a.py")


def test_names_are_those_of_the_rules() -> None:
    assert rule_names() == {load(code).RULE.name: code for code in TABLE}
