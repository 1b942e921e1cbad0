"""What can be said about where a value comes from: origins, the way from them, how firmly.

`Origin` is an expression that created a value. `Back` is one step towards it: the places that an
expression takes its value from. Modules of this room hand both on and join them.
"""

from __future__ import annotations

import ast
import enum
from collections.abc import Iterable
from dataclasses import dataclass, field

from amplint.code.expressions import last_name
from amplint.code.module import Class, Function, Module

#: Calls are followed through this many functions at once.
CALL_DEPTH = 6
#: An expression with more predecessors is unknown.
WIDTH = 16


class Firmness(enum.IntEnum):
    """How firmly an expression has a value; the weaker of two is the smaller one."""

    CHOICE = 0  # somebody has to choose it, or a condition that nothing settles has to hold
    DEFAULT = 1  # declared in the code; a user, or a caller out of sight, may choose otherwise
    FIXED = 2  # nothing in the project says otherwise


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A place that a value passes on its way, for the path of a finding.

    Args:
        to: the function, or the class of a record, whose parameter a call gives the value, or leaves
            at it; None for every other place.
        into: the function whose parameter is what all its known callers pass; None else.
        parameter: the name of that parameter.
    """

    node: ast.AST
    module: Module
    words: str
    to: Function | Class | None = None
    into: Function | None = None
    parameter: str = ""


@dataclass(frozen=True, slots=True)
class Activation:
    """One call of a function, so that its parameters are what this call passes.

    Args:
        constructs: whether `self` is the object that the call makes.
    """

    callee: Function
    call: ast.Call
    caller: Function
    outer: Activation | None = None
    constructs: bool = False
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Calls are nested, and each is part of the key of every question about a value in there.
        parts = (self.callee, self.call, self.caller, self.outer, self.constructs)
        object.__setattr__(self, "_hash", hash(parts))

    def __hash__(self) -> int:
        return self._hash

    @property
    def depth(self) -> int:
        """How many calls are nested, this one included."""
        return 1 + (self.outer.depth if self.outer is not None else 0)


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """A test that has to come out on one side.

    Args:
        side: which one.
        function: where the test is evaluated.
    """

    test: ast.expr
    side: bool
    function: Function


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """An expression that created a value.

    Args:
        function: where it is evaluated.
        activation: for which call of that function; None for any.
        steps: the way from here to the expression that was asked about.
        conditions: what has to hold for the value to come from here; not all of them.
        data: what a data file holds; `NO_DATA` for everything else.
        from_command_line: the expression is a class, an object of which a parser fills.
    """

    expression: ast.expr
    function: Function
    activation: Activation | None = None
    firmness: Firmness = Firmness.FIXED
    steps: tuple[Step, ...] = ()
    conditions: tuple[Condition, ...] = ()
    data: object = ...
    from_command_line: bool = False

    def then(
        self,
        firmness: Firmness,
        steps: tuple[Step, ...],
        conditions: tuple[Condition, ...] = (),
    ) -> Origin:
        """The same origin, seen from further away."""
        if not steps and not conditions and firmness >= self.firmness:
            return self
        return Origin(  # `replace` takes three times as long, and this is asked most
            self.expression,
            self.function,
            self.activation,
            min(self.firmness, firmness),
            self.steps + steps,
            self.conditions + conditions,
            self.data,
            self.from_command_line,
        )

    def at(self, expression: ast.expr, function: Function, activation: Activation | None) -> Origin:
        """The way from another expression that ends where this one does."""
        return Origin(  # as above
            expression,
            function,
            activation,
            self.firmness,
            self.steps,
            self.conditions,
            self.data,
            self.from_command_line,
        )


#: `Origin.data` of everything that is no data file.
NO_DATA = ...


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """All origins of an expression that are in sight.

    Args:
        complete: whether there are no others; without any origin: a literal lacks the entry.
    """

    origins: tuple[Origin, ...] = ()
    complete: bool = True


#: Nothing is known about the value.
UNKNOWN = Found((), False)


@dataclass(frozen=True, slots=True)
class Part:
    """An attribute or an element: `.dtype`, `["dtype"]`, `[0]`.

    Args:
        key: its name or index; `...` if that is not known.
        is_item: whether it is an element.
        index: the expression of an unknown key, and the function that evaluates it.
    """

    key: object
    is_item: bool
    index: tuple[ast.expr, Function] | None = None

    def __str__(self) -> str:
        return f"[{self.key!r}]" if self.is_item else f".{self.key}"


@dataclass(frozen=True, slots=True, eq=False)
class Before:
    """Where a value comes from, one step back; with `part`, a part of the value there."""

    expression: ast.expr
    function: Function
    activation: Activation | None
    firmness: Firmness = Firmness.FIXED
    steps: tuple[Step, ...] = ()
    part: Part | None = None
    conditions: tuple[Condition, ...] = ()

    def under(self, firmness: Firmness, conditions: tuple[Condition, ...]) -> Before:
        """The same place where other conditions lead to it."""
        return Before(  # as `Origin.then`
            self.expression,
            self.function,
            self.activation,
            firmness,
            self.steps,
            self.part,
            conditions,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Back:
    """All predecessors of an expression."""

    places: tuple[Before, ...]
    complete: bool = True


#: The truth values that a condition may have, each with how firmly.
Truth = dict[bool, Firmness]

#: The constants that a key may be, each with how firmly.
Keys = list[tuple[object, Firmness]]
#: Behind the keys that stand unless somebody chooses otherwise: it may be any other.
OTHER_KEY = (..., Firmness.CHOICE)


def same_call(first: Origin, second: Origin) -> bool:
    """Whether two values can meet: whatever is handed both of them is handed both by one call."""
    ours, theirs = ({step.to: step.node for step in item.steps} for item in (first, second))
    return all(ours[to] is theirs[to] for to in ours.keys() & theirs.keys() - {None})


def joined(
    results: Iterable[tuple[Found, Firmness, tuple[Step, ...]]],
    complete: bool,
    first: Found | None = None,
) -> Found:
    """All origins of several answers, each seen from further away, behind those of `first`."""
    origins = list(first.origins) if first is not None else []
    complete = complete and (first is None or first.complete)
    for found, firmness, steps in results:
        complete = complete and found.complete
        origins += (item.then(firmness, steps) for item in found.origins)
    return Found(tuple(origins[: WIDTH * 2]), complete and len(origins) <= WIDTH * 2)


def merged(first: Back, second: Back) -> Back:
    """The predecessors of both."""
    return Back((*first.places, *second.places), first.complete and second.complete)


def weakened(back: Back, firmness: Firmness) -> Back:
    """The same predecessors, none of them firmer than that."""
    places = (
        item if item.firmness <= firmness else item.under(firmness, item.conditions)
        for item in back.places
    )
    return Back(tuple(places), back.complete)


def passing_step(
    call: ast.Call,
    caller: Function,
    name: str,
    to: Function | Class,
    into: Function | None = None,
    parameter: str = "",
) -> Step:
    """The step of a value into a parameter or field of what is called."""
    words = f"passed as `{name}` of `{last_name(call.func)}`"
    return Step(call, caller.module, words, to, into, parameter)


def left_out(
    default: ast.expr, function: Function, name: str, call: ast.Call, caller: Function
) -> Before:
    """The default of a parameter that one call does not pass."""
    outside = function.parent or function.module.body
    words = f"`{last_name(call.func)}(...)` leaves `{name}` at its default"
    step = Step(call, caller.module, words, function)
    return Before(default, outside, None, steps=(step,))
