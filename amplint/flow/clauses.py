"""What is left of tests when two paths meet that took different ways: one of two things is so.

    scaler = None
    if args.half:
        if args.backend == "torch":
            scaler = GradScaler()

Where there is no scaler, one path knows that `args.half` is false, the other that the backend is
another one. What they share is a clause: not half, or not torch. Later tests of both contradict it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Any

from amplint.flow.conditions import evaluate, negate
from amplint.flow.deciding import ABOUT_PLACES
from amplint.flow.places import ROUND
from amplint.flow.state import State, last_part

#: A condition, or one that is negated; of these a clause says that one holds.
Literal = tuple[Any, ...]

#: Of what one path alone knows, this much that it learned last makes clauses.
NEWEST = 4
#: A longer clause is hardly ever decided.
LONGEST = 4


def clauses_left(
    one: State, other: State, kept: Mapping[tuple, bool], names: AbstractSet[str]
) -> Iterator[tuple]:
    """The clauses that hold on both paths and say more than what is kept of them.

    Args:
        kept: what both know.
        names: last names of the places that clauses are about.
    """
    ours, theirs = _own(one, kept, names), _own(other, kept, names)
    found = {frozenset((first, second)) for first in ours for second in theirs}
    found |= set(_carried(one, other, theirs, kept))
    found |= set(_carried(other, one, ours, kept))
    for clause in found:
        if len(clause) > 1 and not _is_trivial(clause):
            yield ("or", clause)


def _own(state: State, kept: Mapping[tuple, bool], names: AbstractSet[str]) -> list[Literal]:
    """What only one path knows of single conditions, newest last."""
    newest = (
        atom if truth else ("not", atom)
        for atom, truth in reversed(state.facts.items())
        if atom not in kept and _counts(atom, names)
    )
    return [*islice(newest, NEWEST)][::-1]


def _counts(atom: tuple, names: AbstractSet[str]) -> bool:
    """Whether a condition is about places of these names, or about none: about the machine."""
    if atom[0] in ABOUT_PLACES:
        return last_part(atom[1]) in names
    return atom[0] == "other" and all(
        place == ROUND or last_part(place) in names for place in atom[2]
    )


def _carried(
    state: State, other: State, own: list[Literal], kept: Mapping[tuple, bool]
) -> Iterator[frozenset[Literal]]:
    """Clauses of one path: as they are where the other path fulfils them, else made longer."""
    for clause in _clauses(state.facts):
        if ("or", clause) in kept:
            continue
        if evaluate(("or", tuple(clause)), other, joined=False) is True:
            yield clause
        elif len(clause) < LONGEST:
            yield from (clause | {literal} for literal in own)


def _clauses(facts: Mapping[tuple, bool]) -> Iterator[frozenset[Literal]]:
    """The clauses that a path knows, whether noted here or left by a test of several conditions."""
    for atom, truth in facts.items():
        if atom[0] == "or" and truth:
            yield atom[1]
        elif atom[0] == "and" and not truth:
            yield frozenset(negate(part) for part in atom[1])  # type: ignore[misc]


def _is_trivial(clause: Iterable[Literal]) -> bool:
    """Whether a clause says of some condition that it holds or does not."""
    return any(negate(literal) in clause for literal in clause)  # type: ignore[operator]
