"""SARIF 2.1.0, which GitHub's code scanning and editors read: one log with one run.

Rows and columns are 1-based, columns count code points, ends are exclusive, as in findings. The
output is plain ASCII. What the JSON format has beside it (links, evidence) is in `properties`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import amplint
from amplint.findings import FileError, Finding, Incomplete, PathStep, Severity, Span
from amplint.report.json import finding_object
from amplint.report.steps import words_of
from amplint.report.text import evidence_notes

if TYPE_CHECKING:
    from amplint.checker import Report

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVEL = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


def render(
    report: Report, *, sources: Callable[[str], list[str] | None], color: bool
) -> Iterator[str]:
    """The lines of one indented JSON object."""
    made = log(report.findings, report.errors, report.incomplete)
    yield from json.dumps(made, indent=2).splitlines()


def log(
    findings: Sequence[Finding],
    errors: Sequence[FileError] = (),
    incomplete: Iterable[Incomplete] = (),
) -> dict[str, Any]:
    """Findings, and what could not be analysed, as JSON values."""
    rules = {finding.code: finding.name for finding in findings}
    told = [_error(error) for error in errors] + [_incomplete(item) for item in incomplete]
    driver = {
        "name": "amplint",
        "version": amplint.__version__,
        "rules": [{"id": code, "name": rules[code]} for code in sorted(rules)],
    }
    return {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                "columnKind": "unicodeCodePoints",
                "invocations": [
                    {"executionSuccessful": not errors, "toolExecutionNotifications": told}
                ],
                "results": [_result(finding, sorted(rules)) for finding in findings],
            }
        ],
    }


def _result(finding: Finding, codes: Sequence[str]) -> dict[str, Any]:
    lines = [finding.message]
    lines += [f"help: {finding.help}"] if finding.help else []
    lines += [f"{kind}: {words}" for kind, words in evidence_notes(finding.evidence)]
    known = finding_object(finding)
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": codes.index(finding.code),
        "level": _LEVEL[finding.severity],
        "message": {"text": "\n".join(lines)},
        "locations": [_location(finding.filename, finding.span)] if finding.filename else [],
        "properties": {name: known[name] for name in ("links", "evidence")},
    }
    if finding.path:
        steps = [{"location": _step(step)} for step in finding.path]
        result["codeFlows"] = [{"threadFlows": [{"locations": steps}]}]
    if finding.fingerprint:
        result["partialFingerprints"] = {"amplint/v1": finding.fingerprint}
    return result


def _location(filename: str, span: Span) -> dict[str, Any]:
    """A place; of an empty span only its row is known."""
    region = {"startLine": span.start.row}
    if span.start != span.end:
        region |= {"startColumn": span.start.column}
        region |= {"endLine": span.end.row, "endColumn": span.end.column}
    return {"physicalLocation": {"artifactLocation": {"uri": _uri(filename)}, "region": region}}


def _step(step: PathStep) -> dict[str, Any]:
    message, state = words_of(step)
    words = f"{message} ({state})" if state else message
    region = {"startLine": step.row, "startColumn": step.column}
    place = {"artifactLocation": {"uri": _uri(step.filename)}, "region": region}
    return {"physicalLocation": place, "message": {"text": words}}


def _error(error: FileError) -> dict[str, Any]:
    region = {"startLine": error.row, "startColumn": error.column}
    place = {"artifactLocation": {"uri": _uri(error.filename)}, "region": region}
    return {
        "level": "error",
        "message": {"text": f"{error.code} {error.message}"},
        "locations": [{"physicalLocation": place}],
    }


def _incomplete(item: Incomplete) -> dict[str, Any]:
    place = {"artifactLocation": {"uri": _uri(item.filename)}}
    return {
        "level": "note",
        "message": {"text": f"followed in part: {', '.join(item.functions)}"},
        "locations": [{"physicalLocation": place}],
    }


def _uri(filename: str) -> str:
    """A path as a reference; a name that is no text keeps its bytes."""
    return quote(os.fsencode(filename))
