"""Reads the records of a run while it goes on: which rank differs, and what only others have seen.

The first rank of a node tells its findings itself, the moment they occur. What it does not know is
found here, by the parent of the node's processes, from what they have written. No collective runs.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from amplint.live.catalogue import headline
from amplint.live.merge import Process, Round, process_of, round_of
from amplint.live.progress import Progress, Terminal
from amplint.live.ranks import Lineup
from amplint.live.record import SUFFIX

#: Seconds between two looks at least; after a look that was slow, so many times its own length.
_EVERY, _REST = 2.0, 20
#: Rounds of a rank that wait for a rank that has none: some 20 MB.
_WAITING = 100_000
#: How lines begin that are of interest; all others are passed over unread.
_ROUND, _FINDING = b'{"k":"r",', b'{"k":"finding",'
_Key = tuple[str, str, int]


class Tail:
    """What a record has got since it was last read."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._at = 0
        self.process: Process | None = None
        self.is_first = False

    def lines(self) -> Iterator[dict[str, Any]]:
        """The whole lines that are new: rounds and findings."""
        new = b""
        with contextlib.suppress(OSError), open(self._path, "rb") as file:
            file.seek(self._at)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._at += len(whole)
        for line in whole.splitlines():
            if self.process is None:
                self._begin(line)
            elif line.startswith((_ROUND, _FINDING)):
                with contextlib.suppress(ValueError):
                    yield json.loads(line)

    def _begin(self, line: bytes) -> None:
        # A head that was cut off is written again when there is room.
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
            head = json.loads(line)
            self.process, self.is_first = process_of(head), not head.get("local", 0)


class Follower:
    """The ranks of a run, as far as they have come.

    Args:
        folder: of the run; records that it holds already are of another one.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._old = frozenset(os.listdir(folder))
        self._tails: dict[str, Tail] = {}
        #: By restart and number of the scaler.
        self._lineups: dict[tuple[int, int], Lineup] = {}
        self.progress = Progress()
        self._told: set[_Key] = set()
        #: What other ranks than the first have seen, and who.
        self._pending: dict[_Key, tuple[str, dict[str, Any]]] = {}

    def look(self) -> Iterator[str]:
        """What there is to tell since the last look, in words."""
        due = dict(self._pending)
        for name in sorted(os.listdir(self._folder)):
            if name.endswith(SUFFIX) and name not in self._old:
                path = os.path.join(self._folder, name)
                self._read(self._tails.setdefault(path, Tail(path)))
        for key, (who, line) in due.items():
            del self._pending[key]
            if key not in self._told:  # the first rank had the time of a look to tell it
                self._told.add(key)
                yield f"{who}: {headline(line['slug'], line['file'], line['row'], line['facts'])}"
        for lineup in self._lineups.values():
            for each in lineup.differences():
                yield f"{each.level}: {each.words()}"

    def _read(self, tail: Tail) -> None:
        fresh: dict[int, list[Round]] = {}
        for line in tail.lines():
            with contextlib.suppress(KeyError, TypeError, ValueError):
                if line["k"] == "r":
                    fresh.setdefault(line["s"], []).append(round_of(line))
                else:
                    self._find(tail, line)
        process = tail.process
        if process is None:
            return
        for scaler, rounds in fresh.items():
            self.progress.add(process.name, scaler, rounds)
            if process.rank is None:
                continue
            key = process.restart, scaler
            lineup = self._lineups.setdefault(key, Lineup(scaler, _WAITING))
            lineup.add(process, rounds)

    def _find(self, tail: Tail, line: dict[str, Any]) -> None:
        key = line["slug"], line["file"], line["row"]
        if tail.is_first or tail.process is None:
            self._told.add(key)
        elif key not in self._told:
            self._pending.setdefault(key, (tail.process.name, line))


class Following:
    """Follows a run in a thread of its own, for the time of a `with`.

    Args:
        folder: of the run.
        tell: gets each line.
        terminal: where to say how far the run is.
        every: seconds between two looks.
    """

    def __init__(
        self,
        folder: str,
        tell: Callable[[str], None],
        terminal: Terminal | None = None,
        every: float = _EVERY,
    ) -> None:
        self._follower = Follower(folder)
        self._tell, self._terminal, self._every = tell, terminal, every
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Following:  # noqa: PYI034 -- typing.Self is newer than Python 3.10
        with contextlib.suppress(RuntimeError):  # no more threads: the training starts without
            self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._has_ended.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._terminal is not None:
            with contextlib.suppress(Exception):
                self._look(lambda _words: None)  # the report is about to tell it
            self._terminal.close()

    def _run(self) -> None:
        if hasattr(signal, "pthread_sigmask"):  # they are for the thread that waits for the command
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        pause = self._every
        while not self._has_ended.wait(pause):
            began = time.monotonic()
            # A folder that is gone, a terminal that was closed: the report at the end says so.
            with contextlib.suppress(Exception):
                self._look(self._tell)
            pause = max(self._every, _REST * (time.monotonic() - began))

    def _look(self, tell: Callable[[str], None]) -> None:
        for words in self._follower.look():
            tell(words)
        if self._terminal is not None:
            self._terminal.show(self._follower.progress.words())
