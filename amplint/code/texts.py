"""The Python files below a folder, and what is looked up in all of their texts.

A project is asked about each function that is followed: who calls it, who mentions it. So its
files are listed and read once in a process and run, see `forget`.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

#: Folders in which no caller is looked for.
_SKIPPED = frozenset({"node_modules", "build", "dist", "site-packages", "venv", "__pycache__"})
#: Callers are looked for only in projects of at most this many Python files.
_SEARCH_LIMIT = 5_000
_READ_LIMIT = 1_000_000
#: A file that was written so shortly ago may be written again under the same time, in ns;
#: file systems keep times in steps of up to two seconds.
_RECENT = 2_000_000_000

_IMPORT = re.compile(rb"import\b[^\n(]*(?:\([^)]*)?")
_DOTTED = re.compile(rb"[\w.]+")
_IDENTIFIER = re.compile(rb"\w+")

#: A part of a dotted name in an import, behind the part before it; (b"", b"torch") at its
#: start. Behind the dots of a relative import that is the folder which they stand for.
_Part = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Listing:
    """The Python files below a folder.

    Args:
        paths: none at all if there are too many to look through.
        stamp: 64 hexadecimal digits that change with the content of the files, as far as
            sizes and times tell; "" where they cannot tell yet.
    """

    paths: tuple[str, ...]
    stamp: str


@lru_cache(maxsize=4)
def listing(root: str) -> Listing:
    """List the files below a folder, or remember them."""
    now = time.time_ns()
    paths = tuple(sorted(_python_files(root)))
    digest = hashlib.sha256()
    newest = 0
    for path in paths:
        try:
            state = os.stat(path)
        except OSError:
            return Listing(paths, "")
        newest = max(newest, state.st_mtime_ns, state.st_ctime_ns)
        known = (state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
        digest.update(os.fsencode(path) + b"\0%d %d %d %d\n" % known)
    return Listing(paths, digest.hexdigest() if newest < now - _RECENT else "")


def _python_files(root: str) -> list[str]:
    found: list[str] = []
    for folder, names, files in os.walk(root):
        names[:] = [name for name in names if not name.startswith(".") and name not in _SKIPPED]
        found += [os.path.join(folder, name) for name in files if name.endswith(".py")]
        if len(found) > _SEARCH_LIMIT:
            return []
    return found


class Texts:
    """The beginnings of files, up to `_READ_LIMIT` bytes each.

    Args:
        paths: of the files; one that cannot be read counts as empty.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self._text = {path: _head(path) for path in paths}
        self._importers: dict[_Part, list[str]] | None = None
        self._holders: dict[bytes, list[str]] = {}

    def holding(self, words: Sequence[str]) -> list[str]:
        """Files that hold all the words, whole identifiers as far as they are some."""
        found = list(self._text)
        for word in words:
            holders = set(self._holding(_encoded(word)))
            found = [path for path in found if path in holders]
        return found

    def importing(self, module: str, package: str, name: str) -> list[str]:
        """Files that may import a module and call a name.

        An import names the module alone or in its own package: an import of another package's
        module of the same name is none of it.

        Args:
            module: the last part of its dotted name.
            package: the name of the folder that holds it.
        """
        if self._importers is None:
            self._importers = self._index_imports()
        last = _encoded(module)
        parts = dict.fromkeys(((b"", last), (_encoded(package), last)))
        paths = dict.fromkeys(path for part in parts for path in self._importers.get(part, ()))
        word = _encoded(name)
        return [path for path in paths if _calls(word, self._text[path])]

    def _holding(self, word: bytes) -> list[str]:
        if word not in self._holders:
            found = [path for path, text in self._text.items() if word in text]
            if _IDENTIFIER.fullmatch(word):
                whole = re.compile(rb"\b" + word + rb"\b")
                found = [path for path in found if whole.search(self._text[path])]
            self._holders[word] = found
        return self._holders[word]

    def _index_imports(self) -> dict[_Part, list[str]]:
        importers: dict[_Part, list[str]] = {}
        for path, text in self._text.items():
            for part in set(_imported(text, path)):
                importers.setdefault(part, []).append(path)
        return importers


def _imported(text: bytes, path: str) -> Iterator[_Part]:
    for dotted in set(_DOTTED.findall(b"\n".join(_import_statements(text)))):
        if b"." not in dotted:
            yield b"", dotted
            continue
        name = dotted.lstrip(b".")
        parts = name.split(b".")
        yield from zip((_base(path, len(dotted) - len(name)), *parts), parts)


def _import_statements(text: bytes) -> Iterator[bytes]:
    # To search for a word and look back is faster than to try the start of every line.
    for found in _IMPORT.finditer(text):
        start = text.rfind(b"\n", 0, found.start()) + 1
        before = text[start : found.start()].lstrip()
        if not before or before.startswith(b"from"):
            yield before + found.group()


def _base(path: str, level: int) -> bytes:
    """The name of the folder that a number of leading dots stands for; b"" for none."""
    if not level:
        return b""
    folders = os.path.dirname(path).split(os.sep)
    return _encoded(folders[-level]) if level <= len(folders) else b""


def _calls(name: bytes, text: bytes) -> bool:
    """Whether a text calls a name, other than in its definition."""
    if name not in text:
        return False
    # A pattern that starts with its letters is found several times faster than one that
    # starts with what must not stand before them.
    for found in re.finditer(re.escape(name) + rb"\s*\(", text):
        before = text[max(0, found.start() - 6) : found.start()]
        if not before.endswith((b"def ", b"class ")) and not _IDENTIFIER.match(before[-1:]):
            return True
    return False


def _encoded(word: str) -> bytes:
    return word.encode("utf-8", "replace")


def _head(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(_READ_LIMIT)
    except OSError:
        return b""


@lru_cache(maxsize=4)
def texts_below(root: str) -> Texts:
    """Read the files below a folder, or remember them; they are listed first."""
    return Texts(listing(root).paths)


def forget() -> None:
    """Look at the files again: a new run begins."""
    listing.cache_clear()
    texts_below.cache_clear()
