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
from functools import lru_cache
from itertools import islice
from typing import Any

from amplint.flow.conditions import evaluate, negate
from amplint.flow.deciding import ABOUT_PLACES
from amplint.flow.places import ROUND
from amplint.flow.state import State, last_part

#: A condition, or one that is negated; of these a clause says that one holds.
Literal = tuple[Any, ...]

#: Conditions of which one holds; none for what always holds.
Clause = frozenset[Literal]

ALWAYS: Clause = frozenset()

#: Of what one path alone knows, this much that it learned last makes clauses.
NEWEST = 4
#: A longer clause is hardly ever decided.
LONGEST = 4


def clauses_left(
    one: State, other: State, kept: Mapping[tuple, bool], names: AbstractSet[str]
) -> Iterator[tuple[tuple, bool]]:
    """The clauses that hold on both paths and say more than what is kept of them, as facts.

    Args:
        kept: what both know.
        names: last names of the places that clauses are about.
    """
    ours, theirs = _own(one, kept, names), _own(other, kept, names)
    found = [frozenset((first, second)) for first in ours for second in theirs]
    found += _carried(one, other, theirs, kept)
    found += _carried(other, one, ours, kept)
    shortest: list[Clause] = [atom[1] for atom, truth in kept.items() if truth and atom[0] == "or"]
    for clause in sorted(dict.fromkeys(map(shortened, found)), key=len):
        if clause == ALWAYS or any(known <= clause for known in shortest):
            continue
        shortest.append(clause)
        yield _as_fact(clause)


def _as_fact(clause: Clause) -> tuple[tuple, bool]:
    if len(clause) > 1:
        return ("or", clause), True
    (literal,) = clause
    return (literal[1], False) if literal[0] == "not" else (literal, True)


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
) -> Iterator[Clause]:
    """Clauses of one path: as they are where the other path fulfils them, else made longer."""
    for clause in _clauses(state.facts):
        if ("or", clause) in kept:
            continue
        if evaluate(("or", tuple(clause)), other, joined=False) is True:
            yield clause
        elif len(clause) < LONGEST:
            yield from (clause | {literal} for literal in own)


def _clauses(facts: Mapping[tuple, bool]) -> Iterator[Clause]:
    """The clauses that a path knows, whether noted here or left by a test of several conditions."""
    for atom, truth in facts.items():
        if atom[0] == "or" and truth:
            yield atom[1]
        elif atom[0] == "and" and not truth:
            yield frozenset(negate(part) for part in atom[1])  # type: ignore[misc]


@lru_cache(maxsize=65536)
def shortened(clause: Clause) -> Clause:
    """A clause without the conditions that others of it follow from; `ALWAYS` if nothing denies it.

    What is true is not None: "x is not None, or x is false" says nothing, and "x, or x is not
    None" no more than the latter.
    """
    # In one order, whatever the hashes: of two that say the same the first goes.
    kept = sorted(frozenset().union(*map(_parts, clause)), key=repr)
    for literal in tuple(kept):
        others = [each for each in kept if each != literal]
        if any(negate(literal) == each for each in others):
            return ALWAYS
        beside = [each for each in others if _place_of(each) == _place_of(literal) is not None]
        if not beside:
            continue
        if evaluate(literal, _knowing(negate(each) for each in beside), joined=False) is True:
            return ALWAYS
        if any(evaluate(each, _knowing([literal]), joined=False) is True for each in beside):
            kept = others
    return frozenset(kept)


def _parts(literal: Literal) -> Clause:
    """The conditions of a disjunction in a clause, or the one condition."""
    if literal[0] != "or":
        return frozenset((literal,))
    return frozenset().union(*map(_parts, literal[1]))


def _place_of(literal: Literal) -> str | None:
    """The place that a single condition is about."""
    atom = literal[1] if literal[0] == "not" else literal
    return atom[1] if atom[0] in ABOUT_PLACES else None


def _knowing(literals: Iterable[Any]) -> State:
    """A state that knows only that these conditions hold."""
    return State(facts=dict(_as_fact(frozenset((each,))) for each in literals))
