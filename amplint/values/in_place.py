"""A file as it would read if its functions did themselves what they call helpers for.

Whether a block of code stands in a function or behind a call is a matter of taste. Questions
about the statements of one function are asked of both forms: the file as it is written, and the
same file with calls of functions of the project replaced by what these do.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeGuard, TypeVar

from amplint.code.arguments import receiver_of
from amplint.code.expressions import last_name
from amplint.code.module import Class, Function, Module
from amplint.code.splicing import (
    BLOCKS,
    BRANCHES,
    Caller,
    Straight,
    bound_by,
    called_by,
    splice,
    straight,
)
from amplint.code.tree import children, walk
from amplint.values.callables import Instance
from amplint.values.objects import Objects

_WORD = re.compile(r"\w+")
_Branch = TypeVar("_Branch", ast.ExceptHandler, ast.match_case)

#: Calls inside of what a call runs are replaced down to this depth.
_DEPTH = 8
#: A function with more nodes than this is no block that was moved: it is judged by itself.
_LONG = 500
#: So many nodes are written into one file; what is left stays behind its calls.
_NODES = 3000
#: Columns of what was written in begin here: behind whatever stands in the row of the call.
_COLUMN = 100_000


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """Where a node that was written in comes from.

    Args:
        module: the file that it stands in.
        node: there.
        calls: the calls of the checked file that lead there, the outermost first.
    """

    module: Module
    node: ast.AST
    calls: tuple[ast.Call, ...]


@dataclass(frozen=True, eq=False)
class InPlace:
    """A file with its helpers written in.

    Args:
        tree: of the new file; what did not change is shared with the old one.
        places: the nodes that were written in.
        functions: those of the old file whose statements changed, and that were not written into
            others: without their callers, less is known of their parameters.
    """

    tree: ast.Module
    places: dict[ast.AST, Place]
    functions: frozenset[Function]

    @cached_property
    def by_position(self) -> dict[tuple[int, int], Place]:
        """Places by row and column, for nodes that were made up later."""
        return {
            (node.lineno, node.col_offset): place  # type: ignore[attr-defined]  # see `placed`
            for node, place in self.places.items()
        }


def in_place(
    module: Module, objects: Objects, matters: Callable[[Function], bool]
) -> InPlace | None:
    """The file with helpers written in; None where it calls none that could be.

    Args:
        matters: whether anybody looks for what a function does. Where no function of the file
            does such a thing, or none that calls a helper or is one, the file stays as it is.
    """
    if not any(map(matters, module.functions)):
        return None
    writer = _Writer(module, objects, matters)
    body = writer.block(module.tree.body, module.body, ())
    if not any(map(matters, writer.changed | writer.helpers)):
        return None
    body = _without_unused(body, writer.helpers)
    imports = [_import_of(name, dotted) for name, dotted in sorted(writer.imports.items())]
    first = next(
        (
            index
            for index, statement in enumerate(body)
            if not isinstance(statement, (ast.ImportFrom, ast.Expr))
        ),
        len(body),
    )
    tree = ast.Module([*body[:first], *imports, *body[first:]], module.tree.type_ignores)
    return InPlace(
        tree,
        writer.placed(),
        frozenset(writer.changed - writer.helpers),
    )


def _without_unused(body: list[ast.stmt], helpers: Collection[Function]) -> list[ast.stmt]:
    """The statements of a file without functions all of whose calls were written in.

    Without their callers, their parameters would seem to hold their defaults.
    """
    written = {helper.name for helper in helpers if helper.owner is None}
    read = {
        last_name(node)
        for statement in body
        for node in walk(statement)
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load)
    }
    return [
        statement
        for statement in body
        if not isinstance(statement, ast.FunctionDef) or statement.name not in written - read
    ]


def _import_of(name: str, dotted: str) -> ast.stmt:
    home, _, symbol = dotted.rpartition(".")
    alias = ast.alias(symbol, name)
    made = ast.ImportFrom(home, [alias], 0) if home else ast.Import([alias])
    for node in (alias, made):
        node.lineno = node.end_lineno = 1
        node.col_offset = node.end_col_offset = 0
    return made


class _Writer:
    """Writes what calls run into the functions of one file.

    Attributes:
        imports: names that stand for what other files import or define, and its dotted names.
        changed: functions with other statements than before.
        helpers: functions that were written into others.
    """

    def __init__(
        self, module: Module, objects: Objects, matters: Callable[[Function], bool]
    ) -> None:
        self.module = module
        self.objects = objects
        self._matters = matters
        self.imports: dict[str, str] = {}
        self.changed: set[Function] = set()
        self.helpers: set[Function] = set()
        self._marks: dict[ast.AST, Place] = {}
        self._written: list[tuple[ast.Call, list[ast.stmt]]] = []
        self._names: dict[Function, set[str]] = {}
        self._owners: dict[Function, Class | None] = {}
        self._left = _NODES

    # -- statements ----------------------------------------------------------------------------

    def block(
        self, statements: list[ast.stmt], function: Function, stack: tuple[Function, ...]
    ) -> list[ast.stmt]:
        """Statements of a function, the same list where nothing was replaced.

        Args:
            stack: the functions that are being written into each other.
        """
        found = [self._statement(statement, function, stack) for statement in statements]
        if all(new is None for new in found):
            return statements
        return [
            item for old, new in zip(statements, found) for item in ([old] if new is None else new)
        ]

    def _statement(
        self, statement: ast.stmt, function: Function, stack: tuple[Function, ...]
    ) -> list[ast.stmt] | None:
        call = called_by(statement)
        if call is not None:
            return self._spliced(statement, call, function, stack)
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            inner = self.module.definitions.get(statement)
            if stack or not isinstance(inner, Function):
                return None
            function = inner
        fields = {name: getattr(statement, name) for name in statement._fields}
        changed = False
        for name in (*BLOCKS, *BRANCHES):
            old = fields.get(name)
            if isinstance(old, list) and old:
                write = self._branches if name in BRANCHES else self.block
                fields[name] = write(old, function, stack)
                changed = changed or fields[name] is not old
        if not changed:
            return None
        if self._takes_only(statement, function):
            return [*self._only(statement), *fields["body"]]
        return [ast.copy_location(type(statement)(**fields), statement)]

    def _branches(
        self, items: list[_Branch], function: Function, stack: tuple[Function, ...]
    ) -> list[_Branch]:
        """The handlers or the cases of a statement."""
        bodies = [self.block(item.body, function, stack) for item in items]
        if all(body is item.body for body, item in zip(bodies, items)):
            return items
        return [
            ast.copy_location(
                type(item)(**{**{n: getattr(item, n) for n in item._fields}, "body": body}), item
            )
            for body, item in zip(bodies, items)
        ]

    def _takes_only(self, loop: ast.stmt, function: Function) -> TypeGuard[ast.For]:
        """Whether a loop runs once, from its first statement to its last."""
        if not isinstance(loop, ast.For) or loop.orelse:
            return False
        if any(isinstance(node, (ast.Break, ast.Continue)) for node in walk(loop)):
            return False
        return self.objects.runs_once(loop, function)

    def _only(self, loop: ast.For) -> list[ast.stmt]:
        index = ast.copy_location(ast.Constant(0), loop.iter)
        first = ast.copy_location(ast.Subscript(loop.iter, index, ast.Load()), loop.iter)
        return [ast.copy_location(ast.Assign([loop.target], first), loop.iter)]

    # -- calls ---------------------------------------------------------------------------------

    def _spliced(
        self,
        statement: ast.stmt,
        call: ast.Call,
        function: Function,
        stack: tuple[Function, ...],
    ) -> list[ast.stmt] | None:
        if len(stack) >= _DEPTH or self._left <= 0:
            return None
        owner = self._owners.get(function) if stack else None
        callee = self._callee(call, function, owner)
        if callee is None or callee.function in (function, *stack):
            return None
        if not self._means_the_same(callee, function):
            return None
        bound = self.objects.bind(call, function, callee.function)
        inside = (*stack, function)
        self._owners[callee.function] = self._owner_of(
            bound.given.get(bound.receiver), function, owner
        )
        names = self._names_of(function)
        own = {id(node) for node in walk(statement)}

        def mark(made: ast.AST, origin: ast.AST) -> None:
            known = self._marks.get(origin)
            if known is None:
                home = function if id(origin) in own else callee.function
                known = Place(home.module, origin, ())
            calls = (call, *known.calls) if function.module is self.module else known.calls
            self._marks[made] = Place(known.module, known.node, calls)

        self._names.pop(callee.function, None)
        body = self.block(callee.statements, callee.function, inside)
        foreign = _every_name(body) - bound_by(body) - callee.local - callee.free
        if foreign & self._bound_around(function):
            return None
        names |= foreign | callee.free
        made = splice(Caller(statement, call, names, mark), callee, body, bound)
        if made is None:
            return None
        self.helpers.add(callee.function)
        self._left -= sum(len(walk(item)) for item in made)
        if not stack:
            self.changed.add(function)
            self._written.append((call, made))
            self._bind_globals(made)
        return made or [ast.copy_location(ast.Pass(), statement)]

    def _names_of(self, function: Function) -> set[str]:
        if function not in self._names:
            module = function.module
            inside = module.functions if function is module.body else [function]
            self._names[function] = {name for item in inside for name in _own_names(item, function)}
        return self._names[function]

    def _callee(self, call: ast.Call, function: Function, owner: Class | None) -> Straight | None:
        """The one function that a call runs, if it can be written in its place.

        Args:
            owner: the class of the object whose method the call stands in, if that is known.
        """
        method = call.func if isinstance(call.func, ast.Attribute) else None
        if (
            method is not None
            and method.attr not in self._known
            and not self._names_module(method, function)
        ):
            return None
        if method is not None and owner is not None and _is_receiver(method, function):
            found = self.objects.method(owner, method.attr)
        else:
            found = self.objects.targets(call, function).only
        if found is None or found.name != last_name(call.func) or len(found.nodes) > _LONG:
            return None  # an object that is called, or built, is more than what it runs
        return straight(found)

    def _owner_of(
        self, receiver: ast.expr | None, function: Function, owner: Class | None
    ) -> Class | None:
        """The class that an object is known to be of, no subclass of it."""
        if receiver is None:
            return None
        if isinstance(receiver, ast.Name) and receiver.id == receiver_of(function):
            return owner
        kinds = self.objects.kinds(receiver, function)
        (kind,) = kinds.known if len(kinds.known) == 1 else (None,)
        if not isinstance(kind, Instance) or not kind.exact or kinds.unknown:
            return None
        return kind.owner

    @cached_property
    def _known(self) -> set[str]:
        """Names of functions of the file, and of methods that matter of the classes it imports."""
        project, imported = self.objects.project, self.module.scopes.aliases.values()
        found = (project.definition(dotted, self.module) for dotted in imported)
        classes = (item for item in found if isinstance(item, Class))
        owners = (owner for item in classes for owner in self.objects.ancestry(item))
        methods = (item for owner in owners for item in owner.methods.values())
        return {item.name for item in self.module.functions} | {
            item.name for item in methods if self._matters(item)
        }

    def _names_module(self, callee: ast.Attribute, function: Function) -> bool:
        root = callee.value
        while isinstance(root, ast.Attribute):
            root = root.value
        return isinstance(root, ast.Name) and (
            root.id == "self" or function.module.resolve(root) is not None
        )

    # -- names ---------------------------------------------------------------------------------

    def _means_the_same(self, callee: Straight, function: Function) -> bool:
        """Whether what a function reads of its file means the same where it is called."""
        if callee.function.parent is not None and callee.function.parent is not function:
            return False
        if callee.function.parent is None and callee.free & self._bound_around(function):
            return False
        if callee.function.module is self.module:
            return True
        return all(self._source_of(name, callee.function) is not None for name in callee.free)

    def _bound_around(self, function: Function | None) -> set[str]:
        found: set[str] = set()
        while function is not None and function.name != "<module>":
            found |= function.module.scopes.of(function.node).bindings.keys()
            function = function.parent
        return found

    def _source_of(self, name: str, function: Function) -> str | None:
        """The dotted name of what a global name of another file means, "" for a builtin."""
        home = function.module
        meaning = home.scopes.meaning(name, home.scopes.module)
        if meaning.kind == "builtin" and name not in self.module.scopes.module.bindings:
            return ""
        if meaning.imports:
            return home.scopes.dotted_of(meaning)
        project = self.objects.project
        is_there = meaning.scope is not None and home.name
        if is_there and project.module_named(home.name, self.module) is home:
            return f"{home.name}.{name}"
        return None

    def _bind_globals(self, statements: Sequence[ast.stmt]) -> None:
        """Let global names of other files mean the same here."""
        for node in (node for statement in statements for node in walk(statement)):
            place = self._marks.get(node)
            if not isinstance(node, ast.Name) or place is None or place.module is self.module:
                continue
            origin = place.node
            if not isinstance(origin, ast.Name) or origin.id != node.id:
                continue
            meaning = place.module.scopes.resolve(origin)
            if meaning.kind not in ("global", "unknown"):
                continue
            source = self._source_of(origin.id, place.module.body)
            if source:
                node.id = self._imported_as(origin.id, source)

    def _imported_as(self, name: str, dotted: str) -> str:
        here = self.module.scopes
        meaning = here.meaning(name, here.module)
        if meaning.imports and here.dotted_of(meaning) == dotted:
            return name
        if self.imports.get(name, dotted) == dotted and name not in self._words:
            known = name
        else:
            known = f"{name}_from_{dotted.replace('.', '_')}"
        self.imports[known] = dotted
        return known

    @cached_property
    def _words(self) -> frozenset[str]:
        """Every word of the file: a name that is none of them is free in all of its scopes."""
        return frozenset(_WORD.findall(self.module.source))

    # -- positions -----------------------------------------------------------------------------

    def placed(self) -> dict[ast.AST, Place]:
        """Everything that was written in, in the rows of the calls and in the order it runs."""
        found: dict[ast.AST, Place] = {}
        column = _COLUMN
        for call, statements in self._written:
            for node, start, end in _numbered(statements, column):
                # Nodes without a position get one, too.
                node.lineno = node.end_lineno = call.lineno  # type: ignore[attr-defined]
                node.col_offset, node.end_col_offset = start, end  # type: ignore[attr-defined]
                found[node] = self._marks.get(node) or Place(self.module, call, (call,))
                column = max(column, end + 1)
        return found


def _numbered(nodes: Sequence[ast.AST], column: int) -> Iterator[tuple[ast.AST, int, int]]:
    """Every node with where it starts and ends if the code stood in one long row."""
    for node in nodes:
        start, column = column, column + 1
        for inner in _numbered(children(node), column):
            yield inner
            column = max(column, inner[2] + 1)
        yield node, start, column
        column += 1


def _is_receiver(callee: ast.Attribute, function: Function) -> bool:
    """Whether a method is called on the object of the method that calls it."""
    return isinstance(callee.value, ast.Name) and callee.value.id == receiver_of(function)


def _own_names(function: Function, caller: Function) -> set[str]:
    """The names that mean something in a function; of those in a file only what is not their own."""
    if function is not caller:
        names = {node.id for node in function.nodes if isinstance(node, ast.Name)}
        return names - function.module.scopes.of(function.node).bindings.keys()
    nodes = function.nodes if function is function.module.body else walk(function.node)
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return names | {node.arg for node in nodes if isinstance(node, ast.arg)}


def _every_name(nodes: Sequence[ast.AST]) -> set[str]:
    return {inner.id for node in nodes for inner in walk(node) if isinstance(inner, ast.Name)}
