"""The JSON contract, version 1."""

from __future__ import annotations

import json
from dataclasses import replace

import jsonschema
import pytest

from amplint.findings import LINK_KINDS, Incomplete, PathStep
from amplint.protocol import Event
from amplint.report import json as json_report

PLACE = {
    "type": "object",
    "properties": {
        "row": {"type": "integer", "minimum": 1},
        "column": {"type": "integer", "minimum": 1},
    },
    "required": ["row", "column"],
    "additionalProperties": False,
}
SEVERITIES = ["error", "warning", "info"]


def closed(properties: dict, optional: tuple[str, ...] = ()) -> dict:
    """An object with exactly these keys."""
    required = [name for name in properties if name not in optional]
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def text(nullable: bool = False) -> dict:
    return {"type": ["string", "null"] if nullable else "string"}


EDIT = closed({"content": text(), "location": PLACE, "end_location": PLACE})
STEP = closed(
    {
        "filename": text(),
        "row": {"type": "integer", "minimum": 1},
        "column": {"type": "integer", "minimum": 1},
        "message": text(),
        "state": text(),
        "kind": {"enum": ["event", "assume", "call", "loop", "leave", "again"]},
        "event": {"enum": [event.name.lower() for event in Event]},
        "misuse": {"type": "string", "pattern": "^[a-z-]+$"},
        "condition": text(),
        "holds": {"type": "boolean"},
        "name": text(),
    },
    optional=("state", "kind", "event", "misuse", "condition", "holds", "name"),
)
LINK = closed(
    {
        "kind": {"enum": list(LINK_KINDS)},
        "standing": {"enum": ["code", "library", "use", "option", "open", "harmless", "guess"]},
        "subject": text(),
        "claim": text(),
    }
)
EVIDENCE = closed(
    {
        "status": {
            "enum": [
                "static",
                "confirmed",
                "conditional",
                "not-reproduced",
                "not-reached",
                "inconclusive",
                "observed",
            ]
        },
        "device": text(nullable=True),
        "kind": {"enum": ["own-code", "replay", "live", None]},
        "detail": text(nullable=True),
        "assumptions": {"type": "array", "items": text()},
    }
)
FINDING = closed(
    {
        "code": {"type": "string", "pattern": r"^AMP\d{3}$"},
        "name": {"type": "string", "pattern": "^[a-z0-9-]+$"},
        "severity": {"enum": SEVERITIES},
        "message": text(),
        "help": text(),
        "filename": text(),
        "cell": {"type": ["integer", "null"]},
        "location": PLACE,
        "end_location": PLACE,
        "path": {"type": "array", "items": STEP},
        "links": {"type": "array", "items": LINK},
        "evidence": EVIDENCE,
        "fix": {
            "anyOf": [
                {"type": "null"},
                closed(
                    {
                        "applicability": {"enum": ["safe", "unsafe", "display"]},
                        "edits": {"type": "array", "items": EDIT, "minItems": 1},
                    }
                ),
            ]
        },
        "url": text(nullable=True),
        "fingerprint": text(),
    }
)
SCHEMA = closed(
    {
        "version": {"const": 1},
        "findings": {"type": "array", "items": FINDING},
        "errors": {
            "type": "array",
            "items": closed(
                {
                    "filename": text(),
                    "code": {"const": "AMP000"},
                    "message": text(),
                    "location": PLACE,
                }
            ),
        },
        "incomplete": {
            "type": "array",
            "items": closed(
                {"filename": text(), "functions": {"type": "array", "items": text(), "minItems": 1}}
            ),
        },
        "summary": closed(
            {
                "files": {"type": "integer"},
                "screened_out": {"type": "integer"},
                "incomplete": {"type": "integer"},
                "findings": closed({severity: {"type": "integer"} for severity in SEVERITIES}),
                "fixed": {"type": "integer"},
                "seconds": {"type": "number", "minimum": 0},
            }
        ),
    }
)


def dump(report, sources) -> str:
    return "\n".join(json_report.render(report, sources=sources, color=True))


def test_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_report_follows_the_schema(report, sources) -> None:
    jsonschema.validate(json.loads(dump(report, sources)), SCHEMA)


def test_files_that_were_followed_in_part_are_named(report, sources) -> None:
    part = Incomplete("fit.py", ("Trainer.fit", "loops.py:run"))
    data = json.loads(dump(replace(report, incomplete=(part,)), sources))
    jsonschema.validate(data, SCHEMA)
    assert data["incomplete"] == [
        {"filename": "fit.py", "functions": ["Trainer.fit", "loops.py:run"]}
    ]
    assert data["summary"]["incomplete"] == 1


def test_an_empty_report_follows_the_schema(make_report, sources) -> None:
    loaded = json.loads(dump(make_report(), sources))
    jsonschema.validate(loaded, SCHEMA)
    assert loaded["findings"] == [] and loaded["summary"]["findings"]["error"] == 0


def test_values(report, sources) -> None:
    loaded = json.loads(dump(report, sources))
    clip = next(item for item in loaded["findings"] if item["code"] == "AMP110")
    assert clip["location"] == {"row": 12, "column": 9}
    assert clip["end_location"] == {"row": 12, "column": 64}
    assert clip["path"][1] == {
        "filename": "train.py",
        "row": 11,
        "column": 9,
        "message": "`loss` is multiplied by the loss scale",
    }
    assert clip["path"][2]["state"] == "gradients: scaled"
    assert clip["fix"]["edits"][0]["content"] == "        scaler.unscale_(optimizer)\n"
    assert loaded["errors"][0]["location"] == {"row": 1, "column": 7}
    assert loaded["summary"]["findings"] == {"error": 1, "warning": 1, "info": 1}


STEPS = {
    PathStep("a.py", 1, 1, kind="event", event=Event.UNSCALE): {
        "kind": "event",
        "event": "unscale",
    },
    PathStep("a.py", 1, 1, kind="event", event=Event.STEP, broken="step-twice"): {
        "kind": "event",
        "event": "step",
        "misuse": "step-twice",
    },
    PathStep("a.py", 1, 1, kind="assume", subject="use_amp", holds=False): {
        "kind": "assume",
        "condition": "use_amp",
        "holds": False,
    },
    PathStep("a.py", 1, 1, kind="call", subject="finish"): {"kind": "call", "name": "finish"},
    PathStep("a.py", 1, 1, kind="again"): {"kind": "again"},
    PathStep("a.py", 1, 1, kind="loop"): {"kind": "loop"},
    PathStep("a.py", 1, 1, "a rule says this"): {},
}


@pytest.mark.parametrize("step", STEPS)
def test_steps_are_data_and_words(make_report, report, sources, step: PathStep) -> None:
    clip = next(item for item in report.findings if item.code == "AMP110")
    loaded = json.loads(dump(make_report(replace(clip, path=(step,))), sources))
    jsonschema.validate(loaded, SCHEMA)
    (shown,) = loaded["findings"][0]["path"]
    words = {"filename", "row", "column", "message", "state"}
    assert {key: value for key, value in shown.items() if key not in words} == STEPS[step]
    assert shown["message"]


def test_output_is_ascii(report, sources) -> None:
    assert dump(report, sources).isascii()


@pytest.mark.parametrize("key", ["findings", "errors", "summary", "version"])
def test_schema_misses_nothing(key: str, report, sources) -> None:
    loaded = json.loads(dump(report, sources))
    del loaded[key]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(loaded, SCHEMA)
