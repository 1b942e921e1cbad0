"""What is asked of the file system about the files around a checked one, and the answers.

The answers are what the cached result of a file depends on besides its own bytes: asked
again, the same questions must be answered the same. A module that was looked for in vain is
such an answer, too.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from amplint.errors import UnreadableFile
from amplint.source.reading import read_bytes

#: Folders in which no caller is looked for.
_SKIPPED = frozenset({"node_modules", "build", "dist", "site-packages", "venv", "__pycache__"})
#: Callers are looked for only in projects of at most this many Python files.
_SEARCH_LIMIT = 5_000
_READ_LIMIT = 1_000_000
_IDENTIFIER = re.compile(rb"\w+")
_IMPORT = re.compile(rb"^[ \t]*(?:from|import)\b[^\n(]*(?:\([^)]*)?", re.MULTILINE)

Answer = bool | str | list[str]
#: The name of a question, and what it is about.
Question = tuple[str, ...]


class Lookups:
    """Asks, and keeps the answers.

    Attributes:
        answers: to every question so far, in the order of asking; JSON values.
    """

    def __init__(self) -> None:
        self.answers: dict[Question, Answer] = {}

    def exists(self, path: str) -> bool:
        """Whether there is a file or a folder."""
        return bool(self._ask("exists", path))

    def file(self, path: str) -> str:
        """The real path of a file; "" where there is none."""
        return str(self._ask("file", path))

    def mentioning(self, root: str, *words: str) -> list[str]:
        """Python files below a folder that hold all the words, sorted."""
        found = self._ask("mentioning", root, *words)
        return found if isinstance(found, list) else []

    def requirement_files(self, folder: str) -> list[str]:
        """Files of a folder that can say which torch the project needs, sorted."""
        found = self._ask("requirements", folder)
        return found if isinstance(found, list) else []

    def importing(self, root: str, module: str, package: str, name: str) -> list[str]:
        """Python files below a folder that may import a module and call a name, sorted.

        Args:
            module: the last part of its dotted name.
            package: the name of the folder that holds it.
        """
        found = self._ask("importing", root, module, package, name)
        return found if isinstance(found, list) else []

    def read(self, path: str) -> bytes:
        """The bytes of a file.

        Raises:
            UnreadableFile: it cannot be read.
        """
        self.answers["content", path] = UNREADABLE
        data = read_bytes(path)
        self.answers["content", path] = _digest(data)
        return data

    def _ask(self, *question: str) -> Answer:
        if question not in self.answers:
            self.answers[question] = answer(question)
        return self.answers[question]


def answer(question: Question) -> Answer:
    """What the file system answers now.

    Raises:
        LookupError: there is no such question.
        TypeError: it has another number of parts.
    """
    return _QUESTIONS[question[0]](*question[1:])


#: Stands for the digest of a file that cannot be read.
UNREADABLE = ""


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _file(path: str) -> str:
    return os.path.realpath(path) if os.path.isfile(path) else ""


def _content(path: str) -> str:
    try:
        return _digest(read_bytes(path))
    except UnreadableFile:
        return UNREADABLE


def _mentioning(root: str, *words: str) -> list[str]:
    return sorted(map(os.path.realpath, _holding(root, words)))


def _importing(root: str, module: str, package: str, name: str) -> list[str]:
    last, folder, called = (
        re.escape(part.encode("utf-8", "replace")) for part in (module, package, name)
    )
    # The module alone, behind the dots of a relative import, or in its own package: an import
    # of another package's module of the same name is none of it.
    imports = re.compile(
        rb"(?:(?<![\w.])|(?<=[\s.])\.|\b" + folder + rb"\.)" + last + rb"\b", re.MULTILINE
    )
    calls = re.compile(rb"(?<!def )(?<!class )\b" + called + rb"\s*\(")
    below = _texts_below(root)
    found = [
        path
        for path in _holding(root, (module, name))
        if imports.search(below.imports[path]) and calls.search(_head(path))
    ]
    return sorted(map(os.path.realpath, found))


def _holding(root: str, words: Iterable[str]) -> list[str]:
    """Files below a folder that hold all the words, whole identifiers as far as they are some."""
    wanted = [word.encode("utf-8", "replace") for word in words]
    below = _texts_below(root)
    found = set(below.imports)
    for identifier in {part for word in wanted for part in _IDENTIFIER.findall(word)}:
        found &= below.holding.get(identifier, set())
    odd = [word for word in wanted if not _IDENTIFIER.fullmatch(word)]
    return [path for path in found if _mentions(path, odd)] if odd else list(found)


@dataclass(frozen=True, slots=True)
class _Texts:
    """What the questions about all Python files below a folder need of them.

    Args:
        holding: identifier -> the files that hold it.
        imports: file -> its import statements.
    """

    holding: dict[bytes, set[str]]
    imports: dict[str, bytes]


@lru_cache(maxsize=4)
def _texts_below(root: str) -> _Texts:
    """Read once in a process and run: a project is asked about each function that is followed.

    See `forget`.
    """
    holding: dict[bytes, set[str]] = {}
    imports: dict[str, bytes] = {}
    for path in _python_files(root):
        data = _head(path)
        imports[path] = b"\n".join(_IMPORT.findall(data))
        for word in set(_IDENTIFIER.findall(data)):
            holding.setdefault(word, set()).add(path)
    return _Texts(holding, imports)


def forget() -> None:
    """Look at the files again: a new run begins."""
    _texts_below.cache_clear()


#: Where projects state their requirements, relative to a folder.
_REQUIREMENTS = (
    *("pyproject.toml", "setup.cfg", "setup.py", "*requirements*.txt", "requirements/*.txt"),
    *("environment*.yml", "environment*.yaml"),
)


def _requirements(folder: str) -> list[str]:
    top = glob.escape(folder)
    found = {path for name in _REQUIREMENTS for path in glob.glob(os.path.join(top, name))}
    return sorted(path for path in found if os.path.isfile(path))


def _python_files(root: str) -> list[str]:
    """Python files below a folder; none at all if there are too many to look through."""
    found: list[str] = []
    for folder, names, files in os.walk(root):
        names[:] = [name for name in names if not name.startswith(".") and name not in _SKIPPED]
        found += [os.path.join(folder, name) for name in files if name.endswith(".py")]
        if len(found) > _SEARCH_LIMIT:
            return []
    return found


def _mentions(path: str, words: Iterable[bytes]) -> bool:
    data = _head(path)
    return all(word in data for word in words)


def _head(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(_READ_LIMIT)
    except OSError:
        return b""


_QUESTIONS: Mapping[str, Callable[..., Answer]] = {
    "exists": os.path.exists,
    "file": _file,
    "content": _content,
    "mentioning": _mentioning,
    "importing": _importing,
    "requirements": _requirements,
}
