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
from functools import lru_cache

from amplint.errors import UnreadableFile
from amplint.source.reading import read_bytes

#: Folders in which no caller is looked for.
_SKIPPED = frozenset({"node_modules", "build", "dist", "site-packages", "venv", "__pycache__"})
#: Callers are looked for only in projects of at most this many Python files.
_SEARCH_LIMIT = 5_000
_READ_LIMIT = 1_000_000
_IDENTIFIER = re.compile(rb"\w+")

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

    def importing(self, root: str, module: str, name: str) -> list[str]:
        """Python files below a folder that import a module and mention a name, sorted.

        Args:
            module: the last part of its dotted name.
        """
        found = self._ask("importing", root, module, name)
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


def _importing(root: str, module: str, name: str) -> list[str]:
    found = [path for path in _holding(root, (module, name)) if _imports(path, module)]
    return sorted(map(os.path.realpath, found))


def _holding(root: str, words: Iterable[str]) -> list[str]:
    """Files below a folder that hold all the words; a word that is no identifier as it stands."""
    wanted = [word.encode("utf-8", "replace") for word in words]
    files, index = _words_below(root)
    numbers = set(range(len(files)))
    for identifier in {part for word in wanted for part in _IDENTIFIER.findall(word)}:
        numbers &= index.get(identifier, set())
    odd = [word for word in wanted if not _IDENTIFIER.fullmatch(word)]
    found = [files[number] for number in sorted(numbers)]
    return [path for path in found if _mentions(path, odd)] if odd else found


def _imports(path: str, module: str) -> bool:
    """Whether a file has a module in an import, or as `package.module.`."""
    last = re.escape(module.encode("utf-8", "replace"))
    statement = rb"^[ \t]*(?:from|import)\b[^\n(]*(?:\([^)]*)?\b" + last + rb"\b"
    return bool(re.search(statement + rb"|\." + last + rb"\.", _head(path), re.MULTILINE))


@lru_cache(maxsize=4)
def _words_below(root: str) -> tuple[list[str], dict[bytes, set[int]]]:
    """The Python files below a folder, and which of them hold each identifier.

    Read once in a process and run: a project has a question for every function that is
    followed to its callers. See `forget`.
    """
    files = _python_files(root)
    index: dict[bytes, set[int]] = {}
    for number, path in enumerate(files):
        for word in set(_IDENTIFIER.findall(_head(path))):
            index.setdefault(word, set()).add(number)
    return files, index


def forget() -> None:
    """Look at the files again: a new run begins."""
    _words_below.cache_clear()


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
