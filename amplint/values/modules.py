"""What the files of a project bind at their top: why an import raises, or what is read of a module.

A module that is missing counts for nothing: a repository may lack what its author has. A name that a
module does not have, which is there, counts.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator

from amplint.code.expressions import asks_for_start
from amplint.code.imports import taken_from
from amplint.code.module import Function, Module
from amplint.code.undefined import is_open
from amplint.values.objects import Objects

#: Modules of the standard library and others that hold a function or a class of their own name, or
#: are mistaken for one: calling one of them is a `TypeError`.
_UNCALLABLE = frozenset(
    ("argparse", "copy", "datetime", "glob", "json", "math", "os", "pprint", "random", "re", "sys")
    + ("time", "tqdm", "torch", "numpy")
)


class Modules:
    """Answers for the files of one project."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects
        self.project = objects.project

    def imported_by(self, node: ast.Import | ast.ImportFrom, importer: Module) -> Iterator[Module]:
        """The files of the project that an import runs, where it can mean no other."""
        if isinstance(node, ast.ImportFrom):
            package = self.project.package_of(importer)
            named = [dotted.rpartition(".")[0] for _, _, dotted in taken_from(node, package)]
        else:
            named = [alias.name for alias in node.names]
        for home in dict.fromkeys(self.project.module_named(dotted, importer) for dotted in named):
            if home is not None and home is not importer and not self._may_be_another(home):
                yield home

    def missing(self, node: ast.Import | ast.ImportFrom, importer: Module) -> tuple[str, str]:
        """The name that an import asks for, and the module that is there and lacks it; or "", ""."""
        if isinstance(node, ast.Import):
            return "", ""
        for alias, _, dotted in taken_from(node, self.project.package_of(importer)):
            home = self.project.module_named(dotted.rpartition(".")[0], importer)
            if home is None or not self._lacks(home, alias.name):
                continue
            # A package may have a module of that name from a compiled file, which is no text.
            if not self._is_package(home) or (alias.asname or alias.name) in importer.once(_called):
                return alias.name, home.name
        return "", ""

    def not_bound(self, node: ast.Attribute, importer: Module) -> str:
        """The module that is there and lacks what is read of it: `tools.rate`; or ""."""
        dotted = importer.resolve(node)
        if dotted is None or node.attr.startswith("__") or not isinstance(node.ctx, ast.Load):
            return ""
        home = self.project.module_named(dotted.rpartition(".")[0], importer)
        if home is None or home is importer or self._is_package(home):
            return ""
        if not self._lacks(home, node.attr) or not importer.imported_once(node):
            return ""
        return "" if self.objects.outside_stores(home, node.attr) else home.name

    def is_module(self, callee: ast.expr, function: Function) -> bool:
        """Whether a name stands for a module: `import tqdm` binds nothing that can be called."""
        here = function.module
        if not isinstance(callee, ast.Name) or not here.imported_once(callee):
            return False
        dotted = here.resolve(callee) or ""
        home = self.project.module_named(dotted, here)
        if home is None:
            return dotted in _UNCALLABLE
        if home is here or self._may_be_another(home):
            return False
        return not any(map(_names_modules, ast.walk(home.tree)))

    def is_top_level(self, module: Module) -> bool:
        """Whether all who import a file take it from their own folder, so that it has no package.

        Python's reference, "The import system": `__package__` is then "", and a relative import an
        `ImportError`. A script may be run as `python -m package.script`.
        """
        if self._is_package(module) or module.once(is_script):
            return False
        stem = self.project.stem_of(module)
        others = self.project.mentioning(module, stem)
        ways = [way for other in others for way in self._ways_to(module, other)]
        return bool(ways) and all(way == stem for way in ways)

    def _ways_to(self, module: Module, other: Module) -> Iterator[str]:
        """The names under which a file imports another one; "" for a relative import."""
        for node in ast.walk(other.tree):
            if not isinstance(node, (ast.Import, ast.ImportFrom)):
                continue
            if isinstance(node, ast.ImportFrom) and node.level:
                yield ""
                continue
            outer = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names = [".".join((*outer, alias.name)) for alias in node.names]
            for name in (*outer, *names):
                if self.project.module_named(name, other) is module:
                    yield name

    def _is_package(self, module: Module) -> bool:
        return os.path.basename(module.path) == "__init__.py"

    def _may_be_another(self, home: Module) -> bool:
        """Whether an import of a module may mean another one of the project; a package may be more."""
        return self._is_package(home) or any(self._namesakes(home))

    def _namesakes(self, home: Module, *words: str) -> Iterator[Module]:
        """Other files of the project that hold some words and are imported by the same last name."""
        stem = self.project.stem_of(home)
        others = self.project.mentioning(home, *words or (stem,))
        return (other for other in others if self.project.stem_of(other) == stem)

    def _lacks(self, home: Module, name: str) -> bool:
        """Whether neither a module nor another that an import may mean by its name binds a name."""
        return not any(_may_have(item, name) for item in (home, *self._namesakes(home, name)))


def is_script(module: Module) -> bool:
    """Whether the body of a file asks if it is the program that runs."""
    body = module.tree.body
    return any(isinstance(item, ast.If) and asks_for_start(item.test) for item in body)


def _may_have(module: Module, name: str) -> bool:
    """Whether a module may bind a name; what a star brings is not looked for."""
    scopes = module.scopes
    bound = scopes.meaning(name, scopes.module).scope is scopes.module
    return bound or bool(scopes.stars) or is_open(module)


def _called(module: Module) -> frozenset[str]:
    """Names that a file calls or derives a class from, as nobody does with a module."""
    used: list[ast.expr] = []
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call):
            used.append(node.func)
        elif isinstance(node, ast.ClassDef):
            used += node.bases
    return frozenset(node.id for node in used if isinstance(node, ast.Name))


def _names_modules(node: ast.AST) -> bool:
    """Whether a file may put another object in the place of its module: `sys.modules[__name__]`."""
    return isinstance(node, ast.Attribute) and node.attr == "modules"
