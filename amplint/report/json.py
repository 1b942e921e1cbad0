"""One JSON object per run, version 1. Keys may be added; anything else is a new version.

Rows and columns are 1-based, columns count code points, ends are exclusive. Paths are
relative to the working directory. The output is plain ASCII, so that it survives any
encoding of the stream.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from amplint.findings import FileError, Finding, Fix, Incomplete, Link, PathStep, Position
from amplint.report.steps import words_of
from amplint.report.summary import count_severities

if TYPE_CHECKING:
    from amplint.checker import Report

VERSION = 1


def render(
    report: Report, *, sources: Callable[[str], list[str] | None], color: bool
) -> Iterator[str]:
    """The lines of one indented JSON object."""
    yield from json.dumps(to_object(report), indent=2).splitlines()


def to_object(report: Report) -> dict[str, Any]:
    """The report as JSON values."""
    return {
        "version": VERSION,
        "findings": [finding_object(finding) for finding in report.findings],
        "errors": [_error(error) for error in report.errors],
        "incomplete": [_incomplete(item) for item in report.incomplete],
        "summary": {
            "files": report.files,
            "screened_out": report.screened_out,
            "incomplete": len(report.incomplete),
            "findings": count_severities(report.findings),
            "fixed": len(report.fixed),
            "seconds": round(report.seconds, 3),
        },
    }


def finding_object(finding: Finding) -> dict[str, Any]:
    """A finding as JSON values."""
    return {
        "code": finding.code,
        "name": finding.name,
        "severity": finding.severity.value,
        "message": finding.message,
        "help": finding.help,
        "filename": finding.filename,
        "cell": finding.cell,
        "location": _position(finding.span.start),
        "end_location": _position(finding.span.end),
        "path": [_step(step) for step in finding.path],
        "links": [_link(link) for link in finding.links],
        "evidence": {**asdict(finding.evidence), "assumptions": list(finding.evidence.assumptions)},
        "fix": None if finding.fix is None else _fix(finding.fix),
        "url": None,  # rule pages are read with `amplint rule`
        "fingerprint": finding.fingerprint,
    }


def _link(link: Link) -> dict[str, str]:
    return {**asdict(link), "standing": link.standing.value}


def _step(step: PathStep) -> dict[str, Any]:
    message, state = words_of(step)
    shown: dict[str, Any] = {
        "filename": step.filename,
        "row": step.row,
        "column": step.column,
        "message": message,
    }
    if state:
        shown["state"] = state
    return {**shown, **_data(step)}


def _data(step: PathStep) -> dict[str, Any]:
    """What a step is, for programs; nothing where there are only the words of a rule."""
    if step.kind == "said":
        return {}
    if step.event is not None:
        ending = {"misuse": step.broken} if step.broken else {}
        return {"kind": step.kind, "event": step.event.name.lower(), **ending}
    if step.kind == "assume":
        return {"kind": step.kind, "condition": step.subject, "holds": step.holds}
    return {"kind": step.kind, **({"name": step.subject} if step.subject else {})}


def _fix(fix: Fix) -> dict[str, Any]:
    return {
        "applicability": fix.applicability,
        "edits": [
            {
                "content": edit.content,
                "location": _position(edit.span.start),
                "end_location": _position(edit.span.end),
            }
            for edit in fix.edits
        ],
    }


def _error(error: FileError) -> dict[str, Any]:
    return {
        "filename": error.filename,
        "code": error.code,
        "message": error.message,
        "location": {"row": error.row, "column": error.column},
    }


def _incomplete(item: Incomplete) -> dict[str, Any]:
    return {"filename": item.filename, "functions": list(item.functions)}


def _position(position: Position) -> dict[str, int]:
    return {"row": position.row, "column": position.column}
