"""What a run's records say, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from amplint.live.catalogue import FIRST_UNSEEN, LEVELS, UNSEEN, place
from amplint.live.merge import Process, Round, Run, Seen
from amplint.live.ranks import disagreements
from amplint.rules import TABLE

#: Findings that the text shows; the others are counted.
_SHOWN = 20


def text(run: Run) -> Iterator[str]:
    """The report as people read it at the end of a run."""
    if not run.processes:
        yield "amplint: no process used torch's optimizers, or PYTHONPATH was replaced on the way."
        return
    for found in run.findings[:_SHOWN]:
        yield from finding_lines(found, len(run.processes))
    if len(run.findings) > _SHOWN:
        yield f"and {len(run.findings) - _SHOWN} more in the report of {run.folder}"
    for differing in disagreements(run.processes):
        yield f"{differing.level}: {differing.words()}"
    for process in run.processes:
        yield from process_lines(process)
    yield verdict(run)
    if any(process.failed for process in run.processes) or not run.findings:
        yield f"Not seen: {'; '.join(UNSEEN[:FIRST_UNSEEN])}. The page has the whole list."


def verdict(run: Run) -> str:
    """The run in one sentence."""
    found = levels(run)
    by_level = [(level, found.count(level)) for level in reversed(LEVELS)]
    told = [_count(count, level) for level, count in by_level if count]
    return f"amplint watched this run: {', '.join(told) or 'no misuse seen'}."


def levels(run: Run) -> list[str]:
    """The levels of all that was found, and of what ranks disagree about."""
    found = [each.level for each in run.findings]
    return found + [each.level for each in disagreements(run.processes)]


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
    for line in process.samples.lines():
        yield f"{process.name}: {line}"
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


def comparison(first: Run, second: Run) -> Iterator[str]:
    """Where two runs differ: findings, and the first update that went another way."""
    alone = [*_only_in(first, second), *_only_in(second, first)]
    yield from alone or ["no finding is in one of the two alone"]
    here, there = _histories(first), _histories(second)
    for key in dict.fromkeys((*here, *there)):
        rank, restart, scaler = key
        name = "process" if rank is None else f"rank {rank}"
        name += (f", restart {restart}" if restart else "") + (
            f", scaler {scaler}" if scaler else ""
        )
        if key not in here or key not in there:
            yield f"{name}: only in {(first if key in here else second).folder}"
        elif scaler:
            rounds, others = here[key].rounds[scaler], there[key].rounds[scaler]
            yield f"{name}: {_first_difference(rounds, others)}"
        else:
            steps = _count(here[key].steps, "step")
            yield f"{name}: {steps} without a scaler, and {there[key].steps}"


def _only_in(run: Run, other: Run) -> Iterator[str]:
    theirs = {_identity(found) for found in other.findings}
    for found in run.findings:
        if _identity(found) not in theirs:
            yield f"only in {run.folder}: {place(found.file, found.row)}: {found.code}: {found.words}"


def _identity(found: Seen) -> tuple[str, str, int]:
    return found.slug, found.file, found.row


def _histories(run: Run) -> dict[tuple[int | None, int, int], Process]:
    """By rank, restart and number of a scaler, 0 for none: who has it."""
    return {
        (process.rank, process.restart, number): process
        for process in run.processes
        for number in sorted(process.rounds) or [0]
    }


def _first_difference(first: Sequence[Round], second: Sequence[Round]) -> str:
    for here, other in zip(first, second):
        if (here.scale, here.skipped) != (other.scale, other.skipped):
            return f"differ from update {here.update} on: {_state(here)}, and {_state(other)}"
        if here.word != other.word:
            return f"the order of calls differs from update {here.update} on"
    if len(first) != len(second):
        return f"alike for {min(len(first), len(second))} updates; {len(first)} and {len(second)} in all"
    return f"alike in all {_count(len(first), 'update')}"


def _state(entry: Round) -> str:
    step = {True: "skipped", False: "taken", None: "unknown"}[entry.skipped]
    scale = "unknown" if entry.scale is None else f"{entry.scale:g}"
    return f"scale {scale}, step {step}"


def as_json(run: Run, checked: list[dict[str, Any]] | None = None) -> str:
    """Everything that is known, for programs.

    Args:
        checked: findings of `amplint check` with what the run says of them, if they were asked for.
    """
    return json.dumps(
        {
            "format": 1,
            "run": run.about,
            "findings": [_finding(found) for found in run.findings],
            "disagreements": [asdict(each) for each in disagreements(run.processes)],
            "processes": [_process(process) for process in run.processes],
            "unseen": UNSEEN,
            **({} if checked is None else {"check": checked}),
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
        "samples": process.samples.as_json(),
    }


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 or noun == "info" else "s")
