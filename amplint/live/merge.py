"""From the records of a run's processes to one picture of it. Needs neither torch nor a device."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from amplint.live import catalogue
from amplint.live.record import SUFFIX
from amplint.live.samples import Samples

#: The file beside the records: command, versions, how the command ended.
RUN_FILE = "run.json"


@dataclass(frozen=True, slots=True)
class Round:
    """One `update()`.

    Args:
        update: its number for the scaler, from 1.
        seconds: since the process began to be watched.
        scale: after it, None where only the device knows.
        skipped: whether a step of the round was skipped, None where nobody knows.
        word: hash of the kinds of calls since the update before.
    """

    update: int
    seconds: float
    scale: float | None
    skipped: bool | None
    word: int


@dataclass(slots=True)
class Process:
    """What one process has left.

    Args:
        rank: its place in the job, None if it has none.
        rounds: of each scaler, by the scaler's number.
        findings: by (slug, file, row), the newest line of each.
        places: lines of the user's that had an event: file and 1-based row.
        steps: optimizer steps without a scaler.
        ended: whether it ended by itself, so that its record is whole.
        failed: what stopped the watching before, "" for nothing.
        samples: what sampled steps have shown.
        calls: of the updates whose calls were recorded: scaler, kind, seconds, file and row.
    """

    rank: int | None
    restart: int
    host: str
    pid: int
    rounds: dict[int, list[Round]] = field(default_factory=dict)
    findings: dict[tuple[str, str, int], dict[str, Any]] = field(default_factory=dict)
    places: set[tuple[str, int]] = field(default_factory=set)
    steps: int = 0
    ended: bool = False
    failed: str = ""
    seconds: float = 0.0
    unread: int = 0
    samples: Samples = field(default_factory=Samples)
    calls: list[tuple[int, str, float, str, int]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """ "rank 1", or the process's number where there are no ranks."""
        return f"process {self.pid}" if self.rank is None else f"rank {self.rank}"


@dataclass(frozen=True, slots=True)
class Seen:
    """One finding of the whole run.

    Args:
        who: the names of the processes that saw it, in order.
        count: how often, over all of them.
        first, last: the updates after which it was seen first and last, over all.
        trail: the last events before it: kind, file, row.
        seconds: when it was first seen.
    """

    slug: str
    code: str
    level: str
    file: str
    row: int
    inside: tuple[str, int]
    words: str
    who: tuple[str, ...]
    count: int
    first: int
    last: int
    facts: dict[str, Any]
    trail: tuple[tuple[str, str, int], ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Run:
    """A run: its processes and what they found."""

    folder: str
    processes: Sequence[Process]
    findings: Sequence[Seen]
    about: dict[str, Any]


def read_run(folder: str) -> Run:
    """Read a folder; a file that is no record is passed over.

    Raises:
        OSError: the folder cannot be read.
    """
    names = sorted(name for name in os.listdir(folder) if name.endswith(SUFFIX))
    found = [read_process(os.path.join(folder, name)) for name in names]
    processes = sorted(filter(None, found), key=lambda p: (p.rank is None, p.rank or 0, p.pid))
    about: dict[str, Any] = {}
    try:
        with open(os.path.join(folder, RUN_FILE), encoding="utf-8") as file:
            about = json.load(file)
    except (OSError, ValueError):
        pass
    return Run(folder, processes, tuple(_merged(processes)), about)


def read_process(path: str) -> Process | None:
    """One record, as far as it is whole; None if it is none."""
    lines = _lines(path)
    head = next(lines, None)
    if not isinstance(head, dict) or head.get("k") != "head":
        return None
    process = process_of(head)
    for line in lines:
        if not isinstance(line, dict):
            process.unread += 1
            continue
        try:
            _take(process, line)
        except (KeyError, TypeError, ValueError):
            process.unread += 1
    return process


def process_of(head: dict[str, Any]) -> Process:
    """A process without anything yet, from the first line of its record."""
    return Process(head.get("rank"), head.get("restart", 0), head["host"], head["pid"])


def round_of(line: dict[str, Any]) -> Round:
    """A round, from its line."""
    skipped = None if line["x"] is None else bool(line["x"])
    return Round(line["u"], line["t"], line["v"], skipped, line["w"])


def _lines(path: str) -> Iterator[Any]:
    with open(path, "rb") as file:
        for line in file:
            if not line.strip():
                continue
            try:
                yield json.loads(line)
            except ValueError:
                yield None  # cut off when the process was killed, or the disk was full


def _take(process: Process, line: dict[str, Any]) -> None:
    kind = line.get("k")
    process.seconds = max(process.seconds, float(line.get("t", 0.0)))
    if kind == "r":
        process.rounds.setdefault(line["s"], []).append(round_of(line))
    elif kind == "finding":
        key = (line["slug"], line["file"], line["row"])
        catalogue.ENTRIES[line["slug"]]
        first = process.findings.get(key, line)["t"]
        process.findings[key] = {**line, "t": first}
    elif kind == "at":
        process.places.add((line["file"], line["row"]))
    elif kind == "steps":
        process.steps = line["n"]
    elif kind == "end":
        process.steps, process.ended = line["steps"], True
    elif kind == "failed":
        process.failed = line["words"]
    elif kind == "calls":
        process.calls.extend(
            (s, name, float(t), file, int(row)) for s, name, t, file, row in line["c"]
        )
    elif kind in ("sample", "kinds", "origin", "unsampled"):
        process.samples.take(line)


def _merged(processes: Iterable[Process]) -> Iterator[Seen]:
    """Each finding once, with everybody who saw it."""
    together: dict[tuple[str, str, int], list[tuple[Process, dict[str, Any]]]] = {}
    for process in processes:
        for key, line in process.findings.items():
            together.setdefault(key, []).append((process, line))
    for (slug, file, row), seen in sorted(together.items(), key=_order):
        lines = [line for _, line in seen]
        earliest = min(lines, key=lambda line: (line["first"], line["t"]))
        entry = catalogue.ENTRIES[slug]
        yield Seen(
            slug,
            entry.code,
            entry.level,
            file,
            row,
            tuple(earliest["inside"]),
            catalogue.words(slug, earliest["facts"]),
            tuple(process.name for process, _ in seen),
            sum(line["count"] for line in lines),
            min(line["first"] for line in lines),
            max(line["last"] for line in lines),
            earliest["facts"],
            tuple((kind, where, at) for kind, where, at in earliest["trail"]),
            min(line["t"] for line in lines),
        )


def _order(
    item: tuple[tuple[str, str, int], list[tuple[Process, dict[str, Any]]]],
) -> tuple[int, float, str, int, str]:
    (slug, file, row), seen = item
    level = catalogue.LEVELS.index(catalogue.ENTRIES[slug].level)
    return -level, min(line["first"] for _, line in seen), file, row, slug
