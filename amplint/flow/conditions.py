"""Conditions: boolean formulas over atoms, their truth in a state, and assuming them.

A formula is True, False, None (volatile: both branches are possible every time), an atom,
or ("not", f), ("and", fs), ("or", fs). Atoms:

    ("some", location)             the value is not None
    ("true", location)             the value is truthy; implies ("some", location)
    ("equal", location, literal)   equality with a literal; two literals exclude each other
    ("positive", text)             the number is above zero
    ("above", location, n)         the number is above another whole number
    ("boundary", counter, k, end)  the counter stands at the end (or start) of a window of k;
                                   for counters that begin anywhere, "now" or "next" (i, i + 1),
                                   or "behind" it, where k is known to be above 1 (i - 1)
    ("first", counter)             the loop is in its first iteration
    ("last", counter)              ... in its last one
    ("gradient",)                  some parameter has a gradient
    ("other", text, mentions)      any other stable comparison, by normalised text
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Union

from amplint.flow.deciding import decide, is_derived, raises
from amplint.flow.state import State
from amplint.flow.values import NONE, POSITIVE, ZERO, Value

Formula = Union[bool, tuple[Any, ...], None]  # noqa: UP007 -- evaluated at run time
CONNECTIVES = ("not", "and", "or")
_DUAL = {"and": "or", "or": "and"}
#: Kinds of values that speak of other locations.
_DEPENDENT = frozenset({"path", "formula", "text", "cases", "partial", "copy"})
#: Kinds of formulas that may speak of several locations.
_COMPOSED = frozenset({*CONNECTIVES, "other"})


def negate(formula: Formula) -> Formula:
    """Logical negation, down to the atoms; volatile stays volatile."""
    if formula is None:
        return None
    if isinstance(formula, bool):
        return not formula
    if formula[0] in _DUAL:
        return (_DUAL[formula[0]], tuple(negate(part) for part in formula[1]))
    return formula[1] if formula[0] == "not" else ("not", formula)


def conjoin(parts: list[Formula]) -> Formula:
    """Conjunction in evaluation order."""
    if any(part is False for part in parts):
        return False
    kept = tuple(part for part in parts if part is not True)
    if not kept:
        return True
    return kept[0] if len(kept) == 1 else ("and", kept)


def disjoin(parts: list[Formula]) -> Formula:
    """Disjunction in evaluation order."""
    if any(part is True for part in parts):
        return True
    kept = tuple(part for part in parts if part is not False)
    if not kept:
        return False
    return kept[0] if len(kept) == 1 else ("or", kept)


def evaluate(formula: Formula, state: State, *, joined: bool = True) -> bool | None:
    """Three-valued truth of a formula in a state.

    Args:
        joined: also by what whole disjunctions leave over, not only by each place alone.
    """
    if formula is None or isinstance(formula, bool):
        return formula
    kind = formula[0]
    value = state.values.get(formula[1]) if kind == "true" else None
    if kind == "not":
        inner = evaluate(formula[1], state, joined=joined)
        known = None if inner is None else not inner
    elif kind in _DUAL:
        known = _connected(formula, state, joined)
    elif value is not None and value[0] == "formula":
        known = evaluate(value[1], state, joined=joined)
    else:
        known = decide(formula, state)
    return _forced(formula, state) if known is None and joined else known


def _connected(formula: tuple, state: State, joined: bool) -> bool | None:
    known = _parts_together(formula, state, joined=joined)
    return _remembered_truth(formula, state) if known is None else known


def _parts_together(formula: tuple, state: State, *, joined: bool = False) -> bool | None:
    stop, is_open = formula[0] == "or", False
    for part in formula[1]:
        known = evaluate(part, state, joined=joined)
        if known is stop:
            return stop
        is_open = is_open or known is None
    return None if is_open else not stop


def _remembered_truth(formula: tuple, state: State) -> bool | None:
    """What a path has assumed of a whole conjunction or disjunction, or of its negation."""
    truth = state.facts.get(_whole(formula))
    if truth is not None:
        return truth
    opposite = state.facts.get(_whole(negate(formula)))  # type: ignore[arg-type]
    return None if opposite is None else not opposite


def _whole(formula: tuple) -> tuple:
    """Under what a path remembers a conjunction or disjunction: the order does not matter."""
    return (formula[0], frozenset(formula[1]))


def _forced(formula: tuple, state: State) -> bool | None:
    """What a remembered disjunction says about the one part of it that is left."""
    remembered = [item for item in state.facts.items() if item[0][0] in _DUAL]
    if not remembered:
        return None
    wanted, opposite = formula, negate(formula)
    for fact, truth in remembered:
        if not (wanted in fact[1] or opposite in fact[1]):
            continue
        stop = fact[0] == "or"
        part = wanted if wanted in fact[1] else opposite
        others = (evaluate(other, state, joined=False) for other in fact[1] if other != part)
        if truth is not stop or all(known is (not stop) for known in others):
            return truth is (part == wanted)
    return None


def assume(formula: Formula, truth: bool, state: State) -> list[State]:
    """The disjoint states in which the formula has this truth; [] if it cannot have it.

    A false conjunction (true disjunction) splits in short-circuit order: not a; a and not b.
    """
    if isinstance(formula, tuple) and formula[0] == "not":
        return assume(formula[1], not truth, state)
    known = evaluate(formula, state)
    if known is not None and known is not truth:
        return []
    if isinstance(formula, tuple) and raises(formula, state):
        return []
    if formula is None or isinstance(formula, bool):
        return [state]
    if known is not None:
        return [_store(formula, truth, state)] if is_derived(formula, state) else [state]
    kind = formula[0]
    if kind in ("and", "or"):
        parts = _assume_parts(formula[1], kind == "or", truth, state)
        return (
            parts if is_volatile(formula) else [remembered(formula, truth, part) for part in parts]
        )
    after = _store(formula, truth, state)
    return [] if _contradicts(after, mentions(formula)) else [after]


def _contradicts(state: State, places: frozenset[str]) -> bool:
    """Whether what is remembered of these places together cannot have its truth any more."""
    return any(
        _parts_together(fact, state) is (not truth)
        for fact, truth in state.facts.items()
        if fact[0] in _DUAL and not places.isdisjoint(mentions(fact))
    )


def is_volatile(formula: Formula) -> bool:
    """Whether a part of the formula may change its truth by itself."""
    if formula is None or isinstance(formula, bool):
        return formula is None
    if formula[0] == "not":
        return is_volatile(formula[1])
    return formula[0] in CONNECTIVES and any(is_volatile(part) for part in formula[1])


def remembered(formula: tuple, truth: bool, state: State) -> State:
    """The state in which a whole formula has a truth, and no part of it is decided.

    The disjuncts of a split are merged soon; the whole formula keeps its truth.
    """
    if formula[0] == "not":
        return remembered(formula[1], not truth, state)
    state = state.copy()
    state.facts[_whole(formula) if formula[0] in _DUAL else formula] = truth
    return state


def _assume_parts(parts: tuple, stop: bool, truth: bool, state: State) -> list[State]:
    results: list[State] = []
    running = [state]
    for part in parts:
        if truth is stop:
            for current in running:
                results.extend(assume(part, stop, current))
        running = [after for current in running for after in assume(part, not stop, current)]
    return results if truth is stop else running


def _store(atom: tuple, truth: bool, state: State) -> State:
    if atom[0] == "gradient":
        return state
    state = state.copy()
    state.facts[atom] = truth
    if atom[0] == "some" and not truth:
        state.values[atom[1]] = NONE
    if atom[0] == "true" and truth:
        state.facts[("some", atom[1])] = True
    return state


@lru_cache(maxsize=8192)
def mentions(formula: Formula) -> frozenset[str]:
    """Locations whose assignment makes the formula stale."""
    if formula is None or isinstance(formula, bool):
        return frozenset()
    kind = formula[0]
    if kind == "not":
        return mentions(formula[1])
    if kind in ("and", "or"):
        return frozenset().union(*(mentions(part) for part in formula[1]))
    if kind == "other":
        return formula[2]
    return frozenset(formula[1:2]) if len(formula) > 1 else frozenset()


def periods(formula: Formula) -> frozenset[str]:
    """The lengths of the windows whose boundaries a formula asks for."""
    if formula is None or isinstance(formula, bool):
        return frozenset()
    if formula[0] == "not":
        return periods(formula[1])
    if formula[0] in _DUAL:
        return frozenset().union(*map(periods, formula[1]))
    return frozenset({formula[2]}) if formula[0] == "boundary" else frozenset()


def is_about_gradients(formula: Formula) -> bool:
    """Whether a formula knows which answer a test for gradients gives."""
    if not isinstance(formula, tuple):
        return False
    if formula[0] == "not":
        return is_about_gradients(formula[1])
    return formula == ("gradient",) or (
        formula[0] in _DUAL and any(map(is_about_gradients, formula[1]))
    )


def is_under(location: str, root: str) -> bool:
    """Whether a location is `root` or a part of it ("a.b" and "a['k']" are parts of "a")."""
    if not location.startswith(root):
        return False
    rest = location[len(root) :]
    return not rest or rest[0] in ".["


@lru_cache(maxsize=65536)
def is_about(formula: Formula, location: str) -> bool:
    """Whether assigning the location makes the formula stale."""
    return any(is_under(mention, location) for mention in mentions(formula))


def settle(value: Value, location: str, state: State) -> Value:
    """The value without its dependence on a location that is about to change.

    A stored formula is evaluated first: a boundary that was computed before its counter
    moves stays usable.
    """
    if value is None or value[0] not in _DEPENDENT:
        return value
    if value[0] == "path":
        return None if is_under(value[1], location) else value
    if value[0] == "copy":
        near = is_under(value[1], location) or is_under(location, value[1])
        return None if near else value
    if value[0] == "partial":
        paths = [part[1] for _, _, part in value[2] if part is not None and part[0] == "path"]
        return None if any(is_under(path, location) for path in paths) else value
    return settled(value, state) if is_about(value[1], location) else value


def settled(value: Value, state: State) -> Value:
    """The constant that a stored formula, or its text, stands for in a state; None if unknown."""
    assert value is not None
    if value[0] == "cases":
        held = (item for test, item in value[2] if evaluate(test, state) is True)
        return next(held, None)
    known = evaluate(value[1], state)
    if known is None:
        return None
    return ("const", known if value[0] == "formula" else str(known))


def known_at(location: str, state: State) -> Value:
    """What the path has assumed about a place, as a value: the place itself is about to go."""
    for atom, holds in state.facts.items():
        if atom[0] == "equal" and atom[1] == location and holds:
            return ("const", atom[2])
    positive = state.facts.get(("positive", location))
    if positive is not None:  # "not above zero" and "equal to zero" are one fact
        return POSITIVE if positive else ZERO
    truth = state.facts.get(("true", location))
    return ("formula", truth) if truth is not None else None


def advanced(formula: Formula, counter: str) -> Formula:
    """The window boundary that `counter + 1` stood for, once the counter has been moved.

    What stood at the end of a window of a known length stands behind it.

    None for every formula that is no such boundary.
    """
    if not isinstance(formula, tuple):
        return None
    if formula[0] == "not":
        inner = advanced(formula[1], counter)
        return None if inner is None else negate(inner)
    if formula[0] != "boundary" or formula[1] != counter:
        return None
    if formula[3] == "next":
        return (*formula[:3], "now")
    return (*formula[:3], "behind") if formula[3] == "now" and formula[2].isdecimal() else None


def forget(location: str, state: State) -> None:
    """Drop, in place, everything known about a location that is being assigned."""
    # All values and facts of a state are asked, at each assignment: this must be cheap.
    values, gone, speaking = state.values, [], []
    for place, value in values.items():
        if place.startswith(location) and is_under(place, location):
            gone.append(place)
        elif (
            value is not None
            and value[0] in _DEPENDENT
            and (value[0] != "path" or value[1].startswith(location))
        ):
            speaking.append((place, value))
    for place in gone:
        del values[place]
    for place, value in speaking:
        settled = settle(value, location, state)
        if settled is not value:
            _put(values, place, settled)
    stale = [  # most atoms are about one place
        atom
        for atom in state.facts
        if (
            is_about(atom, location)
            if atom[0] in _COMPOSED or len(atom) == 1
            else atom[1].startswith(location) and is_under(atom[1], location)
        )
    ]
    for atom in stale:
        if atom[0] != "first":
            del state.facts[atom]


def _put(values: dict[str, Value], place: str, value: Value) -> None:
    if value is None:
        del values[place]
    else:
        values[place] = value
