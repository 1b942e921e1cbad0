"""Scopes of one module by Python's own rules, and what each name means where it is read.

One walk over a parsed file finds every scope and everything that binds a name in it: functions,
lambdas, comprehensions, class bodies (which the functions in them do not see), `global`,
`nonlocal`, `del`, `except … as`, patterns and imports. What a name means is worked out when
somebody asks.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property

from amplint.code.by_name import read_by_name
from amplint.code.imports import star_module, taken_from
from amplint.code.meanings import (
    PLAIN_STATEMENTS,
    Bound,
    Imported,
    Meaning,
    Scope,
    latest,
    runs_before,
)
from amplint.code.tree import COMPREHENSIONS, TRIES, children

#: `a = b` is followed through this many names.
_ALIASES = 8
_BUILTINS = frozenset(dir(builtins))


class Scopes:
    """The scopes of one file.

    Args:
        tree: of the file.
        package: dotted name of the package that relative imports start from.

    Attributes:
        module: the outermost scope.
        every: all scopes, outer ones first.
        aliases: names that imports bind in any scope, and what the last of them stands for.
        stars: modules that `from module import *` names.
    """

    def __init__(self, tree: ast.Module, package: str = "") -> None:
        self.package = package
        self.module = Scope(tree, None)
        self.every = [self.module]
        self.stars: list[str] = []
        self._found: list[tuple[ast.alias, ast.Import | ast.ImportFrom, str, str]] = []
        self._of: dict[ast.AST, Scope] = {tree: self.module}
        _Builder(self).visit_all(tree.body, self.module)
        self._take_out()
        self._dotted: dict[ast.AST, str] = {alias: dotted for alias, _, _, dotted in self._found}
        self._others = self._bound_otherwise()
        self._known: dict[ast.Name, str | None] = {}
        self._chains: dict[tuple[ast.expr, int], str | None] = {}
        self._meanings: dict[ast.Name, Meaning] = {}
        self.aliases = {name: dotted for _, _, name, dotted in self._preferred()}

    # -- questions -----------------------------------------------------------------------------

    def of(self, node: ast.AST) -> Scope:
        """The scope that a function, lambda, class or module statement opens.

        A function that was made of a lambda opens the lambda's; one of nowhere, the module's.
        """
        return self._of.get(getattr(node, "args", node), self.module)

    def resolve(self, name: ast.Name, node: ast.AST | None = None) -> Meaning:
        """What a name means where it is read.

        Args:
            node: the function whose scope counts for a name that was made up; None: the module.
        """
        scope = self._standing.get(name)
        if scope is None:
            return self.meaning(name.id, self.module if node is None else self.of(node))
        if name not in self._meanings:
            self._meanings[name] = self.meaning(name.id, scope, name)
        return self._meanings[name]

    def meaning(self, name: str, scope: Scope, read: ast.Name | None = None) -> Meaning:
        """What a name means in a scope: anywhere in it, or at one place that reads it."""
        owner = self.owner(name, scope)
        if owner is None:
            kind = "builtin" if name in _BUILTINS and not self.stars else "unknown"
            return Meaning(name, None, (), kind)
        bounds = owner.bindings[name]
        if read is not None and owner is scope:
            bounds = [bound for bound in bounds if runs_before(bound, read)] or bounds
        kind = "closure" if owner is not scope else "local"
        return Meaning(name, owner, latest(bounds), "global" if owner.is_module else kind)

    def owner(self, name: str, scope: Scope | None) -> Scope | None:
        """The scope that binds what a scope reads under a name; None if none does."""
        first = scope
        while scope is not None:
            # What a class body binds or declares is not seen from the functions inside it.
            if scope is first or not scope.is_class:
                outside = scope.elsewhere.get(name)
                if outside:
                    return self.module if name in self.module.bindings else None
                if outside is None and name in scope.bindings:
                    return scope
            scope = scope.parent
        return None

    def dotted(self, expression: ast.expr, depth: int = _ALIASES) -> str | None:
        """The dotted name of an imported name or what hangs on one ("torch.cuda.amp"), or None.

        Where an import and something else may have bound the name, the import counts: the other
        is what happens without the library. `getattr(torch.optim, "SGD")` has a dotted name too,
        and so has `mixed.autocast` after `mixed = torch.amp`.
        """
        if isinstance(expression, ast.Name):
            return self._root(expression, depth)
        key = (expression, depth)
        if key not in self._chains:
            self._chains[key] = self._dotted_chain(expression, depth)
        return self._chains[key]

    def _dotted_chain(self, expression: ast.expr, depth: int) -> str | None:
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
        root = self._root(expression, depth)
        return None if root is None else ".".join((root, *reversed(parts)))

    def starred(self, expression: ast.expr) -> list[str]:
        """Dotted names that an expression has if a star import brings its root; the last first."""
        parts: list[str] = []
        while isinstance(expression, ast.Attribute):
            parts.append(expression.attr)
            expression = expression.value
        if not self.stars or not isinstance(expression, ast.Name):
            return []
        if expression.id in _BUILTINS or self.resolve(expression).scope is not None:
            return []
        rest = ".".join((expression.id, *reversed(parts)))
        return [f"{star}.{rest}" for star in reversed(self.stars)]

    def _root(self, name: ast.Name, depth: int) -> str | None:
        if name.id not in self._others:
            return self.aliases.get(name.id)
        if name not in self._known:
            self._known[name] = self._find_root(name, depth)
        return self._known[name]

    def _find_root(self, name: ast.Name, depth: int) -> str | None:
        return self.dotted_of(self.resolve(name), depth)

    def dotted_of(self, meaning: Meaning, depth: int = _ALIASES) -> str | None:
        """The dotted name of what a name means, if an import has a part in it."""
        if meaning.imports:
            found = [item.node for item in meaning.imports if item.node not in self._older]
            return self._dotted[(found or [item.node for item in meaning.imports])[-1]]
        other = meaning.other_name
        return self.dotted(other, depth - 1) if other is not None and depth else None

    def imported_once(self, expression: ast.expr) -> bool:
        """Whether imports of one thing, and nothing else, bind the root of a dotted expression.

        False for `try: from a import f` / `except ImportError: from b import f`; what a handler of
        such a `try` defines itself (`f = None`) is there only where the import failed.
        """
        while isinstance(expression, ast.Attribute):
            expression = expression.value
        if not isinstance(expression, ast.Name):
            return False
        bounds = self.resolve(expression).bounds
        dotted = {
            self._dotted.get(bound.node) for bound in bounds if bound.node not in self._stand_ins
        }
        return len(dotted) == 1 and None not in dotted

    @cached_property
    def _stand_ins(self) -> frozenset[ast.AST]:
        """What binds a name in a handler of a `try` that imports it, and is no import."""
        tries = [node for node in ast.walk(self.module.node) if isinstance(node, TRIES)]
        return frozenset(
            node
            for outer in tries
            if (imported := self._imported(outer.body))
            for handler in outer.handlers
            for node in ast.walk(handler)
            if _name_defined(node) in imported
        )

    def _preferred(self) -> list[tuple[ast.alias, ast.Import | ast.ImportFrom, str, str]]:
        """The imports of a file, those last that say what their names are."""
        return sorted(self._found, key=lambda item: item[0] not in self._older)

    @cached_property
    def _older(self) -> frozenset[ast.AST]:
        """Imports in a handler for what its `try` imports from another place of the same package.

        The `try` asks for the place that newer versions have: `from torch.amp import GradScaler`
        before `from torch.cuda.amp import GradScaler`.
        """
        every = {(name, dotted) for _, _, name, dotted in self._found}
        if len(every) == len({name for name, _ in every}):
            return frozenset()
        return frozenset(
            alias
            for outer in ast.walk(self.module.node)
            if isinstance(outer, TRIES)
            for alias, dotted, name in self._taken(outer.handlers)
            if any(
                name == other and _package(dotted) == _package(newer)
                for _, newer, other in self._taken(outer.body)
            )
        )

    def _taken(self, nodes: Iterable[ast.AST]) -> list[tuple[ast.alias, str, str]]:
        """What import statements in some nodes bring in: the alias, its dotted name, the name."""
        return [
            (alias, dotted, name)
            for outer in nodes
            for node in ast.walk(outer)
            if isinstance(node, (ast.Import, ast.ImportFrom))
            for alias, name, dotted in taken_from(node, self.package)
        ]

    def _imported(self, body: list[ast.stmt]) -> set[str]:
        """The names that the import statements of a block bind."""
        imports = (item for item in body if isinstance(item, (ast.Import, ast.ImportFrom)))
        return {name for item in imports for _, name, _ in taken_from(item, self.package)}

    def gives(self, name: str) -> bool:
        """Whether `from module import *` may take a name: by `__all__`, else by its first letter."""
        return not name.startswith("_") if self.all is None else name in self.all

    @cached_property
    def all(self) -> frozenset[str] | None:
        """What the module lists in `__all__`; None without one, or if it is not written out."""
        found: set[str] = set()
        bounds = self.module.bindings.get("__all__", ())
        for bound in bounds:
            value = getattr(bound.statement, "value", None)
            words = getattr(value, "elts", [value])
            if not all(isinstance(word, ast.Constant) for word in words):
                return None
            found.update(str(word.value) for word in words)
        return frozenset(found) if bounds else None

    @property
    def imports(self) -> list[Imported]:
        """Every name that an import binds, in source order of the scopes."""
        found = {alias: (statement, dotted) for alias, statement, _, dotted in self._found}
        return [
            Imported(name, found[bound.node][1], bound.node, found[bound.node][0], scope)
            for scope in self.every
            for name, bounds in scope.bindings.items()
            for bound in bounds
            if isinstance(bound.node, ast.alias)
        ]

    def reads(self, imported: Imported) -> list[ast.Name]:
        """Where a name is read that is bound in the import's scope."""
        return self._readers.get((imported.scope, imported.name), [])

    def rivals(self, imported: Imported) -> list[ast.AST]:
        """What else binds the same name in the same scope."""
        bounds = imported.scope.bindings[imported.name]
        return [bound.node for bound in bounds if bound.node is not imported.alias]

    def is_global(self, imported: Imported) -> bool:
        """Whether other files can see the name."""
        return imported.scope is self.module

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """The node around each node of the file but the module."""
        tree = self.module.node
        return {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around a node, innermost first."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    # -- building ------------------------------------------------------------------------------

    def enter(self, node: ast.AST, parent: Scope) -> Scope:
        """Open a scope: for a function under its parameters, which a copy of it shares."""
        scope = Scope(node, parent)
        self.every.append(scope)
        self._of[getattr(node, "args", node)] = scope
        return scope

    def take_import(self, node: ast.Import | ast.ImportFrom, scope: Scope, always: bool) -> None:
        """Bind what an import statement brings in."""
        star = star_module(node, self.package)
        if star is not None:
            self.stars.append(star)
            return
        for alias, name, dotted in taken_from(node, self.package):
            self._found.append((alias, node, name, dotted))
            scope.bindings.setdefault(name, []).append(Bound(alias, node, always))

    def _take_out(self) -> None:
        """Move bindings of `global` and `nonlocal` names to the scope that holds them."""
        for scope in self.every:
            for name, is_global in scope.elsewhere.items():
                owner = self.module if is_global else self.owner(name, scope.parent)
                if owner is None or owner is scope:
                    continue
                moved = [bound._replace(always=False) for bound in scope.bindings.pop(name, ())]
                if moved:
                    owner.bindings.setdefault(name, []).extend(moved)

    def _bound_otherwise(self) -> frozenset[str]:
        """Names whose imports do not say what they mean, and other names for imported ones."""
        imported: dict[str, str] = {}
        found = {
            name
            for _, _, name, dotted in self._found
            if imported.setdefault(name, dotted) != dotted
        }
        others: dict[str, set[str]] = {}
        for scope in self.every:
            for name, bounds in scope.bindings.items():
                if name not in imported:
                    for root in _roots(bounds):
                        others.setdefault(root, set()).add(name)
                elif not scope.is_module or any(
                    type(item.node) is not ast.alias for item in bounds
                ):
                    found.add(name)
        pending = [*imported]
        while pending:
            more = others.pop(pending.pop(), ())
            found.update(more)
            pending += more
        return frozenset(found)

    @cached_property
    def _standing(self) -> dict[ast.Name, Scope]:
        """Where each name stands that is read."""
        return {read: scope for scope in self.every for read in scope.reads}

    @cached_property
    def _readers(self) -> dict[tuple[Scope, str], list[ast.Name]]:
        readers: dict[tuple[Scope, str], list[ast.Name]] = {}
        for scope in self.every:
            for node in scope.reads:
                owner = self.owner(node.id, scope)
                if owner is not None:
                    readers.setdefault((owner, node.id), []).append(node)
        return readers


def _package(dotted: str) -> str:
    """The package that a dotted name stands in; "" where dots lead to one that is not known."""
    return dotted.partition(".")[0]


class _Builder:
    """Walks a tree once, keeping track of the statement and of whether it always runs."""

    def __init__(self, scopes: Scopes) -> None:
        self.scopes = scopes
        self.statement: ast.AST | None = None
        self.always = True

    def visit_all(self, nodes: Iterable[ast.AST], scope: Scope) -> None:
        for node in nodes:
            self.visit(node, scope)

    def visit(self, node: ast.AST, scope: Scope) -> None:
        special = _SPECIAL.get(type(node))
        if special is not None:
            special(self, node, scope)
            return
        for child in children(node):
            self.visit(child, scope)

    def bind(self, name: str, node: ast.AST, scope: Scope) -> None:
        scope.bindings.setdefault(name, []).append(Bound(node, self.statement, self.always))

    def name(self, node: ast.Name, scope: Scope) -> None:
        if isinstance(node.ctx, ast.Load):
            scope.reads.append(node)
        else:
            self.bind(node.id, node, scope)

    def plain(self, node: ast.AST, scope: Scope) -> None:
        self.statement = node
        self.visit_all(children(node), scope)

    def sometimes(self, node: ast.AST, scope: Scope) -> None:
        """A statement whose parts need not run."""
        always, self.always = self.always, False
        self.plain(node, scope)
        self.always = always

    def tries(self, node: ast.Try, scope: Scope) -> None:
        always, self.always = self.always, False
        for part in (node.body, node.handlers, node.orelse):
            self.visit_all(part, scope)
        self.always = always
        self.visit_all(node.finalbody, scope)

    def handler(self, node: ast.ExceptHandler, scope: Scope) -> None:
        self.statement = node
        if node.name:
            self.bind(node.name, node, scope)
        self.visit_all(children(node), scope)

    def imports(self, node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
        self.scopes.take_import(node, scope, self.always)

    def declares(self, node: ast.Global | ast.Nonlocal, scope: Scope) -> None:
        for name in node.names:
            scope.elsewhere[name] = isinstance(node, ast.Global)

    def pattern(self, node: ast.AST, scope: Scope) -> None:
        name = getattr(node, "rest", None) or getattr(node, "name", None)
        if name:
            self.bind(name, node, scope)
        self.visit_all(children(node), scope)

    def walrus(self, node: ast.NamedExpr, scope: Scope) -> None:
        self.visit(node.value, scope)
        while isinstance(scope.node, COMPREHENSIONS) and scope.parent is not None:
            scope = scope.parent
        self.visit(node.target, scope)

    def function(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, scope: Scope
    ) -> None:
        self.statement = node
        self.visit_all(getattr(node, "decorator_list", ()), scope)
        self.visit_all(node.args.defaults, scope)
        self.visit_all((item for item in node.args.kw_defaults if item), scope)
        if not isinstance(node, ast.Lambda):
            self.bind(node.name, node, scope)
            scope = self.type_parameters(node, scope)
        for argument in _every_argument(node.args):
            if argument.annotation is not None:
                self.visit(argument.annotation, scope)
        if getattr(node, "returns", None) is not None:
            self.visit(node.returns, scope)  # type: ignore[union-attr,arg-type]
        inner = self.scopes.enter(node, scope)
        for argument in _every_argument(node.args):
            inner.bindings[argument.arg] = [Bound(argument, None, True)]
        body = [node.body] if isinstance(node, ast.Lambda) else node.body
        self.inside(body, inner)

    def inside(self, body: list[ast.stmt] | list[ast.expr], inner: Scope) -> None:
        statement, always = self.statement, self.always
        self.always = True
        self.visit_all(body, inner)
        self.statement, self.always = statement, always

    def class_(self, node: ast.ClassDef, scope: Scope) -> None:
        self.statement = node
        self.visit_all(node.decorator_list, scope)
        self.bind(node.name, node, scope)
        scope = self.type_parameters(node, scope)
        self.visit_all((*node.bases, *node.keywords), scope)
        self.inside(node.body, self.scopes.enter(node, scope))

    def type_parameters(self, node: ast.AST, scope: Scope) -> Scope:
        """The scope that `[T]` behind a name opens, or the one around it."""
        parameters = getattr(node, "type_params", None)
        if not parameters:
            return scope
        inner = Scope(node, scope)
        self.scopes.every.append(inner)
        for parameter in parameters:
            inner.bindings[parameter.name] = [Bound(parameter, None, True)]
            self.visit_all(children(parameter), inner)
        return inner

    def type_alias(self, node: ast.AST, scope: Scope) -> None:
        self.statement = node
        self.visit(node.name, scope)  # type: ignore[attr-defined]
        self.visit(node.value, self.type_parameters(node, scope))  # type: ignore[attr-defined]

    def comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp, scope: Scope
    ) -> None:
        self.visit(node.generators[0].iter, scope)
        inner = self.scopes.enter(node, scope)
        for index, generator in enumerate(node.generators):
            self.visit(generator.target, inner)
            if index:
                self.visit(generator.iter, inner)
            self.visit_all(generator.ifs, inner)
        for part in children(node):
            if not isinstance(part, ast.comprehension):
                self.visit(part, inner)


_SPECIAL: dict[type[ast.AST], Callable[..., None]] = {
    ast.Name: _Builder.name,
    ast.Constant: lambda *_: None,
    ast.Import: _Builder.imports,
    ast.ImportFrom: _Builder.imports,
    ast.Global: _Builder.declares,
    ast.Nonlocal: _Builder.declares,
    ast.NamedExpr: _Builder.walrus,
    ast.FunctionDef: _Builder.function,
    ast.AsyncFunctionDef: _Builder.function,
    ast.Lambda: _Builder.function,
    ast.ClassDef: _Builder.class_,
    ast.ExceptHandler: _Builder.handler,
    **dict.fromkeys(COMPREHENSIONS, _Builder.comprehension),
    **dict.fromkeys((ast.MatchAs, ast.MatchStar, ast.MatchMapping), _Builder.pattern),
    **dict.fromkeys((*PLAIN_STATEMENTS, ast.With, ast.AsyncWith), _Builder.plain),
    **dict.fromkeys((ast.If, ast.For, ast.AsyncFor, ast.While, ast.Match), _Builder.sometimes),
    ast.Try: _Builder.tries,
    **{
        getattr(ast, name): method
        for name, method in (("TryStar", _Builder.tries), ("TypeAlias", _Builder.type_alias))
        if hasattr(ast, name)
    },
}


def _every_argument(arguments: ast.arguments) -> list[ast.arg]:
    found = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return found + [rest for rest in (arguments.vararg, arguments.kwarg) if rest is not None]


def _roots(bounds: Iterable[Bound]) -> Iterator[str]:
    """Names that the values of assignments start with, where those are names or attributes."""
    for bound in bounds:
        if isinstance(bound.statement, (ast.Assign, ast.AnnAssign)):
            value = bound.statement.value
            while isinstance(value, ast.Attribute):
                value = value.value
            if isinstance(value, ast.Name):
                yield value.id


def _name_defined(node: ast.AST) -> str | None:
    """The name that a definition or an assignment binds."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return node.name
    return node.id if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else None
