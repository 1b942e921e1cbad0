"""From reports to misuses: which reports are one defect, and what a misuse says.

One defect, one finding: of the reports with one cause the first is kept, of the codes at one
place the most specific, and nothing that follows from another finding.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from amplint.code.module import Function
from amplint.findings import Link, Standing
from amplint.flow.diagnosis import Verdict, cause_of
from amplint.flow.events import Site
from amplint.flow.state import State
from amplint.flow.survived import is_survived
from amplint.flow.typestates import EVERY
from amplint.flow.witness import PlaceOf, build_witness, steps_of
from amplint.protocol import VIOLATIONS
from amplint.rule import Misuse

#: Reported only where nothing more specific fits.
GENERAL = ("AMP101", "AMP105", "AMP106")


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """How an entry was followed, and what a path has asked on the way.

    Args:
        entries: the states in which it began.
        crowded: see `amplint.flow.interpreter.Interpreter`.
        atoms: of the tests that the path took.
    """

    entries: tuple[State, ...]
    crowded: frozenset[int | None]
    atoms: frozenset[tuple]


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """One reported violation, before duplicates are removed.

    Args:
        entry: the function in which the path begins.
        origin: the site in another file, if the finding stands at the call that leads there.
        elsewhere: whether all events of the path happen in other files.
        links: what the report rests on.
        run: how to follow its entry again; None where none was followed.
    """

    slug: str
    site: Site
    state: State
    verdict: Verdict
    entry: Function
    origin: Site | None = None
    elsewhere: bool = False
    links: tuple[Link, ...] = ()
    run: Run | None = None


def distinct(found: Iterable[Found]) -> list[Found]:
    """One finding per defect: the first report of each cause, one code per place."""
    kept: dict[tuple, Found] = {}
    for item in sorted(found, key=lambda item: (item.site.node.lineno, item.site.node.col_offset)):
        cause = cause_of(item.slug, item.site, item.state)
        # One `unscale_` is missing for each optimizer, however many clips wait for it.
        kept.setdefault((item.verdict.code, cause, _clipped(item)), item)
    places: dict[int, Found] = {}
    for item in kept.values():
        other = places.get(id(item.site.node))
        if other is None or _priority(item) < _priority(other):
            places[id(item.site.node)] = item
    defects: dict[int, Found] = {}
    for item in sorted(places.values(), key=_priority):
        if cause_of(item.slug, item.site, item.state) not in defects:
            defects[id(item.site.node)] = item
    return list(defects.values())


def _clipped(item: Found) -> str:
    return item.site.optimizer_text if item.slug == "clip-of-scaled" else ""


def _priority(item: Found) -> tuple[int, int]:
    """What happens in an earlier round of the loop comes first, then the more specific rule."""
    rounds = sum(step[0] == "loop" for step in steps_of(item.state.trail))
    return (rounds, _rank(item.verdict.code))


def _rank(code: str) -> int:
    if code == "AMP201":
        return 0
    return 2 if code in GENERAL else 1


def _participants(item: Found) -> tuple[str, str]:
    """Scaler and optimizer as the code writes them; a clip names neither, its path does."""
    scaler, optimizer = item.site.scaler_text, item.site.optimizer_text
    for step in reversed(steps_of(item.state.trail)):
        if step[0] != "event" or step[2].module is not item.site.function.module:
            continue
        other = step[3][1]
        scaler = scaler or other.scaler_text
        named = other.optimizer not in ("", EVERY)
        optimizer = optimizer or (other.optimizer_text if named else "")
    return scaler, optimizer


def _claim(item: Found) -> Link:
    """What goes wrong: torch's answer by the table of the protocol, or that the path exists."""
    violation = VIOLATIONS.get(item.slug)
    if item.verdict.code == "AMP202":
        return Link("value", Standing.CODE, item.site.scaler_text, "can be missing here")
    if violation is None:
        return Link("effect", Standing.CODE, ast.unparse(item.site.node), "ends this path")
    node, answer = item.site.node, violation.exception or violation.damage
    if any(is_survived(place, function, violation) for place, function in _calls_of(item)):
        return Link("damage", Standing.GUESS, ast.unparse(node), f"ends a run by {answer}")
    return Link("damage", Standing.LIBRARY, ast.unparse(node), f"gives {answer}")


def _calls_of(item: Found) -> Iterator[tuple[ast.AST, Function]]:
    """The place of a report, and the calls of its path that lead there, innermost first."""
    function = item.site.function
    yield item.site.node, function
    for step in reversed(steps_of(item.state.trail)):
        if step[0] == "call" and step[3] is function:
            yield step[1], step[2]
            function = step[2]


def misuse_of(item: Found, place_of: PlaceOf) -> Misuse:
    """A report in the words of a misuse, with its path as a witness."""
    site = item.site
    scaler, optimizer = _participants(item)
    return Misuse(
        code=item.verdict.code,
        node=site.node,
        function=site.function,
        violation=VIOLATIONS.get(item.slug),
        scaler=scaler,
        optimizer=optimizer,
        path=build_witness(
            item.state.trail, item.slug, item.origin or site, place_of, item.verdict.because
        ),
        links=(*item.links, _claim(item)),
        details=item.verdict.details,
    )
