"""Where Python looks for the modules that a file imports, and which file it finds.

Questions about names and folders alone: nothing is parsed here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from amplint.code.lookups import Kept, Lookups
from amplint.code.module import Module

#: So many folders around a file are compared with what it imports.
_NESTED = 6
_PROJECT_MARKS = (".git", "pyproject.toml", "setup.py", "setup.cfg", ".hg")


class ImportPaths:
    """The folders of one project, as the imports of its files go through them.

    Args:
        lookups: asks the file system.
        root: the project's folder; None looks upwards from each file for a project file.
        src: folders that hold top-level packages, besides `src`, relative to the root.
        checked: the folder that is checked, "" for none: it is the project of the files in it
            that no project file stands above.
        libraries: a file of each package that only its own files find here: "pack/module.py".
    """

    def __init__(
        self,
        lookups: Lookups,
        root: str | None,
        src: tuple[str, ...],
        checked: str,
        libraries: tuple[str, ...],
    ) -> None:
        self._lookups = lookups
        self._root = os.path.realpath(root) if root else None
        self._checked = os.path.realpath(checked) if checked else ""
        self._src = src
        self._sources = {source.partition("/")[0]: source for source in libraries}
        self._added: dict[str, list[str]] = {}
        self._own: dict[tuple[str, str], Kept[bool]] = {}
        self._found: dict[tuple[str, str], Kept[str | None]] = {}
        self._search_paths: dict[str, Kept[list[str]]] = {}
        self._roots: dict[str, Kept[str]] = {}

    def note_added(self, path: str, folders: list[str]) -> None:
        """A file adds folders to `sys.path`; said before its imports are looked for."""
        if folders:
            self._added[path] = folders

    def adding(self, path: str, folders: list[str]) -> ImportPaths:
        """The same paths where a file adds these folders to `sys.path`, whatever it does on disk."""
        other = ImportPaths(
            self._lookups, self._root, self._src, self._checked, tuple(self._sources.values())
        )
        other._added = {**self._added, path: folders}
        return other

    def adds(self, path: str) -> list[str]:
        """The folders that a file is known to add to `sys.path`."""
        return self._added.get(path, [])

    def place_of(self, module: Module) -> str:
        """What the meaning of a module's imports hangs on: its folder, or the file itself."""
        return module.path if module.path in self._added else module.folder

    def find(self, dotted: str, importer: Module) -> str | None:
        """The file of a dotted name as `importer` would import it."""
        key = (dotted, self.place_of(importer))
        return self._lookups.once(self._found, key, lambda: self._find_file(dotted, importer))

    def _find_file(self, dotted: str, importer: Module) -> str | None:
        relative = dotted.replace(".", os.sep)
        if not relative.strip(os.sep):
            return None
        first, _, below = relative.partition(os.sep)
        if self._is_of_library(first, importer):
            return None
        for folder in self._folders_with(first, importer):
            # One question for all modules of a package that is not there.
            if below and not self._lookups.exists(os.path.join(folder, first)):
                continue
            base = os.path.join(folder, relative)
            # Of a package and a module of one name, Python takes the package.
            for candidate in (os.path.join(base, "__init__.py"), base + ".py"):
                path = self._lookups.file(candidate)
                if path:
                    return path
        return None

    def owns(self, name: str, importer: Module) -> bool:
        """Whether a top-level name is a file or a folder of the project, as `importer` looks for it.

        A folder without `__init__.py` may be a package, too.
        """
        key = (name, self.place_of(importer))
        return self._lookups.once(self._own, key, lambda: self._is_own(name, importer))

    def _is_own(self, name: str, importer: Module) -> bool:
        if self._is_of_library(name, importer):
            return False
        if self.find(name, importer) is not None:
            return True
        folders = self._folders_with(name, importer)
        return any(self._lookups.exists(os.path.join(folder, name)) for folder in folders)

    def _is_of_library(self, name: str, importer: Module) -> bool:
        """Whether a top-level name is a library's that lies in the project, for a file outside of it."""
        if name not in self._sources:
            return False
        source = self._sources[name].replace("/", os.sep)
        for folder in self._folders_with(name, importer):
            if self._lookups.file(os.path.join(folder, source)):
                inside = os.path.join(folder, name)
                return importer.folder != inside and not importer.folder.startswith(inside + os.sep)
        return False

    def _folders_with(self, name: str, importer: Module) -> Iterator[str]:
        """Folders that may hold a top-level module, in the order in which they are asked.

        Behind those that any program looks into: the folders above, in which the script may lie
        that imports the importer.
        """
        yield from self._search_path(importer)
        yield from _named_above(name, importer)
        if name not in sys.stdlib_module_names:
            yield from self.folders_up(importer)[1:-1]

    def _search_path(self, importer: Module) -> list[str]:
        """Folders in the order in which Python would look: the script's own comes first."""
        if not importer.path:
            return []
        place = self.place_of(importer)
        return self._lookups.once(self._search_paths, place, lambda: self._folders_for(importer))

    def _folders_for(self, importer: Module) -> list[str]:
        folder = importer.folder
        root = self.root_of(folder)
        sources = [os.path.join(root, name) for name in (*self._src, "src")]
        added = [
            os.path.normpath(os.path.join(start, entry))
            for entry in self.adds(importer.path)
            for start in (folder, root)
        ]
        return list(dict.fromkeys((self._above_package(folder), folder, root, *sources, *added)))

    def package_of(self, path: str) -> str:
        """The dotted package that relative imports of a file start from."""
        folder = os.path.dirname(path)
        top = self._above_package(folder)
        if top == folder:  # no __init__.py: a namespace package below the project's root
            top = self.root_of(folder)
        relative = os.path.relpath(folder, top)
        if relative == os.curdir or relative.startswith(os.pardir):
            return os.path.basename(folder)
        return relative.replace(os.sep, ".")

    def _above_package(self, folder: str) -> str:
        """The folder above the outermost package that holds `folder`; itself if it is none."""
        while self._lookups.file(os.path.join(folder, "__init__.py")):
            parent = os.path.dirname(folder)
            if parent == folder:
                break
            folder = parent
        return folder

    def folders_up(self, module: Module) -> list[str]:
        """The folder of a module and those above it, up to the project's root."""
        folder = module.folder
        if not folder:
            return []
        root = self.root_of(folder)
        folders = [folder]
        while folders[-1] != root and folders[-1] != os.path.dirname(folders[-1]):
            folders.append(os.path.dirname(folders[-1]))
        return folders if folders[-1] == root else [folder]

    def root_of(self, folder: str) -> str:
        """The nearest folder upwards that holds a project file, or what the project was given as.

        If none does, the checked folder that the folder lies in, else the folder itself.
        """
        if self._root:
            return self._root
        return self._lookups.once(self._roots, folder, lambda: self._found_root(folder))

    def _found_root(self, folder: str) -> str:
        current = folder
        while True:
            marks = (os.path.join(current, mark) for mark in _PROJECT_MARKS)
            if any(map(self._lookups.exists, marks)):
                return current
            parent = os.path.dirname(current)
            if parent == current:
                return self._checked if self._is_checked(folder) else folder
            current = parent

    def _is_checked(self, folder: str) -> bool:
        checked = self._checked
        return bool(checked) and (folder == checked or folder.startswith(checked + os.sep))


def _named_above(name: str, importer: Module) -> list[str]:
    """The folder above the nearest one around an importer that has this name, if any.

    `from src.helper import build` in `src/train.py`: whoever runs that starts above `src`.
    """
    folder = importer.folder
    for _ in range(_NESTED):
        parent, last = os.path.split(folder)
        if not last:
            break
        if last == name:
            return [parent]
        folder = parent
    return []
