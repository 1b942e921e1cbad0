"""One parsed module: its functions, classes and calls, in one pass."""

from __future__ import annotations

import ast
import os
import re
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar
from weakref import ref

from amplint.code.exits import write_exits_as_raises
from amplint.code.expressions import callee_of, last_name
from amplint.code.scopes import Scopes
from amplint.code.tree import children, walk

#: What a question about one module gives.
Answer = TypeVar("Answer")
_WORD = re.compile(r"\w+")
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Module | ast.Lambda


class Follower(Protocol):
    """A project, as a module knows it."""

    def follow(self, dotted: str, importer: Module) -> str:
        """What a dotted name leads to through modules of the project that only hand it on."""
        ...


@dataclass(slots=True, eq=False)
class Class:
    """A class statement.

    Args:
        module: the module that holds the statement.
        label: unique in a project: module name and qualname.
        methods: own methods by name, the last definition of each; inherited ones are found by
            their order.
    """

    name: str
    qualname: str
    node: ast.ClassDef
    module: Module
    label: str
    methods: dict[str, Function] = field(default_factory=dict)

    @property
    def bases(self) -> list[ast.expr]:
        """The base class expressions, in order."""
        return self.node.bases


@dataclass(slots=True, eq=False)
class Function:
    """A function, a method, or the module body (`name == "<module>"`).

    Args:
        qualname: dotted within the module: "Trainer.train_epoch", "main.inner".
        module: the module that holds it.
        label: unique in a project: module name and qualname.
        parent: the enclosing function (for nested functions), or None.
        owner: the class whose method it is, or None.
        redefined: names of nested functions that several statements define.
        nodes: every node of its own body, outer ones first, without contexts (`ast.Load`)
            and operators; nested functions and classes appear as one node each.
    """

    name: str
    qualname: str
    node: FunctionNode
    module: Module = field(repr=False)
    label: str
    parent: Function | None = None
    owner: Class | None = None
    nested: dict[str, Function] = field(default_factory=dict)
    redefined: set[str] = field(default_factory=set)
    nodes: list[ast.AST] = field(default_factory=list)
    _answers: dict[Callable[..., object], Any] = field(default_factory=dict, repr=False)

    def once(self, ask: Callable[[Function], Answer]) -> Answer:
        """What `ask` says about the text of this function; asked once, as of a module."""
        if ask not in self._answers:
            self._answers[ask] = ask(self)
        found: Answer = self._answers[ask]
        return found

    @property
    def body(self) -> list[ast.stmt]:
        """The statements of the function."""
        return self.node.body  # type: ignore[return-value]


@dataclass(frozen=True, slots=True, eq=False)
class CallSite:
    """A call expression and what its callee resolves to.

    Args:
        node: the call.
        function: the innermost function (or module body) that holds it.
        method: the attribute name for `x.method(...)`, the bare name for `name(...)`, "" else.
    """

    node: ast.Call
    function: Function
    method: str

    @property
    def dotted(self) -> str | None:
        """The callee's dotted name through imports ("torch.amp.GradScaler"), or None."""
        return self.function.module.resolve(self.node.func)


@dataclass(slots=True, eq=False)
class Module:
    """A file after one pass: everything that rules and the flow analysis look up.

    Args:
        filename: as it will be printed.
        source: decoded text, universal newlines not applied.
        tree: the parsed module.
        scopes: what its names mean.
        name: dotted name in the project ("package.module"), "" for a file judged alone.
        path: where it lies on disk, without links; "" if nowhere.
        folder: the one that holds it; "" if it lies nowhere.
        definitions: its functions and classes by their statements.
        project: follows dotted names through other modules, as long as there is the project, which a
            module does not keep.
    """

    filename: str
    source: str
    tree: ast.Module
    scopes: Scopes = field(repr=False)
    name: str = ""
    path: str = ""
    folder: str = ""
    functions: list[Function] = field(default_factory=list)
    definitions: dict[ast.AST, Function | Class] = field(default_factory=dict, repr=False)
    classes: dict[str, Class] = field(default_factory=dict)
    calls: list[CallSite] = field(default_factory=list)
    project: ref[Follower] | None = field(default=None, repr=False)
    _followed: dict[str, str] = field(default_factory=dict, repr=False)
    _resolved: dict[ast.expr, str | None] = field(default_factory=dict, repr=False)
    _answers: dict[Callable[..., object], Any] = field(default_factory=dict, repr=False)

    def note_renamed(self, is_foreign: Callable[[str], bool]) -> None:
        """Let `last_name` give the name that a library has for what an import renames.

        Args:
            is_foreign: whether a dotted name leads out of the project; what stays inside keeps
                the name that the file has for it.
        """
        renamed = self.once(_renamed)
        for name, imported in renamed:
            given = imported.rpartition(".")[2] if is_foreign(imported) else name.id
            name.imported_as = given  # type: ignore[attr-defined]
        for index, site in enumerate(self.calls if renamed else ()):
            method = _method_name(callee_of(site.node))
            if method != site.method:
                self.calls[index] = replace(site, method=method)

    def once(self, ask: Callable[[Module], Answer]) -> Answer:
        """What `ask` says about this module alone; asked once, however often it is wanted."""
        if ask not in self._answers:
            self._answers[ask] = ask(self)
        found: Answer = self._answers[ask]
        return found

    @property
    def body(self) -> Function:
        """The module body as a function."""
        return self.functions[0]

    def nodes(self) -> Iterator[ast.AST]:
        """Every node of every function body; class-level statements are left out."""
        return (node for function in self.functions for node in function.nodes)

    def resolve(self, expression: ast.expr) -> str | None:
        """Dotted name of what an import binds to an expression; None for everything else.

        Where it is read counts: a parameter shadows an import. An expression that was made up
        is read at the top of the module. A name that modules of the project only hand on is
        followed to the library that defines it.
        """
        if self.project is None:
            return self.scopes.dotted(expression)
        try:
            return self._resolved[expression]  # asked of most expressions, again and again
        except KeyError:
            found = self._resolved[expression] = self._resolve(expression)
            return found

    def _resolve(self, expression: ast.expr) -> str | None:
        dotted = self.scopes.dotted(expression)
        if dotted is not None:
            return self._follow(dotted)
        for candidate in self.scopes.starred(expression):
            found = self._follow(candidate)
            if found != candidate:
                return found
        return None

    def imported_once(self, expression: ast.expr) -> bool:
        """Whether imports of one thing, and nothing else, bind the root of a dotted expression.

        So does a star of a module of the project that is known to give the name.
        """
        if self.scopes.imported_once(expression):
            return True
        root = expression
        while isinstance(root, ast.Attribute):
            root = root.value
        if not isinstance(root, ast.Name) or self.scopes.resolve(root).bounds:
            return False
        return self.resolve(root) is not None

    def _follow(self, dotted: str) -> str:
        if dotted not in self._followed:
            project = self.project() if self.project is not None else None
            self._followed[dotted] = project.follow(dotted, self) if project is not None else dotted
        return self._followed[dotted]


def build_module(
    filename: str,
    source: str,
    tree: ast.Module,
    *,
    name: str = "",
    package: str = "",
    path: str = "",
) -> Module:
    """Index a parsed module.

    Args:
        name: its dotted name in the project, "" if it is judged alone.
        path: where it lies on disk; "" if nowhere.
        package: the dotted name of the package that relative imports start from.

    Raises:
        RecursionError: the tree is nested deeper than the interpreter's stack; the caller
            reports AMP000.
    """
    scopes = Scopes(tree, package)
    write_exits_as_raises(tree, source, scopes)
    module = Module(filename, source, tree, scopes, name, path, os.path.dirname(path))
    body = Function("<module>", "<module>", tree, module, _label(module, "<module>"))
    module.functions.append(body)
    _Indexer(module).visit_body(tree, body, None, "")
    return module


class _Indexer:
    """Walks the tree once, keeping track of the innermost function and class."""

    def __init__(self, module: Module) -> None:
        self.module = module

    def visit_body(
        self, node: ast.AST, function: Function, owner: Class | None, prefix: str
    ) -> None:
        for child in children(node):
            self._visit(child, function, owner, prefix)

    def _visit(self, node: ast.AST, function: Function, owner: Class | None, prefix: str) -> None:
        if owner is None:  # statements of a class body belong to no function
            function.nodes.append(node)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self._enter_function(node, function, owner, prefix)
            return
        if isinstance(node, ast.ClassDef):
            self._enter_class(node, function, prefix)
            return
        if isinstance(node, ast.Call):
            self.module.calls.append(CallSite(node, function, _method_name(callee_of(node))))
        self.visit_body(node, function, owner, prefix)

    def _enter_function(
        self,
        node: ast.FunctionDef | ast.AsyncFunctionDef,
        function: Function,
        owner: Class | None,
        prefix: str,
    ) -> None:
        parent = function if function is not self.module.body else None
        qualname = prefix + node.name
        label = _label(self.module, qualname)
        inner = Function(node.name, qualname, node, self.module, label, parent, owner)
        self.module.functions.append(inner)
        self.module.definitions[node] = inner
        if owner is not None:
            if not _is_accessor(node):
                owner.methods[node.name] = inner
        else:
            if node.name in function.nested:
                function.redefined.add(node.name)
            function.nested[node.name] = inner
        for decorator in node.decorator_list:
            self._visit(decorator, function, owner, prefix)
        self._visit(node.args, function, None, prefix)
        for statement in node.body:
            self._visit(statement, inner, None, inner.qualname + ".")

    def _enter_class(self, node: ast.ClassDef, function: Function, prefix: str) -> None:
        qualname = prefix + node.name
        inner = Class(node.name, qualname, node, self.module, _label(self.module, qualname))
        self.module.classes.setdefault(node.name, inner)
        self.module.definitions[node] = inner
        for expression in (*node.decorator_list, *node.bases):
            self._visit(expression, function, None, prefix)
        for statement in node.body:
            self._visit(statement, function, inner, inner.qualname + ".")


def _renamed(module: Module) -> list[tuple[ast.Name, str]]:
    """Where a file reads what an absolute import alone binds under another name, and its own."""
    scopes = module.scopes
    known = scopes.aliases.items()
    if all(dotted == name or dotted.endswith(f".{name}") for name, dotted in known):
        return []
    return [
        (read, item.dotted)
        for item in scopes.imports
        if isinstance(item.statement, ast.ImportFrom) and not item.statement.level
        if item.alias.asname not in (None, item.alias.name)
        for read in scopes.reads(item)
        if scopes.imported_once(read)
    ]


def _is_accessor(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether `@name.setter` or its like adds to the property of that name."""
    return any(
        isinstance(item, ast.Attribute)
        and isinstance(item.value, ast.Name)
        and item.value.id == node.name
        for item in node.decorator_list
    )


def as_function(node: ast.Lambda, function: Function) -> Function:
    """A lambda that a function holds, as a nested function that returns its expression."""
    returned = ast.copy_location(ast.Return(node.body), node)
    definition = ast.FunctionDef("<lambda>", node.args, [returned], [])
    label = f"{function.label}.<lambda>@{node.lineno}:{node.col_offset}"
    return Function(
        "<lambda>",
        f"{function.qualname}.<lambda>",
        ast.copy_location(definition, node),
        function.module,
        label,
        function,
        nodes=[returned, *walk(node.body)],
    )


def _label(module: Module, qualname: str) -> str:
    return f"{module.name}.{qualname}" if module.name else qualname


def _method_name(callee: ast.expr) -> str:
    return last_name(callee) if isinstance(callee, (ast.Attribute, ast.Name)) else ""


def walk_function(function: Function) -> Iterator[ast.AST]:
    """Every node of the function's own body, without nested functions and classes."""
    return iter(function.nodes)


def names_read(module: Module) -> frozenset[str]:
    """Names that a module reads anywhere, in annotations that are strings, too.

    An import that is not among them is only handed on: `from package.steps import step`.
    """
    found: set[str] = set()
    for node in walk(module.tree):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, (ast.arg, ast.AnnAssign)):
            found.update(_names_in_text(node.annotation))
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.update(_names_in_text(node.returns))
    return frozenset(found)


def mentions(module: Module, words: re.Pattern[str]) -> bool:
    """Whether the code of a file holds some words; comments and docstrings do not count."""
    return bool(words.search(module.source) and words.search(module.once(_code_text)))


def _code_text(module: Module) -> str:
    """The text of a file with blanks for comments, and for strings that are statements."""
    lines = module.source.splitlines(keepends=True)
    told = [
        (node.lineno, len(lines[node.lineno - 1].encode()[: node.col_offset].decode()))
        for node in walk(module.tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ]
    try:
        for token in tokenize.generate_tokens(iter([*lines, ""]).__next__):
            if token.type == tokenize.COMMENT or token.start in told:
                _blank(lines, token)
    except (tokenize.TokenError, SyntaxError):
        return module.source
    return "".join(lines)


def _blank(lines: list[str], token: tokenize.TokenInfo) -> None:
    (first, start), (last, end) = token.start, token.end
    for row in range(first, last + 1):
        line = lines[row - 1]
        until = end if row == last else len(line.rstrip("\r\n"))
        since = start if row == first else 0
        lines[row - 1] = line[:since] + " " * (until - since) + line[until:]


def _names_in_text(annotation: ast.expr | None) -> list[str]:
    """The words of the strings in an annotation: `Optional["Trainer"]`."""
    nodes = walk(annotation) if annotation is not None else []
    texts = (node.value for node in nodes if isinstance(node, ast.Constant))
    return [word for text in texts if isinstance(text, str) for word in _WORD.findall(text)]


def enclosing_class(function: Function) -> Class | None:
    """The class whose `self` a function sees, through nested functions."""
    scope: Function | None = function
    while scope is not None:
        if scope.owner is not None:
            return scope.owner
        scope = scope.parent
    return None
