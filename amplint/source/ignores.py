"""Patterns of files to pass over: `exclude` settings and `.gitignore` files.

Both have git's syntax and meaning.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from amplint import files
from amplint.errors import ConfigError, UnreadableFile
from amplint.findings import FileError, Remark
from amplint.source.globs import Globs, Malformed


class Patterns:
    """git-style patterns relative to one folder.

    Args:
        patterns: one pattern each; a leading "./" is dropped.
        root: the folder that patterns with a slash are relative to; "" is the working
            directory.

    Raises:
        ConfigError: a pattern is malformed.
    """

    def __init__(self, patterns: Sequence[str], root: str = "") -> None:
        self._patterns = tuple(pattern.removeprefix("./") for pattern in patterns)
        self._root = os.path.abspath(root)
        try:
            self._globs = Globs(self._patterns, strict=True)
        except Malformed as error:
            raise ConfigError(f"malformed pattern: {error}", "patterns are those of git") from error

    def match(self, path: str, *, is_folder: bool = False) -> bool:
        """Whether a path is excluded by itself; its folders are not looked at."""
        meant = os.path.basename(path) if self._globs.names_only else self._below_root(path)
        return bool(self._globs.decide(meant, is_folder=is_folder))

    def match_with_parents(self, path: str) -> bool:
        """Whether a path, or a folder above it and below the root, is excluded."""
        parts = self._below_root(path).split("/")
        folders = ("/".join(parts[:end]) for end in range(1, len(parts)))
        return self.match(path, is_folder=os.path.isdir(path)) or any(
            self._globs.decide(folder, is_folder=True) for folder in folders
        )

    def without_those_matching(self, folder: str) -> Patterns:
        """The patterns without those that exclude the folder itself, which is asked for."""
        kept = [
            pattern
            for pattern in self._patterns
            if not Patterns([pattern], self._root).match_with_parents(folder)
        ]
        return Patterns(kept, self._root) if len(kept) < len(self._patterns) else self

    def _below_root(self, path: str) -> str:
        # Outside the root only the file's own name can be meant.
        return _below(os.path.abspath(path), self._root) or os.path.basename(path)


class IgnoreFiles:
    """The `.gitignore` files that apply while one folder is walked.

    Args:
        top: the walked folder. The files of its parents count up to the root of the git
            repository; without one only the walked folder's own files do.

    Attributes:
        said: errors of files that are none: pipes, devices, or too large ones; and remarks on
            malformed lines, which are ignored, as by git.
    """

    def __init__(self, top: str) -> None:
        self._top = os.path.abspath(top)
        self.said: list[FileError | Remark] = []
        #: folder -> its patterns; only folders that have a .gitignore.
        self._globs: dict[str, Globs] = {}
        for folder in _parents_in_repository(self._top):
            self._load(folder, asked_for=self._top)

    def enter(self, folder: str) -> None:
        """Read the folder's own `.gitignore`, before its entries are matched."""
        self._load(os.path.abspath(folder))

    def match(self, path: str, *, is_folder: bool = False) -> bool:
        """Whether git ignores the path; the deepest file that mentions it decides."""
        if not self._globs:
            return False
        path = os.path.abspath(path)
        folder = os.path.dirname(path)
        while True:
            globs = self._globs.get(folder)
            if globs is not None:
                below = path[len(folder) :].lstrip(os.sep).replace(os.sep, "/")
                decision = globs.decide(below, is_folder=is_folder)
                if decision is not None:
                    return decision
            parent = os.path.dirname(folder)
            if parent == folder:
                return False
            folder = parent

    def _load(self, folder: str, asked_for: str | None = None) -> None:
        path = os.path.join(folder, ".gitignore")
        try:
            text = files.read(path, files.IGNORE_FILE).decode("utf-8", "surrogateescape")
        except files.CannotOpen:  # no such file, or none that git could read either
            return
        except UnreadableFile as error:
            if not os.path.isdir(path):
                self.said.append(FileError(path, error.message))
            return
        lines = text.removeprefix("\ufeff").splitlines()
        if asked_for is not None:
            # A folder that the user names is checked; what ignores it does not count.
            below = os.path.relpath(asked_for, folder).replace(os.sep, "/")
            lines = ["" if _ignores(line, below) else line for line in lines]
        globs = self._globs[folder] = Globs(lines)
        if globs.malformed:
            self.said.append(_on_lines(path, globs.malformed))


def _on_lines(path: str, malformed: Sequence[tuple[int, str]]) -> Remark:
    (row, why), *others = malformed
    words = f"malformed pattern, this line is ignored: {why}"
    if others:
        words += f" (and {len(others)} more)"
    return Remark(path, row, words)


def _ignores(line: str, below: str) -> bool:
    """Whether a line ignores a folder, or one that leads to it."""
    parts = below.split("/")
    globs = Globs([line])
    return any(
        globs.decide("/".join(parts[:end]), is_folder=True) for end in range(1, len(parts) + 1)
    )


def _parents_in_repository(folder: str) -> list[str]:
    """The folders above, from the root of the git repository down; [] outside of one."""
    parents: list[str] = []
    current = folder
    while not os.path.exists(os.path.join(current, ".git")):
        parent = os.path.dirname(current)
        if parent == current:
            return []
        parents.append(parent)
        current = parent
    return parents[::-1]


def _below(path: str, folder: str) -> str | None:
    """The path relative to a folder, forward slashes; None for a path outside of it."""
    try:
        shown = os.path.relpath(path, folder)
    except ValueError:  # another drive on Windows
        return None
    if shown == os.pardir or shown.startswith(os.pardir + os.sep):
        return None
    return shown.replace(os.sep, "/")
