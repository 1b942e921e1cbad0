"""Which import each name of a file reads, by Python's own rules of scope.

`Imports` of a module is flow-insensitive and has one scope, which suits questions about
meaning. Whoever rewrites an import has to know every place that reads it, and that nothing
else binds the name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(slots=True, eq=False)
class Scope:
    """A module, a function, a class body or a comprehension.

    Args:
        bindings: by name, the nodes that bind it here: an `ast.alias` for an import.
        reads: the names read here; they may be bound further out.
        elsewhere: names that `global` (True) or `nonlocal` (False) takes out of the scope.
    """

    node: ast.AST
    parent: Scope | None
    bindings: dict[str, list[ast.AST]] = field(default_factory=dict)
    reads: list[ast.Name] = field(default_factory=list)
    elsewhere: dict[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Imported:
    """A name that an import binds.

    Args:
        name: in the code.
        dotted: what it stands for; for `import a.b` that is `a`.
        alias: the part of the statement.
        statement: the import.
        scope: where the name is bound.
    """

    name: str
    dotted: str
    alias: ast.alias
    statement: ast.Import | ast.ImportFrom
    scope: Scope


class References:
    """The scopes of one file.

    Args:
        tree: of the file.

    Attributes:
        parents: of every node but the module.
        imports: every name that an absolute import binds, in source order.
    """

    def __init__(self, tree: ast.Module) -> None:
        self.parents: dict[ast.AST, ast.AST] = {
            child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)
        }
        self._module = Scope(tree, None)
        self._scopes = [self._module]
        self._visit_all(tree.body, self._module)
        self._take_out()
        self.imports = [
            imported for scope in self._scopes for imported in _imports(scope, self.parents)
        ]
        self._readers = self._resolve()

    def reads(self, imported: Imported) -> list[ast.Name]:
        """Where a name is read that is bound in the import's scope."""
        return self._readers.get((imported.scope, imported.name), [])

    def rivals(self, imported: Imported) -> list[ast.AST]:
        """What else binds the same name in the same scope."""
        binders = imported.scope.bindings[imported.name]
        return [node for node in binders if node is not imported.alias]

    def is_global(self, imported: Imported) -> bool:
        """Whether other files can see the name."""
        return imported.scope is self._module

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around a node, innermost first."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    # -- building ------------------------------------------------------------------------------

    def _visit_all(self, nodes: Iterable[ast.AST], scope: Scope) -> None:
        for node in nodes:
            self._visit(node, scope)

    def _visit(self, node: ast.AST, scope: Scope) -> None:
        for name in _bound_by(node):
            scope.bindings.setdefault(name, []).append(node)
        if isinstance(node, (*_FUNCTIONS, ast.Lambda)):
            self._visit_function(node, scope)
        elif isinstance(node, ast.ClassDef):
            inner = self._enter(node, scope)
            outside = (*node.decorator_list, *node.bases, *node.keywords)
            self._visit_all(outside, scope)
            self._visit_all(node.body, inner)
        elif isinstance(node, _COMPREHENSIONS):
            self._visit_comprehension(node, scope)
        elif isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Load):
                scope.reads.append(node)
            else:
                scope.bindings.setdefault(node.id, []).append(node)
        elif isinstance(node, ast.NamedExpr):
            self._visit(node.value, scope)
            owner = scope
            while isinstance(owner.node, _COMPREHENSIONS) and owner.parent is not None:
                owner = owner.parent
            self._visit(node.target, owner)
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            for name in node.names:
                scope.elsewhere[name] = isinstance(node, ast.Global)
        else:
            self._visit_all(ast.iter_child_nodes(node), scope)

    def _enter(self, node: ast.AST, parent: Scope) -> Scope:
        scope = Scope(node, parent)
        self._scopes.append(scope)
        return scope

    def _visit_function(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, scope: Scope
    ) -> None:
        inner = self._enter(node, scope)
        arguments = node.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        every += [rest for rest in (arguments.vararg, arguments.kwarg) if rest is not None]
        for argument in every:
            inner.bindings.setdefault(argument.arg, []).append(argument)
            if argument.annotation is not None:
                self._visit(argument.annotation, scope)
        defaults = (*arguments.defaults, *(item for item in arguments.kw_defaults if item))
        self._visit_all(defaults, scope)
        if isinstance(node, ast.Lambda):
            self._visit(node.body, inner)
            return
        self._visit_all(node.decorator_list, scope)
        if node.returns is not None:
            self._visit(node.returns, scope)
        self._visit_all(node.body, inner)

    def _visit_comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp, scope: Scope
    ) -> None:
        inner = self._enter(node, scope)
        self._visit(node.generators[0].iter, scope)
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.comprehension):
                self._visit(child, inner)
        for index, generator in enumerate(node.generators):
            parts = (generator.target, *([generator.iter] if index else ()), *generator.ifs)
            self._visit_all(parts, inner)

    def _take_out(self) -> None:
        """Move bindings of `global` and `nonlocal` names to the scope that holds them."""
        for scope in self._scopes:
            for name, is_global in scope.elsewhere.items():
                owner = self._module if is_global else self._owner(name, scope.parent)
                if owner is not None and owner is not scope:
                    moved = scope.bindings.pop(name, [])
                    owner.bindings.setdefault(name, []).extend(moved)

    def _resolve(self) -> dict[tuple[Scope, str], list[ast.Name]]:
        readers: dict[tuple[Scope, str], list[ast.Name]] = {}
        for scope in self._scopes:
            for node in scope.reads:
                owner = self._owner(node.id, scope)
                if owner is not None:
                    readers.setdefault((owner, node.id), []).append(node)
        return readers

    def _owner(self, name: str, scope: Scope | None) -> Scope | None:
        """The scope that binds what a scope reads under a name."""
        first = scope
        while scope is not None:
            if scope.elsewhere.get(name):
                return self._module if name in self._module.bindings else None
            # What a class body binds is not seen from the functions inside it.
            visible = scope is first or not isinstance(scope.node, ast.ClassDef)
            if visible and name in scope.bindings and name not in scope.elsewhere:
                return scope
            scope = scope.parent
        return None


def _bound_by(node: ast.AST) -> Iterator[str]:
    """Names that a node binds other than as a target."""
    if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
        yield node.name
    elif isinstance(node, ast.alias):
        yield node.asname or node.name.partition(".")[0]
    elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
        yield node.name
    elif isinstance(node, ast.MatchMapping) and node.rest:
        yield node.rest


def _imports(scope: Scope, parents: dict[ast.AST, ast.AST]) -> Iterator[Imported]:
    for name, binders in scope.bindings.items():
        for alias in binders:
            if not isinstance(alias, ast.alias) or alias.name == "*":
                continue
            statement = parents[alias]
            if isinstance(statement, ast.ImportFrom):
                if not statement.level:
                    dotted = f"{statement.module}.{alias.name}"
                    yield Imported(name, dotted, alias, statement, scope)
            elif isinstance(statement, ast.Import):
                dotted = alias.name if alias.asname else name
                yield Imported(name, dotted, alias, statement, scope)
