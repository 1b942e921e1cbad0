"""What is known about a value: the modules whose parameters its gradient reaches.

A module is a "root", written as the training function writes it ("self.model",
"models['agent']"). `ANYTHING` is the root of every tensor that a call computed, so that a loss
without any graph can be told from one whose model is not known.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field

from amplint.code.module import Function

ANYTHING = "*"
#: The root of a tensor that was made to require a gradient.
LEAF = "leaf"
#: The root of what was computed from such a tensor: it is connected to something.
GROWN = "grown"


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Where a gradient stops.

    Args:
        kind: "no_grad", "inference_mode", or what detaches: "detach", "item", "data", "tensor",
            "numpy", "float".
        node: the decorator, the with item, or the call.
        function: the function that holds `node`; for a decorator the decorated one.
        calls: the calls that lead into it, outermost first.
    """

    kind: str
    node: ast.expr
    function: Function
    calls: tuple[tuple[ast.Call, Function], ...] = ()

    @property
    def by_mode(self) -> bool:
        """Whether the grad mode stops it, and not an operation on the value."""
        return self.kind in ("no_grad", "inference_mode")


@dataclass(frozen=True, slots=True)
class Flow:
    """The roots that a tensor is connected to, and those it is cut off from.

    Args:
        connected: roots that a backward from here reaches.
        blocked: root -> the block that cut the last way to it.
    """

    connected: frozenset[str] = frozenset()
    blocked: dict[str, Block] = field(default_factory=dict)

    def cut(self, block: Block) -> Flow:
        """The value behind a block; what other ways to a root were cut by matters no more."""
        return Flow(frozenset(), {**self.blocked, **dict.fromkeys(self.connected, block)})

    def with_root(self, root: str) -> Flow:
        """The value of a call of a root on this one."""
        return Flow(self.connected | {root, ANYTHING}, self.blocked)


NOTHING = Flow()
COMPUTED = Flow(frozenset({ANYTHING}))
#: What a caller hands over. It may be connected to anything, but is data where it is iterated.
GIVEN = Flow(frozenset({ANYTHING}))


@dataclass(frozen=True, slots=True)
class Root:
    """A module itself, not a tensor."""

    name: str


#: A tuple keeps the values of its elements apart.
Value = Flow | Root | tuple["Value", ...]


def flow_of(value: Value) -> Flow:
    """A value as one tensor; a module that is handed over may be called."""
    if isinstance(value, Flow):
        return value
    if isinstance(value, Root):
        return Flow(frozenset({value.name, ANYTHING}))
    return union(value)


def is_owned(value: Value) -> bool:
    """Whether a value is a module that an optimizer owns, or was computed by one."""
    if isinstance(value, tuple):
        return any(map(is_owned, value))
    names = {value.name} if isinstance(value, Root) else {*value.connected, *value.blocked}
    return bool(names - {ANYTHING, LEAF, GROWN})


def is_callable(value: Value) -> bool:
    """Whether a value is a module, or was made of one: `parallel = DistributedDataParallel(model)`."""
    return isinstance(value, Root) or (isinstance(value, Flow) and is_owned(value))


def cut_all(value: Value, block: Block) -> Value:
    """A value behind a block, a tuple element by element."""
    if isinstance(value, tuple):
        return tuple(cut_all(part, block) for part in value)
    return value.cut(block) if isinstance(value, Flow) else value


def union(values: Iterable[Value]) -> Flow:
    """The value of an operation on all of these."""
    connected: set[str] = set()
    blocked: dict[str, Block] = {}
    for value in values:
        flow = flow_of(value)
        connected |= flow.connected
        for root, block in flow.blocked.items():
            blocked.setdefault(root, block)
    return Flow(frozenset(connected), blocked)


def join(first: Value | None, second: Value | None) -> Value:
    """What a place may hold after two branches."""
    if first is None or second is None:
        return first if second is None and first is not None else second or NOTHING
    if first == second:
        return first
    if isinstance(first, tuple) and isinstance(second, tuple) and len(first) == len(second):
        return tuple(join(one, other) for one, other in zip(first, second))
    return union((first, second))


def join_places(first: dict[str, Value], second: dict[str, Value]) -> dict[str, Value]:
    """What each place may hold after two branches."""
    return {path: join(_held(path, first), _held(path, second)) for path in {**first, **second}}


def _held(path: str, values: dict[str, Value]) -> Value | None:
    """What a path holds; an attribute that was not assigned here holds something from before."""
    known = values.get(path)
    return GIVEN if known is None and not path.isidentifier() else known
