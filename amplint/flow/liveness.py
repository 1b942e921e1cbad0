"""Which locals a path still reads: what it knows about the others keeps no states apart.

Backward liveness on structured code (Aho, Lam, Sethi, Ullman, *Compilers*, 9.2.5), for the plain
names that one function binds and no function inside it sees.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from amplint.code.arguments import parameters
from amplint.code.module import Function, walk
from amplint.code.tree import COMPREHENSIONS, NESTED, TRIES

Names = frozenset[str]
NOTHING: Names = frozenset()
#: Dead places; of one that is True another place may hold the same, and speak of it.
Dead = Mapping[str, bool]
NONE_DEAD: Dead = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Liveness:
    """Dead locals of one function.

    Args:
        after: by the id of a statement, where it ends normally.
        heads: by the id of a loop, where its next round begins.
    """

    after: Mapping[int, Dead]
    heads: Mapping[int, Dead]


def liveness_of(function: Function) -> Liveness:
    """The dead locals of a function, at each of its statements."""
    own = _own_names(function)
    if not own:
        return Liveness({}, {})
    work = _Backward(own)
    work.block(function.body, NOTHING, _Exits(NOTHING, NOTHING, NOTHING))
    shared = _shared_names(function)

    def dead(live: Mapping[int, Names]) -> dict[int, Dead]:
        return {
            key: {f"{function.label}:{name}": name in shared for name in own - names}
            for key, names in live.items()
        }

    return Liveness(dead(work.after), dead(work.heads))


def _own_names(function: Function) -> Names:
    """Names that only this function reads and binds; none of a module body or a generator."""
    if function is function.module.body:
        return NOTHING
    bound = set(parameters(function))
    seen: set[str] = set()
    for node in function.nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            seen.update(node.names)
        elif isinstance(node, (ast.Yield, ast.YieldFrom, ast.Await)) or _reads_all(node):
            return NOTHING
        elif isinstance(node, (*NESTED, *COMPREHENSIONS)):
            inside = (each for each in walk(node) if isinstance(each, ast.Name))
            seen.update(each.id for each in inside)
    return frozenset(bound - seen)


def _reads_all(node: ast.AST) -> bool:
    """Whether a call may read any local by its name; `vars(args)` reads those of an object."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return False
    return node.func.id in ("locals", "eval", "exec") or (node.func.id == "vars" and not node.args)


def _shared_names(function: Function) -> Names:
    """Names that another name may stand for: what they hold is assigned, in whatever form."""
    found: set[str] = set()
    for node in function.nodes:
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            own = {target.id for target in targets if isinstance(target, ast.Name)}
            found |= _read(node.value) - (own if len(own) == len(targets) == 1 else set())
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            found |= _read(node.iter)
        elif isinstance(node, ast.withitem):
            found |= _read(node.context_expr)
    return frozenset(found)


def _read(node: ast.AST | None) -> set[str]:
    if node is None:
        return set()
    names = (each for each in walk(node) if isinstance(each, ast.Name))
    return {each.id for each in names if not isinstance(each.ctx, ast.Store)}


@dataclass(frozen=True, slots=True)
class _Exits:
    """What is read behind each way out of a block.

    Args:
        broken: behind the loop.
        again: in its next round.
        raised: in handlers and `finally` blocks around.
    """

    broken: Names
    again: Names
    raised: Names


class _Backward:
    """One walk from the end of a function to its start."""

    def __init__(self, own: Names) -> None:
        self.own = own
        self.after: dict[int, Names] = {}
        self.heads: dict[int, Names] = {}

    def block(self, body: Sequence[ast.stmt], live: Names, exits: _Exits) -> Names:
        """What is read from the start of a block on, given what is read behind it."""
        for statement in reversed(body):
            self.after[id(statement)] = live
            live = self._before(statement, live, exits) | exits.raised
        return live

    def _before(self, node: ast.stmt, live: Names, exits: _Exits) -> Names:
        if isinstance(node, (ast.Return, ast.Raise)):
            return self._reads(node)
        if isinstance(node, ast.Break):
            return exits.broken
        if isinstance(node, ast.Continue):
            return exits.again
        if isinstance(node, ast.If):
            branches = (self.block(part, live, exits) for part in (node.body, node.orelse))
            return self._reads(node.test).union(*branches)
        if isinstance(node, (ast.While, ast.For, ast.AsyncFor)):
            return self._loop(node, live, exits)
        if isinstance(node, (ast.With, ast.AsyncWith)):
            inner = self.block(node.body, live, exits)
            for item in reversed(node.items):
                inner = (inner - _bound([item.optional_vars])) | self._reads(item)
            return inner
        if isinstance(node, TRIES):
            return self._try(node, live, exits)
        if isinstance(node, ast.Match):
            cases = (self.block(case.body, live, exits) for case in node.cases)
            guards = (self._reads(case) for case in node.cases)
            return self._reads(node.subject).union(live, *cases, *guards)
        if isinstance(node, ast.Assign):
            return (live - _bound(node.targets)) | self._reads(node)
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            return (live - _bound([node.target])) | self._reads(node)
        if isinstance(node, ast.AugAssign):
            return live | self._reads(node) | (_bound([node.target]) & self.own)
        return live | self._reads(node)

    def _loop(self, node: ast.While | ast.For | ast.AsyncFor, live: Names, exits: _Exits) -> Names:
        done = self.block(node.orelse, live, exits)
        if isinstance(node, ast.While):
            turn, bound = self._reads(node.test), NOTHING
        else:
            turn, bound = self._reads(node.iter), _bound([node.target])
        head = turn | done
        while True:
            inside = _Exits(live, head, exits.raised)
            before = (self.block(node.body, head, inside) - bound) | turn | done
            if before == head:
                break
            head |= before
        self.heads[id(node)] = head
        return head

    def _try(self, node: ast.Try, live: Names, exits: _Exits) -> Names:
        behind = self.block(node.finalbody, live | exits.raised, exits) if node.finalbody else live
        around = exits.raised | behind if node.finalbody else exits.raised
        kept = _Exits(exits.broken | around, exits.again | around, around)
        caught = [self.block(item.body, behind, kept) for item in node.handlers]
        reads = [self._reads(item.type) for item in node.handlers if item.type is not None]
        raised = around.union(*caught, *reads)
        after = self.block(node.orelse, behind, kept)
        return self.block(node.body, after, _Exits(kept.broken, kept.again, raised))

    def _reads(self, node: ast.AST) -> Names:
        """Own names that a statement or expression reads or deletes."""
        return self.own & _read(node)


def _bound(targets: Iterable[ast.expr | None]) -> Names:
    """Plain names that an assignment surely binds."""
    found: set[str] = set()
    pending = list(targets)
    while pending:
        target = pending.pop()
        if isinstance(target, ast.Name):
            found.add(target.id)
        elif isinstance(target, (ast.Tuple, ast.List)):
            pending += target.elts
        elif isinstance(target, ast.Starred):
            pending.append(target.value)
    return frozenset(found)
