"""The record of one process: lines of JSON, appended one by one, so that no death loses more.

A line goes to the kernel with one `os.write`, and what the kernel has survives SIGKILL. Where
writing fails (a full disk, a folder that cannot be made), findings and the last rounds are kept
in memory, and the training goes on.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

#: Version of the format, in the first line of each record.
FORMAT = 1
SUFFIX = ".jsonl"
#: Lines that are kept in memory where nothing can be written.
_KEPT = 2000
#: Variables of torchrun, Slurm, Open MPI and MPICH.
_RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_LOCAL = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")


def rank_of_process() -> int | None:
    """The place of this process in its job, None if it has none."""
    return _first_number(_RANKS)


def local_rank_of_process() -> int:
    """Its place among the processes of its node."""
    return _first_number(_LOCAL) or 0


def _first_number(names: Iterable[str]) -> int | None:
    found = (os.environ.get(name, "") for name in names)
    return next((int(text) for text in found if text.isdigit()), None)


class Recorder:
    """Writes the record of this process, once there is something to write.

    Args:
        folder: of the run.
        complain: is told once why nothing can be written.
    """

    def __init__(self, folder: str, complain: Callable[[str], None]) -> None:
        self.folder = folder
        self._complain = complain
        self._start = time.monotonic()
        self._file: int | None = None
        self._pid = os.getpid()
        #: Lines that could not be written.
        self.kept: deque[bytes] | None = None
        self.is_empty = True
        #: Held by the thread that writes first; a signal's handler may write inside.
        self._opening = threading.RLock()

    def after_fork(self) -> None:
        """This is a new process: it has a record of its own."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.close(self._file)
        self._file, self.kept, self.is_empty = None, None, True
        self._opening = threading.RLock()  # another thread of the parent may have held it
        self._pid = os.getpid()

    def now(self) -> float:
        """Seconds since watching began."""
        return time.monotonic() - self._start

    def write(self, **fields: Any) -> None:
        """Append one line."""
        self.write_line(json.dumps(fields, separators=(",", ":")).encode())

    def write_line(self, line: bytes) -> None:
        """Append one line of JSON."""
        if self.is_empty:
            with self._opening:
                if self.is_empty:
                    self._open()
                    self.is_empty = False
        self._append(line)

    def _open(self) -> None:
        rank = rank_of_process()
        restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        host = "".join(c if c.isalnum() else "-" for c in socket.gethostname())
        name = f"{'x' if rank is None else rank}.{restart}.{host}.{self._pid}{SUFFIX}"
        try:
            os.makedirs(self.folder, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
            self._file = os.open(os.path.join(self.folder, name), flags, 0o644)
        except OSError as error:
            self._give_up(error)
        head = {
            "k": "head",
            "format": FORMAT,
            "rank": rank,
            "local": local_rank_of_process(),
            "restart": int(restart) if restart.isdigit() else 0,
            "host": host,
            "pid": self._pid,
            "time": time.time(),
        }
        self._append(json.dumps(head, separators=(",", ":")).encode())

    def _append(self, line: bytes) -> None:
        if self.kept is not None:
            self.kept.append(line)
            return
        if self._file is None:
            return
        try:
            if os.write(self._file, line + b"\n") <= len(line):
                raise OSError("a line was written in part")
        except OSError as error:
            self._give_up(error)
            self._append(line)

    def _give_up(self, error: OSError) -> None:
        self.kept = deque(maxlen=_KEPT)
        self._complain(f"cannot write the record ({error.strerror or error}); it is kept in memory")

    def close(self) -> None:
        """Write what could not be written before, if that works by now."""
        if self.kept is not None and self._file is not None:
            with contextlib.suppress(OSError):
                os.write(self._file, b"\n" + b"\n".join(self.kept) + b"\n")
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.close(self._file)
        self._file = None
