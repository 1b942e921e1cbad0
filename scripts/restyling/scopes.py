"""Which scope binds a name, by Python's rules; an answer of its own, so that it can judge amplint."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(eq=False)
class Scope:
    """A module, class, function or comprehension, and the names that it binds."""

    node: ast.AST
    parent: Scope | None
    names: set[str] = field(default_factory=set)
    elsewhere: dict[str, str] = field(default_factory=dict)

    @property
    def is_local(self) -> bool:
        """Whether its names live as long as a call."""
        return isinstance(self.node, (*_FUNCTIONS, *_COMPREHENSIONS))


class Scopes(ast.NodeVisitor):
    """The scopes of a file.

    Attributes:
        uses: every name in an expression and every parameter, with the scope that it stands in.
        by_node: the scope of a module, class, function, lambda or comprehension.
        awkward: names bound by a statement that gives them no position of their own.
    """

    def __init__(self, tree: ast.Module) -> None:
        self.uses: list[tuple[ast.Name | ast.arg, Scope]] = []
        self.by_node: dict[ast.AST, Scope] = {}
        self.awkward: set[str] = set()
        self._scope = self.by_node[tree] = Scope(tree, None)
        for statement in tree.body:
            self.visit(statement)
        self.binding = {node: resolve(_name(node), scope) for node, scope in self.uses}

    def _inside(self, node: ast.AST, parts: list[ast.AST]) -> None:
        outer = self._scope
        self._scope = self.by_node[node] = Scope(node, outer)
        for part in parts:
            self.visit(part)
        self._scope = outer

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._bind_awkward(node.name)
        given = node.args
        outside = [*node.decorator_list, *given.defaults, *filter(None, given.kw_defaults)]
        arguments = _arguments(given)
        annotations = [argument.annotation for argument in arguments if argument.annotation]
        for part in [*outside, *annotations, *filter(None, [node.returns])]:
            self.visit(part)
        self._inside(node, [*arguments, *node.body])

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        for default in [*node.args.defaults, *filter(None, node.args.kw_defaults)]:
            self.visit(default)
        self._inside(node, [*_arguments(node.args), node.body])

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._bind_awkward(node.name)
        for part in [*node.decorator_list, *node.bases, *node.keywords]:
            self.visit(part)
        self._inside(node, list(node.body))

    def _comprehension(self, node: ast.AST) -> None:
        first = node.generators[0]
        self.visit(first.iter)
        values = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        parts: list[ast.AST] = [first.target, *first.ifs]
        for generator in node.generators[1:]:
            parts += [generator.iter, generator.target, *generator.ifs]
        self._inside(node, [*parts, *values])

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension

    def visit_arg(self, node: ast.arg) -> None:
        self._scope.names.add(node.arg)
        self.uses.append((node, self._scope))

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load):
            self._scope.names.add(node.id)
        self.uses.append((node, self._scope))

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        scope = self._scope
        while isinstance(scope.node, _COMPREHENSIONS):
            scope = scope.parent
        scope.names.add(node.target.id)
        self.uses.append((node.target, scope))
        self.visit(node.value)

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            self._bind_awkward((alias.asname or alias.name).partition(".")[0])

    visit_ImportFrom = visit_Import

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self._bind_awkward(node.name)
        self.generic_visit(node)

    def visit_Global(self, node: ast.Global) -> None:
        for name in node.names:
            self._scope.elsewhere[name] = "global"
            self.awkward.add(name)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        for name in node.names:
            self._scope.elsewhere[name] = "nonlocal"
            self.awkward.add(name)

    def visit_MatchAs(self, node: ast.MatchAs | ast.MatchStar) -> None:
        if node.name:
            self._bind_awkward(node.name)
        self.generic_visit(node)

    visit_MatchStar = visit_MatchAs

    def _bind_awkward(self, name: str) -> None:
        self._scope.names.add(name)
        if not isinstance(self._scope.node, ast.Module):
            self.awkward.add(name)


def resolve(name: str, scope: Scope) -> Scope | None:
    """The scope that binds a name used in `scope`; None for builtins and unknown names."""
    current: Scope | None = scope
    while current is not None:
        declared = current.elsewhere.get(name)
        visible = current is scope or not isinstance(current.node, ast.ClassDef)
        if declared == "global":
            return _module(current)
        if declared is None and visible and name in current.names:
            return current
        current = current.parent
    return None


def _module(scope: Scope) -> Scope:
    while scope.parent is not None:
        scope = scope.parent
    return scope


def _name(node: ast.Name | ast.arg) -> str:
    return node.id if isinstance(node, ast.Name) else node.arg


def _arguments(given: ast.arguments) -> list[ast.arg]:
    stars = [star for star in (given.vararg, given.kwarg) if star is not None]
    return [*given.posonlyargs, *given.args, *given.kwonlyargs, *stars]
