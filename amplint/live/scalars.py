"""A run's figures as curves for TensorBoard and Weights & Biases, where those are installed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

from amplint.errors import UsageError
from amplint.live.merge import Process, Run


class Scalar(NamedTuple):
    """One figure after an update; seconds since the process began to be watched."""

    name: str
    update: int
    value: float
    seconds: float


def scalars(run: Run) -> Iterator[Scalar]:
    """Loss scale, skipped steps and norms of gradients of each process, in order of the updates."""
    found = [each for process in run.processes for each in _of_process(process)]
    yield from sorted(found, key=lambda each: (each.update, each.name))


def _of_process(process: Process) -> Iterator[Scalar]:
    seconds = {}
    for number, rounds in process.rounds.items():
        name = f"{process.name}/scaler {number}"
        for each in rounds:
            seconds[number, each.update] = each.seconds
            if each.scale is not None:
                yield Scalar(f"{name}/loss scale", each.update, each.scale, each.seconds)
            if each.skipped is not None:
                yield Scalar(f"{name}/skipped", each.update, float(each.skipped), each.seconds)
    for look in process.samples.looks:
        if look.after is not None:
            at = seconds.get((look.scaler, look.update), 0.0)
            name = f"{process.name}/scaler {look.scaler}/gradient norm"
            yield Scalar(name, look.update, look.after, at)


def to_tensorboard(run: Run, folder: str) -> None:
    """Write an event file into a folder.

    Raises:
        UsageError: TensorBoard is not installed here.
    """
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError as error:
        raise UsageError("TensorBoard is not installed beside amplint") from error
    began = float(run.about.get("started", time.time()))
    writer = EventFileWriter(folder)
    for each in scalars(run):
        value = Summary.Value(tag=f"amplint/{each.name}", simple_value=each.value)
        event = Event(
            wall_time=began + each.seconds, step=each.update, summary=Summary(value=[value])
        )
        writer.add_event(event)
    writer.close()


def to_wandb(run: Run, project: str) -> None:
    """Log a run of its own into a project; where it goes is for wandb's settings to say.

    Raises:
        UsageError: wandb is not installed here.
    """
    try:
        import wandb
    except ImportError as error:
        raise UsageError("wandb is not installed beside amplint") from error
    rows: dict[int, dict[str, float]] = {}
    for each in scalars(run):
        rows.setdefault(each.update, {})[f"amplint/{each.name}"] = each.value
    with wandb.init(project=project, job_type="amplint") as made:
        for update, row in rows.items():
            made.log(row, step=update)
