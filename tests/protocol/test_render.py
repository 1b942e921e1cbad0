"""The printed protocol: nothing of the table is lost, and people can read it."""

from __future__ import annotations

import itertools
import json
import pathlib
import re

from amplint.protocol import VIOLATIONS, Event, Gradient, Stage
from amplint.protocol.render import render_json, render_text
from amplint.protocol.table import TABLE, UNCHECKED, UNINITIALISED, find_row

SNAPSHOT = pathlib.Path(__file__).parent / "snapshots" / "protocol.txt"
REFRESH = (
    "python -c 'from amplint.protocol.render import render_text; print(*render_text(), sep=chr(10))'"
    f" > tests/protocol/snapshots/{SNAPSHOT.name}"
)


def test_text_is_as_recorded() -> None:
    recorded = SNAPSHOT.read_text(encoding="utf-8")
    assert "\n".join(render_text()) + "\n" == recorded, f"if the change is meant: {REFRESH}"


def test_text_fits_the_page() -> None:
    lines = list(render_text())
    assert max(len(line) for line in lines) <= 100
    assert all(line == line.rstrip() for line in lines)
    assert all("\n" not in line for line in lines)


def test_text_names_every_state_event_and_rule() -> None:
    text = "\n".join(render_text())
    for state in (*Stage, *Gradient):
        assert re.search(rf"^  {state.value} +{re.escape(state.meaning)}$", text, re.MULTILINE)
    for event in Event:
        assert f"\n{event.value}\n{'-' * len(event.value)}\n" in text
    words = " ".join(text.split())
    for violation in VIOLATIONS.values():
        consequence = violation.error if violation.raises else f"silent: {violation.damage}"
        assert f"{violation.code} {violation.slug}" in words
        assert " ".join(consequence.split()) in words


def test_json_rows_say_what_the_machine_does() -> None:
    rows = render_json()["rows"]
    assert len(rows) == len(TABLE)
    seen = set()
    for row in rows:
        event = Event[row["event"].upper()]
        for stage, gradient in itertools.product(row["stages"], row["gradients"]):
            combination = (event, Stage(stage), Gradient(gradient))
            found = find_row(*combination)
            assert combination not in seen
            seen.add(combination)
            assert row["violation"] == found.violation
            assert row["next_stage"] == (found.stage and found.stage.value)
            assert row["next_gradient"] == (found.gradient and found.gradient.value)
    assert len(seen) == len(Event) * len(Stage) * len(Gradient)


def test_json_is_plain_and_complete() -> None:
    data = json.loads(json.dumps(render_json()))
    assert [stage["name"] for stage in data["stages"]] == [stage.value for stage in Stage]
    assert [tag["name"] for tag in data["gradients"]] == [tag.value for tag in Gradient]
    assert [event["code"] for event in data["events"]] == [event.value for event in Event]
    assert {v["name"] for v in data["violations"]} == set(VIOLATIONS)
    assert set(data["uninitialised"].values()) == set(UNINITIALISED.values())
    assert set(data["unchecked"].values()) == set(UNCHECKED.values())
