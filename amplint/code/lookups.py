"""What is asked of the file system about the files around a checked one, and the answers.

The answers are what the cached result of a file depends on besides its own bytes: asked
again, the same questions must be answered the same. A module that was looked for in vain is
such an answer, too.

All checked files of a run ask one `Lookups`. What was found out for one of them is kept with what
was asked for it, so that the result of another one depends on the same.
"""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from amplint import files
from amplint.code.index import searches_below
from amplint.code.texts import listing
from amplint.errors import UnreadableFile
from amplint.source.reading import MAX_FILE_SIZE

Answer = bool | str | list[str]
Key = TypeVar("Key", bound=Hashable)
Content = TypeVar("Content")
Content_co = TypeVar("Content_co", covariant=True)
#: The name of a question, and what it is about.
Question = tuple[str, ...]

#: The question for the state of all Python files below a folder, as one stamp.
FILES = "files"
#: Questions that search all Python files below a folder.
SEARCHES = frozenset({"mentioning", "importing", "deriving", "storing"})


@dataclass(frozen=True, slots=True, eq=False)
class Kept(Generic[Content_co]):
    """Something that was found out.

    Args:
        asked: for it: questions, and what else was kept.
    """

    content: Content_co
    asked: list[Question | Kept[object]]


class Lookups:
    """Asks, and keeps the answers.

    Args:
        index: the folder with indexes of projects, "" for none.

    Attributes:
        answers: what the present checked file depends on: JSON values.
        odd: words on files that have the name of one that is read, and are no regular files.
    """

    def __init__(self, index: str = "") -> None:
        self.answers: dict[Question, Answer] = {}
        self.odd: dict[str, str] = {}
        self._index = index
        self._known: dict[Question, Answer] = {}
        self._open: list[dict[Question | Kept[object], None]] = []
        self._noted: set[Kept[object]] = set()
        self._bytes: dict[str, bytes] = {}

    def start(self) -> None:
        """Forget what the file before depends on: another one is checked."""
        self.answers = {}
        self.odd = {}
        self._noted.clear()
        self._bytes.clear()

    def once(
        self, table: dict[Key, Kept[Content]], key: Key, find: Callable[[], Content]
    ) -> Content:
        """What `find` says, kept in a table with what it asks; the present file depends on that."""
        known = table.get(key)
        if known is None:
            asked: list[Question | Kept[object]] = []
            known = table[key] = Kept(self._noting(asked, find), asked)
        if self._open:
            self._open[-1][known] = None
        if known not in self._noted:
            self._note(known)
        return known.content

    def adding(self, kept: Kept[object], find: Callable[[], Content]) -> Content:
        """What `find` says; whoever depends on what was kept depends on what this asks, too."""
        asked: list[Question | Kept[object]] = []
        content = self._noting(asked, find)
        kept.asked.extend(asked)
        if self._open:
            self._open[-1].update(dict.fromkeys(asked))
        return content

    def _noting(self, asked: list[Question | Kept[object]], find: Callable[[], Content]) -> Content:
        """What `find` says; what it asks goes into a list, each once."""
        self._open.append({})
        try:
            return find()
        finally:
            asked += self._open.pop()

    def _note(self, kept: Kept[object]) -> None:
        """Let the present file depend on what was asked for something."""
        pending = [kept]
        while pending:
            current = pending.pop()
            if current in self._noted:
                continue
            self._noted.add(current)
            for item in current.asked:
                if isinstance(item, Kept):
                    pending.append(item)
                else:
                    self.answers[item] = self._known[item]

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
        return self._listed("requirements", folder)

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
        return self._listed("notebooks", root)

    def read(self, path: str, limit: int = MAX_FILE_SIZE) -> bytes:
        """The bytes of a file; read once for one checked file.

        Of a file that is edited meanwhile the first content counts: no result that rests on it holds
        in the next run.

        Raises:
            UnreadableFile: it cannot be read.
        """
        question = ("content", path)
        if path not in self._bytes:
            try:
                self._bytes[path] = files.read(path, limit)
            except UnreadableFile:
                self._remember(question, UNREADABLE)
                raise
        if question not in self._known:
            self._known[question] = _digest(self._bytes[path])
        self._remember(question, self._known[question])
        return self._bytes[path]

    def _search(self, kind: str, root: str, *words: str) -> list[str]:
        self._ask(FILES, root)
        return self._listed(kind, root, *words)

    def _listed(self, *question: str) -> list[str]:
        """An answer that is a list: the caller's own."""
        found = self._ask(*question)
        return [*found] if isinstance(found, list) else []

    def _ask(self, *question: str) -> Answer:
        if question not in self._known:
            self._known[question] = answer(question, self._index)
        return self._remember(question, self._known[question])

    def _remember(self, question: Question, known: Answer) -> Answer:
        self._known[question] = self.answers[question] = known
        if self._open:
            self._open[-1][question] = None
        return known


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
