"""Who names a function or a class of a file, and whether anything that runs does.

A class that nothing names is built by nobody in sight. That says something of a project of scripts,
whose files are all there is; a package has users elsewhere.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from amplint.code.definitions import is_test_file
from amplint.code.expressions import last_name
from amplint.code.module import Module, walk
from amplint.code.project import Project
from amplint.errors import UnreadableFile

#: So many names are followed to whoever names them in turn; behind more of them anything may be.
_NAMES = 60
#: Files that make a folder something that is installed, and so is imported from elsewhere.
_INSTALLERS = ("setup.py", "setup.cfg")
_INSTALLED = re.compile(
    rb"^\[(?:project|build-system|tool\.(?:poetry|flit|setuptools))\b", re.MULTILINE
)
#: Calls that find what they call by a name that no text shows.
_BY_NAME = frozenset(
    ("import_module", "__import__", "instantiate", "locate", "__subclasses__", "getmembers")
    + ("run_path", "run_module", "iter_modules", "walk_packages", "resolve_name", "load_object")
    + ("get_class", "get_method", "Fire", "CLI")
)
#: Builtins that read or run what no text shows; methods of these names are others.
_BUILTINS = frozenset(("eval", "exec", "globals", "locals", "vars"))
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*(?:[.:][A-Za-z_]\w*)*")
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Mentions:
    """Answers for the files of one project, each found out once."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._unused: dict[tuple[Module, str], bool] = {}
        self._closed: dict[Module, bool] = {}
        self._installed: dict[str, bool] = {}

    def holders(self, name: str, home: Module) -> Iterator[tuple[Module, str]]:
        """What names something, tests apart: the file, and what holds the place at its top.

        That is the name of a function or a class, "" for statements that run with the file.
        """
        for module in (home, *self.project.mentioning(home, name)):
            if not is_test_file(module.filename):
                yield from ((module, item) for item in module.once(_named).get(name, ()))

    def is_imported(self, name: str, home: Module) -> bool:
        """Whether another file of the project gets a name from a file."""
        stem = self.project.stem_of(home)
        return any(_takes(other, stem, name) for other in self.project.mentioning(home, name, stem))

    def is_unused(self, name: str, home: Module) -> bool:
        """Whether no run comes to a function or a class at the top of a file, for all one can see.

        The file is used otherwise, so that it is no draft, and all who could use it are in sight.
        """
        key = home, name
        if key not in self._unused:
            self._unused[key] = self._find_unused(name, home)
        return self._unused[key]

    def _find_unused(self, name: str, home: Module) -> bool:
        others = [item.name for item in home.tree.body if isinstance(item, _DEFINITIONS)]
        if others == [name] or not self.project.is_searched(home):
            return False
        around = self._unused_around(name, home)
        return (
            bool(around)
            and not all(self._unused_around(other, home) for other in others if other != name)
            and self._is_closed(home)
            and not self._is_in_notebooks(home, around)
        )

    def _unused_around(self, name: str, home: Module) -> frozenset[str]:
        """The name, and those of all that names it; none at all if some of it runs."""
        pending, seen = [(home, name)], {(home, name)}
        while pending:
            module, word = pending.pop()
            for found in self.holders(word, module):
                if not found[1] or len(seen) > _NAMES:
                    return frozenset()
                if found not in seen:
                    seen.add(found)
                    pending.append(found)
        return frozenset(word for _, word in seen)

    def _is_in_notebooks(self, home: Module, names: AbstractSet[str]) -> bool:
        """Whether a notebook of the project holds one of the names, or cannot be read."""
        lookups = self.project.lookups
        words = "|".join(map(re.escape, sorted(names))).encode("utf-8", "replace")
        one = re.compile(rb"\b(?:" + words + rb")\b")
        try:
            return any(
                one.search(lookups.read(path))
                for path in lookups.notebooks(self.project.root_of(home))
            )
        except UnreadableFile:
            return True

    def _is_closed(self, home: Module) -> bool:
        """Whether nobody else can use a file: it is not installed, and no name is made in a run."""
        if home not in self._closed:
            self._closed[home] = not (
                any(map(self._is_installed, self.project.folders_up(home)))
                or self._is_found_by_name(home)
            )
        return self._closed[home]

    def _is_installed(self, folder: str) -> bool:
        if folder not in self._installed:
            self._installed[folder] = self._is_installer(folder)
        return self._installed[folder]

    def _is_installer(self, folder: str) -> bool:
        lookups = self.project.lookups
        if any(lookups.file(os.path.join(folder, name)) for name in _INSTALLERS):
            return True
        path = lookups.file(os.path.join(folder, "pyproject.toml"))
        try:
            return bool(path) and _INSTALLED.search(lookups.read(path)) is not None
        except UnreadableFile:
            return True

    def _is_found_by_name(self, home: Module) -> bool:
        words = sorted(_BY_NAME | _BUILTINS | {"getattr"})
        modules = {home} | {each for word in words for each in self.project.mentioning(home, word)}
        return any(module.once(_finds_by_name) for module in modules)


def _named(module: Module) -> dict[str, frozenset[str]]:
    """Names that a file reads, each with what reads it at its top: see `Mentions.holders`.

    What is decorated is named by its decorator. An import names nothing, but where it renames.
    """
    found: dict[str, set[str]] = {}
    for statement in module.tree.body:
        holder = statement.name if isinstance(statement, _DEFINITIONS) else ""
        if isinstance(statement, _DEFINITIONS) and statement.decorator_list:
            found.setdefault(statement.name, set()).add("")
        for name in () if _is_list_of_exports(statement) else _names_in(statement):
            if name != holder:
                found.setdefault(name, set()).add(holder)
    return {name: frozenset(holders) for name, holders in found.items()}


def _is_list_of_exports(statement: ast.stmt) -> bool:
    targets = statement.targets if isinstance(statement, ast.Assign) else ()
    return any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets)


def _names_in(statement: ast.stmt) -> Iterator[str]:
    for node in walk(statement):
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
            yield node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.alias) and node.asname is not None:
            yield node.name.rpartition(".")[2]
        elif isinstance(node, ast.Constant) and _IDENTIFIER.fullmatch(str(node.value)):
            yield re.split("[.:]", str(node.value))[-1]


def _finds_by_name(module: Module) -> bool:
    """Whether a file asks for functions, classes or files by names that are made in a run."""
    return any(
        _is_by_name(node, module) for node in walk(module.tree) if isinstance(node, ast.Call)
    )


def _is_by_name(call: ast.Call, module: Module) -> bool:
    name = last_name(call.func)
    if name in _BY_NAME:
        return True
    if not isinstance(call.func, ast.Name):
        return False
    if name != "getattr" or len(call.args) < 2:
        return name in _BUILTINS
    holder, wanted = call.args[:2]
    is_module = module.resolve(holder) is not None or isinstance(holder, ast.Subscript)
    return is_module and not isinstance(wanted, ast.Constant)


def _takes(module: Module, stem: str, name: str) -> bool:
    """Whether a module imports a name from a module with that last part, or reads it there."""
    scopes = module.scopes
    if any(dotted.split(".")[-2:] == [stem, name] for dotted in scopes.aliases.values()):
        return True
    if any(star.rpartition(".")[2] == stem for star in scopes.stars):
        return True
    reads = (node for node in module.nodes() if isinstance(node, ast.Attribute))
    return any(
        (scopes.dotted(node) or "").split(".")[-2:] == [stem, name]
        for node in reads
        if node.attr == name
    )
