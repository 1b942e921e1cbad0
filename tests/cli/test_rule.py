"""`amplint rule`, `amplint protocol` and `amplint problem-matcher`."""

from __future__ import annotations

import json

import pytest

from amplint import rules
from amplint.cli import rule as rule_command


@pytest.mark.parametrize("selector", ["AMP104", "amp104", "step-twice", "step_twice", "STEP-TWICE"])
def test_a_rule_is_found_by_code_and_by_name(selector: str) -> None:
    assert rule_command.find_code(selector, rules.TABLE) == "AMP104"


def test_a_page_is_plain_markdown_in_a_pipe(run) -> None:
    result = run("rule", "AMP104")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "# step-twice (AMP104)"
    assert lines[2].startswith("error, crash/silent, unsafe fix, since ")
    page = rules.load("AMP104").__doc__.strip().splitlines()
    assert [line for line in page if line.strip()][1:] == [
        line for line in lines[3:] if line.strip()
    ]


def test_a_page_on_a_terminal_has_neither_hashes_nor_fences(run, monkeypatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    text = run("rule", "AMP104").stdout
    assert "```" not in text and "\n#" not in text
    assert "\x1b[1mWhy is this bad?\x1b[0m" in text


def test_json_of_one_rule(run) -> None:
    shown = json.loads(run("rule", "AMP104", "--output-format", "json").stdout)
    assert sorted(shown) == [
        "code", "effect", "facts", "fix", "name", "page", "severity", "summary",
            "unseen_severity",
    ]  # fmt: skip
    assert (shown["code"], shown["name"]) == ("AMP104", "step-twice")
    assert "## Example" in shown["page"]


def test_json_of_all_rules(run) -> None:
    shown = json.loads(run("rule", "--all", "--output-format", "json").stdout)
    assert [item["code"] for item in shown] == sorted(rules.TABLE)
    for item in shown:
        assert item["page"].startswith("# ") and item["summary"]
        assert item["severity"] in {"error", "warning", "info"}
        assert item["name"] == rules.TABLE[item["code"]].replace("_", "-")


def test_catalogue_has_one_line_per_rule(run) -> None:
    lines = run("rule", "--all").stdout.splitlines()
    assert [line.split()[0] for line in lines] == sorted(rules.TABLE)


def test_protocol(run) -> None:
    text = run("protocol")
    assert text.exit_code == 0 and "No inf checks were recorded" in text.stdout
    assert json.loads(run("protocol", "--output-format", "json").stdout)


@pytest.mark.parametrize("tool", ["github", "vscode"])
def test_problem_matchers_are_printed_as_packaged(run, tool: str) -> None:
    printed = json.loads(run("problem-matcher", tool).stdout)
    matcher = printed["problemMatcher"][0] if tool == "github" else printed
    assert matcher["owner"] == "amplint"
