"""What is asked of the file system about the files around a checked one, and the answers.

The answers are what the cached result of a file depends on besides its own bytes: asked
again, the same questions must be answered the same. A module that was looked for in vain is
such an answer, too.
"""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Callable, Mapping

from amplint import files
from amplint.code.index import searches_below
from amplint.code.texts import listing
from amplint.errors import UnreadableFile
from amplint.source.reading import MAX_FILE_SIZE

Answer = bool | str | list[str]
#: The name of a question, and what it is about.
Question = tuple[str, ...]

#: The question for the state of all Python files below a folder, as one stamp.
FILES = "files"
#: Questions that search all Python files below a folder.
SEARCHES = frozenset({"mentioning", "importing", "deriving", "storing"})


class Lookups:
    """Asks, and keeps the answers.

    Args:
        index: the folder with indexes of projects, "" for none.

    Attributes:
        answers: to every question so far, in the order of asking; JSON values.
        odd: words on files that have the name of one that is read, and are no regular files.
    """

    def __init__(self, index: str = "") -> None:
        self.answers: dict[Question, Answer] = {}
        self.odd: dict[str, str] = {}
        self._index = index

    def exists(self, path: str) -> bool:
        """Whether there is a file or a folder."""
        return bool(self._ask("exists", path))

    def file(self, path: str) -> str:
        """The real path of a file; "" where there is none."""
        return str(self._ask("file", path))

    def mentioning(self, root: str, *words: str) -> list[str]:
        """Python files below a folder that hold all the words, sorted."""
        return self._search("mentioning", root, *words)

    def deriving(self, root: str, base: str) -> list[str]:
        """Python files below a folder with a class that may have a base of that name, sorted."""
        return self._search("deriving", root, base)

    def storing(self, root: str, name: str) -> list[str]:
        """Python files below a folder that may store an attribute of that name, sorted."""
        return self._search("storing", root, name)

    def requirement_files(self, folder: str) -> list[str]:
        """What is called like a file that can say which torch a project needs, sorted."""
        found = self._ask("requirements", folder)
        return found if isinstance(found, list) else []

    def importing(self, root: str, module: str, package: str, name: str) -> list[str]:
        """Python files below a folder that may import a module and call a name, sorted.

        Args:
            module: the last part of its dotted name.
            package: the name of the folder that holds it.
        """
        return self._search("importing", root, module, package, name)

    def lists(self, root: str) -> bool:
        """Whether files below a folder are searched at all: not where there are too many."""
        return bool(self._ask("listed", root))

    def notebooks(self, root: str) -> list[str]:
        """The notebooks below a folder, sorted."""
        found = self._ask("notebooks", root)
        return found if isinstance(found, list) else []

    def read(self, path: str, limit: int = MAX_FILE_SIZE) -> bytes:
        """The bytes of a file.

        Raises:
            UnreadableFile: it cannot be read.
        """
        self.answers["content", path] = UNREADABLE
        data = files.read(path, limit)
        self.answers["content", path] = _digest(data)
        return data

    def _search(self, kind: str, root: str, *words: str) -> list[str]:
        self._ask(FILES, root)
        found = self._ask(kind, root, *words)
        return found if isinstance(found, list) else []

    def _ask(self, *question: str) -> Answer:
        if question not in self.answers:
            self.answers[question] = answer(question, self._index)
        return self.answers[question]


def answer(question: Question, index: str = "") -> Answer:
    """What the file system answers now.

    Args:
        index: the folder with indexes of projects, "" for none.

    Raises:
        LookupError: there is no such question.
        TypeError: it has another number of parts.
    """
    if question[0] in SEARCHES:
        kind, root, *words = question
        return searches_below(root, index).find((kind, *words))
    return _QUESTIONS[question[0]](*question[1:])


def still_hold(
    answers: Mapping[Question, Answer], ask: Callable[[Question], Answer] = answer
) -> bool:
    """Whether the file system answers as it did, but for stamps of listings.

    Where a stamp is the same, the searches below that folder are not repeated: they read all
    of its files.

    Raises:
        LookupError, TypeError: as `answer` does.
    """
    unchanged = {
        question[1]
        for question, known in answers.items()
        if question[0] == FILES and known and ask(question) == known
    }
    return all(
        ask(question) == known
        for question, known in answers.items()
        if question[0] != FILES and not (question[0] in SEARCHES and question[1] in unchanged)
    )


#: Stands for the digest of a file that cannot be read.
UNREADABLE = ""


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _file(path: str) -> str:
    return os.path.realpath(path) if os.path.isfile(path) else ""


def _content(path: str) -> str:
    try:
        return _digest(files.read(path, MAX_FILE_SIZE))
    except UnreadableFile:
        return UNREADABLE


def _files(root: str) -> str:
    return listing(root).stamp


def _is_listed(root: str) -> bool:
    return bool(listing(root).paths)


def _notebooks(root: str) -> list[str]:
    return list(listing(root).notebooks)


#: Where projects state their requirements, relative to a folder.
_REQUIREMENTS = (
    *("pyproject.toml", "setup.cfg", "setup.py", "*requirements*.txt", "requirements/*.txt"),
    *("environment*.yml", "environment*.yaml"),
)


def _requirements(folder: str) -> list[str]:
    top = glob.escape(folder)
    found = {path for name in _REQUIREMENTS for path in glob.glob(os.path.join(top, name))}
    return sorted(path for path in found if not os.path.isdir(path))


_QUESTIONS: Mapping[str, Callable[..., Answer]] = {
    "exists": os.path.exists,
    "file": _file,
    "content": _content,
    FILES: _files,
    "listed": _is_listed,
    "notebooks": _notebooks,
    "requirements": _requirements,
}
