"""Which statements of a function bear on its losses: the others are not evaluated.

A loss is computed from a few of the names of a training function. What the others hold (data sets,
configurations, logs) says nothing about gradients, and to ask what their calls run is the dear
part of the analysis. So what a statement binds is wanted if a loss, or a returned value, is
computed from it. Where an optimizer owns modules, all that these are handed to is followed as
well, because it may run a backward of its own.

Places are told apart by the name that they begin with, attributes of `self` by theirs. What a
method of `self` may store or read is not asked: all of it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import chain

from amplint.code.dataflow import arguments, root_of
from amplint.code.expressions import last_name, path_text
from amplint.code.module import Function
from amplint.code.statements import blocks_of
from amplint.code.tree import children

#: Callees that run a backward on what they are given.
BACKWARDS = frozenset(("backward", "manual_backward", "autograd_backward"))
#: Methods that put what they are given into a container.
FILLING = frozenset(("append", "appendleft", "extend", "insert"))
#: Statements that hold others; of each the fields that it evaluates itself.
_HEADERS: dict[type[ast.AST], tuple[str, ...]] = {
    ast.If: ("test",),
    ast.While: ("test",),
    ast.For: ("target", "iter"),
    ast.AsyncFor: ("target", "iter"),
    ast.With: ("items",),
    ast.AsyncWith: ("items",),
    ast.Match: (),
    ast.Try: (),
}
#: Statements that compute something.
_SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Expr)
_SELF = "self"
Places = frozenset[str]
NOWHERE: Places = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """What one statement does by itself, the statements that it holds aside.

    Args:
        around: the statements that hold it.
        reads: places whose values it takes.
        called: names that it only calls.
        binds: places that it binds or changes.
        calls: whether it calls anything.
        backward: whether it runs a backward in these words.
    """

    statement: ast.stmt
    around: tuple[ast.stmt, ...]
    reads: Places
    called: Places
    binds: Places
    calls: bool
    backward: bool


@dataclass(frozen=True, slots=True, eq=False)
class Bearing:
    """The statements of a function that count.

    Args:
        run: those that are evaluated, with their headers where they hold others.
        entered: those that hold one of them.
        wanted: places of `self` that count.
        unknown: places that a statement binds which was left out, though it counts.
    """

    run: frozenset[ast.stmt]
    entered: frozenset[ast.stmt]
    wanted: Places
    unknown: Places = NOWHERE

    def leaves_out(self, path: str, roots: Iterable[str]) -> bool:
        """Whether what a path holds was not looked at; what the optimizer owns, it always does."""
        if not self.unknown:
            return False
        place = place_of(path)
        if place == path and path in roots:
            return _is_of_self(path) and _SELF in self.unknown
        return _meet((place,), self.unknown)


def bearing_of_callee(
    function: Function, owned: Places, wanted: Places, *, backwards: bool = False
) -> Bearing:
    """The statements of a called function that count for what it returns, and what runs in it.

    Args:
        owned: places that hold what an optimizer owns, or was computed by it.
        wanted: places of `self` that count behind the call.
        backwards: whether its own backwards count.
    """
    parts = function.once(_parts_of)
    returns = {
        part
        for part in parts
        if isinstance(part.statement, ast.Return) or (backwards and part.backward)
    }
    return _grown(parts, returns, wanted, _handed(owned, parts))


def bearing_of_entry(
    function: Function, owned: Places, handed: frozenset[ast.stmt] = frozenset()
) -> Bearing:
    """The statements of a function that count for the losses of its backwards, and what runs in it.

    Args:
        owned: places that hold what an optimizer owns.
        handed: statements that hand something to a function that runs a backward.
    """
    parts = function.once(_parts_of)
    backwards = {part for part in parts if part.backward or part.statement in handed}
    return _grown(parts, backwards, NOWHERE, _handed(owned, parts))


def bearing_near(function: Function, steps: int) -> Bearing:
    """Those that lead to its own losses in a few assignments."""
    parts = function.once(_parts_of)
    backwards = {part for part in parts if part.backward}
    near = _grown(parts, backwards, NOWHERE, set(), steps)
    left_out = (part.binds for part in parts if part.statement not in near.run)
    return replace(near, unknown=frozenset().union(*left_out))


def _grown(
    parts: list[_Part],
    first: set[_Part],
    wanted: Places,
    others: set[_Part],
    steps: int | None = None,
) -> Bearing:
    """Some statements, and all that bind what they read.

    Args:
        others: statements that count, whatever they read.
    """
    kept = {*first}
    counts = wanted.union(*(part.reads for part in first))
    growing = True
    while growing and steps != 0:
        steps = None if steps is None else steps - 1
        found = [part for part in parts if part not in kept and _meet(part.binds, counts)]
        kept.update(found)
        counts = counts.union(*(part.reads for part in found))
        growing = bool(found)
    kept |= others
    return Bearing(
        frozenset(part.statement for part in kept),
        frozenset(holder for part in kept for holder in part.around),
        frozenset(place for place in counts if place == _SELF or _is_of_self(place)),
    )


def _handed(owned: Places, parts: list[_Part]) -> set[_Part]:
    """The statements that take what an optimizer owns, or what may have been computed by it."""
    found = set(owned)
    growing = bool(found)
    while growing:
        before = len(found)
        for part in parts:
            if not part.binds <= found and _meet(part.reads | part.called, found):
                found |= part.binds
        growing = len(found) > before
    return {
        part
        for part in parts
        if (part.calls or part.binds) and _meet(part.reads | part.called, found)
    }


def place_of(path: str) -> str:
    """The place that a path belongs to: "batch" of "batch['x']", "self.net" of "self.net.head"."""
    head, _, rest = path.partition(".")
    root = root_of(path)
    if root != _SELF or head != root or not rest:
        return root
    return f"{_SELF}.{rest.partition('.')[0].partition('[')[0]}"


def _meet(some: Iterable[str], others: AbstractSet[str]) -> bool:
    """Whether two sets of places have one in common; `self` has all of its attributes."""
    for place in some:
        if place in others or (_is_of_self(place) and _SELF in others):
            return True
        if place == _SELF and any(map(_is_of_self, others)):
            return True
    return False


def _is_of_self(place: str) -> bool:
    return place.startswith("self.")


def _parts_of(function: Function) -> list[_Part]:
    return list(_Reader(function).parts(function.body, ()))


def is_in_place(name: str) -> bool:
    """Whether a method writes its result into its tensor: torch's names for these end in `_`."""
    return name.endswith("_") and not name.endswith("__")


def written_to(call: ast.Call) -> ast.expr | None:
    """The tensor that a call of torch writes its result into: `torch.add(a, b, out=total)`."""
    return next((item.value for item in call.keywords if item.arg == "out"), None)


class _Reader:
    """Reads the statements of one function."""

    def __init__(self, function: Function) -> None:
        self._module = function.module
        self._imported: dict[str, bool] = {}

    def parts(
        self, statements: Iterable[ast.stmt], around: tuple[ast.stmt, ...]
    ) -> Iterator[_Part]:
        """What each statement does, outer ones first."""
        for statement in statements:
            if isinstance(statement, _SIMPLE):
                yield self._part(statement, around, [statement])
            elif type(statement) in _HEADERS:
                header = [getattr(statement, name) for name in _HEADERS[type(statement)]]
                lists = (item if isinstance(item, list) else [item] for item in header)
                yield self._part(statement, around, [node for item in lists for node in item])
                held = chain.from_iterable(blocks_of(statement))
                yield from self.parts(held, (*around, statement))

    def _part(
        self, statement: ast.stmt, around: tuple[ast.stmt, ...], nodes: list[ast.AST]
    ) -> _Part:
        reads: set[str] = set()
        called: set[str] = set()
        binds: set[str] = set()
        calls = backward = False
        pending = list(nodes)
        while pending:
            node = pending.pop()
            if isinstance(node, ast.Call):
                calls = True
                backward = backward or last_name(node.func) in BACKWARDS
                target = written_to(node)
                if target is not None:
                    binds.add(self._place(target))
                if isinstance(node.func, ast.Name):
                    called.add(node.func.id)
                    if isinstance(statement, ast.Expr):  # it may write into what it is given
                        binds.update(map(self._place, arguments(node)))
                    pending += [*node.args, *node.keywords]
                    continue
                changed = _SELF if is_on_self(node) else self._place(node.func)
                reads.add(changed)
                name = last_name(node.func)
                if is_on_self(node) or name in FILLING or is_in_place(name):
                    binds.add(changed)
            elif isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
                place = self._place(node)
                is_read = isinstance(node.ctx, ast.Load) or isinstance(statement, ast.AugAssign)
                if not isinstance(node.ctx, ast.Load):
                    binds.add(place)
                if is_read or isinstance(node, ast.Subscript):
                    reads.add(place)
                if place:
                    pending += _indexes(node)
                    continue
            pending += children(node)
        reads.discard("")
        binds.discard("")
        return _Part(
            *(statement, around, frozenset(reads), frozenset(called), frozenset(binds)),
            *(calls, backward),
        )

    def _place(self, node: ast.expr) -> str:
        """The place that a chain of attributes and elements belongs to; "" for none."""
        path = path_text(node)
        if path is None:
            return ""
        root = root_of(path)
        while not isinstance(node, ast.Name):
            if not isinstance(node, (ast.Attribute, ast.Subscript)):
                return place_of(path)
            node = node.value
        if root not in self._imported:
            self._imported[root] = self._module.resolve(node) is not None
        return "" if self._imported[root] else place_of(path)


def _indexes(chain: ast.expr) -> Iterator[ast.AST]:
    """What a chain of attributes and elements holds besides its places."""
    while isinstance(chain, (ast.Attribute, ast.Subscript)):
        if isinstance(chain, ast.Subscript):
            yield chain.slice
        chain = chain.value
    yield from children(chain)


def is_on_self(call: ast.Call) -> bool:
    """Whether a call has the object of the function that it stands in."""
    return isinstance(call.func, ast.Attribute) and last_name(call.func.value) == _SELF
