"""The one door for files: every byte that a run reads comes through here.

Only regular files are opened: a pipe would wait for ever, a device may never end. Each kind has a
limit, so that a file costs at most that much memory.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from typing import BinaryIO

from amplint.errors import UnreadableFile

#: Limits in bytes. Of sources it is a setting; the others are generous for what people write.
CONFIGURATION = 1_000_000
IGNORE_FILE = 1_000_000
DATA = 1_000_000
#: YAML takes a hundred times as long to read as JSON.
YAML = 1 << 16
#: What amplint itself has written: entries of a cache, and indexes of projects.
RESULT = 1 << 25
INDEX = 1 << 28

_CHUNK = 1 << 16


class CannotOpen(UnreadableFile):
    """The system does not let the file be opened or read, or has none."""


class NotRegular(UnreadableFile):
    """Something of that name is there, and no regular file."""


#: An open that does not wait for whoever writes into a pipe.
_FLAGS = os.O_RDONLY | sum(
    getattr(os, name, 0) for name in ("O_NONBLOCK", "O_CLOEXEC", "O_BINARY", "O_NOCTTY")
)
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def read(path: str | os.PathLike[str], limit: int) -> bytes:
    """The whole of a regular file.

    Args:
        limit: in bytes.

    Raises:
        UnreadableFile: it cannot be opened or read, is no regular file, or is over the limit.
    """
    data = head(path, limit + 1)
    if len(data) > limit:
        raise UnreadableFile(too_large(limit))
    return data


def head(path: str | os.PathLike[str], size: int) -> bytes:
    """The first `size` bytes of a regular file, or all of it.

    Raises:
        UnreadableFile: it cannot be opened or read, or is no regular file.
    """
    try:
        with _opened(path) as (descriptor, expected):
            return b"".join(_parts(descriptor, size, expected))
    except OSError as error:
        raise CannotOpen(f"cannot be read: {reason(error)}") from error
    except ValueError as error:  # a null byte in the path
        raise CannotOpen(f"cannot be read: {error}") from error


def is_of_another_user(path: str | os.PathLike[str]) -> bool:
    """Whether a user other than the one who runs amplint owns a file, or a folder.

    Raises:
        OSError: there is none.
    """
    return hasattr(os, "geteuid") and os.stat(path).st_uid != os.geteuid()


def read_stream(stream: BinaryIO, limit: int) -> bytes:
    """All that comes through a stream, such as standard input.

    Raises:
        UnreadableFile: it is over the limit.
    """
    data = stream.read(limit + 1)
    if len(data) > limit:
        raise UnreadableFile(too_large(limit))
    return data


def too_large(limit: int) -> str:
    """The words for a file of more than `limit` bytes."""
    return f"is larger than the limit of {limit} bytes"


def reason(error: OSError) -> str:
    """The operating system's words, without the path that the report prints anyway."""
    return error.strerror or type(error).__name__


@contextlib.contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[tuple[int, int]]:
    """The descriptor of a regular file, and its size."""
    _must_be_regular(os.stat(path))  # to open a device can do something by itself
    descriptor = os.open(path, _FLAGS)
    try:
        state = os.fstat(descriptor)
        _must_be_regular(state)  # it may be another file by now
        yield descriptor, state.st_size
    finally:
        os.close(descriptor)


def _must_be_regular(state: os.stat_result) -> None:
    if stat.S_ISREG(state.st_mode):
        return
    kind = next((words for test, words in _KINDS if test(state.st_mode)), "something else")
    raise NotRegular(f"is {kind}, not a regular file")


def _parts(descriptor: int, size: int, expected: int) -> Iterator[bytes]:
    """Parts of a file that may be longer, or shorter, than expected."""
    left = size
    while left > 0:
        part = os.read(descriptor, min(left, max(expected + 1, _CHUNK)))
        if not part:
            return
        left -= len(part)
        expected -= len(part)
        yield part
