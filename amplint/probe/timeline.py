"""The run behind a verdict, as a reader follows it: inputs, objects, events, the end."""

from __future__ import annotations

import os
from collections.abc import Iterator

from amplint.findings import Finding
from amplint.probe.cases import Verdict
from amplint.probe.messages import Decision, Event, RunResult
from amplint.probe.predictions import rows_of
from amplint.protocol import VIOLATIONS

#: Where the value of an input comes from -> how it is called.
ORIGINS = {"default": "declared", "guard": "the code tests for it", "role": "assumed"}
#: What `.grad` holds, in the words of the monitor -> for readers.
GRADIENTS = {
    "none": "no gradients",
    "cleared": "gradients cleared before a step used them",
    "zero": "gradients are zeros",
    "scaled": "gradients scaled",
    "stale": "gradients scaled by an old scale",
    "unscaled": "gradients unscaled",
    "spent": "gradients applied",
    "leftover": "applied gradients still there",
    "plain": "gradients of an unscaled loss",
    "mixed": "scaled and unscaled gradients added up",
    "rescaled": "scaled gradients on top of unscaled ones",
    "piled": "scaled gradients on top of applied ones",
}
#: What happened, with the names of the objects and the facts of the event.
WHAT = {
    "scale": "{scaler}.scale(loss)",
    "unscale_": "{scaler}.unscale_({optimizer})",
    "step": "{scaler}.step({optimizer})",
    "update": "{scaler}.update()",
    "zero_grad": "{optimizer}.zero_grad()",
    "plain-step": "{optimizer}.step()",
    "clip": "clip the gradients of {optimizer}",
    "grad": "torch.autograd.grad",
    "forward": "forward of {model}",
    "autocast-exit": "end of autocast",
    "operation": "{name} with {number} on float16",
}
#: Events that repeat are told once; the longest stretch that is looked for.
LONGEST_STRETCH = 60


def timeline(verdict: Verdict, finding: Finding) -> Iterator[str]:
    """The run behind a verdict, line by line. `>` marks the finding's own rows."""
    trial = verdict.trial
    if trial is None:
        yield "No run was made."
        return
    result = trial.result
    entry = "the script" if trial.plan.entry == "<module>" else f"`{trial.plan.entry}`"
    count = f"{verdict.runs} run{'s' if verdict.runs != 1 else ''}"
    yield f"This run: {entry}, torch {result.torch} on {result.device} (one of {count})"
    for omission in trial.plan.omissions:
        rows = ", ".join(map(str, omission.rows))
        yield f"  left out: {omission.kind} in line {rows}"
    if result.decisions:
        yield "Inputs"
        yield from _table([_input(decision) for decision in result.decisions])
    told = _Told(result, os.path.realpath(finding.filename), frozenset(rows_of(finding)))
    objects = list(told.objects())
    if objects:
        yield "Objects"
        yield from _table(objects)
    yield "Events"
    yield from told.events()
    yield _ending(result, told)


def _input(decision: Decision) -> tuple[str, str]:
    origin = ORIGINS.get(decision.origin, "invented")
    return f"{decision.path} = {decision.choice!r}", origin


def _table(rows: list[tuple[str, str]]) -> Iterator[str]:
    width = max(len(first) for first, _ in rows)
    for first, second in rows:
        yield f"    {first:<{width}}  {second}".rstrip()


class _Told:
    """The events of a run in words.

    Args:
        path: the checked file.
        rows: of the finding.
    """

    def __init__(self, result: RunResult, path: str, rows: frozenset[int]) -> None:
        self._result = result
        self._path = path
        self._rows = rows
        events = result.events
        self._scalers = {event.scaler for event in events if event.scaler}
        self._optimizers = {event.optimizer for event in events if event.optimizer}

    def objects(self) -> Iterator[tuple[str, str]]:
        """Each scaler and optimizer, and where it comes from."""
        for event in self._result.events:
            if event.kind in ("scaler", "optimizer"):
                made_up = event.facts.get("stands-for")
                name = self._scaler(event) if event.kind == "scaler" else self._optimizer(event)
                disabled = ", disabled" if event.facts.get("enabled") is False else ""
                where = f"stands for `{made_up}`" if made_up else f"built at {self.place(event)}"
                yield name, f"{event.facts['class']}, {where}{disabled}"

    def events(self) -> Iterator[str]:
        """One line for each event, those that repeat once."""
        told = [
            (self.place(event), self._mark(event), *self._words(event))
            for event in self._result.events
            if event.kind not in ("scaler", "optimizer")
        ]
        places = max((len(place) for place, *_ in told), default=0)
        width = max((len(what) for _, _, what, _ in told), default=0)
        lines = [
            f"  {mark} {place:>{places}}  {what:<{width}}  {state}".rstrip()
            for place, mark, what, state in told
        ]
        yield from _without_repetitions(lines)

    def place(self, event: Event) -> str:
        """ "line 12", or "policy.py:12" in another file."""
        if event.filename == self._path:
            return f"line {event.row}"
        return f"{os.path.basename(event.filename)}:{event.row}" if event.filename else "-"

    def _mark(self, event: Event) -> str:
        own = event.filename == self._path and event.row in self._rows
        return ">" if own or event.facts.get("through") in self._rows else " "

    def _scaler(self, event: Event) -> str:
        if not event.scaler:
            return "scaler"
        return f"scaler {event.scaler}" if len(self._scalers) > 1 else "scaler"

    def _optimizer(self, event: Event) -> str:
        many = len(self._optimizers) > 1 and event.optimizer
        return f"optimizer {event.optimizer}" if many else "optimizer"

    def _words(self, event: Event) -> tuple[str, str]:
        """What happened, and what is so after it."""
        facts = event.facts
        scaler, optimizer = self._scaler(event), self._optimizer(event)
        what = WHAT.get(event.kind, event.kind).format(scaler=scaler, optimizer=optimizer, **facts)
        if facts.get("model") == "TinyModel":
            what = "forward of a stand-in model"
        elif event.kind == "backward":
            what = self._backward(event)
        elif event.kind == "autocast-enter":
            what = _region(event)
        if facts.get("raised"):
            return what, f"raises {facts['raised']}"
        if facts.get("leaks"):
            return what, "autocast is not as it was before"
        return what, self._state(event)

    def _backward(self, event: Event) -> str:
        what = "backward of the scaled loss" if event.facts.get("scaled") else "backward"
        fed = event.facts.get("optimizers", [])
        if len(self._optimizers) > 1 and fed:
            what += f" (feeds optimizer {', '.join(map(str, fed))})"
        return what

    @staticmethod
    def _state(event: Event) -> str:
        state = GRADIENTS.get(event.state.rpartition(", ")[2], "")
        violation = VIOLATIONS.get(event.facts.get("violation", ""))
        if violation is None or violation.raises:
            return state
        return f"{state}: {violation.damage.partition(';')[0]}" if state else violation.damage


def _region(event: Event) -> str:
    if not event.facts["enabled"]:
        return "autocast(enabled=False)"
    return f"autocast({event.facts['device']}, {event.facts['dtype'].removeprefix('torch.')})"


def _ending(result: RunResult, told: _Told) -> str:
    raised = result.raised
    if raised is None:
        return f"The run {result.status}" + (f": {result.reason}" if result.reason else ".")
    place = told.place(Event("", raised.filename, raised.row))
    message = raised.message.strip().split("\n")[0]
    return f"The run ends at {place} with {raised.type}: {message}"


def _without_repetitions(lines: list[str]) -> Iterator[str]:
    """The lines, a stretch that follows itself only once."""
    index = 0
    while index < len(lines):
        length, count = _stretch(lines, index)
        yield from lines[index : index + length]
        if count > 1:
            times = "once" if count == 2 else f"{count - 1} times"
            what = "the last line" if length == 1 else f"the last {length} lines"
            yield f"    ({what} {times} more)"
        index += length * count


def _stretch(lines: list[str], start: int) -> tuple[int, int]:
    """The shortest stretch from here that repeats itself: its length, and how often it comes."""
    for length in range(1, min(LONGEST_STRETCH, (len(lines) - start) // 2) + 1):
        first = lines[start : start + length]
        count = 1
        while lines[start + count * length : start + (count + 1) * length] == first:
            count += 1
        if count > 1:
            return length, count
    return 1, 1
