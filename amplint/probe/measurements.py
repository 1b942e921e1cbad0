"""Mistakes that raise nothing: what a run, or two runs that differ in one thing, show of them.

Each function gets a run and says what it found, or None. Damage is never concluded from a
state that the probe keeps for itself: it is a property of torch's own objects (a region that is
active, a gradient that is not there), or a difference between two runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from amplint.probe.doubts import REPEATED, UNSTEADY
from amplint.probe.explanation import broken_rules, protocol_events
from amplint.probe.messages import Event, Note, Omission, RunResult
from amplint.probe.predictions import Expectation
from amplint.probe.search import Budget, Trial

#: Relative difference of gradients from which two runs are not the same training. Rounding in
#: half precision stays below a hundredth.
DIFFERENCE = 0.1
#: Gradients that are smaller than this may underflow in half precision; they are not compared.
SMALLEST = 1e-4
#: Runs of one request repeat themselves up to this relative difference.
REPEATABLE = 1e-5
#: The largest number that rounds to zero in float16: half of its smallest one.
VANISHING = 2.0**-25
#: What a loss is multiplied by so that its gradients, which are about one in the small models of
#: the probe, are below the smallest number of float16, 6e-8.
FAINT = 2.0**-30
#: The share of weights that a step leaves alone at least if it is rounded away, and at most if not.
MOST, FEW = 0.5, 0.05
#: What a loss is multiplied by so that its gradients are above every ordinary limit.
LOUD = 2.0**20
#: The share of the gradients' norm that a clip leaves at most where it has an effect.
SHORTENED = 0.9
#: Relative difference of gradients with and without a scaler in bfloat16, which is only
#: multiplied by powers of two.
SCALED = 1e-3


@dataclass(frozen=True, slots=True)
class Measured:
    """What was found, and where.

    Args:
        doubts: what speaks against it.
        step: how many optimizer steps came before what was found; None where it is not about one.
    """

    words: str
    row: int
    doubts: tuple[Note, ...] = ()
    step: int | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """What a measurement is about.

    Args:
        path: the checked file.
        rows: of the finding.
        budget: for further runs.
    """

    path: str
    rows: frozenset[int]
    budget: Budget

    def holds(self, event: Event) -> bool:
        """Whether an event happened on the finding's rows, or in a call that is made there."""
        if event.filename == self.path:
            return event.row in self.rows
        return event.facts.get("through") in self.rows

    def without(self, trial: Trial, kind: str, *, everywhere: bool = False) -> RunResult:
        """The same run with something left out.

        Raises:
            BudgetSpent: no run is left.
        """
        omissions = (*trial.request.omissions, self.omission(kind, everywhere=everywhere))
        return self.budget.run(replace(trial.request, omissions=omissions))

    def omission(self, kind: str, *, everywhere: bool = False) -> Omission:
        """What is left out, on the finding's rows or everywhere."""
        return Omission(kind, () if everywhere else tuple(sorted(self.rows)))


Measure = Callable[[Trial, Expectation, Place], "Measured | None"]


# -- regions ---------------------------------------------------------------------------------------


def in_region(trial: Trial, expected: Expectation, place: Place) -> Measured | None:
    """A backward or a step that runs while autocast is on."""
    regions: list[Event] = []
    for event in trial.result.events:
        if event.kind == "autocast-enter":
            regions.append(event)
        elif event.kind == "autocast-exit" and regions:
            regions.pop()
        elif event.kind in expected.events and event.facts.get("autocast") and place.holds(event):
            what = "the backward" if event.kind == "backward" else "the step"
            return Measured(f"{what} in line {_row(event)} ran {_inside(regions)}", _row(event))
    return None


def _inside(regions: list[Event]) -> str:
    if not regions:
        return "while autocast was on"
    dtype = regions[-1].facts["dtype"].removeprefix("torch.")
    row = _row(regions[-1])  # 0 for the decorator of the function that the probe calls
    return f"inside the {dtype} autocast region" + (f" of line {row}" if row else "")


def leaking_region(trial: Trial, expected: Expectation, place: Place) -> Measured | None:
    """A region that is entered again, and leaves autocast on (or off) when it ends."""
    again = None
    for event in trial.result.events:
        if event.kind == "autocast-enter" and event.facts.get("again") and place.holds(event):
            again = event
        elif event.kind == "autocast-exit" and event.facts.get("leaks") and again is not None:
            words = (
                f"the autocast object that line {_row(again)} enters again was left, and autocast "
                "is not as it was before"
            )
            return Measured(words, _row(again))
    return None


def stale_weights(trial: Trial, expected: Expectation, place: Place) -> Measured | None:
    """A forward that does not see what a step inside its region has done to the weights."""
    steps = [
        event
        for event in trial.result.events
        if event.kind in expected.events and event.facts.get("autocast") and place.holds(event)
    ]
    if not steps or not trial.result.steps:
        return None
    exaggerated = replace(trial, request=replace(trial.request, exaggerate=True))
    cached = place.budget.run(exaggerated.request)
    fresh = place.without(exaggerated, "autocast-cache", everywhere=True)
    found = difference(cached, fresh)
    if found is None:
        return None
    row = _row(steps[0])
    words = (
        f"the forward after the step in line {row} still computes with the old weights: its "
        f"gradient norm is {found.before:.3g}, and {found.after:.3g} when every weight is cast anew (steps "
        "exaggerated)"
    )
    repeated = repeats(cached, place.budget.run_again(exaggerated.request))
    return Measured(words, row, () if repeated else (UNSTEADY,))


# -- gradients -------------------------------------------------------------------------------------


def no_gradient(trial: Trial, expected: Expectation, place: Place) -> Measured | None:
    """Parameters of an optimizer that no loss reaches, and would if the rows cut nothing off."""
    missing = dict(_never_reached(trial.result))
    if not missing or not _reaches(trial.result, place):
        return None
    whole = place.without(trial, expected.without, everywhere=not expected.without)
    gained = {number: missing[number] & _reached(whole, number) for number in missing}
    for number, indices in gained.items():
        if not indices:
            continue
        built = _built(trial.result, "optimizer", number)
        if built is None:
            continue
        doubts = [note for note in whole.notes if note not in trial.result.notes]
        if "stands-for" in built.facts:
            doubts.append(Note("owner", built.facts["stands-for"]))
        row = min(place.rows)
        other = "without autocast's cache" if expected.without == "autocast-cache" else ""
        other = other or f"with gradients left on in line {row}"
        words = (
            f"{len(indices)} of the {len(built.facts['trainable'])} trainable parameters of the "
            f"{built.facts['class']} (line {_row(built)}) are in the graph of no loss; "
            f"{other} they are"
        )
        return Measured(words, row, tuple(doubts))
    return None


def _never_reached(result: RunResult) -> Iterator[tuple[int, set[int]]]:
    """Optimizers some of whose trainable parameters are in no graph, with those."""
    if not any(event.kind == "backward" for event in result.events):
        return
    for event in result.events:
        if event.kind == "optimizer":
            missing = set(event.facts["trainable"]) - _reached(result, event.optimizer)
            if missing:
                yield event.optimizer, missing


def _reached(result: RunResult, optimizer: int) -> set[int]:
    return {
        index
        for event in result.events
        if event.kind == "backward"
        for index in event.facts.get("graph", {}).get(str(optimizer), ())
    }


def _reaches(result: RunResult, place: Place) -> bool:
    return not place.rows.isdisjoint(result.rows) or any(map(place.holds, result.events))


def applied_twice(trial: Trial, expected: Expectation, place: Place) -> Measured | None:
    """Two steps of one optimizer with the gradients of one backward."""
    for broken in broken_rules(trial.result.events):
        if broken.slug != "optimizer-step-twice" or not place.holds(broken.event):
            continue
        norms = [norms for row, norms in trial.result.steps if row == broken.event.row]
        earlier = [row for row, other in trial.result.steps if norms and other == norms[0]]
        if earlier and any(norms[0]) and earlier[0] != broken.event.row:
            words = (
                f"the gradients that the step in line {earlier[0]} has applied are applied again "
                f"in line {broken.event.row}"
            )
            return Measured(words, broken.event.row)
    return None


def applied_nan(trial: Trial, expected: Expectation, place: Place) -> Measured | None:
    """A plain step that puts NaN into the weights; the scaler would have skipped it."""
    if not any(d.path.startswith("nan in ") and d.choice for d in trial.result.decisions):
        return None
    rows = {
        broken.event.row
        for broken in broken_rules(trial.result.events)
        if broken.slug == "optimizer-step-bypass" and place.holds(broken.event)
    }
    for row, norms in trial.result.steps:
        if row in rows and any(norm is not None and not math.isfinite(norm) for norm in norms):
            words = (
                f"gradients that are not finite reach the weights in line {row}: "
                "`scaler.step` would have skipped them"
            )
            return Measured(words, row)
    return None


def idle_clip(trial: Trial, expected: Expectation, place: Place) -> Measured | None:
    """A clip after the step and before gradients are cleared: no step sees it."""
    events = protocol_events(trial.result.events)
    clips = [
        broken
        for broken in broken_rules(events)
        if broken.slug == "clip-of-spent" and place.holds(broken.event)
    ]
    if not clips or not trial.result.steps:
        return None
    if any(_feeds(events[clip.index + 1 :], clip.event.optimizer) for clip in clips):
        return None
    other = place.without(trial, expected.without)
    if not repeats(trial.result, other):
        return None
    row = clips[0].event.row
    words = f"every step is the same without the clip in line {row}: it comes after the step"
    return Measured(words, row)


def shortened(trial: Trial, expected: Expectation, place: Place) -> Measured | None:
    """A clip of the gradients so far, to which further micro-batches are added before the step."""
    found, larger = next(_shortening(trial.result, place), None), ""
    if found is None and any(e.kind == "clip" and place.holds(e) for e in trial.result.events):
        loud = place.budget.run(replace(trial.request, loss_weight=LOUD))
        found, larger = (
            next(_shortening(loud, place), None),
            f"with a loss {LOUD:.0e} times as large, ",
        )
    if found is None:
        return None
    clip, backward, step = found
    words = (
        f"{larger}the clip in line {_row(clip)} leaves {clip.facts['left']:.2g} of the gradients so far, and "
        f"the backward in line {_row(backward)} then adds those of the next micro-batch whole, "
        f"before the step in line {_row(step)}: the early ones count less"
    )
    return Measured(words, _row(clip), step=clip.facts["steps"])


def _shortening(result: RunResult, place: Place) -> Iterator[tuple[Event, Event, Event]]:
    """Clips that made gradients smaller, the backward that added to them, and the step."""
    events = protocol_events(result.events)
    for index, clip in enumerate(events):
        # What is not finite is no share at all.
        shortens = clip.kind == "clip" and 0.0 < clip.facts["left"] <= SHORTENED
        if not shortens or not place.holds(clip):
            continue
        added = None
        for event in events[index + 1 :]:
            if event.kind == "zero_grad" and event.optimizer == clip.optimizer:
                break
            if event.kind == "backward" and clip.optimizer in event.facts.get("optimizers", ()):
                added = added or event
            if event.kind in ("step", "plain-step") and event.optimizer == clip.optimizer:
                if added is not None and not event.facts.get("raised"):
                    yield clip, added, event
                break


def _feeds(events: tuple[Event, ...], optimizer: int) -> bool:
    """Whether a backward adds to gradients of this optimizer before they are cleared."""
    for event in events:
        if event.kind == "zero_grad" and event.optimizer == optimizer:
            return False
        if event.kind == "backward" and optimizer in event.facts.get("optimizers", ()):
            return True
    return False


# -- scalers ---------------------------------------------------------------------------------------


def rebuilt(trial: Trial, expected: Expectation, place: Place) -> Measured | None:
    """One optimizer, stepped by several scalers that one row has built."""
    kept = {
        event.scaler
        for event in trial.result.events
        if event.kind == "restore" or event.facts.get("new-scale")
    }
    built = {
        event.scaler
        for event in trial.result.events
        if event.kind == "scaler" and place.holds(event) and "stands-for" not in event.facts
    } - kept
    used: dict[int, set[int]] = {}
    for event in trial.result.events:
        if event.kind == "step" and event.scaler in built:
            used.setdefault(event.optimizer, set()).add(event.scaler)
    most = max(used.values(), key=len, default=set())
    if len(most) < 2:
        return None
    row = min(place.rows)
    words = (
        f"{len(most)} scalers that line {row} built stepped one optimizer: each began at its "
        "initial scale again"
    )
    # The probe itself calls the function several times.
    by_probe = trial.plan.calls > 1
    return Measured(words, row, (REPEATED,) if by_probe else ())


def bool_scale(trial: Trial, expected: Expectation, place: Place) -> Measured | None:
    """A scaler that took a bool for a number or a device."""
    for event in trial.result.events:
        if event.kind == "scaler" and event.facts.get("bools") and place.holds(event):
            name, value = next(iter(event.facts["bools"].items()))
            state = "enabled" if event.facts["enabled"] else "disabled"
            effect = f" with a scale of {event.facts['scale']:g}" if name == "init_scale" else ""
            words = f"the scaler takes `{value}` as its `{name}`: it is {state}{effect}"
            return Measured(words, _row(event))
    return None


def idle_scaler(trial: Trial, expected: Expectation, place: Place) -> Measured | None:
    """A scaler that is enabled where everything runs in bfloat16, and changes nothing."""
    events = trial.result.events
    own = {
        event.scaler
        for event in events
        if event.kind == "scaler" and place.holds(event) and event.facts["enabled"]
    }
    if not any(event.kind == "step" and event.scaler in own for event in events):
        return None
    regions = [e for e in events if e.kind == "autocast-enter" and e.facts["enabled"]]
    if not regions or not all(_is_bfloat16(region) for region in regions):
        return None
    if not _forwards_in_region(events):
        return None
    plain = place.budget.run(replace(trial.request, enabled=False))
    if not trial.result.steps or not same_steps(trial.result, plain, SCALED):
        return None
    words = (
        "every autocast region ran in bfloat16, and the gradients at every step are the same "
        "with the scaler disabled"
    )
    return Measured(words, min(place.rows))


def _forwards_in_region(events: tuple[Event, ...]) -> bool:
    return any(event.kind == "forward" and event.facts.get("autocast") for event in events)


def _is_bfloat16(region: Event) -> bool:
    return region.facts["dtype"] == "torch.bfloat16" and bool(region.facts.get("explicit"))


# -- half precision --------------------------------------------------------------------------------


def half_weights(trial: Trial, expected: Expectation, place: Place) -> Measured | None:
    """A step of float16 parameters, which the rows have cast."""
    step = _half_step(trial.result)
    if step is None or not _reaches(trial.result, place):
        return None
    events = trial.result.events
    if any(event.kind == "scaler" for event in events) or not _forwards_in_region(events):
        return None  # with a scaler it is AMP401, or meant
    if _half_step(place.without(trial, expected.without)) is not None:
        return None
    words = (
        f"the step in line {_row(step)} updates parameters in float16; without this cast they "
        "are float32"
    )
    return Measured(words, min(place.rows))


def swallowed(trial: Trial, expected: Expectation, place: Place) -> Measured | None:
    """An optimizer that the rows build, whose step half-precision weights round away."""
    for event in trial.result.events:
        if event.kind != "optimizer" or not place.holds(event) or "unmoved" not in event.facts:
            continue
        half, whole = event.facts["unmoved"]
        if half < MOST or whole > FEW:
            continue
        dtype, row = event.facts["dtype"], _row(event)
        words = (
            f"a step of the {event.facts['class']} of line {row} with its learning rate of "
            f"{event.facts['rate']:g} leaves {half:.0%} of {dtype} weights of the usual size (0.02) as "
            f"they were, and {whole:.0%} of float32 ones: the weights that it steps are {dtype}"
        )
        return Measured(words, row, step=0)
    return None


def _half_step(result: RunResult) -> Event | None:
    return next(
        (
            event
            for event in result.events
            if event.kind in ("step", "plain-step")
            and "torch.float16" in event.facts.get("dtypes", ())
        ),
        None,
    )


def vanishing(trial: Trial, expected: Expectation, place: Place) -> Measured | None:
    """An epsilon that is zero in the dtype of what it is given to."""
    for event in trial.result.events:
        if event.kind == "operation" and place.holds(event):
            row = _row(event)
            words = f"{event.facts['number']:g} in line {row} is 0 in float16, the dtype there"
            sure = event.facts["sure"]
            return Measured(words, row, () if sure else (Note("float16", row=row),))
    step = _half_step(trial.result)
    if step is None:
        return None
    built = _built(trial.result, "optimizer", step.optimizer)
    if built is None or not place.holds(built):
        return None
    eps = built.facts.get("eps")
    if not eps or eps > VANISHING:
        return None
    words = f"`eps` is {eps:g}, which is 0 in float16, the dtype of the parameters that it steps"
    return Measured(words, _row(built))


def unscaled(trial: Trial, expected: Expectation, place: Place) -> Measured | None:
    """Unscaled gradients of a float16 region that are applied, and are zero where they are small."""
    events = trial.result.events
    region = next(filter(lambda event: _is_float16(event) and place.holds(event), events), None)
    if region is None or any(event.kind in ("scaler", "scale", "step") for event in events):
        return None
    fed = {
        number
        for event in events
        if event.kind == "backward" and not event.facts.get("raised")
        for number in event.facts.get("optimizers", ())
    }
    stepped = [event for event in events if event.kind == "plain-step" and event.optimizer in fed]
    if not stepped or not _forwards_in_region(events):
        return None
    faint = replace(trial, request=replace(trial.request, loss_weight=FAINT))
    half = place.budget.run(faint.request)
    whole = place.without(faint, "autocast", everywhere=True)
    vanished = _vanished(trial.result, half, whole)
    if vanished is None:
        return None
    step, lost = vanished
    row = _row(region)
    words = (
        f"the step in line {_row(stepped[0])} applies gradients that come back through the "
        f"float16 region of line {row} and were never scaled: with a loss of {FAINT:.0e} of its "
        f"size, {lost} of them are exactly zero, and none of these is without autocast"
    )
    return Measured(words, row, step=step)


def _is_float16(event: Event) -> bool:
    facts = event.facts
    return event.kind == "autocast-enter" and facts["enabled"] and facts["dtype"] == "torch.float16"


def _vanished(base: RunResult, half: RunResult, whole: RunResult) -> tuple[int, int] | None:
    """The first step at which gradients are zero only in half precision, though they are not in a
    run with a larger loss: how many steps came before it, and in how many parameters."""
    together = zip(base.steps, half.steps, whole.steps)
    for step, ((row, norms), (other, small), (third, full)) in enumerate(together):
        if not row == other == third or not len(norms) == len(small) == len(full):
            return None
        lost = sum(bool(a) and b == 0.0 and bool(c) for a, b, c in zip(norms, small, full))
        if lost:
            return step, lost
    return None


# -- what runs have in common ----------------------------------------------------------------------


def repeats(one: RunResult, other: RunResult) -> bool:
    """Whether two runs of the same request took the same steps with the same gradients."""
    return same_steps(one, other, REPEATABLE)


def same_steps(one: RunResult, other: RunResult, threshold: float) -> bool:
    """Whether two runs took the same steps, with gradients that agree up to a threshold."""
    rows = [[row for row, _ in result.steps] for result in (one, other)]
    return rows[0] == rows[1] and difference(one, other, threshold) is None


@dataclass(frozen=True, slots=True)
class Difference:
    """A gradient norm in which two runs differ.

    Args:
        step: how many steps of the runs came before that one.
        row: of the step.
        before, after: the norm in one run, and in the other.
    """

    step: int
    row: int
    before: float
    after: float


def difference(
    one: RunResult, other: RunResult, threshold: float = DIFFERENCE
) -> Difference | None:
    """The first gradient norm in which two runs differ.

    None as well where the runs cannot be compared, because their steps are not the same.
    """
    if [row for row, _ in one.steps] != [row for row, _ in other.steps]:
        return None
    for step, ((row, norms), (_, others)) in enumerate(zip(one.steps, other.steps)):
        if len(norms) != len(others):
            return None
        for before, after in zip(norms, others):
            if before is None or after is None:
                continue
            if not (math.isfinite(before) and math.isfinite(after)):
                return None
            size = max(abs(before), abs(after))
            if size > SMALLEST and abs(before - after) > threshold * size:
                return Difference(step, row, before, after)
    return None


def _built(result: RunResult, kind: str, number: int) -> Event | None:
    return next(
        (e for e in result.events if e.kind == kind and number in (e.optimizer, e.scaler)), None
    )


def _row(event: Event) -> int:
    """The row of the checked file at which an event happened, also in a call made there."""
    return int(event.facts.get("through") or event.row)


#: What a run has to show -> how it is measured.
MEASURES: dict[str, Measure] = {
    "applied-nan": applied_nan,
    "applied-twice": applied_twice,
    "bool-scale": bool_scale,
    "half-weights": half_weights,
    "idle-clip": idle_clip,
    "idle-scaler": idle_scaler,
    "in-region": in_region,
    "leaking-region": leaking_region,
    "no-gradient": no_gradient,
    "rebuilt": rebuilt,
    "shortened": shortened,
    "stale-weights": stale_weights,
    "swallowed": swallowed,
    "unscaled": unscaled,
    "vanishing": vanishing,
}
