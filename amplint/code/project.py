"""The project around a file: finds modules and symbols by dotted name, on demand.

Files are read and parsed, never imported. What cannot be found or read is unknown, and
unknown never reports: an error in another file is that file's own AMP000.
"""

from __future__ import annotations

import ast
import os
import re
from collections import deque
from collections.abc import Iterator
from weakref import ref

from amplint.code.filepaths import added_folders
from amplint.code.import_paths import ImportPaths
from amplint.code.index import kept_in_this_run
from amplint.code.lookups import Kept, Lookups
from amplint.code.meanings import Meaning
from amplint.code.module import Class, Function, Module, build_module
from amplint.collector import thaw
from amplint.errors import UnreadableFile
from amplint.source.parsing import parse
from amplint.source.reading import SourceFile, decode

#: Re-exports are followed through this many files.
_REEXPORT_DEPTH = 5
#: So many modules are kept for the next checked files, with their trees: about 0.35 MB each. A
#: project with more of them is read anew from time to time.
_MOST = 1_500
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
        libraries: a file of each package that only its own files find in the project.

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
        libraries: tuple[str, ...] = (),
    ) -> None:
        self.target_torch = target_torch
        self.lookups = Lookups(index)
        self._settings = (root, src, checked, libraries)
        self._folders = ImportPaths(self.lookups, *self._settings)
        self._around = self
        self._own: dict[str, Module] = {}
        self._loaded: dict[str, Kept[Module | None]] = {}
        self._symbols: dict[tuple[str, str, int], Kept[Function | Class | None]] = {}
        self._beyond: dict[tuple[str, str, int], Kept[str]] = {}
        self._imported_words: dict[str, Kept[frozenset[str]]] = {}
        self._is_cut = False

    def another(self) -> Project:
        """The project with a file of its own in place of one; all others are those of this one."""
        root, src, checked, libraries = self._settings
        other = Project(root, src, self.target_torch, "", checked, libraries)
        other.lookups = self.lookups
        other._around = self._around
        other._folders = self._folders
        return other

    @property
    def is_full(self) -> bool:
        """Whether another one should be made for the next checked file."""
        return self._is_cut or len(self._loaded) > _MOST

    def at(self, path: str, source: SourceFile) -> Module | None:
        """The checked file as it lies on disk, where it has this text and name and can be read."""
        found = self._module_at(os.path.realpath(path)) if path else None
        if found is None or found.filename != source.filename or found.source != source.text:
            return None
        return found

    def add(self, filename: str, source: str, tree: ast.Module, path: str) -> Module:
        """Index the checked file itself, which stands for what lies on disk at its place.

        Args:
            filename: as findings print it.
            path: where it lies on disk; "" for text that lies nowhere.

        Raises:
            RecursionError: the file is nested too deeply.
        """
        path = os.path.realpath(path) if path else ""
        found = self._build(SourceFile(filename, source), tree, path)
        self._own[path] = found
        return found

    def _build(self, source: SourceFile, tree: ast.Module, path: str) -> Module:
        """A parsed file as a module whose names lead through this project."""
        package = self._folders.package_of(path) if path else ""
        name = _dotted_below(path, self._folders.root_of(os.path.dirname(path))) if path else ""
        found = build_module(
            source.filename, source.text, tree, name=name, package=package, path=path
        )
        added = added_folders(found, path)
        if self._around is self:
            self._folders.note_added(path, added)
        elif added != self._folders.adds(path):
            self._folders = self._folders.adding(path, added)
        found.project = ref(self)
        found.note_renamed(lambda dotted: self._module_behind(dotted, found) is None)
        return found

    def follow(self, dotted: str, importer: Module) -> str:
        """As `beyond`; every checked file for which the module counts depends on it, too."""
        known = self._loaded.get(importer.path)
        if known is None or known.content is not importer:
            return self.beyond(dotted, importer)
        return self.lookups.adding(known, lambda: self.beyond(dotted, importer))

    def root_of(self, module: Module) -> str:
        """The folder of the project around a module; "" if it lies nowhere."""
        return self._folders.root_of(module.folder) if module.path else ""

    def package_of(self, module: Module) -> str:
        """The dotted package that the relative imports of a module start from."""
        return self._folders.package_of(module.path) if module.path else ""

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
        if not self._folders.owns(dotted.partition(".")[0], importer):
            return dotted
        key = (dotted, self._folders.place_of(importer), depth)
        return self.lookups.once(self._beyond, key, lambda: self._followed(dotted, importer, depth))

    def _followed(self, dotted: str, importer: Module, depth: int) -> str:
        head, below = self._own_part(dotted.split("."), importer)
        if head is None or not below or not depth:
            return dotted
        path = self._folders.find(head, importer)
        if path is None or not self._may_hand_on(path, below[0]):
            return dotted
        module = self._module_at(path)
        if module is None:
            return dotted
        scopes = module.scopes
        given = scopes.dotted_of(scopes.meaning(below[0], scopes.module))
        stars = (star for star in scopes.stars if self._folders.find(star, module) is not None)
        for root in [given] if given is not None else [f"{star}.{below[0]}" for star in stars]:
            onward = ".".join((root, *below[1:]))
            found = self.beyond(onward, module, depth - 1)
            if given is not None or found != onward:
                return found
        return dotted

    def _own_part(self, parts: list[str], importer: Module) -> tuple[str | None, list[str]]:
        """The longest beginning of a dotted name that is a module of the project, and the rest."""
        if not self._folders.owns(parts[0], importer):
            return None, []
        for length in range(len(parts) - 1, 0, -1):
            head = ".".join(parts[:length])
            if self._folders.find(head, importer) is not None:
                return head, parts[length:]
        return None, []

    def _may_hand_on(self, path: str, name: str) -> bool:
        """Whether the imports of a file mention a name, or bring in names unseen."""
        found = self.lookups.once(
            self._imported_words, path, lambda: _words_of_imports(self._text_of(path))
        )
        return name in found or "*" in found

    def _text_of(self, path: str) -> bytes:
        """The bytes of a file; none if it cannot be read."""
        is_known = path in self._own or path in self._around._loaded
        module = self._module_at(path) if is_known else None
        if module is not None:
            return module.source.encode("utf-8", "replace")
        try:
            return self.lookups.read(path)
        except UnreadableFile:
            return b""

    def imported_texts(self, module: Module) -> Iterator[bytes]:
        """The bytes of the project's files that may define what a module imports, each once."""
        names = {*module.scopes.aliases.values(), *module.scopes.stars}
        names |= {site.dotted for site in module.calls if site.dotted}
        pending = [(name, module) for name in sorted(names)]
        seen: set[str] = set()
        while pending:
            dotted, importer = pending.pop()
            head = self._module_behind(self.beyond(dotted, importer), importer)
            path = self._folders.find(head, importer) if head is not None else None
            if head is None or path is None or path in seen:
                continue
            seen.add(path)
            yield self._text_of(path)
            other = self._module_at(path) if self._may_hand_on(path, "*") else None
            pending += [(star, other) for star in other.scopes.stars] if other else []

    def _module_behind(self, dotted: str, importer: Module) -> str | None:
        """The module of the project that a dotted name is, or belongs to."""
        if self._folders.find(dotted, importer) is not None:
            return dotted
        return self._own_part(dotted.split("."), importer)[0]

    def module_named(self, dotted: str, importer: Module) -> Module | None:
        """The module of a dotted name as `importer` would import it."""
        path = self._folders.find(dotted, importer)
        return self._module_at(path) if path is not None else None

    def _symbol(self, dotted: str, importer: Module, depth: int) -> Function | Class | None:
        key = (dotted, self._folders.place_of(importer), depth)
        return self.lookups.once(self._symbols, key, lambda: self._look_up(dotted, importer, depth))

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
        path = function.module.path
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
        yield from self._others(path, list(dict.fromkeys(found)))

    def _handing_on(self, name: str, home: Module) -> Iterator[str]:
        """The packages around a module, up to the project's root, that may hand a name of it on."""
        own, root = home.path, self.root_of(home)
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
        return _stem(module.path)

    def mentioning(self, home: Module, *words: str) -> Iterator[Module]:
        """Other modules of the project around `home` whose text holds all the words.

        None at all in a project with more than `_SEARCH_LIMIT` files.
        """
        root = self.root_of(home)
        if root:
            found = self.lookups.mentioning(root, *words)
            yield from self._others(home.path, found)

    def deriving(self, home: Module, base: str) -> Iterator[Module]:
        """Other modules of the project around `home` whose classes may have a base of that name.

        None at all in a project with more than `_SEARCH_LIMIT` files.
        """
        root = self.root_of(home)
        if root:
            found = self.lookups.deriving(root, base)
            yield from self._others(home.path, found)

    def storing(self, home: Module, name: str) -> Iterator[Module]:
        """Other modules of the project around `home` that may store an attribute of that name.

        None at all in a project with more than `_SEARCH_LIMIT` files.
        """
        root = self.root_of(home)
        if root:
            found = self.lookups.storing(root, name)
            yield from self._others(home.path, found)

    def beside(self, module: Module, filename: str) -> Iterator[Module]:
        """The modules of a file name in the folder of a module and those above, nearest first."""
        for folder in self.folders_up(module):
            path = self.lookups.file(os.path.join(folder, filename))
            found = self._module_at(path) if path else None
            if found is not None:
                yield found

    def _others(self, path: str, found: list[str]) -> Iterator[Module]:
        for other in found:
            if other == path:
                continue
            module = self._module_at(other)
            if module is not None:
                yield module

    def folders_up(self, module: Module) -> list[str]:
        """The folder of a module and those above it, up to the project's root."""
        return self._folders.folders_up(module)

    def folders_of(self, module: Module) -> list[str]:
        """Where a relative path in a module may start: the project's root, its own folder."""
        if not module.path:
            return []
        return list(dict.fromkeys((self._folders.root_of(module.folder), module.folder)))

    def _module_at(self, path: str) -> Module | None:
        """The module of a file, read and indexed once; None if it cannot be."""
        if path in self._own:
            return self._own[path]
        if self._around is not self:
            return self._around._module_at(path)
        return self.lookups.once(self._loaded, path, lambda: self._load(path))

    def _load(self, path: str) -> Module | None:
        filename = os.path.relpath(path).replace(os.sep, "/")
        try:
            source = decode(self.lookups.read(path), filename)
            return self._build(source, parse(source), path)
        except (UnreadableFile, OSError):
            return None
        except (RecursionError, MemoryError):  # for others there may be room
            self._is_cut = True
            return None


def around(
    root: str | None,
    src: tuple[str, ...],
    target_torch: str | None,
    index: str,
    checked: str,
    libraries: tuple[str, ...] = (),
) -> Project:
    """The project of `Project`'s arguments as the files of this run know it, ready for the next one."""
    kept = kept_in_this_run()
    key = (root, src, target_torch, index, checked, libraries)
    found = kept.get(key)
    if not isinstance(found, Project) or found.is_full:
        thaw()
        found = kept[key] = Project(*key)
    found.lookups.start()
    return found


def _words_of_imports(text: bytes) -> frozenset[str]:
    """The names in the import statements of a file, and `*`."""
    words = b" ".join(_IMPORT_STATEMENT.findall(text))
    return frozenset(_WORD.findall(words.decode("utf-8", "replace")))


def _stem(path: str) -> str:
    """The last part of a module's dotted name."""
    stem = os.path.splitext(os.path.basename(path))[0]
    return os.path.basename(os.path.dirname(path)) if stem == "__init__" else stem


def _dotted_below(path: str, root: str) -> str:
    return os.path.splitext(os.path.relpath(path, root))[0].replace(os.sep, ".")
