"""What a path knows about one place decides a test of the same place: a small decision procedure.

It claims to decide conjunctions of tests of places that hold None, a flag, a word or a count: `x`,
`x is None`, `x == "word"`, `x == 3`, `x > 2`, and their negations. A count is a whole number. A
place that is compared as a number is not None, and one that is not above zero is falsy.
`tests/flow/test_deciding.py` asks z3 about the same conjunctions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeGuard

from amplint.flow.state import State
from amplint.flow.values import UNBOUND, Value, is_not_none, is_truthy
from amplint.protocol import Gradient
from amplint.protocol.states import ABSENT

INFINITE = float("inf")


@dataclass(slots=True)
class _Place:
    """What is known about one place.

    Args:
        low: the least number that it may hold.
        high: the greatest one.
        words: the literals that it is known to be.
        excluded: the literals that it is known not to be.
    """

    some: bool | None = None
    true: bool | None = None
    low: float = -INFINITE
    high: float = INFINITE
    words: set[object] = field(default_factory=set)
    excluded: set[object] = field(default_factory=set)

    def take(self, atom: tuple, truth: bool) -> None:
        """Learn one fact."""
        kind = atom[0]
        if kind == "some":
            self.some = truth
        elif kind == "true":
            self.true = truth
        elif kind == "equal":
            (self.words if truth else self.excluded).add(atom[2])
        else:
            self.bound(atom[2] if kind == "above" else 0, above=truth)

    def bound(self, number: float, *, above: bool) -> None:
        """Learn that the number is above another one, or not."""
        if above:
            self.low = max(self.low, number + 1)
        else:
            self.high = min(self.high, number)

    def close(self) -> None:
        """Draw what follows from several facts together."""
        for word in self.words:
            if _is_number(word):
                self.low, self.high = max(self.low, word), min(self.high, word)
            if self.true is None:
                self.true = None if str(word).startswith("<") else bool(word)
        if self.compared and self.high >= 0:
            self.low = max(self.low, 0)
        if self.true:
            self.excluded.add(0)
        elif self.true is False and self.compared:
            self.high = min(self.high, 0)
        self.low = _beyond(self.low, self.excluded, 1)
        self.high = _beyond(self.high, self.excluded, -1)
        if self.compared or self.words or self.true:
            self.some = True
        if self.true is None and self.compared and not self.low <= 0 <= self.high:
            self.true = True
        elif self.true is None and (self.some is False or self.high <= 0):
            self.true = False

    @property
    def compared(self) -> bool:
        """Whether it is known to be a number."""
        return self.low > -INFINITE or self.high < INFINITE

    def is_above(self, number: float) -> bool | None:
        """Whether the number is above another one."""
        if self.low > number:
            return True
        if self.high <= number:
            return False
        if number == 0 and self.true is not None:
            return self.true
        return False if self.true is False and self.some is not False else None

    def equals(self, literal: object) -> bool | None:
        """Whether it is a literal."""
        if literal in self.excluded or self.some is False:
            return False
        if self.words:
            return literal in self.words
        known = self.true is not None and not str(literal).startswith("<")
        if known and bool(literal) is not self.true:
            return False
        if not self.compared:
            return None
        if not _is_number(literal) or not self.low <= literal <= self.high:
            return False
        return True if self.low == self.high else None


#: Boundaries of one window that exclude each other: nothing is left over, and 1 is.
_APART = {"now": "behind", "behind": "now"}


def told_of(other: str, place: str, facts: Mapping[tuple, bool]) -> Iterator[tuple[tuple, bool]]:
    """What is known of a place, as tests of another one that holds the same."""
    for atom, truth in facts.items():
        if atom[0] in ABOUT_PLACES and atom[1] == place:
            yield (atom[0], other, *atom[2:]), truth


def decide(atom: tuple, state: State) -> bool | None:
    """What the state says about an atom; None where it leaves it open."""
    kind = atom[0]
    if kind == "boundary" and not atom[3] and state.facts.get(("first", atom[1])):
        return True
    if kind == "boundary" and atom[3] in _APART and state.facts.get((*atom[:3], _APART[atom[3]])):
        return False
    if kind == "gradient":
        return _gradient(state)
    if kind not in ABOUT_PLACES:
        return state.facts.get(atom)
    known = by_value(atom, state.values.get(atom[1]))
    if known is None:
        known = state.facts.get(atom)
    return _by_facts(atom, state) if known is None else known


def raises(atom: tuple, state: State) -> bool:
    """Whether evaluating an atom ends the path.

    None is above nothing, and not below either; what was never assigned cannot be read.
    """
    if atom[0] in ABOUT_PLACES and state.values.get(atom[1]) == UNBOUND:
        return True
    return atom[0] == "above" and decide(("some", atom[1]), state) is False


def is_derived(atom: tuple, state: State) -> bool:
    """Whether other facts decide an atom, and neither the value of its place nor a fact of its own.

    Of states that are merged only common facts survive: what follows has to be among them.
    """
    if atom[0] not in _DERIVED or atom in state.facts:
        return False
    return atom[0] == "boundary" or by_value(atom, state.values.get(atom[1])) is None


#: What tests of one place begin with; the place comes next.
ABOUT_PLACES = frozenset({"some", "true", "equal", "positive", "above"})
_DERIVED = ABOUT_PLACES | {"boundary", "other"}


def by_value(atom: tuple, value: Value) -> bool | None:
    """What the value of the place says."""
    if value is None:
        return None
    kind = atom[0]
    if kind == "some":
        return is_not_none(value)
    if kind == "true":
        return is_truthy(value)
    if kind == "equal":
        if value[0] == "none":
            return False
        return value[1] == atom[2] if value[0] == "const" else None
    if value[0] == "positive":
        return True if kind == "positive" else None
    if value[0] == "tuple":  # `len(x)` of a display
        return len(value[1]) > (0 if kind == "positive" else atom[2])
    if value[0] == "const" and _is_number(value[1]):
        return value[1] > (0 if kind == "positive" else atom[2])
    return None


def _by_facts(atom: tuple, state: State) -> bool | None:
    """What other facts about the same place say."""
    about = atom[1]
    told = [
        item for item in state.facts.items() if item[0][0] in ABOUT_PLACES and item[0][1] == about
    ]
    # Literals that it is not, often many, decide nothing but the same tests: those are facts.
    if not any(truth or other[0] != "equal" for other, truth in told):
        return None
    place = _Place()
    for other, truth in told:
        place.take(other, truth)
    place.close()
    kind = atom[0]
    if kind in ("some", "true"):
        return place.some if kind == "some" else place.true
    if kind == "equal":
        return place.equals(atom[2])
    return place.is_above(atom[2] if kind == "above" else 0)


def _beyond(number: float, excluded: Collection[object], step: int) -> float:
    """The next number that is not excluded; infinity, and what is too large to count, have no next."""
    while number in excluded and number + step != number:
        number += step
    return number


def _is_number(literal: object) -> TypeGuard[float]:
    return isinstance(literal, (int, float)) and not isinstance(literal, bool)


def _gradient(state: State) -> bool | None:
    """Whether some parameter has a gradient, by the tags of the optimizers."""
    tags = [tag for _, (tag, _) in _gradients(state)]
    if not tags or None in tags:
        return None
    present = [tag not in ABSENT for tag in tags]
    if all(present):
        return True
    return None if any(present) else False


def _gradients(state: State) -> list[tuple[tuple, tuple[Gradient | None, frozenset]]]:
    found = [item for item in state.typestate.items() if item[0][0] == "gradient"]
    return [item for item in found if item[0][1] != "*"] or found
