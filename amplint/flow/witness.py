"""From a trail to a witness: the few steps a reader needs to see that a finding is true."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace

from amplint.code.layout import layout_of
from amplint.code.module import Module, walk
from amplint.findings import PathStep, Span
from amplint.flow.events import Site
from amplint.flow.state import Step, Trail
from amplint.flow.typestates import EVERY
from amplint.protocol import Event
from amplint.protocol.states import ABSENT

#: Longest witness; older assumptions are dropped first.
STEP_LIMIT = 14

#: Where a node of a module lies.
PlaceOf = Callable[[Module, ast.AST], Span]

BACKWARDS = (Event.SCALED_BACKWARD, Event.PLAIN_BACKWARD)
#: Slugs that are about what happened since an earlier step or unscale_.
ABOUT_STAGE = frozenset(
    {"step-twice", "unscale-twice", "unscale-after-step", "update-without-check"}
)
#: Slugs that are about gradients that an earlier step has used up.
ABOUT_SPENT = frozenset(
    {
        "step-without-gradient",
        "unscale-without-gradient",
        "step-on-spent",
        "step-on-zeros",
        "unscale-of-zeros",
    }
)


def steps_of(trail: Trail | None) -> list[Step]:
    """The steps of a trail, oldest first."""
    steps = []
    while trail is not None:
        trail, step, _ = trail
        steps.append(step)
    steps.reverse()
    return steps


def relevant_steps(trail: Trail | None, slug: str, site: Site) -> list[Step]:
    """The steps of a path that show one violation, oldest first.

    Args:
        trail: everything the path did.
        slug: which violation it ends in.
        site: where it ends.
    """
    steps = [step for step in steps_of(trail) if _concerns(step, site)]
    return _without_idle_marks(_without_contradictions(steps[_start(steps, slug) :]))


def build_witness(
    trail: Trail | None, slug: str, site: Site, place_of: PlaceOf, because: Step | None = None
) -> tuple[PathStep, ...]:
    """The witness of one finding; see `relevant_steps`.

    Args:
        place_of: where a node of a module lies, in 1-based code points.
        because: a step that decides; what leads from there to the site is all that is shown.
    """
    if because is not None:
        steps = [because, *_leading_to(site, steps_of(trail), because)]
    else:
        steps = relevant_steps(trail, slug, site)
    if len(steps) > STEP_LIMIT:
        steps = _shorten(steps)
    path = [_path_step(step, place_of) for step in steps]
    if path and steps[-1][0] == "event":
        path[-1] = replace(path[-1], broken=slug)
    return tuple(path)


def _leading_to(site: Site, steps: list[Step], first: Step) -> list[Step]:
    """The calls behind a step that lead to a site, and the tests around them and around the site."""
    found: list[Step] = []
    node, function = site.node, site.function
    for step in reversed(steps):
        if step is first:
            break
        if step[0] == "call" and step[3] is function:
            node, function = step[1], step[2]
            found.append(step)
        elif step[0] == "assume" and step[2] is function and _stands_under(node, step):
            found.append(step)
    return _without_contradictions(found[::-1])


def _stands_under(node: ast.AST, step: Step) -> bool:
    """Whether what is assumed is asked by a test around a node of the same function."""
    tests = layout_of(step[2]).conditions(node)
    asked = {ast.unparse(part) for test in tests for part in walk(test)}
    return ast.unparse(step[1]) in asked


def _concerns(step: Step, site: Site) -> bool:
    if step[0] != "event":
        return step[0] != "drop"
    event, other = step[3][:2]
    if event in BACKWARDS or other.node is site.node:
        return True
    if other.optimizer and site.optimizer and EVERY not in (other.optimizer, site.optimizer):
        return other.optimizer == site.optimizer or event is Event.UNSCALE
    return not (other.scaler and site.scaler) or other.scaler == site.scaler


def _start(steps: list[Step], slug: str) -> int:
    """Index of the step that the story begins with."""
    events = [(index, step[3][0]) for index, step in enumerate(steps) if step[0] == "event"]
    before = events[:-1]
    if slug in ABOUT_STAGE:
        wanted = [
            index for index, event in before if event in (Event.STEP, Event.UNSCALE, Event.UPDATE)
        ]
    elif slug in ABOUT_SPENT:
        used = [
            index
            for index, event in before
            if event in (Event.STEP, Event.ZERO_GRAD, Event.ZERO_GRAD_KEEP)
        ]
        last = next(
            (index for index, event in reversed(before) if event is Event.STEP),
            used[-1] if used else 0,
        )
        wanted = [index for index, event in before if event in BACKWARDS and index <= last] or used[
            -1:
        ]
    else:
        wanted = [index for index, event in before if event in BACKWARDS]
        if slug == "step-on-piled" and len(wanted) > 1:
            wanted = wanted[:-1]
        if slug in ("step-on-mixed", "step-on-rescaled") and len(wanted) > 1:
            wanted = wanted[:-1]
    start = wanted[-1] if wanted else 0
    while start > 0 and steps[start - 1][0] == "assume":
        start -= 1
    return start


def _without_idle_marks(steps: list[Step]) -> list[Step]:
    """Drop calls that nothing follows in, and repeated assumptions."""
    kept: list[Step] = []
    for index, step in enumerate(steps):
        following = steps[index + 1] if index + 1 < len(steps) else None
        if step[0] == "call" and (following is None or following[2] is not step[3]):
            continue
        if kept and step[0] == kept[-1][0] == "assume" and step[1] is kept[-1][1]:
            kept.pop()
        kept.append(step)
    return kept


def _without_contradictions(steps: list[Step]) -> list[Step]:
    """Drop assumptions that a later one contradicts.

    Paths on which a test went either way were merged because it made no difference there;
    only windows (`i % k`) really change from one iteration to the next.
    """
    last: dict[str, bool] = {}
    kept = []
    for step in reversed(steps):
        if step[0] == "assume":
            text = ast.unparse(step[1])
            if last.setdefault(text, step[3]) is not step[3] and "%" not in text:
                continue
        kept.append(step)
    kept.reverse()
    return kept


def _shorten(steps: list[Step]) -> list[Step]:
    surplus = len(steps) - STEP_LIMIT
    kept = []
    for step in steps:
        if surplus > 0 and step[0] in ("assume", "call"):
            surplus -= 1
            continue
        kept.append(step)
    return kept[-STEP_LIMIT:]


def _path_step(step: Step, place_of: PlaceOf) -> PathStep:
    kind, node, function, data = step
    start = place_of(function.module, node).start
    place = PathStep(function.module.filename, start.row, start.column, kind=kind)
    if kind == "event":
        event, _, *gradient = data
        return replace(place, event=event, idle=bool(gradient) and gradient[0] in ABSENT)
    if kind == "assume":
        return replace(place, subject=" ".join(ast.unparse(node).split()), holds=bool(data))
    if kind == "again":
        return replace(place, subject=getattr(node, "name", ""))
    if kind == "raise":
        return replace(place, subject=data)
    return replace(place, subject=data.name) if kind == "call" else place
