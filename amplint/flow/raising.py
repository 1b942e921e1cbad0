"""Which `raise` ends a path, and which handler takes its exception, where the text says so.

A path leaves a function by a `raise` only where a handler around one of the calls in progress takes
that for certain. Of functions without events, which are not followed, the text says what they raise.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

from amplint.code.definitions import is_stub
from amplint.code.exits import is_exit
from amplint.code.expressions import last_name
from amplint.code.layout import layout_of
from amplint.code.module import Class, Function
from amplint.code.tree import TRIES, walk
from amplint.flow.program import Program
from amplint.flow.state import State

_SIMPLE = (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return)
#: Functions without events are asked this many calls deep for what they raise.
_DEPTH = 3


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception of a `raise`.

    Args:
        names: of its class and of the bases of that which are in sight; none where nothing is known.
        known: whether the last of them is an exception of Python's own.
    """

    names: tuple[str, ...]
    known: bool


#: Questions about the machine, which torch answers and does not raise at.
_QUESTIONS = frozenset(
    f"torch.{name}"
    for name in (
        "cuda.is_available",
        "cuda.is_bf16_supported",
        "cuda.device_count",
        "backends.mps.is_available",
        "xpu.is_available",
    )
)


#: What may raise, beside calls and attributes.
_MAY_RAISE = (ast.BinOp, ast.Subscript, ast.Await, ast.Yield, ast.YieldFrom, ast.Starred)


def never_raises(body: Iterable[ast.stmt], function: Function) -> bool:
    """Whether statements do nothing but ask what machine this is, and name what torch has."""
    return all(
        isinstance(statement, (ast.Assign, ast.If, ast.Pass))
        and all(_is_harmless(node, function) for node in walk(statement))
        for statement in body
    )


def _is_harmless(node: ast.AST, function: Function) -> bool:
    if isinstance(node, ast.Call):
        return function.module.resolve(node.func) in _QUESTIONS
    if isinstance(node, ast.Attribute):
        dotted = function.module.resolve(node)
        return dotted is not None and dotted.partition(".")[0] == "torch"
    return not isinstance(node, _MAY_RAISE)


#: Exceptions, each with a state in which it is raised.
Thrown = list[tuple[Raised, State]]


class Raising:
    """What is raised while handlers wait for it.

    Args:
        program: finds classes of exceptions, and what calls run.

    Attributes:
        thrown: what has left the functions that the statement at hand calls, and in which states.
    """

    def __init__(self, program: Program) -> None:
        self.thrown: list[tuple[Raised, State]] = []
        self._program = program
        self._awaiting: list[list[ast.ExceptHandler]] = []
        self._leaving: dict[Function, tuple[Raised, ...]] = {}
        self._inside: dict[ast.stmt, tuple[Raised, ...]] = {}

    @contextmanager
    def awaited(self, handlers: list[ast.ExceptHandler]) -> Iterator[None]:
        """A context around the body of a `try`."""
        self._awaiting.append(handlers)
        try:
            yield
        finally:
            self._awaiting.pop()

    @property
    def handlers(self) -> tuple[int, ...]:
        """The handlers that wait, by identity: what a call leaves behind depends on them."""
        return tuple(id(handler) for each in self._awaiting for handler in each)

    def is_taken(self, raised: Raised) -> bool:
        """Whether a handler that waits takes an exception for certain."""
        return any(catches(item, raised) for each in self._awaiting for item in each)

    def by(self, statement: ast.Raise, states: list[State], function: Function) -> Thrown:
        """The states in which a statement raises what a handler takes."""
        raised = self._raised(statement, function)
        return _thrown(raised, statement, states, function) if self.is_taken(raised) else []

    def in_calls(self, statement: ast.stmt, states: list[State], function: Function) -> Thrown:
        """The states before a statement, for each exception of a call that is not followed."""
        if not self._awaiting or not isinstance(statement, _SIMPLE):
            return []
        if statement not in self._inside:
            calls = (node for node in walk(statement) if isinstance(node, ast.Call))
            found = (raised for call in calls for raised in self._of_call(call, function, _DEPTH))
            self._inside[statement] = tuple(dict.fromkeys(found))
        return [
            item
            for raised in filter(self.is_taken, self._inside[statement])
            for item in _thrown(raised, statement, states, function)
        ]

    def _of_call(self, call: ast.Call, function: Function, depth: int) -> tuple[Raised, ...]:
        callee = self._program.objects.callee(call, function) if depth else None
        if callee is None or is_stub(callee) or self._is_followed(callee):
            return ()
        if callee not in self._leaving:
            self._leaving[callee] = ()  # what calls itself ends here
            self._leaving[callee] = tuple(dict.fromkeys(self._out_of(callee, depth)))
        return self._leaving[callee]

    def _is_followed(self, function: Function) -> bool:
        """Whether the paths of a function are interpreted, so that they end at its `raise`."""
        if not self._program.knows(function):
            return False
        facts = self._program.unit(function).facts.get(function)
        return facts is None or facts.interesting

    def _out_of(self, callee: Function, depth: int) -> Iterator[Raised]:
        """What may leave a function: of its own statements, and of the functions that it calls."""
        for node in callee.nodes:
            every: tuple[Raised, ...] = ()
            if isinstance(node, ast.Raise):
                every = (self._raised(node, callee),)
            elif isinstance(node, ast.Call):
                every = self._of_call(node, callee, depth - 1)
            around = _handlers_around(node, callee) if every else []
            yield from (
                raised
                for raised in every
                if all(catches(handler, raised) is False for handler in around)
            )

    def _raised(self, statement: ast.Raise, function: Function) -> Raised:
        if statement.exc is None:
            return Raised((), known=False)
        if is_exit(statement.exc):
            return Raised(("SystemExit",), known=True)
        made = statement.exc.func if isinstance(statement.exc, ast.Call) else statement.exc
        owner = self._program.objects.symbol(made, function)
        names = [last_name(made)]
        if isinstance(owner, Class):
            family = self._program.ancestry(owner)
            names += (last_name(base) for item in family for base in item.bases)
        return Raised(tuple(names), known=_is_builtin(names[-1]))


def _thrown(raised: Raised, statement: ast.stmt, states: list[State], function: Function) -> Thrown:
    found = []
    for state in states:
        state = state.copy()
        state.note("raise", statement, function, raised.names[0])
        found.append((raised, state))
    return found


def catches(handler: ast.ExceptHandler, raised: Raised) -> bool | None:
    """Whether a handler takes an exception; None where it may."""
    if handler.type is None:
        return True
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    answers = [_is_of(raised, last_name(item)) for item in types]
    return True if True in answers else (None if None in answers else False)


def _is_of(raised: Raised, other: str) -> bool | None:
    answers = [is_kind_of(name, other) for name in raised.names]
    if True in answers:
        return True
    return False if raised.known and answers[-1] is False else None


def _handlers_around(node: ast.AST, function: Function) -> list[ast.ExceptHandler]:
    """The handlers of a function that wait where a node of it runs."""
    layout = layout_of(function)
    around = [node, *layout.ancestors(node)] if node in layout else []
    return [
        handler
        for inner, outer in pairwise(around)
        if isinstance(outer, TRIES) and inner in outer.body
        for handler in outer.handlers
    ]


def is_awaited(node: ast.AST, function: Function, names: Iterable[str]) -> bool:
    """Whether a handler around a node names one of these exceptions: they are expected there.

    A handler of all exceptions says nothing of these.
    """
    handlers = _handlers_around(node, function)
    types = [handler.type for handler in handlers if handler.type is not None]
    parts = [part for item in types for part in getattr(item, "elts", [item])]
    return any(last_name(part) in names for part in parts)


def _is_builtin(name: str) -> bool:
    known = getattr(builtins, name, None)
    return isinstance(known, type) and issubclass(known, BaseException)


def is_kind_of(name: str, other: str) -> bool | None:
    """Whether one exception is of another kind; None where nobody knows.

    By name, or among Python's own exceptions; every other class may derive from any.
    """
    if name == other or other == "BaseException":
        return True
    known, caught = (getattr(builtins, item, None) for item in (name, other))
    both = isinstance(known, type) and isinstance(caught, type)
    return issubclass(known, caught) if both else None  # type: ignore[arg-type]
