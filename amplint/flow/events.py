"""Protocol events on abstract states: the table of `amplint.protocol`, lifted to "unknown".

A report needs a *definite* bad tag in one feasible state. Unknown tags and stages never
report: that is the whole false-alarm policy. Where the linter is more lenient than the
strict tags of the protocol, the exception stands in `LENIENT` with its reason.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from amplint.code.module import Function
from amplint.flow.identity import (
    has_plain_twin,
    holds,
    is_of_one_access,
    may_be_one,
    scalers_in,
    spoken,
)
from amplint.flow.state import State
from amplint.flow.typestates import EVERY, UNKNOWN, Scalers, Tag, checked_of, stage_of, tag_of
from amplint.protocol import Event, Gradient, Pair, Stage, advance
from amplint.protocol.states import ABSENT
from amplint.protocol.table import APPLIED, DEFECTIVE, find_row

#: (event, tag) -> tag where following the strict tags would raise false alarms.
LENIENT: dict[tuple[Event, Gradient], Gradient] = {
    # Between a step and the next backward zero_grad() may hide anywhere; only after
    # update() has closed the round is a pile certain.
    (Event.SCALED_BACKWARD, Gradient.SPENT): Gradient.SCALED,
    # A second network's backward must not inherit the staleness of the first one's.
    (Event.SCALED_BACKWARD, Gradient.STALE): Gradient.SCALED,
    # No scaled gradient is lost: it is the scaled backward that is missing.
    (Event.ZERO_GRAD, Gradient.PLAIN): Gradient.NONE,
    (Event.ZERO_GRAD, Gradient.MIXED): Gradient.NONE,
}


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """Where an event happens and how the code names its participants.

    Args:
        node: the call.
        function: the function that holds it.
        scaler: scaler id, "" if none.
        optimizer: optimizer id, "" if none, "*" for all.
        scaler_text: the scaler as the code writes it.
        optimizer_text: the optimizer as the code writes it.
        details: extra words for the message.
    """

    node: ast.expr
    function: Function
    scaler: str = ""
    optimizer: str = ""
    scaler_text: str = ""
    optimizer_text: str = ""
    details: dict[str, str] = field(default_factory=dict)


Report = Callable[[str, Site, State, dict], None]
#: The arguments of one.
Reported = tuple[str, Site, State, dict]

#: unscale_ of nothing: accepted by torch, and fatal for the step that follows.
VOID = frozenset({"unscale-without-gradient", "unscale-of-zeros"})


class Transitions:
    """Applies events to states in place and reports broken rules.

    Args:
        report: called with (slug, site, state, details) for each definite violation.
        several: whether the code under analysis names more than one optimizer. Which
            optimizer a backward feeds is then unknown, and some rules stay silent.
        clears: whether a zero_grad of any kind exists in the code under analysis.

    Attributes:
        havocs: how often something unknown may have done protocol work so far.
        reports: the violations that were reported so far.
    """

    def __init__(self, report: Report, *, several: bool = False, clears: bool = False) -> None:
        self._tell = report
        self.several = several
        self.clears = clears
        self.havocs = 0
        self.reports: list[Reported] = []

    def report(self, slug: str, site: Site, state: State, details: dict[str, str]) -> None:
        """Tell of a definite violation."""
        self.reports.append((slug, site, state.copy(), details))
        self._tell(slug, site, state, dict(details))

    @contextmanager
    def silence(self) -> Iterator[None]:
        """A context in which nothing is reported."""
        tell, self._tell = self._tell, lambda *_: None
        try:
            yield
        finally:
            self._tell = tell

    # -- reading ---------------------------------------------------------------------

    def named(self, state: State) -> list[str]:
        """The optimizers that a path has told from the others."""
        return [key[1] for key in state.typestate if key[0] == "gradient" and key[1] != EVERY]

    def _set_tag(
        self, state: State, optimizer: str, gradient: Gradient | None, by: Scalers = frozenset()
    ) -> None:
        state.typestate[("gradient", optimizer)] = (gradient, by)

    def _quiet(self, state: State, site: Site) -> None:
        """After a report the pair is unknown: one defect, one finding."""
        self._set_tag(state, site.optimizer, None)
        state.typestate[("stage", site.scaler, site.optimizer)] = (None, False)
        state.typestate.pop(("checked", site.scaler), None)
        state.typestate.pop(("checked", EVERY), None)
        state.typestate.pop(("renewed", site.optimizer), None)

    # -- events ----------------------------------------------------------------------

    def scaled_backward(self, state: State, site: Site) -> None:
        """`scaler.scale(loss).backward()`: feeds every optimizer."""
        self._meet(state, site.scaler)
        state.note("event", site.node, site.function, (Event.SCALED_BACKWARD, site))
        self._started(state)
        for optimizer in (*self.named(state), EVERY):
            self._feed_scaled(state, site, optimizer, tag_of(state.typestate, optimizer))

    def _feed_scaled(self, state: State, site: Site, optimizer: str, tag: Tag) -> None:
        (gradient, scalers), ours = tag, frozenset({site.scaler})
        if gradient is None:  # of several optimizers, others may have scaled what this one holds
            by = ours | {EVERY} if self.several else ours
            self._set_tag(state, optimizer, Gradient.SCALED, by)
            return
        if gradient is Gradient.SCALED:
            self._set_tag(state, optimizer, Gradient.SCALED, scalers | ours)
            return
        following: Gradient | None = _after(Event.SCALED_BACKWARD, gradient)
        if following is Gradient.PILED and (not self.clears or self.several):
            following = Gradient.SCALED
        if following is Gradient.RESCALED:
            following = self._backward_after_unscale(state, site, optimizer)
        self._set_tag(state, optimizer, following, ours)

    def _backward_after_unscale(self, state: State, site: Site, optimizer: str) -> Gradient | None:
        if optimizer == EVERY:
            return None
        stage, carried = stage_of(state.typestate, site.scaler, optimizer)
        if self.several or stage is None:
            return None
        if carried:
            # unscale_ per micro-batch: the next unscale_ crashes first, and is the defect.
            return Gradient.RESCALED
        if stage is not Stage.UNSCALED:
            return Gradient.PILED if self.clears else Gradient.SCALED
        named = replace(site, optimizer=optimizer)
        self.report("backward-after-unscale", named, state, {})
        self._quiet(state, named)
        return None

    def plain_backward(self, state: State, site: Site) -> None:
        """`loss.backward()`: feeds every optimizer; with several of them, nobody knows which."""
        state.note("event", site.node, site.function, (Event.PLAIN_BACKWARD, site))
        self._started(state)
        for optimizer in (*self.named(state), EVERY):
            gradient, _ = tag_of(state.typestate, optimizer)
            if self.several and gradient is not Gradient.PLAIN:
                self._set_tag(state, optimizer, Gradient.PLAIN if gradient in ABSENT else None)
                continue
            if gradient is None:
                self._set_tag(state, optimizer, Gradient.PLAIN)
                continue
            following = _after(Event.PLAIN_BACKWARD, gradient)
            if following is not gradient:
                self._set_tag(state, optimizer, following)

    def doubt_gradients(self, state: State, optimizer: str) -> None:
        """Whether an optimizer has gradients, and which, is not known any more."""
        self._set_tag(state, optimizer, None)

    def doubt_all(self, state: State) -> None:
        """The same for every optimizer: code out of sight has the model."""
        for optimizer in (*self.named(state), EVERY):
            if ("gradient", optimizer) in state.typestate:
                self.doubt_gradients(state, optimizer)

    def unscale(self, state: State, site: Site) -> None:
        """`scaler.unscale_(optimizer)`."""
        self._meet(state, site.scaler)
        stage, carried = stage_of(state.typestate, site.scaler, site.optimizer)
        state.note(
            "event",
            site.node,
            site.function,
            (Event.UNSCALE, site, tag_of(state.typestate, site.optimizer)[0]),
        )
        self._started(state)
        gradient, scalers = tag = tag_of(state.typestate, site.optimizer)
        slug = self._unscale_violation(state, site, stage, tag)
        if slug in VOID and ("flag", "after") in state.typestate:
            return  # nothing happens here: it is the flush's step that fails
        if slug == "step-on-spent":
            gradient = Gradient.SCALED  # zero_grad() may hide: go on as if it had run
        elif slug:
            self._report(slug, site, state, carried)
            return
        key = ("stage", site.scaler, site.optimizer)
        if stage is None and key in state.typestate:
            self._quiet(state, site)
            return
        # Whatever code out of sight has done: a second `unscale_` would have ended the path here.
        following = _after(Event.UNSCALE, gradient or Gradient.SCALED, stage or Stage.READY)
        self._set_tag(state, site.optimizer, following, scalers)
        state.typestate.pop(("renewed", site.optimizer), None)  # it has a record of its own now
        state.typestate[("stage", site.scaler, site.optimizer)] = (Stage.UNSCALED, False)
        state.typestate[("checked", site.scaler)] = True

    def _unscale_violation(
        self, state: State, site: Site, stage: Stage | None, tag: Tag
    ) -> str | None:
        if stage is None:
            return None
        certain = _broken_anyway(Event.UNSCALE, stage)
        if certain:
            return certain
        if self._foreign(state, site, tag):
            return "foreign-scaler"
        return None if tag[0] is None else find_row(Event.UNSCALE, stage, tag[0]).violation

    def step(self, state: State, site: Site) -> None:
        """`scaler.step(optimizer)`."""
        self._meet(state, site.scaler)
        stage, carried = stage_of(state.typestate, site.scaler, site.optimizer)
        gradient, _ = tag = tag_of(state.typestate, site.optimizer)
        state.note("event", site.node, site.function, (Event.STEP, site))
        slug = self._step_violation(state, site, stage, tag)
        self._started(state)
        if slug:
            self._report(slug, site, state, carried)
            if slug != "step-on-spent":
                return
        following = _after(Event.STEP, gradient, stage) if gradient and stage else Gradient.SPENT
        self._set_tag(state, site.optimizer, following)
        state.typestate[("stage", site.scaler, site.optimizer)] = (Stage.STEPPED, False)
        state.typestate[("checked", site.scaler)] = True

    def quiet_step(self, state: State, site: Site) -> None:
        """`scaler.step` of a disabled scaler: a plain `optimizer.step()` that is meant."""
        self._started(state)
        self._set_tag(state, site.optimizer, Gradient.SPENT)

    def _step_violation(
        self, state: State, site: Site, stage: Stage | None, tag: Tag
    ) -> str | None:
        if ("renewed", site.optimizer) in state.typestate and tag[0] is not Gradient.SCALED:
            return "optimizer-recreated"  # what the old object's record says was divided
        if stage is None:
            return None
        certain = _broken_anyway(Event.STEP, stage)
        if certain:
            return certain
        if self._foreign(state, site, tag):
            return "foreign-scaler"
        if stage is Stage.READY and self._wrapped(state, site):
            return "other-object-unscaled"
        if tag[0] is None:
            return None
        slug = find_row(Event.STEP, stage, tag[0]).violation
        if slug == "step-on-rescaled" and self.several:
            return None
        return slug

    def _foreign(self, state: State, site: Site, tag: Tag) -> bool:
        """Scaled by other scalers only: this one will divide by a scale of its own.

        Of several optimizers, one that such a scaler has in hand may be what it scaled for.
        """
        gradient, scalers = tag
        if gradient is not Gradient.SCALED or not scalers or EVERY in scalers:
            return False
        in_hand = (
            key[1] in scalers and stage in (Stage.UNSCALED, Stage.STEPPED)
            for key, (stage, _) in _stages(state)
        )
        return site.scaler not in scalers and not (self.several and any(in_hand))

    def _wrapped(self, state: State, site: Site) -> bool:
        """Whether the object inside (or around) this optimizer is the one that was unscaled."""
        for key, (stage, _) in _stages(state):
            other = key[2]
            if stage is not Stage.UNSCALED or key[1] != site.scaler or other == site.optimizer:
                continue
            if holds(state, other, site.optimizer) or holds(state, site.optimizer, other):
                return True
        return False

    def update(self, state: State, site: Site, *, new_scale: bool) -> None:
        """`scaler.update()`; with an explicit new scale torch asks for no inf check."""
        self._meet(state, site.scaler)
        state.note(
            "event",
            site.node,
            site.function,
            (Event.SET_SCALE if new_scale else Event.UPDATE, site),
        )
        self._started(state)
        if is_of_one_access(site.scaler):
            return  # what else that scaler has not done is told at the step
        if not new_scale and checked_of(state.typestate, site.scaler) is False:
            self._report("update-without-check", site, state, False)
            self.havoc(state, site.scaler)
            return
        for key, (stage, _) in _stages(state):
            if key[1] == site.scaler:
                state.typestate[key] = (Stage.READY, False)
        for key in [key for key in state.typestate if key[0] == "renewed"]:
            del state.typestate[key]
        for optimizer in (*self.named(state), EVERY):
            gradient, scalers = tag_of(state.typestate, optimizer)
            if gradient is None or (gradient is Gradient.SCALED and site.scaler not in scalers):
                continue
            if gradient is Gradient.SCALED and scalers - {site.scaler, EVERY}:
                # It may be another scaler's: it stays scaled, by whichever.
                self._set_tag(state, optimizer, gradient, scalers - {site.scaler} | {EVERY})
                continue
            following = _after(Event.UPDATE, gradient)
            if following is not gradient:
                self._set_tag(state, optimizer, following, scalers)
        state.typestate.pop(("havoc", site.scaler), None)
        if not any(key[0] == "stage" and key[1] != site.scaler for key in state.typestate):
            state.typestate.pop(("havoc", EVERY), None)
        state.typestate[("checked", site.scaler)] = False

    def zero_grad(self, state: State, site: Site, *, keep: bool = False) -> None:
        """`optimizer.zero_grad()`, or `model.zero_grad()` with optimizer "*"."""
        event = Event.ZERO_GRAD_KEEP if keep else Event.ZERO_GRAD
        state.note("event", site.node, site.function, (event, site))
        self._started(state)
        everyone = site.optimizer == EVERY
        for optimizer in (*self.named(state), EVERY):
            gradient, _scalers = tag_of(state.typestate, optimizer)
            if everyone or optimizer == site.optimizer:
                self._set_tag(state, optimizer, _cleared(event, gradient))
            elif gradient in (Gradient.PLAIN, Gradient.MIXED):
                # Its parameters may be the same ones: a warm-up phase with a private optimizer.
                self._set_tag(state, optimizer, None)
        if not everyone and ("gradient", site.optimizer) not in state.typestate:
            gradient, _ = tag_of(state.typestate, site.optimizer)
            self._set_tag(state, site.optimizer, _cleared(event, gradient))

    def clip(
        self, state: State, site: Site, only: frozenset[str] | None, owned: frozenset[str]
    ) -> None:
        """A clip of gradients.

        Args:
            only: the optimizers over the clipped parameters, None if unknown.
            owned: the optimizers whose parameters are known at all.
        """
        state.note(
            "event", site.node, site.function, (Event.CLIP, site, tag_of(state.typestate, EVERY)[0])
        )
        named = self.named(state)
        if only is not None and not only & set(named):
            only = None
        optimizers = [name for name in named if only is None or name in only]
        tags = [tag_of(state.typestate, name)[0] for name in optimizers or [EVERY]]
        if any(
            stage in (Stage.UNSCALED, None)
            and (only is None or key[2] in only or key[2] not in owned)
            for key, (stage, _) in _stages(state)
        ):
            return
        # What a defect before it has left is reported there.
        slugs = {
            find_row(Event.CLIP, Stage.READY, tag).violation
            if tag is not None and tag not in DEFECTIVE
            else None
            for tag in tags
        }
        slug = slugs.pop() if len(slugs) == 1 else None
        if slug and not (self.several and APPLIED.issuperset(tags)):
            self._report(slug, site, state, False)

    def optimizer_step(self, state: State, site: Site) -> None:
        """`optimizer.step()`: torch checks nothing."""
        gradient, scalers = tag_of(state.typestate, site.optimizer)
        state.note("event", site.node, site.function, (Event.OPTIMIZER_STEP, site, gradient))
        self._started(state)
        scaler, stage = self._stage_of_any(state, site.optimizer)
        slug = self._optimizer_step_violation(gradient, stage)
        if slug and any(has_plain_twin(other, state) for other in scalers):
            slug = None  # which of the two the gradients belong to, nobody knows
        if slug:
            named = replace(site, scaler=scaler or site.scaler)
            self._report(slug, named, state, False)
            state.typestate.pop(("checked", EVERY), None)
            for other in scalers:
                state.typestate[("havoc", other)] = True
                state.typestate.pop(("checked", other), None)
        following = None if gradient is None else _after(Event.OPTIMIZER_STEP, gradient)
        if following is not gradient or gradient is None:
            self._set_tag(state, site.optimizer, following)

    def _optimizer_step_violation(
        self, gradient: Gradient | None, stage: Stage | None
    ) -> str | None:
        if gradient in (None, Gradient.PLAIN):
            return None
        slug = find_row(Event.OPTIMIZER_STEP, Stage.READY, gradient).violation
        if slug == "optimizer-step-twice" and stage is not Stage.STEPPED:
            return slug if gradient is Gradient.LEFTOVER and not self.several else None
        if slug == "optimizer-step-bypass" and stage is not Stage.UNSCALED:
            return None
        if slug == "optimizer-step-on-mixed":
            return None
        return slug

    def _stage_of_any(self, state: State, optimizer: str) -> tuple[str, Stage | None]:
        for key, (stage, _) in _stages(state):
            if key[2] == optimizer and stage is not None and stage is not Stage.READY:
                return key[1], stage
        return "", None

    # -- loops and unknown code --------------------------------------------------------

    def enter_training_loop(self, state: State) -> None:
        """Where "nothing is pending" begins: the outermost loop with a backward and a step."""
        if ("flag", "started") not in state.typestate:
            self._set_tag(state, EVERY, Gradient.NONE)
            state.typestate[("checked", EVERY)] = False

    def back_edge(self, state: State) -> None:
        """Mark stages that the next iteration inherits: AMP105 is not AMP104."""
        for key, (stage, _) in _stages(state):
            if stage is not Stage.READY:
                state.typestate[key] = (stage, True)

    def havoc(self, state: State, scaler: str = EVERY) -> None:
        """Something unknown may have done protocol work: know nothing any more."""
        self.havocs += 1
        self._started(state)
        for key in list(state.typestate):
            if key[0] == "gradient":
                state.typestate[key] = UNKNOWN
            elif (
                key[0] == "stage"
                and scaler in (EVERY, key[1])
                or key[0] == "checked"
                and scaler in (EVERY, key[1])
            ):
                del state.typestate[key]
        state.typestate[("havoc", scaler)] = True

    def _meet(self, state: State, scaler: str) -> None:
        """Know nothing any more, in place, where a scaler may be another one by another name."""
        others = {other for other in scalers_in(state) if may_be_one(scaler, other, state)}
        for other in others:
            self.havoc(state, other)
        if others:
            self.havoc(state, scaler)

    def fresh_scaler(self, state: State, scaler: str) -> None:
        """A scaler was constructed: nothing is on its record.

        A plain backward before may have been a trial of another model.
        """
        for optimizer in (*self.named(state), EVERY):
            if tag_of(state.typestate, optimizer)[0] is Gradient.PLAIN:
                self._set_tag(state, optimizer, None)
        for key in [key for key in state.typestate if key[0] == "renewed"]:
            del state.typestate[key]
        for key in [
            key
            for key in state.typestate
            if len(key) > 1 and key[1] == scaler and key[0] != "gradient"
        ]:
            del state.typestate[key]
        state.typestate[("checked", scaler)] = False

    def renew(self, state: State, optimizer: str) -> None:
        """An optimizer was constructed, perhaps where another one took part in an open round.

        Gradients that were there before may be of another model.
        """
        gradient, _ = tag_of(state.typestate, EVERY)
        if gradient is not None and gradient not in ABSENT:
            self._set_tag(state, optimizer, None)
        for key, (stage, _) in _stages(state):
            if key[2] == optimizer and stage in (Stage.UNSCALED, Stage.STEPPED):
                del state.typestate[key]
                state.typestate[("renewed", optimizer)] = True

    def _started(self, state: State) -> None:
        state.typestate[("flag", "started")] = True

    def _report(self, slug: str, site: Site, state: State, carried: bool) -> None:
        words = {"loop": "yes"} if carried else {}
        _, scalers = tag_of(state.typestate, site.optimizer)
        if slug == "foreign-scaler":
            named = [item for item in scalers if not is_of_one_access(item)]
            words["scalers"] = ", ".join(sorted(map(spoken, named)))
            for other in scalers:
                state.typestate.pop(("checked", other), None)
        self.report(slug, site, state, words)
        if site.optimizer:
            self._quiet(state, site)


def _after(event: Event, gradient: Gradient, stage: Stage = Stage.READY) -> Gradient:
    """The tag after an event, by the table and the exceptions of `LENIENT`."""
    row = find_row(event, stage, gradient)
    return LENIENT.get((event, gradient)) or row.gradient or gradient


def _cleared(event: Event, gradient: Gradient | None) -> Gradient:
    """The tag after a zero_grad; unknown gradients are taken to be there, and nobody's."""
    return _after(event, Gradient.LEFTOVER if gradient is None else gradient)


def _broken_anyway(event: Event, stage: Stage) -> str | None:
    """The slug of what an event breaks in a stage, whatever the gradients hold."""
    violation = advance(Pair(stage, None, checked=True), event).violation
    return violation.slug if violation else None


def _stages(state: State) -> list[tuple[tuple, tuple[Stage | None, bool]]]:
    return [(key, value) for key, value in state.typestate.items() if key[0] == "stage"]
