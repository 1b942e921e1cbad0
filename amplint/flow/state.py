"""The state of one set of paths: typestates, known values, assumed conditions, witness.

Property simulation as in ESP (Das, Lerner, Seigle, PLDI 2002): states are kept apart where
their typestates differ and merged where they do not. Values that correlate with the
typestate (a scaled loss, a scaler that is None) belong to the key; line numbers never do.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from amplint.flow.liveness import NONE_DEAD, Dead
from amplint.flow.typestates import telling
from amplint.flow.values import GUARD_KINDS, KEYED_KINDS, Value

#: A state with this many entries costs twice what a small one does; programs that people write
#: have fewer.
LIGHT = 128

SWITCH = ".<enabled>"  # of a scaler: under which condition it is on
#: Of a run that is about one finding: the atoms that tell its paths apart.
FOCUS = ("focus",)

#: A step of a witness: (kind, node, function, data), read by amplint.flow.witness.
Step = tuple[Any, ...]
#: (earlier trail, step, length): a linked list, newest first, so that states share their past.
Trail = tuple[Any, Step, int]


class Guards(NamedTuple):
    """Last names of the places whose numbers and flags tell states apart.

    Args:
        names: all of them.
        near: those that decide about protocol calls; where states are many, only these count.
        actors: names in protocol calls: whether a library has taken these over counts, too.
    """

    names: frozenset[str]
    near: frozenset[str]
    actors: frozenset[str] = frozenset()


NO_GUARDS = Guards(frozenset(), frozenset())


class State:
    """One abstract state; copied before it is changed, and not changed once it was merged.

    Attributes:
        typestate: ("gradient", opt) -> (tag or None, scalers);
            ("stage", scaler, opt) -> (stage or None, carried over a back edge);
            ("checked", scaler) -> bool; ("havoc", scaler) -> True; ("flag", name) -> True;
            ("renewed", opt) -> True: constructed again in the middle of a round;
            FOCUS -> atoms.
        values: location -> value.
        facts: atom -> bool, what the path has assumed.
        trail: linked list of witness steps, newest first.
    """

    __slots__ = ("_telling", "facts", "trail", "typestate", "values")

    def __init__(
        self,
        typestate: dict[tuple, Any] | None = None,
        values: dict[str, Value] | None = None,
        facts: dict[tuple, bool] | None = None,
        trail: Trail | None = None,
    ) -> None:
        self.typestate = typestate if typestate is not None else {}
        self.values = values if values is not None else {}
        self.facts = facts if facts is not None else {}
        self.trail = trail
        self._telling: tuple | None = None

    def copy(self) -> State:
        """An independent copy that shares the witness."""
        return State(dict(self.typestate), dict(self.values), dict(self.facts), self.trail)

    def note(self, *step: Any) -> None:
        """Append one witness step."""
        self.trail = (self.trail, step, self.length + 1)

    @property
    def length(self) -> int:
        """The number of steps of the witness."""
        return self.trail[2] if self.trail is not None else 0

    def identity(self) -> tuple:
        """Everything but the witness: states with the same identity behave the same."""
        return (
            frozenset(self.typestate.items()),
            frozenset(self.values.items()),
            frozenset(self.facts.items()),
        )

    def steps_since(self, earlier: State) -> list[Step]:
        """Witness steps since an earlier state of the same path, oldest first."""
        steps = []
        trail = self.trail
        while trail is not None and trail is not earlier.trail:
            trail, step, _ = trail
            steps.append(step)
        steps.reverse()
        return steps

    def resumed(self, after: State, steps: list[Step]) -> State:
        """The state `after`, as reached from here by these steps."""
        state = State(after.typestate, after.values, after.facts, self.trail)
        for step in steps:
            state.note(*step)
        return state

    @property
    def weight(self) -> int:
        """How many visits one with this state counts for: copies and keys cost by its size."""
        return 1 + (len(self.values) + len(self.facts) + len(self.typestate)) // LIGHT

    def key(
        self,
        guards: Guards,
        dead: Dead = NONE_DEAD,
        names: frozenset[str] | None = None,
        *,
        focused: bool = True,
    ) -> tuple:
        """What must agree for two states to be merged.

        Args:
            guards: what tells states apart besides typestates.
            dead: places that nothing reads any more.
            names: of these guards only; None for all.
            focused: also by what the run is about.
        """
        if self._telling is None or self._telling[0] is not guards:
            self._telling = (guards, *self._tell(guards))
        _, found, keyed, fixed = self._telling
        if dead:
            found = [item for item in found if dead.get(item[0], True)]
            keyed = [item for item in keyed if item[0] not in dead]
        if names is not None:
            found = [item for item in found if last_part(item[0]) in names]
        about = self._known_in_focus() if focused and FOCUS in self.typestate else None
        return (frozenset(found), frozenset(keyed), fixed, about)

    def _known_in_focus(self) -> frozenset:
        """The outcomes of the tests that the run is about."""
        atoms, facts = self.typestate[FOCUS], self.facts
        if len(atoms) < len(facts):
            return frozenset((atom, facts[atom]) for atom in atoms if atom in facts)
        return frozenset(item for item in facts.items() if item[0] in atoms)

    def _tell(self, known: Guards) -> tuple:
        """Values of guards, values that always count, and the rest of what tells states apart."""
        guards: list[Any] = []
        keyed: list[Any] = []
        switches: list[Any] = []
        for item in self.values.items():
            location, value = item
            if value is None:
                continue
            kind = value[0]
            if kind in GUARD_KINDS:
                if last_part(location) in known.names:
                    guards.append(item)
            elif kind == "foreign":
                if last_part(location) in known.actors:
                    keyed.append(item)
            elif kind in KEYED_KINDS or (kind == "unbound" and ":" not in location):
                keyed.append(item)  # of an attribute that a branch of the constructor leaves out
            if location[-1] == ">" and location.endswith(SWITCH):
                # Whether each scaler is on: what an object is, no path takes back.
                switches.append((location, self.facts.get(value[1], value[1])))
        # The last iteration never goes round again: it must not merge with others.
        last = [atom for atom, truth in self.facts.items() if atom[0] == "last" and truth]
        fixed = (frozenset(telling(self.typestate)), frozenset(switches), frozenset(last))
        return guards, keyed, fixed


@lru_cache(maxsize=65536)
def last_part(location: str) -> str:
    """The last name of a location: "amp" for "Trainer.fit:self.cfg.amp"."""
    return location.rpartition(".")[2].rpartition(":")[2]


def parts_of(location: str) -> list[str]:
    """All names of a location: "self", "cfg" and "amp" for "Trainer.fit:self.cfg.amp"."""
    return location.rpartition(":")[2].replace("[", ".").split(".")


#: What leads from the ends of a loop's round to the states of the next one, and those that leave.
Turn = Callable[[list[State]], tuple[list[State], list[State]]]
