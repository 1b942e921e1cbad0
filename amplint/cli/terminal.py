"""Streams: when to colour, how to write, and the progress line."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterable
from typing import TextIO

#: Seconds before a progress line appears, and between two updates of it.
PROGRESS_DELAY = 1.0
PROGRESS_INTERVAL = 0.1


def is_terminal(stream: TextIO) -> bool:
    """Whether a person reads the stream; a closed stream is no terminal."""
    try:
        return stream.isatty()
    except (AttributeError, ValueError):
        return False


def wants_color(choice: str, stream: TextIO) -> bool:
    """Decide on ANSI colours.

    Args:
        choice: "always", "never" or "auto": not if `NO_COLOR` is set (https://no-color.org),
            else if `FORCE_COLOR` is (https://force-color.org), else on a terminal.
    """
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return is_terminal(stream) and _draws_color()


def _draws_color() -> bool:
    if os.environ.get("TERM") == "dumb":
        return False
    # An old Windows console shows the escapes as text; newer terminals say who they are.
    return os.name != "nt" or any(name in os.environ for name in ("WT_SESSION", "TERM_PROGRAM"))


def write_lines(lines: Iterable[str], stream: TextIO | None = None) -> None:
    """Print to a stream, stdout if None; a reader that went away (`| head`) is no error.

    Characters that the stream's encoding lacks are written as escapes.
    """
    stream = stream or sys.stdout
    if stream is None:  # started with its standard output closed
        return
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="backslashreplace")
    try:
        for line in lines:
            stream.write(line + "\n")
        stream.flush()
    except BrokenPipeError:
        # The interpreter flushes stdout once more at exit; let that go nowhere.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def tell(words: str) -> None:
    """Print a line for the person at the terminal, on stderr."""
    from amplint.report.text import printable

    write_lines([printable(words)], sys.stderr)


class Progress:
    """A line on stderr, `checking 12/340 files`, for runs of more than a second.

    Use as a context manager: leaving it removes the line.
    """

    def __init__(
        self, stream: TextIO, *, enabled: bool, verb: str = "checking", noun: str = "files"
    ) -> None:
        self._verb, self._noun = verb, noun
        self._stream = stream
        self._enabled = enabled
        self._due = time.monotonic() + PROGRESS_DELAY
        self._width = 0

    def __enter__(self) -> Progress:  # noqa: PYI034 -- typing.Self is newer than Python 3.10
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()

    def __call__(self, done: int, total: int) -> None:
        """Show that `done` of `total` are finished."""
        now = time.monotonic()
        if not self._enabled or now < self._due:
            return
        self._due = now + PROGRESS_INTERVAL
        text = f"{self._verb} {done}/{total} {self._noun}"
        self._stream.write("\r" + text.ljust(self._width))
        self._stream.flush()
        self._width = max(self._width, len(text))
