"""Import aliases of one module: from a name in the code to the dotted name it stands for.

A deliberately small resolver. LibCST's QualifiedNameProvider costs six to seven times
the parse; this needs one pass over the import statements.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from amplint.code.by_name import read_by_name


@dataclass(slots=True)
class Imports:
    """Names bound by import statements anywhere in a module.

    Args:
        aliases: local name -> dotted name ("GradScaler" -> "torch.cuda.amp.GradScaler").
        stars: modules that `from module import *` names.
        fallbacks: names that an `except ImportError` handler also binds; the import wins.
    """

    aliases: dict[str, str] = field(default_factory=dict)
    fallbacks: set[str] = field(default_factory=set)
    stars: list[str] = field(default_factory=list)

    def resolve(self, expression: ast.expr) -> str | None:
        """Return the dotted name of a name or attribute chain, or None.

        `torch` names resolve through aliases; a chain that does not start at an import
        has no dotted name. `getattr(torch.optim, "SGD")` is one.
        """
        parts: list[str] = []
        while not isinstance(expression, ast.Name):
            if isinstance(expression, ast.Attribute):
                parts.append(expression.attr)
                expression = expression.value
                continue
            named = read_by_name(expression)
            if named is None or not named[1].isidentifier():
                return None
            expression = named[0]
            parts.append(named[1])
        root = self.aliases.get(expression.id)
        if root is None:
            return None
        return ".".join((root, *reversed(parts)))


_STATEMENTS = frozenset({ast.Import, ast.ImportFrom, ast.Try})


def collect_imports(nodes: Iterable[ast.AST], *, package: str = "") -> Imports:
    """Read the import statements among the nodes of a module.

    Args:
        nodes: nodes of the module, those of nested functions included.
        package: dotted name of the package that holds the module, for relative imports.
    """
    imports = Imports()
    for node in nodes:
        if type(node) not in _STATEMENTS:
            continue
        if isinstance(node, ast.Import):
            imports.aliases.update(_plain(node))
        elif isinstance(node, ast.ImportFrom):
            imports.aliases.update(_from(node, package))
            if any(name.name == "*" for name in node.names):
                imports.stars.append(_base(node, package))
        elif isinstance(node, ast.Try) and _catches_import_error(node):
            imports.fallbacks.update(_bound_in_handlers(node))
    return imports


def _plain(node: ast.Import) -> Iterator[tuple[str, str]]:
    for name in node.names:
        if name.asname:
            yield name.asname, name.name
        else:
            root = name.name.partition(".")[0]
            yield root, root


def _from(node: ast.ImportFrom, package: str) -> Iterator[tuple[str, str]]:
    base = _base(node, package)
    for name in node.names:
        if name.name != "*":
            yield name.asname or name.name, f"{base}.{name.name}"


def _base(node: ast.ImportFrom, package: str) -> str:
    """The module that a from-import names; relative ones keep their dots if they lead out."""
    base = node.module or ""
    if not node.level:
        return base
    parents = package.split(".") if package else []
    parents = parents[: len(parents) - node.level + 1]
    if not parents:
        return "." * node.level + base
    return ".".join((*parents, *([base] if base else [])))


def _catches_import_error(node: ast.Try) -> bool:
    for handler in node.handlers:
        names = ast.dump(handler.type) if handler.type else "Exception"
        if "ImportError" in names or "ModuleNotFound" in names or "Exception" in names:
            return any(isinstance(item, (ast.Import, ast.ImportFrom)) for item in node.body)
    return False


def _bound_in_handlers(node: ast.Try) -> Iterator[str]:
    for handler in node.handlers:
        for item in handler.body:
            if isinstance(item, (ast.ClassDef, ast.FunctionDef)):
                yield item.name
