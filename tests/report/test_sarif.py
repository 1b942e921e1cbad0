"""The parts of SARIF 2.1.0 that readers rely on."""

from __future__ import annotations

import json
from dataclasses import replace

import jsonschema
import pytest

from amplint.findings import Evidence, Incomplete
from amplint.report import sarif

PLACE = {
    "type": "object",
    "properties": {
        "artifactLocation": {
            "type": "object",
            "properties": {"uri": {"type": "string", "pattern": r"^[!-~]+$"}},
            "required": ["uri"],
            "additionalProperties": False,
        },
        "region": {
            "type": "object",
            "properties": {
                name: {"type": "integer", "minimum": 1}
                for name in ("startLine", "startColumn", "endLine", "endColumn")
            },
            "required": ["startLine"],
            "additionalProperties": False,
        },
    },
    "required": ["artifactLocation"],
    "additionalProperties": False,
}
MESSAGE = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
LOCATIONS = {
    "type": "array",
    "items": {"properties": {"physicalLocation": PLACE, "message": MESSAGE}},
    "minItems": 1,
}
RESULT = {
    "type": "object",
    "properties": {
        "level": {"enum": ["error", "warning", "note"]},
        "message": MESSAGE,
        "locations": {**LOCATIONS, "maxItems": 1},
    },
    "required": ["ruleId", "ruleIndex", "level", "message", "locations", "properties"],
}


def run_of(report, sources) -> dict:
    lines = list(sarif.render(report, sources=sources, color=True))
    log = json.loads("\n".join(lines))
    assert "".join(lines).isascii()
    assert (log["version"], len(log["runs"])) == ("2.1.0", 1)
    (run,) = log["runs"]
    codes = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    for result in run["results"]:
        jsonschema.validate(result, RESULT)
        assert codes[result["ruleIndex"]] == result["ruleId"]
        for flow in result.get("codeFlows", ()):
            for step in flow["threadFlows"][0]["locations"]:
                jsonschema.validate([step["location"]], LOCATIONS)
                assert step["location"]["message"]["text"]
    for told in run["invocations"][0]["toolExecutionNotifications"]:
        jsonschema.validate(told["locations"], LOCATIONS)
    return run


def test_findings_and_an_error(report, sources) -> None:
    run = run_of(report, sources)
    by_rule = {result["ruleId"]: result for result in run["results"]}
    assert {code: each["level"] for code, each in by_rule.items()} == {
        "AMP110": "error",
        "AMP104": "warning",
        "AMP128": "note",
    }
    clip = by_rule["AMP110"]
    assert clip["locations"][0]["physicalLocation"]["region"] == {
        "startLine": 12,
        "startColumn": 9,
        "endLine": 12,
        "endColumn": 64,
    }
    assert clip["message"]["text"].endswith(
        "\nhelp: call `scaler.unscale_(optimizer)` before `clip_grad_norm_`"
    )
    (flow,) = clip["codeFlows"]
    steps = [each["location"]["message"]["text"] for each in flow["threadFlows"][0]["locations"]]
    assert steps[2] == "backward adds to the gradients (gradients: scaled)"
    assert clip["partialFingerprints"] == {"amplint/v1": "abc"}
    assert [link["standing"] for link in clip["properties"]["links"]] == ["use", "option"]
    invocation = run["invocations"][0]
    assert invocation["executionSuccessful"] is False
    assert invocation["toolExecutionNotifications"][0]["message"]["text"] == "AMP000 invalid syntax"


def test_what_an_execution_showed(clip, make_report, sources) -> None:
    live = Evidence("observed", kind="live", detail="clipped at 1/64 (3 times)")
    (result,) = run_of(make_report(replace(clip, evidence=live)), sources)["results"]
    assert result["message"]["text"].splitlines()[-1].endswith(": clipped at 1/64 (3 times)")
    assert result["properties"]["evidence"]["kind"] == "live"


@pytest.mark.parametrize(
    ("filename", "uri"),
    [
        ("pkg/odd names.py", "pkg/odd%20names.py"),
        ("a:b#?.py", "a%3Ab%23%3F.py"),
        ("模.py", "%E6%A8%A1.py"),
        ("\udcff.py", "%FF.py"),
    ],
)
def test_names_of_files_are_references(clip, make_report, sources, filename, uri) -> None:
    (result,) = run_of(make_report(replace(clip, filename=filename)), sources)["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == uri


def test_an_empty_report_and_one_that_is_not_whole(make_report, sources) -> None:
    run = run_of(make_report(), sources)
    assert (run["results"], run["invocations"][0]["executionSuccessful"]) == ([], True)
    part = replace(make_report(), incomplete=(Incomplete("fit.py", ("Trainer.fit",)),))
    (told,) = run_of(part, sources)["invocations"][0]["toolExecutionNotifications"]
    assert (told["level"], told["message"]["text"]) == ("note", "followed in part: Trainer.fit")
