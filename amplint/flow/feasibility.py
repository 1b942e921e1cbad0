"""Whether the path of a finding holds together: its entry is followed again, with the tests on the
path told apart.

States that are merged know only what they have in common, and a later test of theirs may then
seem to go a way that none of the merged paths can go. Where what decides about the finding is told
apart, no merge forgets it (a counterexample that is not spurious, as in CEGAR: Clarke, Grumberg,
Jha, Lu and Veith, CAV 2000).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from amplint.code.module import Function
from amplint.findings import Link, Severity, Standing
from amplint.flow.conditions import CONNECTIVES, Formula
from amplint.flow.defects import Found
from amplint.flow.reader import Reader
from amplint.flow.state import FOCUS, State, Step
from amplint.levels import level

#: Follows the entry of a finding from states that are told apart, and gives back where it is found
#: again; None if that does not come to its end.
Follow = Callable[[Found, Sequence[State], frozenset[int | None]], list[Found] | None]


def feasible(
    found: Iterable[Found], unfinished: Collection[Function], follow: Follow
) -> Iterator[Found]:
    """The findings that are found again where what decides about them is told apart.

    Args:
        unfinished: entries that were left half-way. Their findings stand, on a path that was not
            looked at so closely.
    """
    groups: dict[tuple, list[Found]] = {}
    for item in found:
        groups.setdefault((item.entry, item.slug, item.site.node), []).append(item)
    for (entry, *_), items in groups.items():
        runs = [item.run for item in items if item.run is not None]
        atoms = frozenset().union(*(run.atoms for run in runs))
        if atoms and entry in unfinished:
            yield from (half_seen(item) for item in items)
            continue
        if not atoms or not any(map(_accuses, items)):
            yield from items
            continue
        again = follow(items[0], focused(runs[0].entries, atoms), runs[0].crowded)
        same = items if again is None else again
        # A flag that only some of the paths pass does not decide: the merged state knows.
        told_alike = len({item.verdict.details.get("guard") for item in same}) < 2
        yield from same if told_alike else items


def focused(states: Iterable[State], atoms: frozenset[tuple]) -> tuple[State, ...]:
    """The same states, of a run that tells paths apart by what they know of these atoms."""
    copies = tuple(state.copy() for state in states)
    for state in copies:
        state.typestate[FOCUS] = atoms
    return copies


def is_focused(states: Iterable[State]) -> bool:
    """Whether states are of such a run."""
    return any(FOCUS in state.typestate for state in states)


def half_seen(item: Found) -> Found:
    """The same finding, where nothing shows that the tests on its path go together."""
    link = Link("reach", Standing.OPEN, item.entry.name, "was followed in part")
    return replace(item, links=(*item.links, link))


def _accuses(item: Found) -> bool:
    """Whether a finding can be more than advice: what it rests on is not guessed."""
    return level(Severity.ERROR, item.links) is not Severity.INFO


def atoms_tested(steps: Iterable[Step], state: State, reader: Reader) -> Iterator[tuple]:
    """The atoms of the tests that a path takes.

    Args:
        steps: of the path.
        state: in which it ends.
    """
    for kind, node, function, *_ in steps:
        if kind == "assume":
            yield from _atoms(reader.formula(node, state, function))


def _atoms(formula: Formula) -> Iterator[tuple]:
    if not isinstance(formula, tuple):
        return
    if formula[0] not in CONNECTIVES:
        yield formula
        return
    parts = (formula[1],) if formula[0] == "not" else formula[1]
    for part in parts:
        yield from _atoms(part)
