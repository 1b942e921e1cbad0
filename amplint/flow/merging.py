"""Merging states at one point: which are told apart, and what the rest have in common.

States are kept apart where their keys differ (`State.key`). What some of them do not know, the
merged one does not know either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from amplint.flow.clauses import clauses_left
from amplint.flow.conditions import evaluate
from amplint.flow.deciding import ABOUT_PLACES, by_value, told_of
from amplint.flow.liveness import NONE_DEAD, Dead
from amplint.flow.state import Guards, State
from amplint.flow.typestates import says_less
from amplint.flow.values import Value, is_truthy, kind_of

#: More states than this at one point are widened: guard values leave the key first.
STATE_LIMIT = 64

#: Kinds of facts about several conditions at once.
_COMPOUND = frozenset({"and", "or"})
#: Kinds of values that decide tests of their place by themselves.
_PLAIN = frozenset({"const", "none"})


class Limits(NamedTuple):
    """How many states may be told apart at one point.

    Args:
        guarded: by all guards; where there are more, only those near events count.
        near: by guards near events; where there are more, none counts.
    """

    guarded: int
    near: int


#: While an entry is small, in functions that may reach an event.
FINE = Limits(16, STATE_LIMIT)


def merge(
    states: Iterable[State],
    guards: Guards,
    limits: Limits = FINE,
    dead: Dead = NONE_DEAD,
    *,
    apart: bool = False,
) -> list[State]:
    """Merge states that agree on their key; of the rest only common knowledge survives.

    Args:
        limits: of the states that are left; over them, those that know less than another are dropped.
        dead: see `State.key`.
        apart: whether other paths end at the same point that are not among the states.
    """
    states = list(states)
    if len(states) < 2:
        return states
    groups = _group(states, guards, dead, None)
    if len(groups) > limits.guarded:
        groups = _group(states, guards, dead, guards.near)
    if len(groups) > limits.near:
        groups = _without_unknowing(_group(states, guards, dead, frozenset()))
    if len(groups) > STATE_LIMIT:
        groups = _group(states, guards, dead, frozenset(), focused=False)
    merged = [
        _join(group, guards if apart or len(groups) > 1 else None) for group in groups.values()
    ]
    if len(merged) > STATE_LIMIT:
        return [widen(merged)]
    return merged


def _group(
    states: list[State],
    guards: Guards,
    dead: Dead,
    names: frozenset[str] | None,
    *,
    focused: bool = True,
) -> dict[tuple, list[State]]:
    groups: dict[tuple, list[State]] = {}
    for state in states:
        groups.setdefault(state.key(guards, dead, names, focused=focused), []).append(state)
    return groups


def _without_unknowing(groups: dict[tuple, list[State]]) -> dict[tuple, list[State]]:
    """The groups, but for those that show nothing which another one, alike else, does not show."""
    alike: dict[tuple, list[tuple]] = {}
    for key in groups:
        found, keyed, (_, *fixed), about = key
        alike.setdefault((found, keyed, *fixed, about), []).append(key)
    gone: set[tuple] = set()
    for keys in alike.values():
        for one in keys:
            record = groups[one][0].typestate
            others = (key for key in keys if key is not one and key not in gone)
            if any(says_less(record, groups[key][0].typestate) for key in others):
                gone.add(one)
    return {key: group for key, group in groups.items() if key not in gone}


def _join(group: list[State], guards: Guards | None = None) -> State:
    """What all states of a group know; where others are told apart from them, clauses as well.

    Args:
        guards: the places that clauses speak of; None for no clauses.
    """
    first = group[0]
    if len(group) == 1:
        return first
    values, facts = first.values, first.facts
    for other in group[1:]:
        if other.values == values and other.facts == facts:
            continue
        one = State(first.typestate, values, facts)
        facts = _common_facts(values, facts, other)
        if guards is not None:
            facts.update(clauses_left(one, other, facts, guards.names))
        if other.values != values:
            values = _common_values(one, other)
    shortest = min(group, key=lambda state: state.length)
    joined = dict(facts)
    joined.update(_common_compounds(group, facts))
    return State(dict(first.typestate), dict(values), joined, shortest.trail)


def _common_compounds(
    group: list[State], kept: Mapping[tuple, bool]
) -> Iterator[tuple[tuple, bool]]:
    """Tests of several conditions that all states agree on, whatever each of them knows it by.

    `half and device == "cuda"` is false where half is, and where the device is "cpu": two states
    at a time share neither, and one that was asked the whole test comes too late.
    """
    known = [[item for item in state.facts.items() if item[0][0] in _COMPOUND] for state in group]
    if not any(known):
        return
    held = [_places_held(state) for state in group]
    asked: dict[tuple[tuple, bool], None] = {}
    for facts, places in zip(known, held, strict=True):
        names = _lost_names(places, group) if facts else {}
        for fact, truth in facts:
            asked[fact, truth] = None
            asked[(fact[0], frozenset(_renamed(part, names) for part in fact[1])), truth] = None
    for fact, truth in asked:
        if fact not in kept and all(
            state.facts.get(fact) is truth or _by_held(fact, state, places) is truth
            for state, places in zip(group, held, strict=True)
        ):
            yield fact, truth


def _by_held(fact: tuple, state: State, places: Mapping[str, str]) -> bool | None:
    """The truth of a test in a state, by what the places in it are other names of."""
    formula = (fact[0], tuple(_renamed(part, places) for part in fact[1]))
    return evaluate(formula, state, joined=False)


def _places_held(state: State) -> dict[str, str]:
    """Names of other places -> these places."""
    return {name: value[1] for name, value in state.values.items() if kind_of(value) == "path"}  # type: ignore[index]


def _lost_names(places: Mapping[str, str], group: list[State]) -> dict[str, str]:
    """Places -> their other names in one state, which others of the group bind differently.

    A caller's `args.device` is `device` here; where that was assigned, it is something else.
    """
    return {
        place: name
        for name, place in places.items()
        if any(one.values.get(name) != ("path", place) for one in group)
    }


def _renamed(formula: tuple[Any, ...], names: Mapping[str, str]) -> tuple[Any, ...]:
    if formula[0] == "not":
        return ("not", _renamed(formula[1], names))
    if formula[0] in _COMPOUND:
        return (formula[0], tuple(_renamed(part, names) for part in formula[1]))
    if formula[0] in ABOUT_PLACES and formula[1] in names:
        return (formula[0], names[formula[1]], *formula[2:])
    return formula


def widen(states: list[State]) -> State:
    """One state for all: what disagrees becomes unknown, and unknown never reports."""
    joined = _join(states)
    typestate = dict(joined.typestate)
    for other in states[1:]:
        for key in set(typestate) | set(other.typestate):
            if typestate.get(key) != other.typestate.get(key):
                _forget(typestate, key)
    joined.typestate = typestate
    return joined


def _forget(typestate: dict[tuple, Any], key: tuple) -> None:
    if key[0] == "gradient":
        typestate[key] = (None, frozenset())
    elif key[0] == "stage":
        typestate[key] = (None, False)
    elif key[0] == "checked":
        typestate.pop(key, None)
    else:
        typestate[key] = True


def _common_facts(values: Mapping[str, Value], facts: dict, other: State) -> dict:
    """What both know of tests: one by a test before, the other perhaps by what was assigned.

    `args.amp` was tested and is false here, there it was set to False: it is false in both.
    """
    kept = _common(facts, other.facts)
    for known, unsaid in ((facts, other.values), (other.facts, values)):
        for atom, truth in known.items():
            if atom not in kept and _by_value(atom, unsaid) is truth:
                kept[atom] = truth
    for location, value in values.items() if values is not other.values else ():
        beside = other.values.get(location)
        if beside != value and kind_of(value) in _PLAIN and kind_of(beside) in _PLAIN:
            truth = is_truthy(value)
            if truth is not None and truth is is_truthy(beside):
                kept["true", location] = truth
    ours, theirs = (values, facts), (other.values, other.facts)
    for one, two in ((ours, theirs), (theirs, ours)) if values is not other.values else ():
        for atom, truth in _of_aliases(one, two[0]):
            if atom not in kept and _known(atom, two) is truth:
                kept[atom] = truth
    return kept


#: What is known on one path: values and outcomes of tests.
_Knowledge = tuple[Mapping[str, Value], Mapping[tuple, bool]]


def _of_aliases(known: _Knowledge, others: Mapping[str, Value]) -> Iterator[tuple[tuple, bool]]:
    """Tests of the places that `self.kind = kind` makes two names of, by the name that is lost.

    Args:
        others: the values of a path on which the place holds something else.
    """
    values, facts = known
    for location, value in values.items():
        if value is None or value[0] != "path" or others.get(location) == value:
            continue
        yield from told_of(location, value[1], facts)


def _known(atom: tuple[Any, ...], known: _Knowledge) -> bool | None:
    """The truth of a simple test, by what the place holds, is another name of, or was tested for."""
    values, facts = known
    value = values.get(atom[1])
    if value is not None and value[0] == "path":
        atom = (atom[0], value[1], *atom[2:])
    truth = _by_value(atom, values)
    return facts.get(atom) if truth is None else truth


def _common_values(one: State, other: State) -> dict[str, Value]:
    """What both hold; and what is True or False in both, by tests here and a literal there."""
    kept = _common(one.values, other.values)
    for location, value in one.values.items():
        beside = other.values.get(location)
        if beside != value and "formula" in (kind_of(value), kind_of(beside)):
            truth = _truth(value, one)
            if truth is not None and truth is _truth(beside, other):
                kept[location] = ("const", truth)
    return kept


def _truth(value: Value, state: State) -> bool | None:
    """Of a literal bool, or of a condition whose outcome is known in a state."""
    if value is None or value[0] not in ("const", "formula"):
        return None
    if value[0] == "formula":
        return evaluate(value[1], state)
    return value[1] if isinstance(value[1], bool) else None


def _by_value(atom: tuple[Any, ...], values: Mapping[str, Value]) -> bool | None:
    """The truth of a test of a place that holds a literal or None; None if it does not."""
    value = values.get(atom[1]) if atom[0] in ABOUT_PLACES else None
    return by_value(atom, value) if kind_of(value) in _PLAIN else None


def _common(left: dict, right: dict) -> dict:
    return {key: value for key, value in left.items() if key in right and right[key] == value}
