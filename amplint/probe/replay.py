"""The steps of a finding's path on a tiny model, for code that no run can reach.

What is executed is a small program made from the witness, not the code itself. It shows that
this order of calls fails in this torch, which says nothing about whether the code can take
it: a replay never confirms.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from amplint.findings import Finding
from amplint.probe.messages import Plan, Request, RunResult, Source
from amplint.probe.search import Runner
from amplint.protocol import VIOLATIONS, Event

_HEAD = """\
import torch

def replay():
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler({device!r}, init_scale=1024.0)
    inputs = torch.ones(4, 2)
    # The scaler has been used before, as in any iteration but the first.
    scaler.scale(model(inputs).mean())
"""

_STATEMENTS = {
    Event.SCALED_BACKWARD: "scaler.scale(model(inputs).mean()).backward()",
    Event.PLAIN_BACKWARD: "model(inputs).mean().backward()",
    Event.UNSCALE: "scaler.unscale_(optimizer)",
    Event.STEP: "scaler.step(optimizer)",
    Event.UPDATE: "scaler.update()",
    Event.SET_SCALE: "scaler.update(512.0)",
    Event.ZERO_GRAD: "optimizer.zero_grad()",
    Event.ZERO_GRAD_KEEP: "optimizer.zero_grad(set_to_none=False)",
    Event.CLIP: "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
    Event.OPTIMIZER_STEP: "optimizer.step()",
}
#: A witness begins where its story does; what has to be there already -> how it came to be.
_BEFORE = {
    Event.STEP: (Event.SCALED_BACKWARD,),
    Event.UNSCALE: (Event.SCALED_BACKWARD,),
    Event.CLIP: (Event.SCALED_BACKWARD,),
    Event.OPTIMIZER_STEP: (Event.SCALED_BACKWARD,),
    Event.UPDATE: (Event.SCALED_BACKWARD, Event.STEP),
}
#: Calls that the last step may be, by the name of the method in its line.
_LAST = {
    ".step(": Event.STEP,
    ".unscale_(": Event.UNSCALE,
    ".update(": Event.UPDATE,
    ".backward(": Event.SCALED_BACKWARD,
}


@dataclass(frozen=True, slots=True)
class Replay:
    """A replayed path.

    Args:
        events: in order, the failing one last.
        error: what torch raised at the last of them, "" for nothing.
    """

    events: tuple[Event, ...]
    error: str = ""


def replay(finding: Finding, line: str, runner: Runner, device: str = "cpu") -> Replay | None:
    """Execute the events of a witness; None where it does not end in an error of torch.

    Args:
        line: the source text of the finding's first row.
        runner: executes one request.
    """
    events = tuple(_events_of(finding, line))
    if len(events) < 2 or not _ends_in_an_error(finding):
        return None
    source = _HEAD.format(device=device.partition(":")[0])
    before = _BEFORE.get(events[0], ())
    source += "".join(f"    {_STATEMENTS[event]}\n" for event in (*before, *events))
    last_row = source.count("\n")
    with tempfile.TemporaryDirectory(prefix="amplint-replay-") as folder:
        path = Path(folder).resolve() / "replay.py"
        path.write_text(source, encoding="utf-8")
        plan = Plan((Source(str(path)),), "replay", (last_row,), slice_rows=(last_row,))
        result = runner(Request(plan, device=device))
    return Replay(events, _error(result, last_row))


def _ends_in_an_error(finding: Finding) -> bool:
    violation = VIOLATIONS.get(finding.path[-1].broken)
    return violation is not None and violation.raises


def _error(result: RunResult, last_row: int) -> str:
    raised = result.raised
    if raised is None or raised.row != last_row or not raised.inside.startswith("torch"):
        return ""
    return f"{raised.type}: {raised.message.split('  ')[0].strip()}"


def _events_of(finding: Finding, line: str) -> Iterator[Event]:
    for step in finding.path[:-1]:
        if step.event is not None and not step.idle:
            yield step.event
    for text, event in _LAST.items():
        if text in line:
            yield event
            return
