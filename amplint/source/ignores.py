"""Patterns of files to pass over: `exclude` settings and `.gitignore` files.

Both have git's syntax and meaning. `pathspec` is imported only where a pattern is more
than a name, because its import costs as much as walking a small project.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from amplint.errors import ConfigError

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

_PLAIN_NAME = re.compile(r"[^/*?\[\]!#\\\s]+/?")


class Patterns:
    """git-style patterns relative to one folder.

    Args:
        patterns: one pattern each; a leading "./" is dropped.
        root: the folder that patterns with a slash are relative to; "" is the working
            directory.

    Raises:
        ConfigError: a pattern is malformed (when it is first needed).
    """

    def __init__(self, patterns: Sequence[str], root: str = "") -> None:
        self._patterns = tuple(pattern.removeprefix("./") for pattern in patterns)
        self._root = os.path.abspath(root)
        self._any_kind = {item for item in self._patterns if _PLAIN_NAME.fullmatch(item)}
        self._names = {item for item in self._any_kind if not item.endswith("/")}
        self._folder_names = {item.rstrip("/") for item in self._any_kind}
        self._spec: GitIgnoreSpec | None = None

    def match(self, path: str, *, is_folder: bool = False) -> bool:
        """Whether a path, or a folder above it and below the root, is excluded."""
        name = os.path.basename(path)
        if len(self._any_kind) == len(self._patterns):
            return name in (self._folder_names if is_folder else self._names)
        below_root = self._below_root(path)
        return self._specification().match_file(below_root + "/" * is_folder)

    def match_with_parents(self, path: str) -> bool:
        """The same for a path that no walk led to, so that its folders count too."""
        below_root = self._below_root(path)
        parts = below_root.split("/")
        folders = ["/".join(parts[:end]) for end in range(1, len(parts))]
        is_folder = os.path.isdir(path)
        return self.match(path, is_folder=is_folder) or any(
            self.match(os.path.join(self._root, folder), is_folder=True) for folder in folders
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

    def _specification(self) -> GitIgnoreSpec:
        if self._spec is None:
            from pathspec import GitIgnoreSpec

            try:
                self._spec = GitIgnoreSpec.from_lines(self._patterns)
            except ValueError as error:
                raise ConfigError(
                    f"malformed pattern: {error}", "patterns are those of git"
                ) from error
        return self._spec


class IgnoreFiles:
    """The `.gitignore` files that apply while one folder is walked.

    Args:
        top: the walked folder. The files of its parents count up to the root of the git
            repository; without one only the walked folder's own files do.
    """

    def __init__(self, top: str) -> None:
        self._top = os.path.abspath(top)
        #: folder -> its patterns; only folders that have a .gitignore.
        self._specs: dict[str, GitIgnoreSpec] = {}
        for folder in _parents_in_repository(self._top):
            self._load(folder, asked_for=self._top)

    def enter(self, folder: str) -> None:
        """Read the folder's own `.gitignore`, before its entries are matched."""
        self._load(os.path.abspath(folder))

    def match(self, path: str, *, is_folder: bool = False) -> bool:
        """Whether git ignores the path; the deepest file that mentions it decides."""
        if not self._specs:
            return False
        path = os.path.abspath(path)
        folder = os.path.dirname(path)
        while True:
            spec = self._specs.get(folder)
            if spec is not None:
                below = path[len(folder) :].lstrip(os.sep).replace(os.sep, "/")
                decision = _folder_decision(spec, below) if is_folder else _decision(spec, below)
                if decision is not None:
                    return decision
            parent = os.path.dirname(folder)
            if parent == folder:
                return False
            folder = parent

    def _load(self, folder: str, asked_for: str | None = None) -> None:
        try:
            with open(os.path.join(folder, ".gitignore"), "rb") as stream:
                text = stream.read().decode("utf-8", "surrogateescape")
        except OSError:  # no such file, or none that git could read either
            return
        lines = text.removeprefix("\ufeff").splitlines()
        spec = _git_spec(lines)
        if asked_for is not None:
            below = os.path.relpath(asked_for, folder).replace(os.sep, "/") + "/"
            if spec.match_file(below):
                # A folder that the user names is checked; what ignores it does not count.
                spec = _git_spec(
                    [line for line in lines if not _git_spec([line]).match_file(below)]
                )
        self._specs[folder] = spec


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


def _git_spec(lines: Sequence[str]) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec

    try:
        return GitIgnoreSpec.from_lines(lines)
    except ValueError:  # git passes over a malformed line, too
        return GitIgnoreSpec.from_lines([line for line in lines if _is_wellformed(line)])


def _decision(spec: GitIgnoreSpec, below: str) -> bool | None:
    return spec.check_file(below).include


def _folder_decision(spec: GitIgnoreSpec, below: str) -> bool | None:
    """Whether a folder is ignored; None if no pattern matches.

    `GitIgnoreSpec` judges files: it ranks `*` above `!*/`, which keeps folders. In git the
    last pattern that matches decides.
    """
    for pattern in reversed(tuple(spec.patterns)):
        if pattern.include is None:
            continue
        if pattern.match_file(below) or pattern.match_file(below + "/"):
            return pattern.include
    return None


def _is_wellformed(line: str) -> bool:
    from pathspec import GitIgnoreSpec

    try:
        GitIgnoreSpec.from_lines([line])
    except ValueError:
        return False
    return True


def _below(path: str, folder: str) -> str | None:
    """The path relative to a folder, forward slashes; None for a path outside of it."""
    try:
        shown = os.path.relpath(path, folder)
    except ValueError:  # another drive on Windows
        return None
    if shown == os.pardir or shown.startswith(os.pardir + os.sep):
        return None
    return shown.replace(os.sep, "/")
