"""Settings: where they are read, which values they take, and what is wrong with the others."""

from __future__ import annotations

import inspect
from dataclasses import fields
from pathlib import Path

import pytest

from amplint.config import (
    DEFAULT_EXCLUDE,
    Settings,
    find_config,
    load_settings,
    settings_from_table,
    with_overrides,
)
from amplint.errors import ConfigError

OWN = "[tool.amplint]\n"


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def load(path: Path, text: str) -> Settings:
    return load_settings(config=write(path, text))


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ('select = ["AMP1", "clip-without-unscale"]', "select", ("AMP1", "clip-without-unscale")),
        ('extend-select = ["AMP128"]', "extend_select", ("AMP128",)),
        ('ignore = ["ALL"]', "ignore", ("ALL",)),
        ("ignore = []", "ignore", ()),
        ('per-file-ignores = {"t/*" = ["AMP1"]}', "per_file_ignores", (("t/*", ("AMP1",)),)),
        ('exclude = ["a", "b/*.py"]', "exclude", ("a", "b/*.py")),
        ('extend-exclude = ["a"]', "extend_exclude", ("a",)),
        ("force-exclude = true", "force_exclude", True),
        ("respect-gitignore = false", "respect_gitignore", False),
        ("max-file-size = 5_000", "max_file_size", 5000),
        ("jobs = 2", "jobs", 2),
        ("cache = false", "cache", False),
        ('fail-on = "error"', "fail_on", "error"),
        ('target-torch = "2.3"', "target_torch", "2.3"),
        ('target-torch = ">=2.1,<3"', "target_torch", ">=2.1,<3"),
        ('output-format = "json"', "output_format", "json"),
        ('stdin-filename = "a.py"', "stdin_filename", "a.py"),
    ],
)
@pytest.mark.parametrize(
    ("name_of_file", "header"), [("pyproject.toml", OWN), ("amplint.toml", "")]
)
def test_a_key(
    tmp_path: Path, line: str, name: str, value: object, name_of_file: str, header: str
) -> None:
    settings = load(tmp_path / name_of_file, header + line)
    assert getattr(settings, name) == value
    changed = {item.name for item in fields(Settings)} - {name, "root", "origin"}
    assert all(getattr(settings, other) == getattr(Settings(), other) for other in changed)
    assert settings.root == str(tmp_path)
    assert settings.origin == str(tmp_path / name_of_file)


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("selct = []", "unknown key `tool.amplint.selct`", "did you mean `select`?"),
        (
            "extend_select = []",
            "unknown key `tool.amplint.extend_select`",
            "did you mean `extend-select`?",
        ),
        ("root = 'a'", "unknown key `tool.amplint.root`", "known keys: "),
        ("colour = 1", "unknown key `tool.amplint.colour`", "known keys: cache, exclude"),
        ('select = "AMP1"', "`tool.amplint.select` must be a list of strings, not 'AMP1'", None),
        ("select = [1]", "`tool.amplint.select` must be a list of strings, not [1]", None),
        (
            'select = ["AMP11O"]',
            "no rule matches `AMP11O` in `tool.amplint.select`",
            "did you mean `AMP110`?",
        ),
        ('ignore = ["clip-without-unscal"]', "no rule matches", "`clip-without-unscale`?"),
        ('ignore = ["X9999"]', "no rule matches `X9999`", "amplint rule --all"),
        ('ignore = [""]', "no rule matches ``", "amplint rule --all"),
        ('per-file-ignores = ["a"]', "must be a table from patterns to lists", None),
        (
            'per-file-ignores = {"t/*" = "AMP1"}',
            "`tool.amplint.per-file-ignores.\"t/*\"` must be a list of strings, not 'AMP1'",
            None,
        ),
        (
            'per-file-ignores = {"a" = ["AMP7"]}',
            "no rule matches `AMP7` in `tool.amplint.per-file-ignores.a`",
            "did you mean",
        ),
        ("force-exclude = 1", "must be true or false, not 1", None),
        (
            "jobs = true",
            "must be a number of processes up to 1000, 0 for automatic, not True",
            None,
        ),
        ("jobs = -1", "must be a number of processes", None),
        ("max-file-size = 1.5", "must be a number of bytes", None),
        (
            'fail-on = "warn"',
            "`tool.amplint.fail-on` must be one of error, warning, info, confirmed, never",
            "did you mean `warning`?",
        ),
        ("fail-on = []", "must be one of error, warning, info, confirmed, never", None),
        ("target-torch = 2.3", "must be a version or a range, such as", None),
        ('target-torch = "new"', "must be a version or a range, such as", None),
        ("select = [", "is no valid TOML: Invalid value (at end of document)", None),
        (
            "cache = true\nselect = [}",
            "is no valid TOML: Invalid value (at line 3, column 11)",
            None,
        ),
    ],
)
def test_a_mistake(tmp_path: Path, line: str, message: str, hint: str | None) -> None:
    path = tmp_path / "pyproject.toml"
    with pytest.raises(ConfigError) as caught:
        load(path, OWN + line)
    assert caught.value.message.startswith(f"{path}: ")
    assert message in caught.value.message
    assert (caught.value.hint is None) == (hint is None)
    assert hint is None or hint in caught.value.hint


#: One value of each type of TOML; none of these texts suits any setting.
ODD = {
    "string": '"\\u0000"',
    "integer": "9223372036854775807",
    "digits": "9" * 5_000,
    "hexadecimal": "0x" + "9" * 5_000,
    "float": "1e400",
    "date": "1979-05-27",
    "list": "[[1]]",
    "brackets": "[" * 5_000,
    "lines of brackets": "[\n" * 5_000,
    "table": '{a = ["\\u0000"]}',
    "tables": "{a = " * 5_000,
}
KEYS = [
    item.name.replace("_", "-") for item in fields(Settings) if item.metadata.get("file_key", True)
]


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize(
    ("name", "above", "dotted"),
    [
        ("amplint.toml", "", ""),
        (
            "pyproject.toml",
            '# a = 1\nb = "="\n[c]\nd = [\n1, {e = "=1"},\n]\n[[f]]\n[[f]]\n[tool.amplint]\n',
            "tool.amplint.",
        ),
    ],
)
def test_a_wrong_value_is_told_with_file_and_key(
    tmp_path: Path, kind: str, name: str, above: str, dotted: str
) -> None:
    for key in (*KEYS, '"odd=key"'):
        with pytest.raises(ConfigError) as caught:
            load(tmp_path / name, f"{above}{key} = {ODD[kind]}")
        assert caught.value.message.startswith(f"{tmp_path / name}: "), key
        assert f"`{dotted}{key}" in caught.value.message, key
        assert len(caught.value.message) < 1_000


@pytest.mark.parametrize("line", ["{} = 1", 'select = ["{}"]', "output-format = '{}'"])
def test_a_long_word_is_shown_in_part(tmp_path: Path, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "amplint.toml", line.format("AMP" * 100_000))
    assert len(caught.value.message) < 1_000


def test_a_table_that_is_a_number_far_below(tmp_path: Path) -> None:
    # Before Python 3.11 the parser itself, tomli, gives up at such a depth.
    words = "`tool.amplint.select` must be a list of strings|it is nested too deeply"
    with pytest.raises(ConfigError, match=words):
        load(tmp_path / "pyproject.toml", f"{OWN}select.{'a.' * 2_000}b = 1")


def test_the_table_must_be_a_table(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="`tool.amplint` must be a table"):
        load(tmp_path / "pyproject.toml", "[tool]\namplint = 1")


@pytest.mark.parametrize("data", [b"\xff", b"a = '\0'"])
def test_a_file_that_is_no_toml(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "amplint.toml"
    path.write_bytes(b"\n" + data)
    with pytest.raises(ConfigError, match="is no valid TOML: .*at line 2"):
        load_settings(config=path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_settings(config=tmp_path / "gone.toml")


def test_a_given_pyproject_without_a_table_gives_the_defaults(tmp_path: Path) -> None:
    settings = load(tmp_path / "pyproject.toml", "[project]\nname = 'a'")
    assert settings == Settings(root=str(tmp_path), origin=str(tmp_path / "pyproject.toml"))


@pytest.mark.parametrize(
    ("files", "winner"),
    [
        ({"amplint.toml": ""}, "amplint.toml"),
        ({".amplint.toml": ""}, ".amplint.toml"),
        ({"pyproject.toml": OWN}, "pyproject.toml"),
        ({"pyproject.toml": OWN, "amplint.toml": ""}, "amplint.toml"),
        ({"pyproject.toml": OWN, "a/amplint.toml": ""}, "a/amplint.toml"),
        ({"amplint.toml": "", "a/pyproject.toml": OWN}, "a/pyproject.toml"),
        ({"amplint.toml": "", "a/pyproject.toml": "[tool.ruff]\n"}, "amplint.toml"),
        ({"amplint.toml": "", "a/pyproject.toml": "name = 'amplint'\n"}, "amplint.toml"),
        ({"amplint.toml": "", "a/pyproject.toml": "not toml"}, "amplint.toml"),
        ({"amplint.toml": "", "a/b/c/amplint.toml": ""}, "amplint.toml"),
    ],
)
def test_the_nearest_file_wins(tmp_path: Path, files: dict[str, str], winner: str) -> None:
    for name, text in files.items():
        write(tmp_path / name, text)
    start = tmp_path / "a" / "b"
    start.mkdir(parents=True, exist_ok=True)
    assert find_config(start) == str(tmp_path / winner)
    assert load_settings(start=start).origin == str(tmp_path / winner)


def test_without_a_file_the_defaults_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amplint.config.find_config", lambda start: None)
    assert load_settings(start=tmp_path) == Settings()


def test_the_default_exclude_is_sorted_and_has_no_pattern() -> None:
    assert list(DEFAULT_EXCLUDE) == sorted(set(DEFAULT_EXCLUDE))
    assert not [name for name in DEFAULT_EXCLUDE if set(name) & set("*?[/!")]


FILE = Settings(select=("AMP1",), extend_select=("AMP900",), ignore=("AMP110",), jobs=4)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, FILE),
        ({"jobs": None, "select": None}, FILE),
        ({"select": ("AMP110",)}, Settings(select=("AMP110",), jobs=4)),
        (
            {"select": ("AMP110",), "ignore": ("AMP1",)},
            Settings(select=("AMP110",), ignore=("AMP1",), jobs=4),
        ),
        (
            {"ignore": ("AMP101",), "extend_select": ("AMP2",)},
            Settings(("AMP1",), ("AMP900", "AMP2"), ("AMP110", "AMP101"), jobs=4),
        ),
        ({"jobs": 0}, Settings(("AMP1",), ("AMP900",), ("AMP110",))),
        ({"cache": False}, Settings(("AMP1",), ("AMP900",), ("AMP110",), jobs=4, cache=False)),
    ],
)
def test_the_command_line_wins(options: dict[str, object], expected: Settings) -> None:
    assert with_overrides(FILE, **options) == expected


def test_extend_exclude_of_the_command_line_is_added() -> None:
    file = Settings(extend_exclude=("a",))
    assert with_overrides(file, extend_exclude=("b",)).extend_exclude == ("a", "b")
    assert with_overrides(file, exclude=("b",)).exclude == ("b",)


def test_every_key_is_documented() -> None:
    text = inspect.getdoc(Settings) or ""
    assert [item.name for item in fields(Settings) if f"    {item.name}: " not in text] == []


def test_settings_can_be_read_from_a_table() -> None:
    assert settings_from_table({"jobs": 3}, "--config").jobs == 3
