"""What a run's records say, as text and as JSON."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from amplint.live.merge import Process, Round, Run, Seen
from amplint.rules import TABLE

#: Findings that the text shows; the others are counted.
_SHOWN = 20
UNSEEN = (
    "Not seen: what runs inside a compiled graph, edits of `.data`, and processes that were started "
    "without PYTHONPATH (`python -E`, `-I`)."
)


def text(run: Run) -> Iterator[str]:
    """The report as people read it at the end of a run."""
    if not run.processes:
        yield "amplint: no process used torch's optimizers, or PYTHONPATH was replaced on the way."
        return
    for found in run.findings[:_SHOWN]:
        yield from finding_lines(found, len(run.processes))
    if len(run.findings) > _SHOWN:
        yield f"and {len(run.findings) - _SHOWN} more in the report of {run.folder}"
    for process in run.processes:
        yield from process_lines(process)
    yield verdict(run)
    if any(process.failed for process in run.processes) or not run.findings:
        yield UNSEEN


def verdict(run: Run) -> str:
    """The run in one sentence."""
    by_level = [(level, sum(f.level == level for f in run.findings)) for level in _LEVELS]
    told = [_count(count, level) for level, count in by_level if count]
    return f"amplint watched this run: {', '.join(told) or 'no misuse seen'}."


_LEVELS = ("error", "warning", "info")


def finding_lines(found: Seen, processes: int) -> Iterator[str]:
    """A finding: what, where, how often, and who saw it."""
    rule = TABLE.get(found.code, found.slug).replace("_", "-")
    name = f"{found.code} {rule}".strip()
    yield f"{place(found.file, found.row)}: {found.level}: {name}: {found.words}"
    when = f"after update {found.first}"
    if found.last != found.first:
        when += f" to {found.last}"
    parts = [_count(found.count, "time"), when]
    if processes > 1:
        parts.append(ranks(found.who))
    if found.inside[0]:
        parts.append(f"called in {place(*found.inside)}")
    yield f"    seen {', '.join(parts)}"


def process_lines(process: Process) -> Iterator[str]:
    """What one process did."""
    for number, rounds in sorted(process.rounds.items()):
        skips = sum(bool(each.skipped) for each in rounds)
        yield f"{process.name}: scaler {number}: {_count(len(rounds), 'update')}, {_count(skips, 'skip')}, {scales(rounds)}"
    if not process.rounds:
        yield f"{process.name}: {_count(process.steps, 'step')} without a scaler"
    if process.failed:
        yield f"{process.name}: watching ended early by an error of amplint: {process.failed}"
    if not process.ended:
        yield f"{process.name}: did not end by itself; its record ends after {process.seconds:.1f} s"


def scales(rounds: Sequence[Round]) -> str:
    """The loss scale from start to end, in words."""
    known = [each.scale for each in rounds if each.scale is not None]
    if not known:
        return "loss scale unknown"
    low, high, last = min(known), max(known), known[-1]
    if low == high:
        return f"loss scale {last:g}"
    return f"loss scale {low:g} to {high:g}, {last:g} at the end"


def ranks(who: Sequence[str]) -> str:
    """ "rank 0, rank 1", shortened where there are many."""
    return ", ".join(who) if len(who) <= 4 else f"{who[0]} to {who[-1]} ({len(who)})"


def place(file: str, row: int) -> str:
    """A place, relative to the working directory where it lies below."""
    if not file:
        return "no line of yours"
    with contextlib.suppress(OSError, ValueError):
        relative = os.path.relpath(file)
        file = file if relative.startswith(os.pardir) else relative
    return f"{file}:{row}"


def as_json(run: Run) -> str:
    """Everything that is known, for programs."""
    return json.dumps(
        {
            "format": 1,
            "run": run.about,
            "findings": [_finding(found) for found in run.findings],
            "processes": [_process(process) for process in run.processes],
        },
        indent=1,
    )


def _finding(found: Seen) -> dict[str, Any]:
    return {
        **asdict(found),
        "evidence": {"status": "observed", "kind": "live"},
    }


def _process(process: Process) -> dict[str, Any]:
    scalers = {
        str(number): {
            "updates": [each.update for each in rounds],
            "scale": [each.scale for each in rounds],
            "skipped": [each.skipped for each in rounds],
        }
        for number, rounds in process.rounds.items()
    }
    return {
        "rank": process.rank,
        "restart": process.restart,
        "host": process.host,
        "pid": process.pid,
        "ended": process.ended,
        "failed": process.failed,
        "seconds": process.seconds,
        "steps": process.steps,
        "scalers": scalers,
    }


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 or noun == "info" else "s")
