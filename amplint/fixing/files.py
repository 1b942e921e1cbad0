"""Replace a file by a new version: the whole of it or nothing, and as it was otherwise."""

from __future__ import annotations

import contextlib
import os
import stat
from typing import BinaryIO

from amplint.errors import UnreadableFile
from amplint.files import head, reason
from amplint.source.reading import SourceFile


class Unwritable(Exception):
    """A file that must stay as it is; the text says why."""


def encoded(source: SourceFile, text: str, original: bytes) -> bytes:
    """The bytes of a new text in the encoding of the file, byte order mark included.

    Raises:
        Unwritable: what was not edited would not come back byte for byte.
    """
    try:
        if source.encode(source.text) != original:
            raise Unwritable(f"its encoding {source.encoding} does not give back the same bytes")
        return source.encode(text)
    except UnicodeError as error:
        raise Unwritable(f"the fix cannot be written as {source.encoding}") from error


def replace_file(path: str, data: bytes, original: bytes, inside: str = "") -> None:
    """Write a new version beside the file, then put it in its place.

    Whoever reads the file sees the old or the new version, also after a crash. Links are
    followed: the file they lead to is replaced, they stay. The mode is kept.

    Args:
        path: of the file.
        data: its new content.
        original: what was read from it; a file that has changed since is left alone.
        inside: the folder that no link may lead out of, "" for anywhere.

    Raises:
        Unwritable: the file is read-only, has changed, has other names or is elsewhere, or its
            folder cannot be written.
    """
    target = os.path.realpath(path)
    if inside and not _is_below(target, os.path.realpath(inside)):
        raise Unwritable(f"it is a link that leads out of {inside}")
    try:
        status = os.stat(target)
        if status.st_nlink > 1:  # the other names would keep the old text
            raise Unwritable("it is hard-linked to another name")
        if not status.st_mode & 0o222 or not os.access(target, os.W_OK):
            raise Unwritable("it is read-only")
        if head(target, len(original) + 1) != original:
            raise Unwritable("it has changed since it was read")
        _replace(target, data, status)
    except OSError as error:
        raise Unwritable(reason(error)) from error
    except UnreadableFile as error:
        raise Unwritable(f"it {error.message}") from error


def _replace(target: str, data: bytes, status: os.stat_result) -> None:
    folder, name = os.path.split(target)
    temporary = os.path.join(folder, f".{name}.{os.urandom(6).hex()}.tmp")
    try:
        with _nameless(folder) or open(temporary, "xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
            if not os.path.lexists(temporary):
                _name(stream, temporary)
        if hasattr(os, "chown"):
            with contextlib.suppress(OSError):  # only root may give a file away
                os.chown(temporary, status.st_uid, status.st_gid)
        os.chmod(temporary, stat.S_IMODE(status.st_mode))
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.remove(temporary)
        raise
    _sync_folder(folder)


def _nameless(folder: str) -> BinaryIO | None:
    """A new file that goes with this process, until it gets a name; None if there are no such
    files here. A run that is killed while it writes then leaves nothing in the folder."""
    if not hasattr(os, "O_TMPFILE") or not os.path.isdir("/proc/self/fd"):
        return None
    try:
        return os.fdopen(os.open(folder, os.O_TMPFILE | os.O_WRONLY, 0o600), "wb")
    except OSError:
        return None


def _name(stream: BinaryIO, path: str) -> None:
    folder, name = os.path.split(path)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        # Only with a folder's descriptor does Python follow the link that leads to the file.
        os.link(f"/proc/self/fd/{stream.fileno()}", name, dst_dir_fd=descriptor)
    finally:
        os.close(descriptor)


def _is_below(path: str, folder: str) -> bool:
    return os.path.join(path, "").startswith(os.path.join(folder, ""))


def _sync_folder(folder: str) -> None:
    """Make the new name last through a power cut, where the system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
