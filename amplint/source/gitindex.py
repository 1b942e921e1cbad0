"""Whether git tracks a file, by its index: no program of the checked project's is started."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

from amplint import files
from amplint.errors import UnreadableFile

_SIGNATURE = b"DIRC"
#: Bytes of an entry before its flags: ten numbers and a SHA-1.
_FIXED = 60
_EXTENDED = 0x4000


def tracks(path: str) -> bool:
    """Whether git tracks a file, a link, or something in a folder; False outside of a repository."""
    path = os.path.abspath(path)
    root = _root_above(path)
    if root is None:
        return False
    name = os.fsencode(os.path.relpath(path, root).replace(os.sep, "/"))
    try:
        data = files.read(os.path.join(_git_folder(root), "index"), files.INDEX)
        return _names(name, data)
    except (UnreadableFile, struct.error, ValueError, IndexError):
        return False


def _root_above(path: str) -> str | None:
    folder = os.path.dirname(path)
    while not os.path.lexists(os.path.join(folder, ".git")):
        if folder == os.path.dirname(folder):
            return None
        folder = os.path.dirname(folder)
    return folder


def _git_folder(root: str) -> str:
    """The folder of the repository: `.git`, or what stands in a file of that name."""
    path = os.path.join(root, ".git")
    if os.path.isdir(path):
        return path
    words = os.fsdecode(files.read(path, files.CONFIGURATION))
    return os.path.join(root, words.removeprefix("gitdir:").strip())


def _names(name: bytes, data: bytes) -> bool:
    signature, version, count = struct.unpack_from(">4sLL", data)
    if signature != _SIGNATURE or (version < 4 and name not in data):
        return False
    inside = name + b"/"
    return any(
        entry == name or entry.startswith(inside) for entry in _entries(data, version, count)
    )


def _entries(data: bytes, version: int, count: int) -> Iterator[bytes]:
    """The paths in an index of version 2, 3 or 4."""
    position, name = 12, b""
    for _ in range(count):
        start = position
        (flags,) = struct.unpack_from(">H", data, start + _FIXED)
        position = start + _FIXED + (4 if flags & _EXTENDED else 2)
        if version == 4:  # what the path shares with the one before is left out
            dropped, position = _variable(data, position)
            name = name[: len(name) - dropped]
        else:
            name = b""
        end = data.index(b"\0", position)
        name += data[position:end]
        position = end + 1 if version == 4 else start + (end - start + 8) // 8 * 8
        yield name


def _variable(data: bytes, position: int) -> tuple[int, int]:
    """A number of variable length, and where it ends."""
    byte = data[position]
    value = byte & 0x7F
    while byte & 0x80:
        position += 1
        byte = data[position]
        value = ((value + 1) << 7) | (byte & 0x7F)
    return value, position + 1
