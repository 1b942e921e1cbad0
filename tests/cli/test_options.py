"""From options to settings, and what the options of `check` do."""

from __future__ import annotations

import json

import pytest

from amplint import checker
from amplint.checker import Report
from amplint.findings import Incomplete


@pytest.fixture
def settings_of(run, monkeypatch):
    """The settings that a command line leads to."""
    seen = []

    def check_paths(paths, settings, **options):
        seen.append((tuple(paths), settings, options))
        return Report(files=1)

    monkeypatch.setattr(checker, "check_paths", check_paths)

    def build(*args, **options):
        result = run("check", *args, **options)
        assert result.exit_code == 0, result.stderr
        return seen[-1]

    return build


@pytest.mark.parametrize(
    ("args", "field", "value"),
    [
        (("--select", "AMP1,amp2"), "select", ("AMP1", "amp2")),
        (("--select", "AMP1", "--select", "step-twice"), "select", ("AMP1", "step-twice")),
        (("--select", "ALL"), "select", ("ALL",)),
        (("--ignore", " AMP104 , "), "ignore", ("AMP104",)),
        (("--extend-select", "AMP128"), "extend_select", ("AMP128",)),
        (("--exclude", "a,b/*.py"), "exclude", ("a", "b/*.py")),
        (("--extend-exclude", "gen"), "extend_exclude", ("gen",)),
        (("--force-exclude",), "force_exclude", True),
        (("--no-respect-gitignore",), "respect_gitignore", False),
        (("--no-cache",), "cache", False),
        (("-j", "3"), "jobs", 3),
        (("--fail-on", "info"), "fail_on", "info"),
        (("--output-format", "github"), "output_format", "github"),
        (("--config", "max-file-size = 10"), "max_file_size", 10),
        (("--config", "jobs = 2", "--config", "cache = false"), "jobs", 2),
        (("--config", "jobs = 2", "--jobs", "1"), "jobs", 1),
        (("--config", "select = ['AMP1']", "--select", "AMP2"), "select", ("AMP2",)),
        (
            ("--per-file-ignores", "t/*:AMP104,t/*:AMP110", "--per-file-ignores", "C:/x.py:ALL"),
            "per_file_ignores",
            (("t/*", ("AMP104", "AMP110")), ("C:/x.py", ("ALL",))),
        ),
    ],
)
def test_settings(settings_of, args, field, value) -> None:
    _, settings, _ = settings_of(*args)
    assert getattr(settings, field) == value


def test_what_is_not_given_stays_at_its_default(settings_of) -> None:
    from amplint.config import Settings

    assert settings_of()[1] == Settings()


def test_a_configuration_file_is_read_unless_isolated(settings_of, empty_folder) -> None:
    (empty_folder / "pyproject.toml").write_text("[tool.amplint]\njobs = 7\n")
    assert settings_of()[1].jobs == 7
    assert settings_of("--jobs", "2")[1].jobs == 2
    assert settings_of("--isolated")[1].jobs == 0
    (empty_folder / "other.toml").write_text("jobs = 5\n")
    assert settings_of("--config", "other.toml")[1].jobs == 5


def test_inline_configuration_keeps_the_rest_of_the_file(settings_of, empty_folder) -> None:
    (empty_folder / "amplint.toml").write_text("jobs = 7\nignore = ['AMP104']\n")
    settings = settings_of("--config", "jobs = 3")[1]
    assert (settings.jobs, settings.ignore) == (3, ("AMP104",))
    assert settings.root == str(empty_folder)


@pytest.mark.parametrize(
    ("args", "paths"),
    [
        ((), (".",)),
        (("a.py", "b"), ("a.py", "b")),
        (("--stdin-filename", "x.py"), ("-",)),
        (("-", "--stdin-filename", "x.py"), ("-",)),
    ],
)
def test_paths(settings_of, args, paths) -> None:
    seen, _, options = settings_of(*args, input=b"text\xff")
    assert seen == paths
    assert options["stdin"] == (b"text\xff" if "-" in paths else None)


def test_stdin_is_shown_under_its_name(run) -> None:
    result = run("check", "-", "--stdin-filename", "a/b.py", "--output-format", "full", input="x(:")
    assert result.exit_code == 2
    assert "--> a/b.py:1:3" in result.stdout and "1 | x(:" in result.stdout


def test_show_files(run, empty_folder) -> None:
    (empty_folder / "pkg").mkdir()
    for name in ("pkg/b.py", "pkg/a.py", "pkg/c.txt", "z.pyi"):
        (empty_folder / name).write_text("")
    result = run("check", "--show-files")
    assert (result.exit_code, result.stdout) == (0, "pkg/a.py\npkg/b.py\nz.pyi\n")
    missing = run("check", "--show-files", "gone", "z.pyi")
    assert (missing.exit_code, missing.stdout) == (2, "z.pyi\n")
    assert missing.stderr == "error: gone: does not exist\n"


def test_quiet_leaves_the_findings(run, reporting, finding) -> None:
    reporting(Report((finding(),), files=1))
    assert run("check", "-q").stdout == "train.py:1:1: error AMP104 the second step [remove it]\n"
    reporting(Report(files=1))
    assert run("check", "-q").stdout == ""


def test_verbose_tells_on_stderr(run, reporting, empty_folder) -> None:
    (empty_folder / "amplint.toml").write_text("")
    reporting(Report(files=3, screened_out=2, seconds=0.5))
    result = run("check", "-v")
    assert "amplint.toml" in result.stderr
    assert "3 files, 2 without AMP, 0.50 s" in result.stderr
    assert result.stdout == "No AMP misuse found in 3 files.\n"


def test_verbose_names_what_was_followed_in_part(run, reporting) -> None:
    reporting(Report(files=3, incomplete=(Incomplete("a.py", ("fit", "b.py:run")),)))
    line = "a.py: followed in part, too many paths in fit, b.py:run\n"
    assert line in run("check", "-v").stderr
    plain = run("check")
    assert "followed" not in plain.stderr
    assert "1 file followed in part" in plain.stdout


def test_statistics_replace_the_findings(run, reporting, finding) -> None:
    reporting(Report((finding(), finding()), files=1))
    assert run("check", "--statistics").stdout.splitlines() == [
        "2  AMP104  step-twice",
        "Found 2 errors in 1 file (1 file checked).",
    ]


def test_json_is_nothing_but_json(run, reporting, finding) -> None:
    reporting(Report((finding(),), files=1))
    loaded = json.loads(run("check", "--output-format", "json").stdout)
    assert loaded["version"] == 1 and len(loaded["findings"]) == 1


def test_output_file(run, reporting, finding, empty_folder) -> None:
    reporting(Report((finding(filename="模.py"),), files=1))
    result = run("check", "--output-file", "report.txt")
    assert (result.exit_code, result.stdout) == (1, "")
    text = (empty_folder / "report.txt").read_text("utf-8")
    assert text.startswith("模.py:1:1: error AMP104") and "\x1b" not in text
    run("check", "--output-file", "report.txt", "--color", "always")
    assert "\x1b[" in (empty_folder / "report.txt").read_text("utf-8")
