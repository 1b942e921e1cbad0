"""A run for other programs: OpenMetrics, and a trace that Perfetto and Chrome open."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from amplint.live.catalogue import LEVELS, place
from amplint.live.merge import Process, Round, Run
from amplint.live.report import levels

#: Microseconds of a second, the unit of a trace.
_MICRO = 1e6


def metrics(run: Run) -> Iterator[str]:
    """The newest figures of each process, as OpenMetrics text."""
    found = levels(run)
    yield from _family("amplint_findings", "gauge", "Findings of the run, by level.")
    for level in LEVELS:
        yield f'amplint_findings{{level="{level}"}} {found.count(level)}'
    scalers = [
        (process, number, rounds)
        for process in run.processes
        for number, rounds in sorted(process.rounds.items())
    ]
    yield from _family("amplint_updates", "counter", "Updates of a gradient scaler.")
    for process, number, rounds in scalers:
        yield f"amplint_updates_total{_labels(process, number)} {len(rounds)}"
    yield from _family("amplint_skipped_steps", "counter", "Updates whose step was skipped.")
    for process, number, rounds in scalers:
        skips = sum(bool(each.skipped) for each in rounds)
        yield f"amplint_skipped_steps_total{_labels(process, number)} {skips}"
    yield from _family("amplint_loss_scale", "gauge", "The loss scale after the last update.")
    for process, number, rounds in scalers:
        if rounds[-1].scale is not None:
            yield f"amplint_loss_scale{_labels(process, number)} {rounds[-1].scale:g}"
    yield from _family("amplint_gradient_norm", "gauge", "Norm of the unscaled gradients, sampled.")
    for process in run.processes:
        known = [look for look in process.samples.looks if look.after is not None]
        if known:
            yield f"amplint_gradient_norm{_labels(process, known[-1].scaler)} {known[-1].after:g}"
    yield "# EOF"


def _family(name: str, kind: str, words: str) -> Iterator[str]:
    yield f"# TYPE {name} {kind}"
    yield f"# HELP {name} {words}"


def _labels(process: Process, scaler: int) -> str:
    rank = "" if process.rank is None else process.rank
    host = process.host.replace("\\", "\\\\").replace('"', '\\"')
    return f'{{host="{host}",pid="{process.pid}",rank="{rank}",scaler="{scaler}"}}'


def trace(run: Run) -> str:
    """Updates, loss scale, recorded calls and findings on a line of time, as Chrome's JSON."""
    events: list[dict[str, Any]] = []
    for index, process in enumerate(run.processes):
        events.append(_event("M", "process_name", index, 0, args={"name": process.name}))
        for number, rounds in process.rounds.items():
            events.extend(_rounds(index, number, rounds))
        for scaler, kind, seconds, file, row in process.calls:
            at = {"place": place(file, row)}
            events.append(_event("i", kind, index, scaler, seconds, s="t", args=at))
        for line in process.findings.values():
            at = {"place": place(line["file"], line["row"]), "count": line["count"]}
            scaler, seconds = line["scaler"], line["t"]
            events.append(_event("i", line["slug"], index, scaler, seconds, s="p", args=at))
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})


def _rounds(process: int, scaler: int, rounds: list[Round]) -> Iterator[dict[str, Any]]:
    begin = 0.0
    for each in rounds:
        name = f"update {each.update}" + (" (skipped)" if each.skipped else "")
        length = (each.seconds - begin) * _MICRO
        yield _event("X", name, process, scaler, begin, dur=length)
        if each.scale is not None and each.scale < float("inf"):
            value = {"scale": each.scale}
            yield _event("C", f"loss scale {scaler}", process, scaler, each.seconds, args=value)
        begin = each.seconds


def _event(
    phase: str, name: str, process: int, scaler: int, seconds: float = 0.0, **more: Any
) -> dict[str, Any]:
    """One event of a trace; each process is a process, each scaler a thread."""
    event = {"ph": phase, "name": name, "pid": process, "tid": scaler, "ts": seconds * _MICRO}
    return {**event, **more}
