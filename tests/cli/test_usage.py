"""What a typing mistake leads to: exit status 2, one error line, a way out."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    ("args", "error", "hint"),
    [
        (("chek",), "there is no command `chek`", "did you mean `amplint check`?"),
        (("train.py",), "there is no command `train.py`", "amplint check train.py"),
        (("zzz",), "there is no command `zzz`", "amplint --help"),
        (("check", "--selct", "AMP1"), "--selct", "amplint check --help"),
        (("check", "--fail-on", "fatal"), "fatal", "amplint check --help"),
        (("check", "--output-format", "xml"), "xml", "amplint check --help"),
        (("check", "-j", "-1"), "-1", "amplint check --help"),
        (
            ("check", "--select", "AMP119x"),
            "no rule matches `AMP119x` in `--select`",
            "did you mean `AMP119`?",
        ),
        (("check", "--ignore", "step-twic"), "`step-twic`", "did you mean `step-twice`?"),
        (("check", "--extend-select", "AMP104,XYZ"), "`XYZ`", "amplint rule --all"),
        (("check", "--per-file-ignores", "a.py"), "PATTERN:CODE", "--per-file-ignores"),
        (("check", "--per-file-ignores", "a.py:AMP99"), "`AMP99`", "did you mean"),
        (("check", "--config", "gone.toml"), "gone.toml", None),
        (("check", "--config", "fail-on = error"), "is no valid TOML", "text needs quotes"),
        (("check", "--config", "fial-on = 'error'"), "`fial-on`", "did you mean `fail-on`?"),
        (("check", "--config", "jobs = 'two'"), "`jobs` must be", None),
        (("check", "--config", "output-format = 'jsn'"), "`output-format`", "did you mean `json`?"),
        (("check", "--isolated", "--config", "a.toml"), "contradict", None),
        (("check", "--config", "a.toml", "--config", "b.toml"), "more than one", None),
        (("check", "--statistics", "--output-format", "json"), "--statistics", None),
        (("check", "--output-file", "no/such/folder/x.json"), "cannot write", None),
        (("rule",), "give one rule, `--all` or `--test`", "amplint rule AMP110"),
        (("rule", "AMP104", "--all"), "give one rule, `--all` or `--test`", "amplint rule AMP110"),
        (("rule", "clip-without-unscal"), "no rule", "did you mean `clip-without-unscale`?"),
        (("rule", "nothing-alike-at-all"), "no rule", "amplint rule --all"),
        (("problem-matcher", "gitlab"), "gitlab", "amplint problem-matcher --help"),
    ],
)
def test_mistakes(run, empty_folder, args, error, hint) -> None:
    (empty_folder / "train.py").write_text("import torch\n")
    result = run(*args)
    assert (result.exit_code, result.stdout) == (2, "")
    first, *rest = result.stderr.splitlines()
    assert first.startswith("error: ") and error in first
    assert hint is None or (rest and rest[0].startswith("hint: ") and hint in rest[0])
    assert "Traceback" not in result.stderr


def test_unknown_options_get_a_suggestion(run) -> None:
    assert "--extend-select" in run("check", "--extend-selct").stderr


@pytest.mark.parametrize("text", ["[tool.amplint]\nselct = []\n", "[tool.amplint\n"])
def test_a_wrong_configuration_file(run, empty_folder, text: str) -> None:
    (empty_folder / "pyproject.toml").write_text(text)
    result = run("check")
    assert result.exit_code == 2
    assert "pyproject.toml" in result.stderr.splitlines()[0]
    assert run("check", "--isolated").exit_code == 0


def test_no_command_shows_the_help_and_fails(run) -> None:
    result = run()
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Usage: amplint" in result.stderr and "check" in result.stderr


@pytest.mark.parametrize("args", [("--help",), ("-h",), ("check", "--help"), ("rule", "-h")])
def test_help(run, args) -> None:
    result = run(*args)
    assert result.exit_code == 0
    assert result.stdout.startswith("Usage: amplint")
