"""The project around a file: finds modules and symbols by dotted name, on demand.

Files are read and parsed, never imported. What cannot be found or read is unknown, and
unknown never reports: an error in another file is that file's own AMP000.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections import deque
from collections.abc import Iterator
from functools import lru_cache

from amplint.code.filepaths import added_folders
from amplint.code.lookups import Lookups
from amplint.code.meanings import Meaning
from amplint.code.module import Class, Function, Module, build_module
from amplint.errors import UnreadableFile
from amplint.source.parsing import parse
from amplint.source.reading import SourceFile, decode

#: So many folders around a file are compared with what it imports.
_NESTED = 6
_PROJECT_MARKS = (".git", "pyproject.toml", "setup.py", "setup.cfg", ".hg")
#: Re-exports are followed through this many files.
_REEXPORT_DEPTH = 5
#: So many imported modules are kept for the next checked files, with their trees: about 0.35 MB
#: each. A project with more of them is parsed again and again.
_SHARED = 640
#: An import statement, over several lines where it has parentheses or backslashes.
_IMPORT_STATEMENT = re.compile(
    rb"^[ \t]*(?:from|import)\b(?:[^(\n\\]|\\\r?\n)*(?:\([^)]{0,9999}\))?", re.MULTILINE
)
_WORD = re.compile(r"\w+|\*")


class Project:
    """Modules of one project, read when they are first asked for.

    Args:
        root: the project's folder; None looks upwards from each file for a project file.
        src: folders that hold top-level packages, besides `src`, relative to the root.
        target_torch: versions of torch that the project runs on; None asks its requirements.
        index: the folder with indexes of projects, "" for none.
        checked: the folder that is checked, "" for none: it is the project of the files in it
            that no project file stands above.

    Attributes:
        lookups: everything that was asked of the file system.
    """

    def __init__(
        self,
        root: str | None = None,
        src: tuple[str, ...] = (),
        target_torch: str | None = None,
        index: str = "",
        checked: str = "",
    ) -> None:
        self._root = os.path.realpath(root) if root else None
        self._checked = os.path.realpath(checked) if checked else ""
        self._src = src
        self.target_torch = target_torch
        self.lookups = Lookups(index)
        self._modules: dict[str, Module | None] = {}
        self._paths: dict[Module, str] = {}
        self._folders: dict[Module, str] = {}
        self._symbols: dict[tuple[str, str], Function | Class | None] = {}
        self._search_paths: dict[str, list[str]] = {}
        self._roots: dict[str, str] = {}
        self._added: dict[str, list[str]] = {}
        self._imported_words: dict[str, frozenset[str]] = {}
        self._bytes: dict[str, bytes] = {}
        self._beyond: dict[tuple[str, str, int], str] = {}
        self._found: dict[tuple[str, str], str | None] = {}

    def another(self) -> Project:
        """Another project around the same files, for a checked file in another form."""
        other = Project(self._root, self._src, self.target_torch, checked=self._checked)
        other.lookups = self.lookups
        return other

    def add(self, filename: str, source: str, tree: ast.Module, path: str) -> Module:
        """Index the checked file itself.

        Args:
            filename: as findings print it.
            path: where it lies on disk; "" for text that lies nowhere.

        Raises:
            RecursionError: the file is nested too deeply.
        """
        path = os.path.realpath(path) if path else ""
        package = self._package_of(path) if path else ""
        found = build_module(filename, source, tree, package=package)
        self._remember(path, found)
        return found

    def _remember(self, path: str, found: Module) -> None:
        self._modules[path] = found
        self._paths[found] = path
        self._folders[found] = os.path.dirname(path)
        added = added_folders(found, path)
        if added:
            self._added[path] = added
        found.follow_names(self.beyond)
        found.note_renamed(lambda dotted: self._module_behind(dotted, found) is None)

    def path_of(self, module: Module) -> str:
        """Where a module that was found here lies on disk; "" if nowhere."""
        return self._paths.get(module, "")

    def _folder_of(self, module: Module) -> str:
        """The folder of a module that was found here; "" if it lies nowhere."""
        return self._folders.get(module, "")

    def root_of(self, module: Module) -> str:
        """The folder of the project around a module; "" if it lies nowhere."""
        folder = self._folder_of(module)
        return (self._root or self._project_root(folder)) if folder else ""

    def _place_of(self, module: Module) -> str:
        """What the meaning of a module's imports hangs on: its folder, or the file itself."""
        path = self.path_of(module)
        return path if path in self._added else self._folder_of(module)

    def package_of(self, module: Module) -> str:
        """The dotted package that the relative imports of a module start from."""
        path = self.path_of(module)
        return self._package_of(path) if path else ""

    def named(
        self, expression: ast.expr, function: Function, depth: int = _REEXPORT_DEPTH
    ) -> Function | Class | None:
        """The function or class that a name or `module.name` stands for where `function` reads it.

        Of this file or of any other of the project; None for variables, parameters, and names
        that may stand for several.
        """
        module = function.module
        if isinstance(expression, ast.Name):
            meaning = module.scopes.resolve(expression, function.node)
            if meaning.definition is not None:
                return module.definitions.get(meaning.definition)
            if meaning.scope is None:
                return self._from_stars(expression.id, module)
            other = meaning.other_name
            if other is not None and depth:
                return self.named(other, function, depth - 1)
            if not meaning.imports:
                return None
            if any(bound.node in module.definitions for bound in meaning.bounds):
                return None
        dotted = module.resolve(expression)
        return self.definition(dotted, module) if dotted is not None else None

    def choices(self, name: ast.Name, function: Function) -> tuple[Function | Class, ...]:
        """The functions and classes that several bindings of a name stand for, if they all do."""
        module = function.module
        meaning = module.scopes.resolve(name, function.node)
        found = [module.definitions.get(bound.node) for bound in meaning.bounds]
        if len(meaning.imports) == 1:
            dotted = module.scopes.dotted_of(meaning)
            found.append(self.definition(dotted, module) if dotted is not None else None)
        known = tuple(item for item in found if item is not None)
        return known if 1 < len(known) == len(meaning.bounds) else ()

    def definition(self, dotted: str, importer: Module) -> Function | Class | None:
        """The function or class of a dotted name as `importer` would import it.

        Names that a package only re-exports are followed to where they are defined.
        """
        return self._symbol(dotted, importer, _REEXPORT_DEPTH)

    def beyond(self, dotted: str, importer: Module, depth: int = _REEXPORT_DEPTH) -> str:
        """A dotted name as `importer` reads it, followed through modules that only hand it on."""
        key = (dotted, self._place_of(importer), depth)
        if key not in self._beyond:
            self._beyond[key] = dotted  # a circle of modules ends here
            self._beyond[key] = self._followed(dotted, importer, depth)
        return self._beyond[key]

    def _followed(self, dotted: str, importer: Module, depth: int) -> str:
        head, below = self._own_part(dotted.split("."), importer)
        if head is None or not below or not depth:
            return dotted
        path = self._find(head, importer)
        if path is None or not self._may_hand_on(path, below[0]):
            return dotted
        module = self._module_at(path, head)
        if module is None:
            return dotted
        scopes = module.scopes
        given = scopes.dotted_of(scopes.meaning(below[0], scopes.module))
        for root in (
            [given] if given is not None else [f"{star}.{below[0]}" for star in scopes.stars]
        ):
            onward = ".".join((root, *below[1:]))
            found = self.beyond(onward, module, depth - 1)
            if given is not None or found != onward:
                return found
        return dotted

    def _own_part(self, parts: list[str], importer: Module) -> tuple[str | None, list[str]]:
        """The longest beginning of a dotted name that is a module of the project, and the rest."""
        if self._find(parts[0], importer) is None and not self._is_folder(parts[0], importer):
            return None, []
        for length in range(len(parts) - 1, 0, -1):
            head = ".".join(parts[:length])
            if self._find(head, importer) is not None:
                return head, parts[length:]
        return None, []

    def _is_folder(self, name: str, importer: Module) -> bool:
        """Whether a folder without `__init__.py` may be the package."""
        folders = self._folders_with(name, importer)
        return any(self.lookups.exists(os.path.join(folder, name)) for folder in folders)

    def _may_hand_on(self, path: str, name: str) -> bool:
        """Whether the imports of a file mention a name, or bring in names unseen."""
        if path not in self._imported_words:
            self._imported_words[path] = _words_of_imports(self._text_of(path))
        found = self._imported_words[path]
        return name in found or "*" in found

    def _text_of(self, path: str) -> bytes:
        """The bytes of a file, kept for whoever parses it; none if it cannot be read."""
        module = self._modules.get(path)
        if module is not None:
            return module.source.encode("utf-8", "replace")
        try:
            self._bytes[path] = self.lookups.read(path)
        except UnreadableFile:
            return b""
        return self._bytes[path]

    def imported_texts(self, module: Module) -> Iterator[bytes]:
        """The bytes of the project's files that may define what a module imports, each once."""
        names = {*module.scopes.aliases.values(), *module.scopes.stars}
        names |= {site.dotted for site in module.calls if site.dotted}
        pending = [(name, module) for name in sorted(names)]
        seen: set[str] = set()
        while pending:
            dotted, importer = pending.pop()
            head = self._module_behind(self.beyond(dotted, importer), importer)
            path = self._find(head, importer) if head is not None else None
            if head is None or path is None or path in seen:
                continue
            seen.add(path)
            yield self._text_of(path)
            other = self._module_at(path, head) if self._may_hand_on(path, "*") else None
            pending += [(star, other) for star in other.scopes.stars] if other else []

    def _module_behind(self, dotted: str, importer: Module) -> str | None:
        """The module of the project that a dotted name is, or belongs to."""
        if self._find(dotted, importer) is not None:
            return dotted
        return self._own_part(dotted.split("."), importer)[0]

    def module_named(self, dotted: str, importer: Module) -> Module | None:
        """The module of a dotted name as `importer` would import it."""
        path = self._find(dotted, importer)
        return self._module_at(path, dotted) if path is not None else None

    def _symbol(self, dotted: str, importer: Module, depth: int) -> Function | Class | None:
        key = (dotted, self._place_of(importer))
        if key not in self._symbols:
            self._symbols[key] = None  # a cycle of re-exports ends here
            self._symbols[key] = self._look_up(dotted, importer, depth)
        return self._symbols[key]

    def _look_up(self, dotted: str, importer: Module, depth: int) -> Function | Class | None:
        parts = dotted.split(".")
        # What is left after the module is a function, a class, or a method of a class.
        for length in range(len(parts) - 1, max(len(parts) - 3, 0), -1):
            module = self.module_named(".".join(parts[:length]), importer)
            if module is not None:
                return self._member(module, parts[length:], depth)
        return None

    def _member(self, module: Module, rest: list[str], depth: int) -> Function | Class | None:
        meaning = module.scopes.meaning(rest[0], module.scopes.module)
        if meaning.scope is not None:
            return self._own_member(module, meaning, rest[1:], depth)
        return self._from_stars(rest[0], module, rest[1:], depth)

    def _own_member(
        self, module: Module, meaning: Meaning, rest: list[str], depth: int
    ) -> Function | Class | None:
        """What a module binds to a name, or a method of a class that it binds."""
        definition = meaning.definition
        if definition is None:
            dotted = module.scopes.dotted_of(meaning)
            if dotted is not None and depth:
                return self._symbol(".".join((dotted, *rest)), module, depth - 1)
            return None
        found = module.definitions.get(definition)
        if not rest:
            return found
        return found.methods.get(rest[0]) if isinstance(found, Class) and len(rest) == 1 else None

    def _from_stars(
        self, name: str, module: Module, rest: list[str] | None = None, depth: int = _REEXPORT_DEPTH
    ) -> Function | Class | None:
        """What `from other import *` brings in under a name.

        Modules that import each other so are many paths, but few modules.
        """
        seen = {module}
        pending = deque([(module, depth)])
        while pending:
            current, left = pending.popleft()
            # Of two that give a name, the later import wins.
            for star in reversed(current.scopes.stars) if left else ():
                other = self.module_named(star, current)
                if other is None or other in seen or not other.scopes.gives(name):
                    continue
                seen.add(other)
                meaning = other.scopes.meaning(name, other.scopes.module)
                if meaning.scope is not None:
                    return self._own_member(other, meaning, rest or [], left - 1)
                pending.append((other, left - 1))
        return None

    def users(self, function: Function) -> Iterator[Module]:
        """Modules of the project that may call a function of another module by its name.

        A constructor is called by the name of its class. Only files that import the module, or a
        package around it that hands the name on, and call the name are read; with `_SEARCH_LIMIT`
        files in the project the search ends without an answer.
        """
        path = self._paths.get(function.module, "")
        if not path:
            return
        name = function.name
        if name == "__init__" and function.owner is not None:
            name = function.owner.name
        root = self.root_of(function.module)
        stem = _stem(path)
        folder = os.path.dirname(path)
        if os.path.basename(path) == "__init__.py":
            folder = os.path.dirname(folder)
        found = self.lookups.importing(root, stem, os.path.basename(folder), name)
        for package in self._handing_on(name, function.module):
            above = os.path.basename(os.path.dirname(package))
            found += self.lookups.importing(root, os.path.basename(package), above, name)
        yield from self._loaded(path, root, list(dict.fromkeys(found)))

    def _handing_on(self, name: str, home: Module) -> Iterator[str]:
        """The packages around a module, up to the project's root, that may hand a name of it on."""
        own, root = self.path_of(home), self.root_of(home)
        for folder in self.folders_up(home):
            initial = self.lookups.file(os.path.join(folder, "__init__.py"))
            is_other = initial not in ("", own) and folder != root
            if is_other and self._may_hand_on(initial, name):
                yield folder

    def is_searched(self, module: Module) -> bool:
        """Whether callers of a module are looked for: not in a project with too many files."""
        root = self.root_of(module)
        return not root or self.lookups.lists(root)

    def stem_of(self, module: Module) -> str:
        """The last part of a module's dotted name; "" if it lies nowhere."""
        return _stem(self.path_of(module))

    def mentioning(self, home: Module, *words: str) -> Iterator[Module]:
        """Other modules of the project around `home` whose text holds all the words.

        None at all in a project with more than `_SEARCH_LIMIT` files.
        """
        root = self.root_of(home)
        if root:
            found = self.lookups.mentioning(root, *words)
            yield from self._loaded(self.path_of(home), root, found)

    def deriving(self, home: Module, base: str) -> Iterator[Module]:
        """Other modules of the project around `home` whose classes may have a base of that name.

        None at all in a project with more than `_SEARCH_LIMIT` files.
        """
        root = self.root_of(home)
        if root:
            found = self.lookups.deriving(root, base)
            yield from self._loaded(self.path_of(home), root, found)

    def storing(self, home: Module, name: str) -> Iterator[Module]:
        """Other modules of the project around `home` that may store an attribute of that name.

        None at all in a project with more than `_SEARCH_LIMIT` files.
        """
        root = self.root_of(home)
        if root:
            found = self.lookups.storing(root, name)
            yield from self._loaded(self.path_of(home), root, found)

    def beside(self, module: Module, filename: str) -> Iterator[Module]:
        """The modules of a file name in the folder of a module and those above, nearest first."""
        for folder in self.folders_up(module):
            path = self.lookups.file(os.path.join(folder, filename))
            found = self._module_at(path, "") if path else None
            if found is not None:
                yield found

    def _loaded(self, path: str, root: str, found: list[str]) -> Iterator[Module]:
        for other in found:
            if other == path:
                continue
            module = self._module_at(other, _dotted_below(other, root))
            if module is not None:
                yield module

    def folders_up(self, module: Module) -> list[str]:
        """The folder of a module and those above it, up to the project's root."""
        folder = os.path.dirname(self._paths.get(module, ""))
        if not folder:
            return []
        root = self._root or self._project_root(folder)
        folders = [folder]
        while folders[-1] != root and folders[-1] != os.path.dirname(folders[-1]):
            folders.append(os.path.dirname(folders[-1]))
        return folders if folders[-1] == root else [folder]

    def release(self) -> None:
        """Let go of the modules that other projects share; nothing may be asked any more."""
        for module in self._paths:
            module.beyond = None

    # -- files -----------------------------------------------------------------------------

    def folders_of(self, module: Module) -> list[str]:
        """Where a relative path in a module may start: the project's root, its own folder."""
        path = self._paths.get(module, "")
        if not path:
            return []
        folder = os.path.dirname(path)
        return list(dict.fromkeys((self._root or self._project_root(folder), folder)))

    def _module_at(self, path: str, dotted: str) -> Module | None:
        if path not in self._modules:
            self._modules[path] = None  # an import cycle ends here
            loaded = self._load(path, dotted)
            if loaded is not None:
                self._remember(path, loaded)
        return self._modules[path]

    def _load(self, path: str, dotted: str) -> Module | None:
        filename = os.path.relpath(path).replace(os.sep, "/")
        try:
            data = self._bytes.pop(path, None)
            source = decode(self.lookups.read(path) if data is None else data, filename)
            return _shared(source, dotted, self._package_of(path))
        except (UnreadableFile, RecursionError, MemoryError, OSError):
            return None

    def _find(self, dotted: str, importer: Module) -> str | None:
        key = (dotted, self._place_of(importer))
        if key not in self._found:
            self._found[key] = self._find_file(dotted, importer)
        return self._found[key]

    def _find_file(self, dotted: str, importer: Module) -> str | None:
        relative = dotted.replace(".", os.sep)
        if not relative.strip(os.sep):
            return None
        first, _, below = relative.partition(os.sep)
        for folder in self._folders_with(first, importer):
            # One question for all modules of a package that is not there.
            if below and not self.lookups.exists(os.path.join(folder, first)):
                continue
            base = os.path.join(folder, relative)
            # Of a package and a module of one name, Python takes the package.
            for candidate in (os.path.join(base, "__init__.py"), base + ".py"):
                path = self.lookups.file(candidate)
                if path:
                    return path
        return None

    def _folders_with(self, name: str, importer: Module) -> Iterator[str]:
        """Folders that may hold a top-level module, in the order in which they are asked.

        Behind those that any program looks into: the folders above, in which the script may lie
        that imports the importer.
        """
        yield from self._search_path(importer)
        yield from self._named_above(name, importer)
        if name not in sys.stdlib_module_names:
            yield from self.folders_up(importer)[1:-1]

    def _search_path(self, importer: Module) -> list[str]:
        """Folders in the order in which Python would look: the script's own comes first."""
        path = self._paths.get(importer, "")
        if not path:
            return []
        place = self._place_of(importer)
        if place not in self._search_paths:
            folder = os.path.dirname(path)
            usual = self._folders_from(folder)
            added = [
                os.path.normpath(os.path.join(start, entry))
                for entry in self._added.get(path, ())
                for start in (folder, self._root or self._project_root(folder))
            ]
            self._search_paths[place] = list(dict.fromkeys((*usual, *added)))
        return self._search_paths[place]

    def _named_above(self, name: str, importer: Module) -> list[str]:
        """The folder above the nearest one around an importer that has this name, if any.

        `from src.helper import build` in `src/train.py`: whoever runs that starts above `src`.
        """
        folder = self._folder_of(importer)
        for _ in range(_NESTED):
            parent, last = os.path.split(folder)
            if not last:
                break
            if last == name:
                return [parent]
            folder = parent
        return []

    def _folders_from(self, folder: str) -> list[str]:
        root = self._root or self._project_root(folder)
        sources = [os.path.join(root, name) for name in (*self._src, "src")]
        return list(dict.fromkeys((self._above_package(folder), folder, root, *sources)))

    def _package_of(self, path: str) -> str:
        """The dotted package that relative imports of a file start from."""
        folder = os.path.dirname(path)
        top = self._above_package(folder)
        if top == folder:  # no __init__.py: a namespace package below the project's root
            top = self._root or self._project_root(folder)
        relative = os.path.relpath(folder, top)
        if relative == os.curdir or relative.startswith(os.pardir):
            return os.path.basename(folder)
        return relative.replace(os.sep, ".")

    def _above_package(self, folder: str) -> str:
        """The folder above the outermost package that holds `folder`; itself if it is none."""
        while self.lookups.file(os.path.join(folder, "__init__.py")):
            parent = os.path.dirname(folder)
            if parent == folder:
                break
            folder = parent
        return folder

    def _project_root(self, folder: str) -> str:
        """The nearest folder upwards that holds a project file.

        If none does, the checked folder that the folder lies in, else the folder itself.
        """
        if folder not in self._roots:
            self._roots[folder] = self._found_root(folder)
        return self._roots[folder]

    def _found_root(self, folder: str) -> str:
        current = folder
        while True:
            if any(self.lookups.exists(os.path.join(current, mark)) for mark in _PROJECT_MARKS):
                return current
            parent = os.path.dirname(current)
            if parent == current:
                return self._checked if self._is_checked(folder) else folder
            current = parent

    def _is_checked(self, folder: str) -> bool:
        checked = self._checked
        return bool(checked) and (folder == checked or folder.startswith(checked + os.sep))


@lru_cache(maxsize=_SHARED)
def _words_of_imports(text: bytes) -> frozenset[str]:
    """The names in the import statements of a file, and `*`; found once in a process."""
    words = b" ".join(_IMPORT_STATEMENT.findall(text))
    return frozenset(_WORD.findall(words.decode("utf-8", "replace")))


@lru_cache(maxsize=_SHARED)
def _shared(source: SourceFile, dotted: str, package: str) -> Module:
    """A module that several checked files import is parsed once in a process.

    The key holds the whole text, so that an edit between two runs is seen.
    """
    return build_module(source.filename, source.text, parse(source), name=dotted, package=package)


def _stem(path: str) -> str:
    """The last part of a module's dotted name."""
    stem = os.path.splitext(os.path.basename(path))[0]
    return os.path.basename(os.path.dirname(path)) if stem == "__init__" else stem


def _dotted_below(path: str, root: str) -> str:
    return os.path.splitext(os.path.relpath(path, root))[0].replace(os.sep, ".")
