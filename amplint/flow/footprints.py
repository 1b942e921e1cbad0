"""Footprints: what of a state a call can read or change; the rest of the state goes round it.

What a function does depends only on places that its code, or code that it runs, can name: on its
own locals, on names and attributes that it spells, and on what the values at those places speak
of. Two states that agree there behave alike, whatever else they know, and what they know besides
is as it was when the call returns (the frame rule of separation logic: O'Hearn, Reynolds, Yang,
CSL 2001). So a call is followed once for all states that agree on its footprint.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import lru_cache

from amplint.code.arguments import parameters
from amplint.code.by_name import read_by_name, written_by_name
from amplint.code.module import Function, walk
from amplint.flow.budget import Cost
from amplint.flow.conditions import mentions
from amplint.flow.events import Reported, Site, Transitions
from amplint.flow.state import State, Step
from amplint.flow.values import KEYED_KINDS, Value

#: How the label of a module's body ends: the scope of its variables.
_OF_MODULES = "<module>"
_BUILTINS = frozenset(dir(builtins))
#: What a summary is found by.
Identity = tuple


@dataclass(slots=True, eq=False)
class Touched:
    """What following a call has run, while it is being followed.

    Args:
        functions: whose bodies were interpreted.
        words: names beyond those that these spell: of attributes that calls which were not
            followed may assign, of classes that were built.
    """

    functions: set[Function] = field(default_factory=set)
    words: set[str] = field(default_factory=set)

    def take(self, other: Touched) -> None:
        """Add what a call inside has run."""
        self.functions |= other.functions
        self.words |= other.words


class Footprint:
    """The part of states that some functions can read or change.

    Args:
        touched: what runs.
        hidden: labels of functions in whose locals nothing but values leads.
        typed: whether typestates belong to it.
        whole: whether everything does.
    """

    def __init__(
        self, touched: Touched, hidden: Iterable[str], *, typed: bool, whole: bool = False
    ) -> None:
        spelled = (item.once(_words_of) for item in touched.functions)
        self.words = frozenset(touched.words).union(*spelled)
        outer = {scope.label for item in touched.functions for scope in _scopes(item)}
        self.hidden = frozenset(hidden) - outer
        self.typed = typed or whole
        self.whole = whole
        self._named: dict[str, bool] = {}

    def same_as(self, other: Footprint) -> bool:
        """Whether another one takes the same part of every state."""
        if self.whole or other.whole:
            return self.whole and other.whole
        mine = (self.typed, self.words, self.hidden)
        return mine == (other.typed, other.words, other.hidden)

    def part(self, state: State) -> Part:
        """What a state knows inside."""
        if self.whole:
            return Part(state.identity(), state.values.keys(), state.facts.keys())
        values = state.values
        named = self._participants(state) if self.typed else frozenset()
        inside = {
            place
            for place, value in values.items()
            if self._names(place)
            or (value is not None and value[0] in KEYED_KINDS)
            or not named.isdisjoint(names_of(place)[-1:])
        }
        facts = self._close(state, inside)
        identity = (
            frozenset(state.typestate.items()) if self.typed else None,
            frozenset([(place, values[place]) for place in inside]),
            frozenset([(fact, state.facts[fact]) for fact in facts]),
        )
        return Part(identity, inside, facts)

    def _close(self, state: State, inside: set[str]) -> set[tuple]:
        """Add, in place, what the places inside speak of, and what speaks of them; the facts."""
        values = state.values
        around = {
            place: spoken
            for place, value in values.items()
            if place not in inside and (spoken := spoken_of(value))
        }
        open_facts = {fact: mentions(fact) for fact in state.facts}
        reached = {spoken for place in inside for spoken in spoken_of(values[place])}
        facts: set[tuple] = set()
        while True:
            near = inside | reached
            told = [fact for fact, spoken in open_facts.items() if self._touches(spoken, near)]
            found = {place for place, spoken in around.items() if self._touches(spoken, near)}
            reached = reached.union(*(open_facts.pop(fact) for fact in told))
            reached = reached.union(*(around.pop(place) for place in found))
            facts.update(told)
            found |= {place for place in reached if place in values}
            if found <= inside and not told:
                return facts
            inside |= found
            reached |= {spoken for place in found for spoken in spoken_of(values[place])}

    def _touches(self, spoken: AbstractSet[str], near: AbstractSet[str]) -> bool:
        """Whether what speaks of some places is about one near, or one that a function names.

        Every function spells `isinstance`: a test with it is about what it is asked of.
        """
        told = {place for place in spoken if not _is_builtin(place)} or spoken
        return any(place in near or self._names(place) for place in told)

    def _participants(self, state: State) -> frozenset[str]:
        """Last names of the scalers and optimizers that took part in events."""
        places = (place for key in state.typestate for place in key[1:])
        return frozenset(names_of(place)[-1] for place in places if isinstance(place, str))

    def _names(self, place: str) -> bool:
        """Whether the functions may name a place themselves."""
        known = self._named.get(place)
        if known is None:
            known = self._named[place] = self._may_name(place)
        return known

    def _may_name(self, place: str) -> bool:
        scope, _, path = place.rpartition(":")
        if "<" in scope.removesuffix(_OF_MODULES) or "<" in path:  # what only the analysis writes
            return True
        names = names_of(place)
        if scope in self.hidden:
            names = names[1:]
        return not self.words.isdisjoint(names)


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """The part of one state that lies inside a footprint.

    Args:
        identity: states with the same one behave alike.
        places: the places inside.
        facts: the facts inside.
    """

    identity: Identity
    places: AbstractSet[str]
    facts: AbstractSet[tuple]


@dataclass(frozen=True, slots=True, eq=False)
class Later:
    """A state inside or behind a call, without what went round the call.

    Args:
        state: of values and facts only what is inside the footprint, or new.
        steps: of the witness, since the call began.
    """

    state: State
    steps: list[Step]

    def seen_from(self, entered: State, part: Part, *, typed: bool) -> State:
        """The same for another state in which the call begins."""
        after = self.state
        values = {place: held for place, held in entered.values.items() if place not in part.places}
        facts = {fact: truth for fact, truth in entered.facts.items() if fact not in part.facts}
        state = State(
            dict(after.typestate if typed else entered.typestate),
            {**values, **after.values},
            {**facts, **after.facts},
            entered.trail,
        )
        for step in self.steps:
            state.note(*step)
        return state


@dataclass(frozen=True, slots=True, eq=False)
class Summary:
    """What a call does to every state that agrees with one on its footprint.

    Args:
        results: states that it returns with, each with its value.
        touched: what it has run.
        havocs: how often something unknown may have done protocol work in it.
        reports: what it has reported.
        typed: whether typestates are part of the results.
        cost: of following it.
        pure: whether it left nothing behind but the states.
    """

    results: list[tuple[Later, Value]]
    touched: Touched
    havocs: int
    reports: list[tuple[str, Site, Later, dict]]
    typed: bool
    cost: Cost
    pure: bool

    def applied(
        self, entered: State, part: Part, transitions: Transitions
    ) -> list[tuple[State, Value]]:
        """What it makes of a state, given what of it is inside; reports are made again."""
        transitions.havocs += self.havocs
        for slug, site, later, details in self.reports:
            state = later.seen_from(entered, part, typed=self.typed)
            transitions.report(slug, site, state, details)
        return [
            (later.seen_from(entered, part, typed=self.typed), value)
            for later, value in self.results
        ]


class Summaries:
    """Summaries of the calls of one interpreter, by what runs and from where."""

    def __init__(self) -> None:
        self._known: dict[object, list[tuple[Footprint, dict[Identity, Summary]]]] = {}

    def find(self, call: object, entered: State) -> tuple[Summary, Part] | None:
        """The summary that holds for a state, with the part of it that the summary is about."""
        found = self._find(call, entered)
        return found[1:] if found is not None else None

    def _find(self, call: object, entered: State) -> tuple[Footprint, Summary, Part] | None:
        for footprint, summaries in self._known.get(call, ()):
            part = footprint.part(entered)
            if (summary := summaries.get(part.identity)) is not None:
                return footprint, summary, part
        return None

    def adopt(self, call: object, entered: State, others: Summaries) -> tuple[Summary, Part] | None:
        """One of other summaries that holds for a state; it is one of these from now on."""
        found = others._find(call, entered)
        if found is None or not found[1].pure:
            return None
        footprint, summary, part = found
        self._put(call, footprint, part, summary)
        return summary, part

    def keep(self, call: object, footprint: Footprint, followed: Followed) -> None:
        """Remember what a call has made of a state.

        A call that has changed what lies outside of its footprint is not understood: what it
        did holds for the same state only.
        """
        part = footprint.part(followed.entered)
        summary = followed.inside(part, typed=footprint.typed)
        if summary is None:
            footprint = Footprint(followed.touched, (), typed=True, whole=True)
            part = footprint.part(followed.entered)
            summary = followed.inside(part, typed=True)
        assert summary is not None
        self._put(call, footprint, part, summary)

    def _put(self, call: object, footprint: Footprint, part: Part, summary: Summary) -> None:
        known = self._known.setdefault(call, [])
        for other, summaries in known:
            if other.same_as(footprint):
                break
        else:
            summaries = {}
            known.append((footprint, summaries))
        summaries[part.identity] = summary


@dataclass(frozen=True, slots=True, eq=False)
class Followed:
    """A call that was followed from one state.

    Args:
        entered: the state in which it began.
        left: the states that it returned with, each with its value.
        touched: see `Summary`, as of those below.
    """

    entered: State
    left: list[tuple[State, Value]]
    touched: Touched
    havocs: int
    reports: list[Reported]
    cost: Cost
    pure: bool

    def inside(self, part: Part, *, typed: bool) -> Summary | None:
        """The summary for states with the same part; None if the call has changed the rest."""
        entered = self.entered
        values = {item for item in entered.values.items() if item[0] not in part.places}
        facts = {item for item in entered.facts.items() if item[0] not in part.facts}
        for after, _ in self.left:
            if not values <= after.values.items() or not facts <= after.facts.items():
                return None
            if not typed and after.typestate != entered.typestate:
                return None

        def later(state: State) -> Later:
            # In the order of the state: the order of a set differs from run to run.
            kept = State(
                state.typestate,
                {
                    place: held
                    for place, held in state.values.items()
                    if (place, held) not in values
                },
                {fact: truth for fact, truth in state.facts.items() if (fact, truth) not in facts},
            )
            return Later(kept, state.steps_since(entered))

        results = [(later(after), value) for after, value in self.left]
        reports = [(slug, site, later(at), words) for slug, site, at, words in self.reports]
        return Summary(results, self.touched, self.havocs, reports, typed, self.cost, self.pure)


@lru_cache(maxsize=65536)
def _is_builtin(place: str) -> bool:
    """Whether a place is that of a name of Python in a module: nobody assigns it."""
    scope, _, path = place.rpartition(":")
    return scope.endswith(_OF_MODULES) and path in _BUILTINS


def spoken_of(value: Value) -> frozenset[str]:
    """Places that a value speaks of."""
    return _spoken_of(value) if value is not None and len(value) > 1 else frozenset()


@lru_cache(maxsize=65536)
def _spoken_of(value: tuple) -> frozenset[str]:
    kind = value[0]
    if kind in ("path", "scaler", "optimizer", "scaled"):
        return frozenset(value[1:2])
    if kind in ("formula", "text", "cases"):
        return mentions(value[1])
    if kind in ("instance", "library"):
        return frozenset(value[2:3])
    if kind == "copy":
        return frozenset(value[1:2]).union(*(spoken_of(item) for _, item in value[2]))
    if kind == "partial":
        return spoken_of(value[1]).union(*(spoken_of(part) for _, _, part in value[2]))
    if kind in ("tuple", "choice"):
        return frozenset().union(*map(spoken_of, value[1]))
    if kind in ("method", "event"):
        return spoken_of(value[1])
    return frozenset()


@lru_cache(maxsize=65536)
def names_of(place: str) -> tuple[str, ...]:
    """The names of a place: `self`, `cfg` and `amp` of "Trainer.fit:self.cfg.amp"."""
    parts = place.rpartition(":")[2].replace("[", ".").split(".")
    return tuple(part.strip("]'\"").partition("@")[0] for part in parts)


def _words_of(function: Function) -> frozenset[str]:
    """Every name that the code of a function spells."""
    defaults = walk(function.node.args) if hasattr(function.node, "args") else ()
    found = set(parameters(function))
    for node in (*function.nodes, *defaults):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.keyword) and node.arg:
            found.add(node.arg)
        elif isinstance(node, ast.Constant):
            found.add(str(node.value))
        elif isinstance(node, ast.Call):
            found.update(_by_name(node))
    return frozenset(found)


def _by_name(node: ast.Call) -> Iterator[str]:
    """The attribute that `getattr` reads or `setattr` writes."""
    read, written = read_by_name(node), written_by_name(node)
    if read is not None:
        yield read[1]
    if written is not None:
        yield written[0].attr


def _scopes(function: Function) -> Iterator[Function]:
    scope: Function | None = function
    while scope is not None:
        yield scope
        scope = scope.parent
