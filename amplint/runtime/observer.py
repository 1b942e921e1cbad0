"""Follows the protocol through a real training: from calls to typestates, rounds and findings.

`amplint.runtime.hooks` tells it about calls, from any thread; it asks the tracker of
`amplint.protocol` and tells a sink. No value of a tensor on a device is read, except by
`GradientSet.was_edited`, where a mistake is about to be told.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from threading import get_ident, local
from typing import Any, NamedTuple

import torch

from amplint.protocol import Event, Gradient, Stage, Tracker, Violation
from amplint.protocol.states import ABSENT
from amplint.protocol.tracker import Saved
from amplint.runtime.endings import Endings
from amplint.runtime.losses import Kind, Loss, Marks
from amplint.runtime.objects import Objects, OptimizerRecord, ScalerRecord
from amplint.runtime.places import NOWHERE, Owner, Place, Territory, user_place
from amplint.runtime.regions import Regions
from amplint.runtime.sets import Before, GradientSet
from amplint.runtime.sink import Enough, Finding, Plan, Sink

#: A threshold that is at least this part of the loss scale was meant for scaled gradients, where
#: the program has asked for the scale since the last update.
_MEANT = 1e-3
#: Frames of amplint's own at least, where a place is asked for: it, a method, a hook, its wrapper.
_OWN_FRAMES = 4


class _Thread(local):
    """What belongs to calls that are running in one thread."""

    def __init__(self) -> None:
        self.backwards = 0
        #: The optimizer whose `scaler.step` is running.
        self.stepping: OptimizerRecord | None = None
        #: Depth of methods of scalers that call each other.
        self.inside = 0


class Handed(NamedTuple):
    """`unscale_` or `step` that is running."""

    kind: str
    scaler: ScalerRecord
    optimizer: OptimizerRecord
    place: Place
    saved: Saved
    violation: Violation | None
    weight: int


class Feeding(NamedTuple):
    """A backward that is running.

    Args:
        loss: what it starts from.
        multiplied: somebody has multiplied the loss by hand.
        before: the sets that it may feed, with what was seen of them.
    """

    place: Place
    loss: Loss
    multiplied: bool
    before: list[tuple[GradientSet, Before]]


class Observer:
    """Typestates of all scalers, optimizers and gradients that were seen.

    Args:
        sink: is told about findings and rounds.
        territory: whose files are whose.
        plan: what shall happen to the training.
    """

    def __init__(self, sink: Sink, territory: Territory, plan: Plan | None = None) -> None:
        self._sink = sink
        self._territory = territory
        self._plan = plan or Plan()
        #: Finds the user's innermost line.
        self.place = user_place(territory.is_user, _OWN_FRAMES, sink.reached)
        self.objects = Objects(self.place)
        self.marks = Marks()
        self.thread = _Thread()
        here = user_place(territory.is_user)
        self.regions = Regions(self.report, self.place, here, self.is_by_library)
        self._endings = Endings(self.report)
        self._tracker = Tracker()
        self._findings: dict[tuple[str, Place], Finding] = {}
        #: The threads that have run backwards.
        self._threads: set[int] = set()
        self.has_scaler = False
        #: Is told each call of a scaler's round, where somebody wants to know.
        self.tell_call: Callable[[int, str, Place], None] | None = None
        #: `update()` calls, and steps without a scaler.
        self.updates = self.plain_steps = 0

    # -- findings

    def report(
        self,
        slug: str,
        place: Place,
        scaler: ScalerRecord | None = None,
        gradients: GradientSet | None = None,
        *,
        is_late: bool = False,
        **facts: Any,
    ) -> None:
        """Tell the sink about a broken rule; `is_late` says that its line runs no longer."""
        known = self._findings.get((slug, place))
        if known is not None:
            known.count += 1
            known.last = self.updates
        else:
            user = self.objects.user_of(gradients) if gradients is not None else None
            if scaler is not None:
                facts = {"scale": scaler.scale, **facts}
            caller = place if is_late else self._territory.caller(skip=_OWN_FRAMES)
            known = self._findings[slug, place] = Finding(
                slug,
                place,
                NOWHERE if caller == place else caller,
                scaler.number if scaler is not None else 0,
                user.number if user is not None else 0,
                1,
                self.updates,
                self.updates,
                facts,
                tuple(gradients.trail) if gradients is not None else (),
            )
        self._sink.finding(known)

    def findings(self) -> list[Finding]:
        """All that was told, in order."""
        return list(self._findings.values())

    def forget_findings(self) -> None:
        """A forked process: what was found before it is its parent's."""
        self._findings.clear()
        self._endings.forget()

    def ended(self, error: BaseException | None) -> None:
        """The program has ended, by an exception that nobody has caught or without one."""
        self._endings.ended(error, self.objects.scalers(), self._territory.is_user)

    def stop(self) -> None:
        """Take back what is no method of torch's: nothing here."""

    def is_by_library(self) -> bool:
        """Whether the region that is entered is a library's, not the user's own."""
        caller, _ = self._territory.caller(entering=True, skip=_OWN_FRAMES)
        return self._territory.owner(caller) is not Owner.USER

    def scaler(self, scaler: Any) -> ScalerRecord:
        """The record of an enabled scaler; one that has scaled before it was seen is known to."""
        record = self.objects.scaler(scaler)
        if not record.has_scaled and getattr(scaler, "_scale", None) is not None:
            record.has_scaled = True
            self._tracker.apply(Event.SCALE, record.number)
        return record

    def adopt(self, scaler: Any, optimizer: Any) -> None:
        """Take over what torch knows of a pair that was there before anybody watched."""
        state = scaler._per_optimizer_states.get(id(optimizer))
        if state is None:
            return
        record, known = self.scaler(scaler), self.objects.optimizer(optimizer)
        gradients = self._claim(known)
        gradients.owner = None
        tag = None if gradients.present() else Gradient.NONE
        stage = Stage[state["stage"].name], bool(state["found_inf_per_device"])
        saved = Saved(record.number, known.number, tag, stage, record.number)
        self._tracker.put_back(saved)

    def scaler_made(self, scaler: Any) -> None:
        """An enabled scaler exists: from now on gradients are followed."""
        self.scaler(scaler)
        if self.has_scaler:
            return
        self.has_scaler = True
        here, place = get_ident(), self.place()
        for gradients in self.objects.sets():
            if self._may_look(gradients, here):
                self._follow(gradients, place)

    # -- losses and backwards

    def scaled(self, scaler: Any, inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> None:
        """`scaler.scale` of an enabled scaler has made these outputs of these inputs."""
        record = self.scaler(scaler)
        if not record.has_scaled:
            self._tracker.apply(Event.SCALE, record.number)
        self.has_scaler = record.has_scaled = True
        marks = self.marks
        for tensor in outputs:
            marks.put(tensor, record.number)
        place = self.place()
        self._add(record, "scale", place)
        if record.scale != 1.0 and any(map(marks.scaler_of, inputs)):
            self.report("scale-of-scaled", place, record)

    def before_backward(self, roots: list[torch.Tensor], gradient_given: bool) -> Feeding | None:
        """A backward from these tensors is about to run; None if one is running already."""
        thread = self.thread
        thread.backwards += 1
        if thread.backwards > 1:
            return None  # part of the one that is running: reentrant checkpoints, hooks
        if 0 < self._plan.steps <= (self.updates if self.has_scaler else self.plain_steps):
            raise Enough(0)
        if not self.has_scaler and not self.regions.is_inside:
            return Feeding(NOWHERE, Loss(Kind.PLAIN), self.marks.is_multiplied(roots), [])
        here = get_ident()
        self._threads.add(here)
        place = self.place()
        loss = self.marks.loss(roots, self.objects.scales)
        if gradient_given and loss.kind is Kind.PLAIN:
            loss = Loss(Kind.UNKNOWN)  # whose scale that gradient has is not seen
        before = []
        for gradients in self.objects.sets():
            if self._may_look(gradients, here):
                if self._tracker.gradient(gradients.number) not in ABSENT:
                    self._follow(gradients, place)
                before.append((gradients, gradients.before_backward(place)))
                gradients.feeder = here
        return Feeding(place, loss, self.has_scaler, before)

    def after_backward(self, feeding: Feeding | None, raised: bool) -> None:
        """The backward has ended."""
        self.thread.backwards -= 1
        if feeding is None:
            return
        place, loss, multiplied, before = feeding
        if self.thread.stepping is not None:
            loss = Loss(Kind.UNKNOWN, loss.scaler)  # a closure inside `scaler.step`
        record = self._scaler(loss.scaler)
        all_fed = []
        here = get_ident()
        for gradients, seen in before:
            gradients.feeder = None if gradients.feeder == here else gradients.feeder
            if gradients.owner != here:
                continue  # another thread has taken it over meanwhile
            fed = gradients.was_fed(place, seen)
            if fed is False:
                continue
            all_fed.append(gradients)
            gradients.note()  # what was sampled before is no measure of what is there now
            if fed is None or raised or loss.kind in (Kind.UNKNOWN, Kind.MIXED):
                self._tracker.forget(gradients.number)
            else:
                self._feed(gradients, loss.kind, record, place)
            if loss.kind is Kind.SCALED and self._plan.overflow == self.updates + 1:
                gradients.overflow()
                gradients.note()
            gradients.trail.append(("scaled backward" if loss.scaler else "backward", place))
            gradients.sample()
        if loss.kind is Kind.MIXED and not raised:
            self.report("losses-mixed", place, record)
        if record is not None:
            self._add(record, "backward", place)
        if not raised:
            self.regions.after_backward(all_fed, place, multiplied)

    def _feed(
        self, gradients: GradientSet, kind: Kind, record: ScalerRecord | None, place: Place
    ) -> None:
        if kind is Kind.PLAIN or record is None:
            self._apply(Event.PLAIN_BACKWARD, None, gradients, place)
            return
        tag = self._tracker.gradient(gradients.number)
        is_other = tag is Gradient.SCALED and self._partner(gradients) is not record
        self._apply(Event.SCALED_BACKWARD, record, gradients, place)
        if tag is not Gradient.STALE:  # else a part still has the scale that it had
            gradients.scale = None if is_other else record.scale

    # -- unscale_, step, update

    def before_handed(
        self, kind: str, event: Event, scaler: Any, optimizer: Any, *, has_closure: bool = False
    ) -> Handed:
        """`unscale_` or `step` is about to run; with a closure, torch checks nothing it does."""
        record, known = self.scaler(scaler), self.objects.optimizer(optimizer)
        place = self.place()
        self._look_at_partner(record, known)
        gradients = self._claim(known)
        self._follow(gradients, place)
        self._look_at_foreign(record, gradients, place)
        if has_closure:
            self.report("closure-by-position", place, record, gradients)
        saved = self._tracker.saved(record.number, known.number)
        violation = self._tracker.apply(event, record.number, known.number)
        if gradients.feeder is not None or gradients.overlaps:
            self._tracker.forget(known.number)
        if violation is not None and not violation.raises:
            self._judge(violation, place, record, gradients)
        weight = gradients.weight_version()
        if event is Event.STEP:
            known.ran, self.thread.stepping = False, known
        return Handed(kind, record, known, place, saved, violation, weight)

    def after_handed(self, handed: Handed, raised: bool) -> None:
        """It has ended."""
        kind, record, known, place, saved, violation, weight = handed
        gradients = known.set
        if kind == "step":
            self.thread.stepping = None
        if gradients is None:
            return
        foreseen = violation is not None and violation.raises
        if raised and not foreseen:
            self._tracker.put_back(saved)
        elif raised and violation is not None:
            self.report(violation.slug, place, record, gradients)
        elif foreseen:
            self.report("fused-without-gradient", place, record, gradients)
        if kind == "step" and not raised:
            ran = known.ran or gradients.weight_version() != weight
            record.steps.append(None if _is_fused(known) else not ran)
            if saved.gradient in ABSENT:
                self._endings.stepped_without_gradients(known, place)
            else:
                known.steps += 1
            self.regions.stepped(gradients, place, record)
        elif not raised:
            self._endings.unscaled(record, known, place)
        gradients.trail.append((kind, place))
        gradients.note()
        self._add(record, kind, place)

    def updated(self, scaler: Any, new_scale: Any, raised: bool) -> None:
        """`update()` has ended."""
        record, place = self.scaler(scaler), self.place()
        event = Event.UPDATE if new_scale is None else Event.SET_SCALE
        before = self._tracker.snapshot() if raised else None
        violation = self._tracker.apply(event, record.number)
        if raised:
            if violation is None and before is not None:
                self._tracker.restore(before)
            elif violation is not None:
                self.report(violation.slug, place, record)
            return
        skipped = record.updated()
        if new_scale is not None:
            record.set_scale(new_scale)
        record.updates += 1
        self.updates += 1
        self._sink.round(record, skipped)
        record.word = 0
        self._endings.updated(record, skipped)
        self._look_at_scale(record, place)
        if record.updates == _SETTLED and self.regions.dtypes == {torch.bfloat16}:
            self.report("bfloat16-with-scaler", record.place, record)

    # -- optimizers

    def before_plain_step(self, optimizer: Any, has_closure: bool) -> None:
        """`optimizer.step()` is about to run."""
        stepping = self.thread.stepping
        if stepping is not None:
            stepping.ran = True
            return
        known = self.objects.optimizer(optimizer)
        known.steps += 1
        self.plain_steps += 1
        if self.has_scaler and not has_closure:
            self._plain_step(known)
        if known.set is not None and not has_closure:
            self.regions.stepped(known.set, self.place())
        self._sink.stepped()

    def after_plain_step(self, optimizer: Any, has_closure: bool) -> None:
        """It has ended: with a closure, its backwards have come before what it did."""
        if not self.has_scaler or self.thread.stepping is not None:
            return
        known = self.objects.optimizer(optimizer)
        if has_closure:
            self._plain_step(known)
        elif known.set is not None and known.set.owner == get_ident():
            known.set.note()  # some optimizers change gradients in place

    def _plain_step(self, known: OptimizerRecord) -> None:
        place = self.place()
        gradients = self._claim(known)
        self._follow(gradients, place)
        # Gradients that no scaler ever met are nobody's business, beside an idle scaler.
        self._apply(Event.OPTIMIZER_STEP, None, gradients, place)
        gradients.trail.append(("optimizer.step", place))

    def zero_grad(self, optimizer: Any, keep: bool) -> None:
        """`optimizer.zero_grad()` has returned; with `keep`, of `set_to_none=False`."""
        known = self.objects.optimizer(optimizer)
        if self.has_scaler:
            self._cleared(self._claim(known), keep)

    def module_zero_grad(self, parameters: Callable[[], Iterable[Any]]) -> None:
        """`module.zero_grad()` has returned; sets that have no gradient now are seen later."""
        if not self.has_scaler:
            return
        here = get_ident()
        changed = [
            gradients
            for gradients in self.objects.sets()
            if self._may_look(gradients, here) and gradients.witness_moved()
        ]
        if not changed:
            return
        cleared = {id(parameter) for parameter in parameters()}
        for gradients in changed:
            if all(id(parameter) in cleared for parameter in gradients.parameters):
                self._cleared(gradients, keep=True)

    def _cleared(self, gradients: GradientSet, keep: bool) -> None:
        event = Event.ZERO_GRAD_KEEP if keep else Event.ZERO_GRAD
        place = self.place()
        self._apply(event, None, gradients, place)
        gradients.trail.append(("zero_grad", place))
        gradients.note()

    def before_clip(self, parameters: Sequence[Any], bound: Any) -> list[GradientSet]:
        """Gradients of these parameters are about to be clipped at a norm or a value."""
        if not self.has_scaler or self.thread.stepping is not None:
            return []
        limit = float(bound) if isinstance(bound, (int, float)) else None
        sets = self.objects.sets_of(parameters)
        if limit == float("inf"):
            return sets  # the norm alone was wanted
        place = self.place()
        for gradients in sets:
            if gradients.owner not in (None, get_ident()):
                continue
            self._follow(gradients, place)
            record = self._partner(gradients)
            if record is not None and not _is_meant(limit, record):
                self._apply(Event.CLIP, None, gradients, place, bound=limit)
            elif record is not None and gradients.was_edited():
                self._tracker.forget(gradients.number)  # divided by hand, so it fits after all
            gradients.trail.append(("clip", place))
            if record is not None:
                self._add(record, "clip", place)
        return sets

    def after_clip(self, sets: list[GradientSet]) -> None:
        """It has ended."""
        for gradients in sets:
            gradients.note()

    def replayed(self) -> None:
        """A captured graph has run: it may have written any gradient, and moves no version.

        Inside a backward that is an event itself, its end says what it has brought.
        """
        for gradients in self.objects.sets():
            number = gradients.number
            if gradients.feeder is None and self._tracker.gradient(number) not in ABSENT:
                self._tracker.forget(number)

    # -- states

    def _apply(
        self,
        event: Event,
        record: ScalerRecord | None,
        gradients: GradientSet,
        place: Place,
        **facts: Any,
    ) -> None:
        """Move a set by an event that is about its gradients alone."""
        scaler = record.number if record is not None else None
        violation = self._tracker.apply(event, scaler, gradients.number)
        if gradients.feeder is not None or gradients.overlaps:
            self._tracker.forget(gradients.number)
            return
        partner = (record or self._partner(gradients)) if violation is not None else None
        if violation is not None and partner is not None:
            self._judge(violation, place, partner, gradients, **facts)

    def _judge(
        self,
        violation: Violation,
        place: Place,
        record: ScalerRecord,
        gradients: GradientSet,
        **facts: Any,
    ) -> None:
        """Tell a broken rule, if it has done what it says: not at a loss scale of 1."""
        if violation.slug == "stale-scale":
            if gradients.scale is None or gradients.scale == record.scale:
                return
            facts["was"] = gradients.scale
        elif record.scale == 1.0 and violation.slug not in _WITHOUT_SCALE:
            return
        if gradients.was_edited():
            self._tracker.forget(gradients.number)
            return
        self.report(violation.slug, place, record, gradients, **facts)

    def _follow(self, gradients: GradientSet, place: Place) -> None:
        """Notice gradients that came, went or were changed without an event."""
        present, is_changed = gradients.look()
        if self._tracker.observe(gradients.number, present=present):
            gradients.trail.append(("gradients gone", place))
        elif present and is_changed:
            self._tracker.forget(gradients.number)
            gradients.note()

    def _claim(self, known: OptimizerRecord) -> GradientSet:
        """The set of an optimizer, which this thread is about to use."""
        gradients = known.set
        if gradients is None:
            raise LookupError("an optimizer without a set")
        if known.shared is not gradients:
            known.shared = gradients
            self._tracker.share(known.number, gradients.number)
        gradients.owner = get_ident()
        return gradients

    def _may_look(self, gradients: GradientSet, here: int) -> bool:
        """Whether this thread may ask for gradients; the only one takes what nobody has."""
        if gradients.owner is None and len(self._threads) <= 1:
            gradients.owner = here
        return gradients.owner == here

    def _partner(self, gradients: GradientSet) -> ScalerRecord | None:
        number = self._tracker.partner(gradients.number)
        return self._scaler(number) if isinstance(number, int) else None

    def _scaler(self, number: int) -> ScalerRecord | None:
        return self.objects.scaler_of(number) if number else None

    def _add(self, record: ScalerRecord, kind: str, place: Place) -> None:
        record.word = zlib.crc32(_BYTES[kind], record.word)
        if self.tell_call is not None:
            self.tell_call(record.number, kind, place)

    def _look_at_partner(self, record: ScalerRecord, known: OptimizerRecord) -> None:
        before, known.scaler = known.scaler, record
        if before is None or before is record or before.place != record.place:
            return
        if before.scale != record.scale and None not in (before.scale, record.scale):
            self.report("scaler-recreated", record.place, record, known.set, was=before.scale)

    def _look_at_foreign(self, record: ScalerRecord, gradients: GradientSet, place: Place) -> None:
        """Gradients that one scaler has multiplied are about to be divided by another's scale."""
        was, now = gradients.scale, record.scale
        if was == now or was is None or now is None or self._partner(gradients) is record:
            return
        if self._tracker.gradient(gradients.number) is Gradient.SCALED:
            self.report("foreign-scaler", place, record, gradients, was=was)

    def _look_at_scale(self, record: ScalerRecord, place: Place) -> None:
        scale = record.scale
        if scale is None:
            return
        if scale <= _COLLAPSED:
            self.report("scale-collapsed", place, record)
        elif record.skips_in_a_row >= _NEVER and scale <= _LOW:
            self.report("never-finite", place, record)


#: What the word of a round is a hash of.
_BYTES = {kind: kind.encode() for kind in ("scale", "backward", "unscale_", "clip", "step")}
#: Broken rules that do their damage at a loss scale of 1, too.
_WITHOUT_SCALE = frozenset(
    {
        *("step-on-zeros", "clip-of-spent", "optimizer-step-bypass", "optimizer-step-twice"),
        *("unscale-without-gradient", "unscale-after-zero-grad"),
    }
)
#: 1/scale is infinite in float32 from here on: NaN reaches the weights unchecked (P13b, P13c).
_COLLAPSED = 2.0**-128
#: After so many updates the dtype of the regions says what the scaler is for.
_SETTLED = 3
#: So many skips in a row, at a scale no higher than this, do not end well by themselves.
_NEVER, _LOW = 20, 16.0


def _is_meant(bound: float | None, record: ScalerRecord) -> bool:
    """Whether a threshold was multiplied by the loss scale, so that it fits scaled gradients."""
    if bound is None or not record.scale or record.scale <= 1.0:
        return bound is None
    has_asked = record.asked_at >= record.updates
    return bound >= record.scale or (has_asked and bound / record.scale > _MEANT)


def _is_fused(known: OptimizerRecord) -> bool:
    """Whether the kernel itself skips: then nobody knows until the device is asked."""
    return bool(getattr(known.object(), "_step_supports_amp_scaling", False))
