"""The Python files below a folder, and searches in their texts.

A project is asked about each function that is followed: who calls it, who mentions it. So its
files are listed and read once in a process and run, see `amplint.code.index`.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from amplint import files
from amplint.errors import UnreadableFile

#: Folders in which no caller is looked for.
_SKIPPED = frozenset({"node_modules", "build", "dist", "site-packages", "venv", "__pycache__"})
#: Callers are looked for only in projects of at most this many Python files.
_SEARCH_LIMIT = 5_000
_READ_LIMIT = 1_000_000
#: A file that was written so shortly ago may be written again under the same time, in ns;
#: file systems keep times in steps of up to two seconds.
_RECENT = 2_000_000_000

_IMPORT = re.compile(rb"import\b[^\n(]*(?:\([^)]*)?")
#: Characters of a line in front of an import that are looked at: a line may hold thousands of them.
_LONGEST_LINE = 2_000
_DOTTED = re.compile(rb"[\w.]+")
_IDENTIFIER = re.compile(rb"\w+")
#: What stands before a function that `functools.partial` is given, in this many characters at most.
_BOUND_FIRST = re.compile(rb"partial\(\s*(?:\w+\.)*$")
_LONGEST_CHAIN = 60
#: What stands behind the name of a class, up to the first colon; its bases, at least.
_BASES = re.compile(rb"^[ \t]*class\s+\w+\s*\(([^:]*)", re.MULTILINE)

#: `net.forward = ...`: the attribute; not that of `self.forward = ...`.
_STORE = re.compile(rb"(?<!\bself)\.(\w+)[ \t]*=(?!=)")
_RENAMED = re.compile(rb"\b(\w+)\s+as\s+(\w+)")

#: What is searched for: a name of `Texts.find`, and words.
Search = tuple[str, ...]

#: A part of a dotted name in an import, behind the part before it; (b"", b"torch") at its
#: start. Behind the dots of a relative import that is the folder which they stand for.
_Part = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Listing:
    """The Python files below a folder.

    Args:
        paths: sorted, none at all if there are too many to look through. A link to a file is
            listed as that file.
        stamp: 64 hexadecimal digits that change with the content of the files, as far as
            sizes and times tell; "" where they cannot tell yet.
        states: of the files, by path; each changes with the content of its file. Files of
            which sizes and times cannot tell it yet have none.
        notebooks: paths of the notebooks below the folder, sorted.
    """

    paths: tuple[str, ...]
    stamp: str
    states: Mapping[str, str] = field(default_factory=dict)
    notebooks: tuple[str, ...] = ()


@lru_cache(maxsize=4)
def listing(root: str) -> Listing:
    """List the files below a folder, or remember them."""
    now = time.time_ns()
    paths, notebooks = _python_files(os.path.realpath(root))
    known = {path: _state(path, now) for path in paths}
    found = {os.path.realpath(path) if state is None else path for path, state in known.items()}
    states = {path: known.get(path) or _state(path, now) or "" for path in sorted(found)}
    digest = hashlib.sha256()
    for path, state in states.items():
        digest.update(os.fsencode(path) + b"\0%s\n" % state.encode())
    lasting = {path: state for path, state in states.items() if state}
    stamp = digest.hexdigest() if len(lasting) == len(states) else ""
    return Listing(tuple(states), stamp, lasting, tuple(sorted(notebooks)))


def _state(path: str, now: int) -> str | None:
    """What changes with the content of a file; "" if unknown, None for a link.

    Args:
        now: the time, in ns.
    """
    try:
        known = os.lstat(path)
    except OSError:
        return ""
    if stat.S_ISLNK(known.st_mode):
        return None
    if max(known.st_mtime_ns, known.st_ctime_ns) >= now - _RECENT:
        return ""
    return f"{known.st_ino} {known.st_size} {known.st_mtime_ns} {known.st_ctime_ns}"


def _python_files(root: str) -> tuple[list[str], list[str]]:
    """The Python files below a folder, none if there are too many, and the notebooks."""
    found: list[str] = []
    notebooks: list[str] = []
    for folder, names, inner in os.walk(root):
        names[:] = [name for name in names if not name.startswith(".") and name not in _SKIPPED]
        found += [os.path.join(folder, name) for name in inner if name.endswith(".py")]
        notebooks += [os.path.join(folder, name) for name in inner if name.endswith(".ipynb")]
        if len(found) > _SEARCH_LIMIT:
            return [], notebooks
    return found, notebooks


class Texts:
    """The beginnings of files, up to `_READ_LIMIT` bytes each.

    Args:
        paths: of the files; one that cannot be read counts as empty.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self._text = {path: _head(path) for path in paths}
        self._importers: dict[_Part, list[str]] | None = None
        self._heirs: dict[bytes, list[str]] | None = None
        self._stores: dict[bytes, list[str]] | None = None
        self._holders: dict[bytes, list[str]] = {}

    def find(self, search: Search) -> list[str]:
        """The files that a search finds, in their order.

        Args:
            search: "mentioning", "importing", "deriving" or "storing", and what the method takes.

        Raises:
            LookupError: there is no such search.
            TypeError: it takes another number of words.
        """
        kind, *words = search
        if kind == "mentioning":
            return self.holding(words)
        searches: dict[str, Callable[..., list[str]]] = {
            "importing": self.importing,
            "deriving": self.deriving,
            "storing": self.storing,
        }
        return searches[kind](*words)

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
        module of the same name is none of it. Who imports the package alone calls the name as
        one of the module.

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
        found = [path for path in paths if _calls(word, self._text[path])]
        beside = self._importers.get((b"", _encoded(package)), ())
        in_full = last + b"." + word
        return found + [p for p in beside if p not in paths and _calls(in_full, self._text[p])]

    def deriving(self, base: str) -> list[str]:
        """Files with a class that may have a base of that name, or of another for the same."""
        if self._heirs is None:
            self._heirs = self._index_bases()
        return list(self._heirs.get(_encoded(base), ()))

    def storing(self, name: str) -> list[str]:
        """Files that may store an attribute of that name, other than of `self`."""
        if self._stores is None:
            self._stores = {}
            for path, text in self._text.items():
                for word in set(_STORE.findall(text)):
                    self._stores.setdefault(word, []).append(path)
        return list(self._stores.get(_encoded(name), ()))

    def _holding(self, word: bytes) -> list[str]:
        if word not in self._holders:
            found = [path for path, text in self._text.items() if word in text]
            if _IDENTIFIER.fullmatch(word):
                whole = re.compile(rb"\b" + word + rb"\b")
                found = [path for path in found if whole.search(self._text[path])]
            self._holders[word] = found
        return self._holders[word]

    def _index_bases(self) -> dict[bytes, list[str]]:
        heirs: dict[bytes, list[str]] = {}
        for path, text in self._text.items():
            for word in _bases(text):
                heirs.setdefault(word, []).append(path)
        return heirs

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
        furthest = max(0, found.start() - _LONGEST_LINE)
        newline = text.rfind(b"\n", furthest, found.start())
        if newline < 0 < furthest:
            continue
        before = text[newline + 1 : found.start()].lstrip()
        if not before or before.startswith(b"from"):
            yield before + found.group()


def _base(path: str, level: int) -> bytes:
    """The name of the folder that a number of leading dots stands for; b"" for none."""
    if not level:
        return b""
    folders = os.path.dirname(path).split(os.sep)
    return _encoded(folders[-level]) if level <= len(folders) else b""


def _calls(name: bytes, text: bytes) -> bool:
    """Whether a text calls a name, other than in its definition, or binds arguments to it."""
    if name not in text:
        return False
    # A pattern that starts with its letters is found several times faster than one that
    # starts with what must not stand before them.
    for found in re.finditer(re.escape(name) + rb"\s*[(,)]", text):
        before = text[max(0, found.start() - _LONGEST_CHAIN) : found.start()]
        if not found.group().endswith(b"("):
            if _BOUND_FIRST.search(before):
                return True
        elif not before.endswith((b"def ", b"class ")) and not _IDENTIFIER.match(before[-1:]):
            return True
    return False


def _bases(text: bytes) -> set[bytes]:
    """The names that stand among the bases of classes, and what they are imported as."""
    bases = {word for words in _BASES.findall(text) for word in _IDENTIFIER.findall(words)}
    if not bases:
        return bases
    return bases | {name for name, other in _RENAMED.findall(text) if other in bases}


def _encoded(word: str) -> bytes:
    return word.encode("utf-8", "replace")


def _head(path: str) -> bytes:
    try:
        return files.head(path, _READ_LIMIT)
    except UnreadableFile:
        return b""
