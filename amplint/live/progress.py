"""A line that says how far a training is, on a terminal to which the training does not write."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

from amplint.live.merge import Round

_CLEAR = "\r\x1b[K"


class Progress:
    """How far the processes of a run are; told about their rounds."""

    def __init__(self) -> None:
        #: By name of the process and number of the scaler: the last round, and skips until then.
        self._newest: dict[tuple[str, int], tuple[Round, int]] = {}

    def add(self, process: str, scaler: int, rounds: Sequence[Round]) -> None:
        """Rounds of one scaler that are new, in order."""
        _, before = self._newest.get((process, scaler), (None, 0))
        skips = before + sum(bool(each.skipped) for each in rounds)
        self._newest[process, scaler] = rounds[-1], skips

    def words(self) -> str:
        """Of the scaler that is furthest behind; "" where there is none yet."""
        if not self._newest:
            return ""
        last, skips = min(self._newest.values(), key=lambda each: each[0].update)
        scale = "unknown" if last.scale is None else f"{last.scale:g}"
        processes = len({process for process, _ in self._newest})
        who = f" of {processes} processes" if processes > 1 else ""
        return f"amplint: update {last.update}{who}, loss scale {scale}, {skips} skipped"


class Terminal:
    """The controlling terminal, of which one line is written anew each time."""

    def __init__(self, file: int) -> None:
        self._file = file

    @classmethod
    def open(cls) -> Terminal | None:
        """None where there is none, or where output or errors of the training go to one."""
        if os.isatty(1) or os.isatty(2):
            return None
        with contextlib.suppress(OSError):
            return cls(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
        return None

    def show(self, words: str) -> None:
        """Write the line; a terminal that was closed is no reason to stop."""
        with contextlib.suppress(OSError):
            # In the background the terminal is somebody else's.
            if os.tcgetpgrp(self._file) == os.getpgrp():
                width = os.get_terminal_size(self._file).columns or 80
                os.write(self._file, (_CLEAR + words[: width - 1]).encode())

    def close(self) -> None:
        """Take the line away."""
        self.show("")
        with contextlib.suppress(OSError):
            os.close(self._file)
