"""The statements of one function: their order, their blocks and their branches."""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache

from amplint.code.expressions import binder_of
from amplint.code.module import Function
from amplint.code.tree import FIELDS, LEAVES, TRIES

SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
Loop = ast.For | ast.AsyncFor | ast.While
LOOPS = (ast.For, ast.AsyncFor, ast.While)
EXITS = (ast.Return, ast.Raise, ast.Continue, ast.Break)
#: Nodes that a layout does not look into.
_CLOSED = LEAVES.union(SCOPES)


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """A list of statements, with the order of each and the indices of those that leave it."""

    statements: list[ast.stmt]
    starts: list[int]
    exits: list[int]

    def leaves_between(self, index: int, end: int) -> bool:
        """Whether a statement behind `index` and before `end` leaves the block."""
        following = bisect_right(self.exits, index)
        return following < len(self.exits) and self.exits[following] < end


class Layout:
    """The statements of one function: their order, blocks and branches.

    Nested functions and classes are single statements here; contexts (`ast.Load`) and operators
    are left out. What a nested definition evaluates where it stands (decorators, defaults, the body
    of a class) is no node of the function, but may be asked about: its place is the definition's.
    """

    def __init__(self, function: Function) -> None:
        self.function = function
        self.nodes: list[ast.AST] = []
        self.parents: dict[ast.AST, ast.AST] = {}
        self._order: dict[ast.AST, int] = {}
        self._last: dict[ast.AST, int] = {}
        self._branch: dict[ast.AST, str] = {}
        self._block: dict[ast.AST, tuple[_Block, int]] = {}
        self._beside: set[ast.AST] = set()
        self._visit_block(function.body, function.node, "body")

    def _visit_block(self, statements: list[ast.stmt], parent: ast.AST, branch: str) -> None:
        block = _Block(statements, [], [])
        for index, statement in enumerate(statements):
            self._block[statement] = (block, index)
            block.starts.append(len(self.nodes))
            if isinstance(statement, EXITS):
                block.exits.append(index)
            self._visit(statement, parent, branch)

    def _visit(self, node: ast.AST, parent: ast.AST, branch: str) -> None:
        self.parents[node] = parent
        self._branch[node] = branch
        self._order[node] = len(self.nodes)
        self.nodes.append(node)
        if type(node) not in _CLOSED:
            self._visit_fields(node)
        elif isinstance(node, SCOPES):
            self._note_evaluated(node)
        self._last[node] = len(self.nodes) - 1

    def _note_evaluated(self, definition: ast.AST) -> None:
        order, branch = self._order[definition], self._branch[definition]
        pending = [definition]
        while pending:
            outer = pending.pop()
            for inner in _evaluated(outer):
                self.parents[inner] = outer
                self._branch[inner] = branch
                self._order[inner] = self._last[inner] = order
                self._beside.add(inner)
                pending.append(inner)

    def _visit_fields(self, node: ast.AST) -> None:
        for name in FIELDS[type(node)]:
            value = getattr(node, name, None)
            if isinstance(value, list):
                if value and isinstance(value[0], ast.stmt):
                    self._visit_block(value, node, name)
                    continue
                for index, item in enumerate(value):
                    if isinstance(item, ast.AST):
                        self._visit(item, node, f"{name} {index}")
            elif isinstance(value, ast.AST):
                self._visit(value, node, name)

    def __contains__(self, node: ast.AST) -> bool:
        return node in self._order and node not in self._beside

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around `node`, innermost first, up to the function itself."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def leaves_out(self, node: ast.AST) -> ast.AST:
        """The nearest statement around `node` that may leave it out; the function where none may.

        A `with` runs what it holds, and so does a `try` that has no handler.
        """
        return next(outer for outer in self.ancestors(node) if not _runs_all(outer))

    def taker(self, node: ast.AST) -> ast.Call | None:
        """The call that an expression is an argument of; None where it is none.

        By position, by name, in a display that the call unpacks, or bound by `partial` for it.
        """
        inner, outer = node, self.parents[node]
        if isinstance(outer, (ast.Tuple, ast.List, ast.Dict)):
            inner, outer = outer, self.parents[outer]
            unpacks = isinstance(outer, ast.Starred) or getattr(outer, "arg", "") is None
            if not unpacks:
                return None
        if isinstance(outer, (ast.Starred, ast.keyword)):
            inner, outer = outer, self.parents[outer]
        if not isinstance(outer, ast.Call) or inner is outer.func:
            return None
        caller = self.parents[outer]
        while isinstance(caller, ast.Call) and _hands_on(caller, outer):
            outer, caller = caller, self.parents[caller]
        return outer

    def statement(self, node: ast.AST) -> ast.stmt:
        """The innermost statement that holds `node`."""
        while node not in self._block:
            node = self.parents[node]
        assert isinstance(node, ast.stmt)
        return node

    def loops(self, node: ast.AST) -> list[ast.AST]:
        """The loops whose body repeats `node`, innermost first."""
        found: list[ast.AST] = []
        inner = node
        for outer in self.ancestors(node):
            if isinstance(outer, LOOPS):
                header = (getattr(outer, "target", None), getattr(outer, "iter", None))
                if inner not in header:
                    found.append(outer)
            inner = outer
        return found

    def before(self, first: ast.AST, second: ast.AST) -> bool:
        """Whether `first` ends before `second` begins, in source order."""
        return self._last[first] < self._order[second]

    def between(self, first: ast.AST, second: ast.AST) -> list[ast.AST]:
        """The nodes behind `first` and before `second`, in source order."""
        return self.nodes[self._last[first] + 1 : self._order[second]]

    def inside(self, node: ast.AST) -> list[ast.AST]:
        """`node` and everything in it."""
        return self.nodes[self._order[node] : self._last[node] + 1]

    def holds(self, outer: ast.AST, inner: ast.AST) -> bool:
        """Whether `inner` lies in `outer` or is it; the function holds everything."""
        if outer is self.function.node:
            return True
        return self._order[outer] <= self._order[inner] <= self._last[outer]

    def exclusive(self, first: ast.AST, second: ast.AST) -> bool:
        """Whether the two are on branches of one statement that exclude each other."""
        if self.holds(first, second) or self.holds(second, first):
            return False
        here, there = first, second
        while not self.holds(self.parents[here], second):
            here = self.parents[here]
        fork = self.parents[here]
        while self.parents[there] is not fork:
            there = self.parents[there]
        return self._branch[here] != self._branch[there] and _forks(fork, here, there)

    def reaches(self, first: ast.AST, second: ast.AST) -> bool:
        """Whether control can run from `first` straight down to `second`.

        False for exclusive branches and where the block of `first` is left before.
        """
        if not self.before(first, second) or self.exclusive(first, second):
            return False
        node: ast.AST = self.statement(first)
        if self.holds(node, second):
            return True
        while isinstance(node, ast.stmt):
            block, index = self._block[node]
            place = bisect_right(block.starts, self._order[second]) - 1
            if place > index and self.holds(block.statements[place], second):
                return not block.leaves_between(index, place)
            if block.leaves_between(index, len(block.statements)):
                return False
            node = self.parents[node]
            while not isinstance(node, (ast.stmt, ast.Module, ast.Lambda)):
                node = self.parents[node]  # an except handler or a match case
            if node not in self._block:
                return False
            if self.holds(node, second):
                return True
        return False

    def dominates(self, first: ast.AST, second: ast.AST) -> bool:
        """Whether `first` always runs before `second` does, loops aside."""
        if not self.reaches(first, second):
            return False
        for node in self.ancestors(self.statement(first)):
            if node not in self.parents or self.holds(node, second):
                return True
            if not isinstance(node, (ast.With, ast.AsyncWith)):
                return False
        return False

    def surely_before(self, places: Collection[ast.AST], node: ast.AST) -> ast.stmt | None:
        """The nearest statement that always runs one of some others before `node` does.

        One of them, or an `if` whose branches all hold one or leave; None where there is none.
        """
        inner: ast.AST = self.statement(node)
        while inner in self._block:
            block, index = self._block[inner]
            for statement in reversed(block.statements[:index]):
                if _runs_one(statement, places):
                    return statement
            inner = self.parents[inner]
            while inner in self.parents and inner not in self._block:
                inner = self.parents[inner]
        return None

    def conditions(self, node: ast.AST) -> list[ast.expr]:
        """The tests of the `if`, `while` and conditional expressions around `node`.

        `if True:` is no condition.
        """
        found: list[ast.expr] = []
        inner = node
        for outer in self.ancestors(node):
            if isinstance(outer, (ast.If, ast.IfExp, ast.While)) and inner is not outer.test:
                branches = not isinstance(outer, ast.While)
                found += [] if branches and isinstance(outer.test, ast.Constant) else [outer.test]
            inner = outer
        return found


def _evaluated(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a node that are evaluated with it: of a function all but its body."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        defaults = (*node.args.defaults, *node.args.kw_defaults)
        yield from (item for item in (*node.decorator_list, *defaults) if item is not None)
    elif type(node) not in LEAVES:
        yield from ast.iter_child_nodes(node)


def _runs_all(outer: ast.AST) -> bool:
    return isinstance(outer, (ast.With, ast.AsyncWith)) or (
        isinstance(outer, TRIES) and not outer.handlers
    )


def _runs_one(statement: ast.stmt, places: Collection[ast.AST]) -> bool:
    """Whether a statement is left only behind one of some places, or leaves its block itself."""
    if statement in places:
        return True
    if isinstance(statement, ast.If):
        return all(_block_runs_one(body, places) for body in (statement.body, statement.orelse))
    if _runs_all(statement):
        items = getattr(statement, "items", ())
        return any(item in places for item in items) or _block_runs_one(statement.body, places)  # type: ignore[attr-defined]
    return False


def _block_runs_one(block: list[ast.stmt], places: Collection[ast.AST]) -> bool:
    return any(isinstance(item, EXITS) or _runs_one(item, places) for item in block)


def _forks(parent: ast.AST, first: ast.AST, second: ast.AST) -> bool:
    if isinstance(parent, (ast.If, ast.IfExp)):
        return first is not parent.test and second is not parent.test
    if isinstance(parent, ast.Try):
        return any(isinstance(child, ast.ExceptHandler) for child in (first, second)) and not any(
            child in parent.finalbody for child in (first, second)
        )
    return isinstance(first, ast.match_case) and isinstance(second, ast.match_case)


def _hands_on(caller: ast.Call, made: ast.Call) -> bool:
    """Whether a call runs what `partial` made, or binds more to it."""
    return binder_of(caller.func) is made or (
        binder_of(caller) is caller and caller.args[0] is made and binder_of(made) is made
    )


@lru_cache(maxsize=256)
def layout_of(function: Function) -> Layout:
    """The layout of a function, kept while its file is being checked."""
    return Layout(function)


def loop_header(loop: ast.AST) -> str:
    """The words of a loop's first line: its target and what it runs over, or its test.

    Of `config.epochs` or `config["epochs"]` the last word: whose option it is says nothing about
    the passes.
    """
    if isinstance(loop, ast.While):
        return " ".join(_last_words(loop.test))
    assert isinstance(loop, (ast.For, ast.AsyncFor))
    return " ".join((ast.unparse(loop.target), *_last_words(loop.iter)))


def _last_words(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Attribute):
        yield node.attr
        if isinstance(node.value, ast.Call):
            yield from _last_words(node.value)
        return
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        yield str(node.slice.value)
        return
    if isinstance(node, ast.Name):
        yield node.id
    for part in ast.iter_child_nodes(node):
        yield from _last_words(part)
