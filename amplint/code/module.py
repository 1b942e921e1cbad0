"""One parsed module: its functions, classes and calls, in one pass."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar, cast

from amplint.code.by_name import read_by_name
from amplint.code.classes import ancestry, method_of
from amplint.code.imports import Imports, collect_imports

#: What a question about one module gives.
Answer = TypeVar("Answer")
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Module | ast.Lambda


@dataclass(slots=True, eq=False)
class Class:
    """A class statement.

    Args:
        module: the module that holds the statement.
        label: unique in a project: module name and qualname.
        methods: own methods by name; inherited ones are found by `Module.find_method`.
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
        dotted: the callee's dotted name through imports ("torch.amp.GradScaler"), or None.
        method: the attribute name for `x.method(...)`, the bare name for `name(...)`, "" else.
    """

    node: ast.Call
    function: Function
    dotted: str | None
    method: str


@dataclass(slots=True, eq=False)
class Module:
    """A file after one pass: everything that rules and the flow analysis look up.

    Args:
        filename: as it will be printed.
        source: decoded text, universal newlines not applied.
        tree: the parsed module.
        name: dotted name in the project ("package.module"), "" for a file judged alone.
    """

    filename: str
    source: str
    tree: ast.Module
    name: str = ""
    imports: Imports = field(default_factory=Imports)
    functions: list[Function] = field(default_factory=list)
    classes: dict[str, Class] = field(default_factory=dict)
    calls: list[CallSite] = field(default_factory=list)
    _answers: dict[Callable[..., object], object] = field(default_factory=dict, repr=False)

    def once(self, ask: Callable[[Module], Answer]) -> Answer:
        """What `ask` says about this module alone; asked once, however often it is wanted."""
        if ask not in self._answers:
            self._answers[ask] = ask(self)
        return cast("Answer", self._answers[ask])

    @property
    def body(self) -> Function:
        """The module body as a function."""
        return self.functions[0]

    def nodes(self) -> Iterator[ast.AST]:
        """Every node of every function body; class-level statements are left out."""
        return (node for function in self.functions for node in function.nodes)

    def resolve(self, expression: ast.expr) -> str | None:
        """Dotted name of an expression; None for names that the file defines itself.

        A class of the file shadows an import, unless it is the `except ImportError`
        fallback of that import.
        """
        dotted = self.imports.resolve(expression)
        if dotted is None:
            return None
        name = _root_name(expression)
        if name in self.classes and name not in self.imports.fallbacks:
            return None
        return dotted

    def find_method(self, owner: Class, name: str) -> Function | None:
        """A method of the class or of its bases in this file, nearest first."""
        return method_of(self.ancestry(owner), name)

    def ancestry(self, owner: Class) -> list[Class]:
        """The class and its bases in this file, in the order of method resolution."""
        return list(ancestry(owner, _in_this_file).order)

    def subclasses(self, owner: Class) -> list[Class]:
        """Classes of this file that have `owner` among their bases, directly or not."""
        return [
            other
            for other in self.classes.values()
            if other is not owner and owner in self.ancestry(other)
        ]


def _in_this_file(base: ast.expr, owner: Class) -> Class | None:
    return owner.module.classes.get(base.id) if isinstance(base, ast.Name) else None


def build_module(
    filename: str, source: str, tree: ast.Module, *, name: str = "", package: str = ""
) -> Module:
    """Index a parsed module.

    Args:
        name: its dotted name in the project, "" if it is judged alone.
        package: the dotted name of the package that relative imports start from.

    Raises:
        RecursionError: the tree is nested deeper than the interpreter's stack; the caller
            reports AMP000.
    """
    module = Module(filename, source, tree, name)
    body = Function("<module>", "<module>", tree, module, _label(module, "<module>"))
    module.functions.append(body)
    _Indexer(module).visit_body(tree, body, None, "")
    module.imports = collect_imports(module.nodes(), package=package)
    module.calls = [
        CallSite(call.node, call.function, module.resolve(call.node.func), call.method)
        for call in module.calls
    ]
    return module


#: Contexts and operators: nearly half of the nodes of a tree, and nobody looks for them.
MARKS = frozenset(
    kind
    for base in (ast.expr_context, ast.boolop, ast.operator, ast.unaryop, ast.cmpop)
    for kind in base.__subclasses__()
)
#: Nodes without other nodes below them.
LEAVES = frozenset({ast.Name, ast.Constant})


def children(node: ast.AST) -> list[ast.AST]:
    """As `ast.iter_child_nodes`, but without marks, and faster: this visits every node."""
    found: list[ast.AST] = []
    if type(node) in LEAVES:
        return found
    for name in node._fields:
        value = getattr(node, name, None)
        if isinstance(value, list):
            found += [
                item for item in value if isinstance(item, ast.AST) and type(item) not in MARKS
            ]
        elif isinstance(value, ast.AST) and type(value) not in MARKS:
            found.append(value)
    return found


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
            self.module.calls.append(CallSite(node, function, None, _method_name(node.func)))
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
        if owner is not None:
            owner.methods.setdefault(node.name, inner)
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
        for expression in (*node.decorator_list, *node.bases):
            self._visit(expression, function, None, prefix)
        for statement in node.body:
            self._visit(statement, function, inner, inner.qualname + ".")


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


def _root_name(expression: ast.expr) -> str:
    """The name that a dotted expression starts with, `getattr` calls included."""
    while not isinstance(expression, ast.Name):
        named = read_by_name(expression)
        expression = named[0] if named is not None else expression.value  # type: ignore[attr-defined]
    return expression.id


def _label(module: Module, qualname: str) -> str:
    return f"{module.name}.{qualname}" if module.name else qualname


def _method_name(callee: ast.expr) -> str:
    if isinstance(callee, ast.Attribute):
        return callee.attr
    return callee.id if isinstance(callee, ast.Name) else ""


def walk(node: ast.AST) -> list[ast.AST]:
    """As `ast.walk`, in the same order, but without contexts and operators, and faster."""
    found = [node]
    for each in found:
        found += children(each)
    return found


def walk_function(function: Function) -> Iterator[ast.AST]:
    """Every node of the function's own body, without nested functions and classes."""
    return iter(function.nodes)


def enclosing_class(function: Function) -> Class | None:
    """The class whose `self` a function sees, through nested functions."""
    scope: Function | None = function
    while scope is not None:
        if scope.owner is not None:
            return scope.owner
        scope = scope.parent
    return None
