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
        shown = os.path.relpath(os.path.abspath(path), self._root).replace(os.sep, "/")
        # Outside the root only the file's own name can be meant.
        return os.path.basename(path) if shown.startswith("../") else shown

    def _specification(self) -> GitIgnoreSpec:
        if self._spec is None:
            from pathspec import GitIgnoreSpec

            try:
                self._spec = GitIgnoreSpec.from_lines(self._patterns)
            except ValueError as error:
                raise ConfigError(f"malformed pattern in `exclude`: {error}") from error
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
                below = os.path.relpath(path, folder).replace(os.sep, "/") + "/" * is_folder
                decision = spec.check_file(below).include
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

    valid = []
    for line in lines:
        try:
            GitIgnoreSpec.from_lines([line])
        except ValueError:  # git passes over a malformed line, too
            continue
        valid.append(line)
    return GitIgnoreSpec.from_lines(valid)
