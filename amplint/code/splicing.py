"""What a call runs, written in its place: the statements of a function as its caller would have them.

Only functions whose end is where the call ends can stand there: a `return` ends a branch at the
end of the function. Names of the function that mean something else in the caller get new ones.
What a `with` leaves behind that swallows an exception is not asked.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, overload

from amplint.code.arguments import Bound, Kind, parameters
from amplint.code.module import Function
from amplint.code.tree import NESTED, walk

_Node = TypeVar("_Node", bound=ast.AST)

#: Statements that bind names as strings, or that mean something else in another function.
_BOUND_TO_THEIR_FUNCTION = (
    *NESTED[:3],
    ast.Yield,
    ast.YieldFrom,
    ast.Await,
    ast.Global,
    ast.Nonlocal,
    ast.Match,
) + (ast.Import, ast.ImportFrom, ast.AsyncFor, ast.AsyncWith, ast.Delete)
#: Builtins that ask which function they stand in.
_ASK_WHERE = frozenset(("super", "__class__", "locals", "vars", "eval", "exec"))
#: Fields of a statement that hold statements.
BLOCKS = ("body", "orelse", "finalbody")
#: Fields of a statement that hold parts which hold statements.
BRANCHES = ("handlers", "cases")


@dataclass(frozen=True, slots=True, eq=False)
class Straight:
    """A function that can stand where it is called.

    Args:
        local: the names that it binds, parameters included.
        stored: those of them that its statements bind.
        free: the names that it reads and does not bind.
        attributes: the last names of the attributes that it stores.
    """

    function: Function
    statements: list[ast.stmt]
    local: frozenset[str]
    stored: frozenset[str]
    free: frozenset[str]
    attributes: frozenset[str]


def straight(function: Function) -> Straight | None:
    """The function, if each `return` ends the last statement and nothing ties it to its place."""
    return function.once(_find_straight)


def _find_straight(function: Function) -> Straight | None:
    node = function.node
    if not isinstance(node, ast.FunctionDef) or not _is_plain(function):
        return None
    statements = node.body
    if isinstance(statements[0], ast.Expr) and isinstance(statements[0].value, ast.Constant):
        statements = statements[1:]
    every = [inner for statement in statements for inner in walk(statement)]
    if not every or any(isinstance(inner, _BOUND_TO_THEIR_FUNCTION) for inner in every):
        return None
    returns = {inner for inner in every if isinstance(inner, ast.Return)}
    if returns != set(_last_returns(statements)):
        return None
    local = frozenset(function.module.scopes.of(node).bindings)
    inner_names = bound_inside(statements)
    if local & inner_names:
        return None
    names = {inner.id for inner in every if isinstance(inner, ast.Name)}
    stored = bound_by(statements) - inner_names
    attributes = {
        inner.attr
        for inner in every
        if isinstance(inner, ast.Attribute) and not isinstance(inner.ctx, ast.Load)
    }
    free = names - local - inner_names
    if free & _ASK_WHERE:
        return None
    return Straight(
        function, statements, local, frozenset(stored), frozenset(free), frozenset(attributes)
    )


def _is_plain(function: Function) -> bool:
    """Whether a function has the parameters that it lists, and nothing around it."""
    kinds = {item.kind for item in parameters(function).values()}
    decorators = getattr(function.node, "decorator_list", [])
    names = {getattr(item, "id", "") for item in decorators}
    return names <= {"staticmethod"} and not kinds & {Kind.REST, Kind.WORDS}


def bound_by(statements: Iterable[ast.stmt]) -> set[str]:
    """Names that statements bind, those of their comprehensions and handlers included."""
    nodes = [node for statement in statements for node in walk(statement)]
    names = {
        node.id
        for node in nodes
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
    }
    caught = (node.name for node in nodes if isinstance(node, ast.ExceptHandler))
    return names | {name for name in caught if name is not None}


def bound_inside(statements: Iterable[ast.stmt]) -> set[str]:
    """Names that comprehensions and lambdas among statements bind for themselves."""
    found: set[str] = set()
    for node in (node for statement in statements for node in walk(statement)):
        if isinstance(node, ast.comprehension):
            found |= {item.id for item in walk(node.target) if isinstance(item, ast.Name)}
        elif isinstance(node, ast.arg):
            found.add(node.arg)
    return found


def _last_returns(statements: Sequence[ast.stmt]) -> Iterator[ast.Return]:
    """The `return` statements behind which a list of statements has nothing left to run."""
    last = statements[-1] if statements else None
    if isinstance(last, ast.Return):
        yield last
    elif isinstance(last, ast.If):
        yield from _last_returns(last.body)
        yield from _last_returns(last.orelse)
    elif isinstance(last, ast.With):
        yield from _last_returns(last.body)


@dataclass(frozen=True, slots=True, eq=False)
class Caller:
    """Where a call stands.

    Args:
        statement: an expression, an assignment or a `return` that holds nothing but the call.
        call: that call.
        names: every name that means something where it stands; new ones are added.
        mark: is told each node that is made, and the node it was made from.
    """

    statement: ast.stmt
    call: ast.Call
    names: set[str]
    mark: Callable[[ast.AST, ast.AST], None]


def called_by(statement: ast.stmt) -> ast.Call | None:
    """The call that is all a statement does, besides keeping or returning what it gives."""
    targets = len(statement.targets) if isinstance(statement, ast.Assign) else 1
    if not isinstance(statement, (ast.Assign, ast.Expr, ast.Return)) or targets > 1:
        return None
    return statement.value if isinstance(statement.value, ast.Call) else None


def splice(
    caller: Caller, callee: Straight, statements: Sequence[ast.stmt], bound: Bound
) -> list[ast.stmt] | None:
    """The statements that do what the call does.

    Args:
        statements: those of the callee, in which other calls may have been replaced already.
        bound: how the call fills the callee's parameters.

    Returns:
        None where the call does not fill all of them in sight.
    """
    values = bound.values()
    defaults = [value for value in bound.defaults.values() if not isinstance(value, ast.Constant)]
    if bound.refused or bound.unknown or defaults:
        return None
    if set(values) != set(parameters(callee.function)):
        return None
    writer = _Writer(caller, callee)
    first = writer.take(values, statements)
    return [*first, *writer.block(statements, last=True)]


@dataclass(slots=True, eq=False)
class _Writer:
    """Writes the statements of one function into one caller.

    Attributes:
        instead: what stands for a name of the function.
    """

    caller: Caller
    callee: Straight
    instead: dict[str, ast.expr] = field(default_factory=dict)

    def take(
        self, values: Mapping[str, ast.expr], statements: Sequence[ast.stmt]
    ) -> list[ast.stmt]:
        """Decide what each name becomes; returns the assignments that parameters need."""
        inner = bound_inside(statements)
        self.caller.names.update(inner)
        for name, value in values.items():
            if name not in self.callee.stored and self._stands_for_itself(value, inner):
                self.instead[name] = value
        kept = {
            name: new
            for name, new in self._kept().items()
            if new not in inner | _names_in(value for key, value in values.items() if key != name)
        }
        assignments: list[ast.stmt] = []
        for name, value in values.items():
            if name in self.instead:
                continue
            new = kept.pop(name, None) or self._new_name(name)
            self.instead[name] = ast.Name(new, ast.Load())
            if not isinstance(value, ast.Name) or value.id != new:
                target = self._made(ast.Name(new, ast.Store()), self.caller.call)
                assignments.append(self._keeping(target, self._copy(value), self.caller.statement))
        # What the statements that were replaced before bring along is local, too.
        for name in sorted((bound_by(statements) | self.callee.local) - inner - {*self.instead}):
            self.instead[name] = ast.Name(kept.get(name) or self._new_name(name), ast.Load())
        return assignments

    def _kept(self) -> dict[str, str]:
        """Names of the function that its `return` gives, by the caller's names for them."""
        returns = list(_last_returns(self.callee.statements))
        if len(returns) != 1 or not isinstance(self.caller.statement, ast.Assign):
            return {}
        given, taken = _elements(returns[0].value), _elements(self.caller.statement.targets[0])
        pairs = [
            (mine.id, theirs.id)
            for mine, theirs in zip(given, taken)
            if isinstance(mine, ast.Name) and isinstance(theirs, ast.Name)
        ]
        mine, theirs = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        if len(given) != len(taken) or len(set(mine)) < len(mine) or len(set(theirs)) < len(theirs):
            return {}
        return {
            name: target
            for name, target in pairs
            if name in self.callee.stored and target not in self.callee.free
        }

    def _stands_for_itself(self, value: ast.expr, inner: set[str]) -> bool:
        """Whether an argument means the same wherever the function reads it."""
        if isinstance(value, ast.Constant):
            return True
        while isinstance(value, ast.Attribute) and value.attr not in self.callee.attributes:
            value = value.value
        return isinstance(value, ast.Name) and value.id not in inner

    def _new_name(self, name: str) -> str:
        taken = self.caller.names
        new = next(
            item
            for item in (name, *(f"{name}_{number}" for number in range(2, 2 + len(taken))))
            if item not in taken
        )
        taken.add(new)
        return new

    def _made(self, node: _Node, origin: ast.AST) -> _Node:
        self.caller.mark(node, origin)
        return node

    def _copy(self, value: ast.expr) -> ast.expr:
        return copied(value, self.caller.mark)

    # -- writing -------------------------------------------------------------------------------

    def block(self, statements: Sequence[ast.stmt], *, last: bool) -> list[ast.stmt]:
        """A list of statements; `last` where nothing runs behind it."""
        found: list[ast.stmt] = []
        for index, statement in enumerate(statements):
            ends = last and index == len(statements) - 1
            taken = self._taken(statement)
            if taken is not None:
                found += self.block(taken, last=ends)
            elif isinstance(statement, ast.Return) and ends:
                found += self._given(statement)
            else:
                found.append(self._statement(statement, ends))
        ends = bool(statements) and isinstance(
            statements[-1], (ast.Return, ast.Raise, ast.If, ast.With)
        )
        if last and not ends and not isinstance(self.caller.statement, ast.Expr):
            found += self._keep(ast.Constant(None), self.caller.statement)
        return found

    def _taken(self, statement: ast.stmt) -> Sequence[ast.stmt] | None:
        """The branch of an `if` that the literals which the call gives decide about."""
        truth = self._truth(statement.test) if isinstance(statement, ast.If) else None
        if truth is None or not isinstance(statement, ast.If):
            return None
        return statement.body if truth else statement.orelse

    def _truth(self, test: ast.expr) -> bool | None:
        """Of a literal, under a name, negated, joined with others or compared with None."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self._truth(test.operand)
            return None if inner is None else not inner
        if isinstance(test, ast.BoolOp):
            stop = isinstance(test.op, ast.Or)
            parts = [self._truth(part) for part in test.values]
            return stop if stop in parts else None if None in parts else not stop
        if isinstance(test, ast.Compare) and isinstance(test.ops[0], (ast.Is, ast.IsNot)):
            left, right = self._literal(test.left), self._literal(test.comparators[0])
            if left is None or right is None or right.value is not None or len(test.ops) > 1:
                return None
            return (left.value is None) is isinstance(test.ops[0], ast.Is)
        literal = self._literal(test)
        return None if literal is None else bool(literal.value)

    def _literal(self, value: ast.expr) -> ast.Constant | None:
        known = self.instead.get(value.id) if isinstance(value, ast.Name) else value
        return known if isinstance(known, ast.Constant) else None

    def _statement(self, statement: ast.stmt, last: bool) -> ast.stmt:
        inner = last and isinstance(statement, (ast.If, ast.With))
        fields: dict[str, Any] = {}
        for name in statement._fields:
            value = getattr(statement, name, None)
            if name in BLOCKS and isinstance(value, list):
                ends = inner and name != "finalbody"
                stays = not value and not (ends and isinstance(statement, ast.If))
                fields[name] = [] if stays else self._branch(value, ends)
            else:
                fields[name] = self._part(value)
        return self._made(type(statement)(**fields), statement)

    def _branch(self, items: list[ast.stmt], last: bool) -> list[ast.stmt]:
        return self.block(items, last=last) or [self._made(ast.Pass(), item) for item in items[:1]]

    @overload
    def _part(self, value: ast.expr) -> ast.expr: ...

    @overload
    def _part(self, value: object) -> object: ...

    def _part(self, value: object) -> object:
        """An expression or another part of a statement, with what stands for its names."""
        if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
            return self._branch(value, last=False)
        if isinstance(value, list):
            return [self._part(item) for item in value]
        if isinstance(value, ast.Name):
            return self._name(value)
        if isinstance(value, ast.stmt):
            return self._statement(value, False)
        if not isinstance(value, ast.AST) or not value._fields:
            return value
        fields = {name: self._part(getattr(value, name, None)) for name in value._fields}
        if isinstance(value, ast.ExceptHandler) and value.name in self.instead:
            known = self.instead[value.name]
            assert isinstance(known, ast.Name)
            fields["name"] = known.id
        return self._made(type(value)(**fields), value)

    def _name(self, name: ast.Name) -> ast.expr:
        known = self.instead.get(name.id)
        if known is None:
            return self._made(ast.Name(name.id, name.ctx), name)
        if isinstance(known, ast.Name):
            return self._made(ast.Name(known.id, name.ctx), name)
        return copied(known, lambda made, _: self.caller.mark(made, name))

    # -- what the call gives -------------------------------------------------------------------

    def _given(self, statement: ast.Return) -> list[ast.stmt]:
        value = statement.value or self._made(ast.Constant(None), statement)
        return self._keep(self._part(value), statement)

    def _keep(self, value: ast.expr, origin: ast.AST) -> list[ast.stmt]:
        there = self.caller.statement
        if isinstance(there, ast.Return):
            return [self._made(ast.Return(value), origin)]
        if isinstance(there, ast.Expr):
            effects = any(isinstance(node, ast.Call) for node in walk(value))
            return [self._made(ast.Expr(value), origin)] if effects else []
        assert isinstance(there, ast.Assign)
        given, taken = _elements(value), _elements(there.targets[0])
        if len(given) != len(taken):
            return [self._keeping(there.targets[0], value, origin)]
        pairs = [pair for pair in zip(taken, given) if ast.dump(pair[0]) != _dump_stored(pair[1])]
        if len(pairs) == 1:
            return [self._keeping(*pairs[0], origin)]
        if not pairs:
            return []
        targets = self._made(ast.Tuple([pair[0] for pair in pairs], ast.Store()), there.targets[0])
        values = self._made(ast.Tuple([pair[1] for pair in pairs], ast.Load()), value)
        return [self._keeping(targets, values, origin)]

    def _keeping(self, target: ast.expr, value: ast.expr, origin: ast.AST) -> ast.stmt:
        return self._made(ast.Assign([self._copy(target)], value), origin)


def copied(node: _Node, mark: Callable[[ast.AST, ast.AST], None]) -> _Node:
    """The same code as other nodes."""
    fields: dict[str, object] = {}
    for name in node._fields:
        value = getattr(node, name, None)
        if isinstance(value, list):
            fields[name] = [copied(i, mark) if isinstance(i, ast.AST) else i for i in value]
        elif isinstance(value, ast.AST) and value._fields:
            fields[name] = copied(value, mark)
        else:
            fields[name] = value
    made = type(node)(**fields)
    mark(made, node)
    return made


def _elements(value: ast.expr | None) -> list[ast.expr]:
    if isinstance(value, ast.Tuple):
        return value.elts
    return [] if value is None else [value]


def _dump_stored(value: ast.expr) -> str:
    """A value as it would be dumped if it were a target."""
    return ast.dump(value).replace("ctx=Load()", "ctx=Store()")


def _names_in(values: Iterable[ast.expr]) -> set[str]:
    return {node.id for value in values for node in walk(value) if isinstance(node, ast.Name)}
