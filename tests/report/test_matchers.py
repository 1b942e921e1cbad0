"""The problem matchers read what the concise format prints, in a JavaScript engine."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest

from amplint.report import concise
from amplint.report.summary import summarise

RUNNER = Path(__file__).parent / "test_matchers.mjs"
TOOLS = ("github", "vscode")

needs_node = pytest.mark.skipif(
    shutil.which("node") is None, reason="node is not installed; it runs the matchers' regexps"
)


def load(tool: str) -> dict:
    path = files("amplint") / "data" / f"{tool}-problem-matcher.json"
    return json.loads(path.read_text("utf-8"))


def pattern(tool: str) -> dict:
    matcher = load(tool)
    return matcher["problemMatcher"][0]["pattern"][0] if tool == "github" else matcher["pattern"]


def run(tool: str, *lines: str) -> list[dict]:
    request = json.dumps({"pattern": pattern(tool), "lines": lines})
    done = subprocess.run(
        ["node", str(RUNNER)], input=request, capture_output=True, text=True, check=True, timeout=60
    )
    return json.loads(done.stdout)


def test_github_matcher_keeps_to_the_runners_rules() -> None:
    (matcher,) = load("github")["problemMatcher"]
    assert matcher["owner"] == "amplint"
    assert matcher["severity"] in {"error", "warning", "notice"}
    assert "loop" not in matcher["pattern"][0]  # only allowed in the last of several patterns
    for forbidden in ("(?<", "(?i"):  # no look-behind and no named groups in ECMAScript mode
        assert forbidden not in matcher["pattern"][0]["regexp"]


def test_vscode_matcher_takes_notices_for_infos() -> None:
    # VS Code does not know the word "notice" and falls back to the matcher's severity.
    assert load("vscode")["severity"] == "info"
    assert load("vscode")["owner"] == "amplint"


@needs_node
@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize(
    "filename",
    ["train.py", "/srv/a b/train.py", "C:/proj/train.py", "C:\\proj\\train.py", "a:1:2 b.py"],
)
def test_every_finding_is_read(tool: str, filename: str, clip, make_report, sources) -> None:
    finding = replace(clip, filename=filename, message="a: colon, error AMP101 and 1:2: numbers")
    (line,) = concise.render(make_report(finding), sources=sources, color=False)
    (result,) = run(tool, line)
    assert result["groups"] == {
        "file": filename,
        "line": "12",
        "column": "9",
        "severity": "error",
        "code": "AMP110",
        "message": f"a: colon, error AMP101 and 1:2: numbers [{clip.help}]",
    }


@needs_node
@pytest.mark.parametrize("tool", TOOLS)
def test_all_lines_of_a_report(tool: str, report, sources) -> None:
    lines = list(concise.render(report, sources=sources, color=False))
    found = [result["groups"] for result in run(tool, *lines)]
    assert [(item["severity"], item["code"]) for item in found] == [
        ("warning", "AMP104"),
        ("notice", "AMP128"),
        ("error", "AMP110"),
        ("error", "AMP000"),
    ]


@needs_node
@pytest.mark.parametrize("tool", TOOLS)
def test_a_notebook_cell_is_read(tool: str) -> None:
    (result,) = run(tool, "nb.ipynb:cell 3:2:1: warning AMP104 message")
    assert result["groups"]["file"] == "nb.ipynb" and result["groups"]["line"] == "2"


@needs_node
@pytest.mark.parametrize("tool", TOOLS)
def test_other_lines_are_left_alone(tool: str, report, sources) -> None:
    colored = list(concise.render(report, sources=sources, color=True))
    others = [
        summarise(report),
        'File "train.py", line 12, in train',
        "train.py:12:9: E501 line too long",
        "train.py:12: error: something of mypy",
        "error: there is no rule `AMP999`",
    ]
    assert [result["groups"] for result in run(tool, *others, *colored)] == [None] * (
        len(others) + len(colored)
    )


@needs_node
@pytest.mark.parametrize("tool", TOOLS)
def test_no_line_takes_long(tool: str) -> None:
    # The runner drops a matcher that needs more than a second three times.
    size = 200_000
    hostile = [
        "a" * size,
        ":" * size,
        ":1" * (size // 2),
        ":1:1: error " * (size // 12),
        ":cell 1" * (size // 7),
        "a:1:1: error AMP110" * (size // 19),
        " " * size,
        "1" * size,
        "a:" + "1" * size,
    ]
    slow = [result["milliseconds"] for result in run(tool, *hostile)]
    assert max(slow) < 1000, slow
