"""What a run shows, and what keeps it from proving anything.

`confirmed` must never be false. A run shows a finding only if it matches the prediction and
the protocol explains it from the run's events; every approximation that was made on the way
is a doubt, and one doubt is enough for `conditional`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from amplint.expectations import HALF_GRADIENTS, SCALE_DEPENDENT, Expectation
from amplint.findings import Finding
from amplint.probe.doubts import OWNERS, REPEATED, SECOND_CALL, UNSTEADY, About, kinds_about
from amplint.probe.explanation import Broken, broken_rules, protocol_events
from amplint.probe.inputs import against_data
from amplint.probe.measurements import MEASURES, Difference, Place, difference, repeats
from amplint.probe.messages import (
    Decision,
    Event,
    Handed,
    Note,
    Omission,
    Prediction,
    Raised,
    Request,
    RunResult,
)
from amplint.probe.modules import is_observer, is_optimizer, makes_schedules
from amplint.probe.planning import PlanBuilder
from amplint.probe.predictions import expectations, rows_of, slugs_of
from amplint.probe.scales import SMALL_SCALE, Scales
from amplint.probe.search import Budget, Trial
from amplint.probe.traces import (
    clears,
    has_half_weights_only,
    has_model_of_ours,
    has_scaler,
    is_in_first_call,
    is_never_fed,
    is_second_call,
    keeps_its_scalers,
    may_be_the_same,
    owners,
    shares_invented_parameters,
    stepped,
    steps_before_a_second_call,
    steps_what_it_scaled,
)

#: What is measured of all steps of a training: some steps are not enough.
_ABOUT_ALL_STEPS = frozenset({"idle-scaler", "idle-clip", "no-gradient"})
#: What is measured of events only: who is built, and in which region something runs.
_ABOUT_EVENTS = frozenset({"rebuilt", "in-region"})
#: What is the same whatever a loss hangs on, if it reaches what an optimizer owns.
_ABOUT_ANY_LOSS = frozenset({"unscaled", "shortened", "swallowed"})
#: Codes about a value that is missing: they show at the first use of a scaler, before any
#: backward could have run.
_WITHOUT_BACKWARD = frozenset({"AMP202"})
#: Violations by gradients that should have been cleared, which a caller or a hook may do.
_ABOUT_LEFTOVERS = frozenset({"step-on-piled", "step-on-spent"})
#: Failures that only depend on which calls of a scaler ran, and in which order: torch raises
#: them before it looks at the optimizer's class or at a gradient.
_BY_ORDER = frozenset(
    {
        *("step-twice", "unscale-twice", "unscale-after-step"),
        *("step-uninitialised", "unscale-uninitialised", "update-uninitialised"),
    }
)
#: Notes of a run about the way from a loss to what an optimizer owns.
_ABOUT_WAYS = kinds_about(About.WAY)
#: Notes of a run about how large gradients are, but not whether there are any.
_ABOUT_SIZES = kinds_about(About.SIZE)
#: Notes of a run about statements inside models and data sets: what a loss is made of.
_INSIDE = frozenset({"skipped-in-part", "assertion-in-part"})
#: Notes of a run about optimizers and gradients.
_ABOUT_GRADIENTS = kinds_about(About.WAY, About.SIZE, About.GRADIENT)
#: How the worker calls functions that nobody has, and that a loss may hang on.
OTHER_SOURCES = "the functions that the loss comes from"
#: Codes about gradients that are scaled when they are applied.
_APPLIES_SCALED = frozenset({"AMP112"})
#: What Python says of arguments that a function does not have, or lacks.
_FORM = re.compile(r"^TypeError: .*(unexpected keyword argument|required positional argument)")
#: Exceptions about the probe's own objects, as `type(x)(1)` gives for an unknown `x`.
_OWN_WORDS = re.compile(r"\b(?:StandIn\w*|SoftTensor|SoftSize|TinyModel)\b")
#: What a function must have received, itself or in an object, to call a scaler.
_CAN_CALL = frozenset({"scaler"})
_ACTS = re.compile(r"backward|optimi[sz]|train|update|step|scale", re.IGNORECASE)
#: Codes about which parameters are trained: of a stand-in for a model, all are.
_ABOUT_PARAMETERS = frozenset({"AMP124", "AMP301", "AMP305", "AMP401", "AMP403", "AMP405"})
#: Codes about the dtype of weights, which whoever gets a model of a library may change.
_ABOUT_DTYPES = frozenset({"AMP401", "AMP403", "AMP405", "AMP406"})
#: What a counterfactual run leaves out of the way from the loss to what is trained.
_CUTS = frozenset({"grad-modes", "copies"})
#: Codes about which losses share a graph: a stand-in for the model cannot tell.
_ABOUT_GRAPHS = frozenset({"AMP123"})


#: Characters of torch's text that are always printed.
MESSAGE = 120
_OF_THE_PROTOCOL = Expectation("gradients")


@dataclass(frozen=True, slots=True)
class Shown:
    """What a run showed of a finding.

    Args:
        words: the exception, or the measured damage.
        row: where.
        doubts: why this does not prove the finding; empty where nothing is left.
        artefact: the events do not explain it: the stand-ins are to blame, not the code.
        filename: where, if it is another file than the checked one.
        cure: what a counterfactual run left out, so that this failure was gone.
        step: how many optimizer steps the run had made when it showed; None where it is not seen
            in steps.
    """

    trial: Trial
    prediction: Prediction
    words: str
    row: int
    doubts: tuple[Note, ...] = ()
    artefact: bool = False
    filename: str = ""
    cure: Omission | None = None
    step: int | None = None

    @property
    def proves(self) -> bool:
        """Whether nothing speaks against it so far."""
        return not self.doubts and not self.artefact

    def precedes(self, decision: Decision) -> bool:
        """Whether something was decided after the step in which it showed: it is not needed."""
        return self.step is not None and decision.after > self.step


class Judge:
    """Looks at the runs of one finding.

    Args:
        finding: what the static analysis says.
        builder: of the file, for what its source says.
        budget: for the further runs that a measurement needs.
    """

    def __init__(self, finding: Finding, builder: PlanBuilder, budget: Budget) -> None:
        self._finding = finding
        self._builder = builder
        self._path = builder.path
        self._budget = budget
        self._expectations = expectations(finding.code)
        self._slugs = slugs_of(finding.code)
        self._place = Place(self._path, frozenset(rows_of(finding)), budget)
        self._scales = Scales(budget)
        #: Entries that have repeated themselves.
        self._steady: set[tuple[int, str]] = set()
        self._rows = {
            finding.span.start.row,
            *(step.row for step in finding.path if step.filename == finding.filename),
        }

    def look(self, trial: Trial) -> Shown | None:
        """What a run shows; None for nothing.

        Raises:
            BudgetSpent: a measurement needed more runs than are left.
        """
        with self._budget.whole():
            return self._look(trial)

    def _look(self, trial: Trial) -> Shown | None:
        artefact = None
        for prediction, expected in zip(trial.plan.predictions, self._expectations):
            if prediction.kind == "raises":
                shown = self._raised(trial, prediction, expected)
            elif prediction.kind == "gradients":
                shown = self._scale_dependent(trial, prediction)
            else:
                shown = self._measured(trial, prediction, expected)
            if shown is not None and not shown.artefact:
                return shown
            artefact = artefact or shown
        return artefact

    # -- gates 1 and 2: match and explanation --------------------------------------------------

    def _raised(self, trial: Trial, prediction: Prediction, expected: Expectation) -> Shown | None:
        raised = trial.result.raised
        if raised is None or raised.type not in prediction.exception.split("|"):
            return None
        if not re.search(prediction.pattern, raised.message) or _OWN_WORDS.search(raised.message):
            return None
        row = self._row_of(raised, prediction)
        if row is None and not (expected.without and expected.anywhere):
            return None
        if expected.anywhere and not trial.reached:
            return None
        if not _is_torchs(raised) and not (expected.without or expected.relies_on == "place"):
            return None
        words = f"{raised.type}: {_first_line(raised.message)}"
        broken = broken_rules(trial.result.events)
        by_order = bool(expected.slugs and broken) and broken[-1].slug in _BY_ORDER
        form = _FORM.search(words) is not None and self._builder.names_arguments(row or raised.row)
        doubts = tuple(self._doubts(trial, expected, by_order=by_order, by_form=form))
        elsewhere = raised.filename if raised.filename != self._path else ""
        shown = Shown(trial, prediction, words, row or raised.row, doubts, filename=elsewhere)
        if expected.without and not self._is_gone_without(trial, expected):
            other = Note("only-cause", row=min(rows_of(self._finding)))
            return replace(shown, doubts=(*doubts, other))
        if expected.without:
            cure = self._place.omission(expected.without, everywhere=expected.everywhere)
            shown = replace(shown, cure=cure)
            cuts = expected.without in _CUTS
            if cuts and not self._is_whatever_is_trained(trial):
                return replace(shown, doubts=(*doubts, Note("trained")))
            return shown
        if expected.cause and not any(
            b.slug == expected.cause and self._is_here(b, trial) for b in broken
        ):
            return None
        explained = (
            _explains(broken, trial.result, expected)
            if expected.slugs
            else self._explained_without_protocol(trial.result)
        )
        return shown if explained else replace(shown, artefact=True)

    def _row_of(self, raised: Raised, prediction: Prediction) -> int | None:
        """The row of the checked file on the way to an exception that is the predicted one."""
        rows = raised.rows_of(self._path)
        if prediction.rows:
            return next((row for row in rows if row in prediction.rows), None)
        return rows[0] if rows else None

    def _is_gone_without(self, trial: Trial, expected: Expectation) -> bool:
        """Whether the same run gets past the place where it failed if the rows do nothing."""
        raised = trial.result.raised
        assert raised is not None
        other = self._place.without(trial, expected.without, everywhere=expected.everywhere)
        if other.status not in ("returned", "raised", "stopped"):
            return False
        again = other.raised
        return again is None or (
            again.type != raised.type
            or again.message != raised.message
            or (again.filename, again.row) != (raised.filename, raised.row)
        )

    def _is_whatever_is_trained(self, trial: Trial) -> bool:
        """Whether it is the same if everything that was invented for inputs is trained."""
        raised = trial.result.raised
        other = self._budget.run(replace(trial.request, trainable_inputs=True)).raised
        return (
            raised is not None
            and other is not None
            and (other.type, other.filename, other.row)
            == (raised.type, raised.filename, raised.row)
        )

    def _is_here(self, broken: Broken, trial: Trial) -> bool:
        """Whether an event stands where the finding does."""
        return self._row_here(broken.event) in trial.plan.target_rows

    def _row_here(self, event: Event) -> int:
        """The row of the checked file on which something happened, or that led there."""
        return event.row if event.filename == self._path else int(event.facts.get("through", 0))

    def _explained_without_protocol(self, result: RunResult) -> bool:
        assert result.raised is not None
        if self._finding.code == "AMP202":
            return (
                re.search(
                    r"attribute '(scale|step|update|unscale_|get_scale|state_dict|is_enabled)'",
                    result.raised.message,
                )
                is not None
            )
        if self._finding.code == "AMP123":
            return any(e.kind == "backward" and not e.facts.get("raised") for e in result.events)
        return _is_torchs(result.raised) or self._finding.code == "AMP209"

    # -- what raises nothing -------------------------------------------------------------------

    def _measured(
        self, trial: Trial, prediction: Prediction, expected: Expectation
    ) -> Shown | None:
        found = MEASURES[expected.kind](trial, expected, self._place)
        if found is None:
            return None
        if expected.kind == "rebuilt" and self._builder.is_given_a_scale(found.row):
            return None  # it may be the one that was learned
        made = (
            doubt
            for doubt in self._doubts(trial, expected)
            if found.step is None or doubt.after <= found.step
            # What a first call does, no second one changes.
            if doubt != SECOND_CALL or not is_in_first_call(trial.result, found.step)
        )
        doubts = (*made, *self._open(found.doubts, trial))
        if expected.kind == "applied-nan" and self._builder.is_sparse:
            doubts = (*doubts, Note("sparse"))
        return Shown(trial, prediction, found.words, found.row, doubts, step=found.step)

    def _open(self, doubts: Iterable[Note], trial: Trial) -> Iterator[Note]:
        """The doubts of a measurement that no caller's text clears."""
        for doubt in doubts:
            is_repeated = doubt == REPEATED and self._builder.is_repeated(
                trial.plan, stepped(trial)
            )
            if not is_repeated:
                yield doubt

    # -- gate 3: the metamorphic test ----------------------------------------------------------

    def _scale_dependent(self, trial: Trial, prediction: Prediction) -> Shown | None:
        """Whether gradients that reach an optimizer change with the initial loss scale."""
        cause = self._silent_cause(trial.result)
        if cause is None or not trial.result.steps:
            return None
        measured = self._scales.differing(trial)
        if measured is None:
            return None
        larger, result, found = measured
        settled = set(self._settled(trial, cause, larger, found))
        doubts = [doubt for doubt in self._doubts(trial) if doubt not in settled]
        entry = trial.plan.entry_source, trial.plan.entry
        if entry not in self._steady:
            if not repeats(result, self._budget.run_again(larger)):
                doubts.append(UNSTEADY)
            else:
                self._steady.add(entry)
        if cause.slug in _ABOUT_LEFTOVERS and not clears(trial):
            doubts.append(Note("not-cleared"))
        earlier = self._earlier_cause(trial.result, cause)
        if earlier is not None:
            doubts.append(Note("earlier-misuse", row=earlier.event.row))
        words = (
            f"a gradient norm of {found.before:.3g} at the step in line {found.row} becomes "
            f"{found.after:.3g} when the loss scale is {larger.init_scale:g} instead of {SMALL_SCALE:g}"
        )
        return Shown(trial, prediction, words, found.row, tuple(doubts), step=found.step)

    def _settled(
        self, trial: Trial, cause: Broken, larger: Request, found: Difference
    ) -> Iterator[Note]:
        """Doubts that do not matter for what is measured.

        A loop that is left after the step changes nothing in it. A clip between the only backward,
        a scaled one, and the step of a scaler: that refuses an optimizer without gradients, and all
        that there are are scaled. Through what they came makes no difference. And what a first call
        does, no second one changes.
        """
        result = trial.result
        yield from (note for note in result.notes if note.after > found.step)
        if cause.slug == "clip-of-scaled":
            # An optimizer that unscales by itself does so after the clip.
            yield Note("scales-itself")
            if steps_what_it_scaled(result, cause):
                yield from (note for note in result.notes if note.kind in _ABOUT_WAYS | _INSIDE)
        small, large = (
            replace(run, steps=run.steps[:1])
            for run in map(self._budget.run, (replace(larger, init_scale=SMALL_SCALE), larger))
        )
        if steps_before_a_second_call(result) and difference(small, large) is not None:
            yield SECOND_CALL

    def _silent_cause(self, result: RunResult) -> Broken | None:
        return next(
            (
                broken
                for broken in broken_rules(result.events)
                if broken.slug in self._slugs & SCALE_DEPENDENT
                and self._row_here(broken.event) in self._rows
            ),
            None,
        )

    def _earlier_cause(self, result: RunResult, cause: Broken) -> Broken | None:
        return next(
            (
                broken
                for broken in broken_rules(result.events)
                if broken.slug in SCALE_DEPENDENT
                and broken.index < cause.index
                and broken.event.row not in self._rows
            ),
            None,
        )

    # -- gates 4 and 5: the ledger -------------------------------------------------------------

    def _doubts(
        self,
        trial: Trial,
        expected: Expectation = _OF_THE_PROTOCOL,
        *,
        by_order: bool = False,
        by_form: bool = False,
    ) -> Iterator[Note]:
        """Why a run may show what the code does not do.

        Args:
            by_order: what is shown depends on no optimizer and no gradient.
            by_form: nor on the value of anything.
        """
        result = trial.result
        by_events = by_order or by_form or expected.kind in _ABOUT_EVENTS | {"unscaled"}
        skipped = [s for s in result.skipped if not (by_events and s.apart)]
        for statement in skipped[:3]:
            yield Note("skipped", row=statement.row, detail=statement.reason)
        for row in filter(None, map(against_data, result.decisions)):
            yield Note("data", row=row)
        yield from (note for note in result.notes if note.kind == "on-gpu")
        if expected.relies_on == "place":
            return
        own = by_order and keeps_its_scalers(result)
        for call in result.opaque:
            if call.kinds == ("weights",) and self._finding.code not in _ABOUT_DTYPES:
                continue
            if by_order and (own or not _may_call_a_scaler(call)):
                continue
            schedules = call.kinds == ("optimizer",) and makes_schedules(call.name)
            if not schedules and not is_observer(call.name):
                yield Note("untouched", call.name, call.row)
        any_gradient = by_order or self._takes_any_gradient(trial, expected)
        all_half = expected.pattern == HALF_GRADIENTS[1] and has_half_weights_only(result)
        for note in result.notes:
            # Something unknown that scales may be a scaler.
            scales = note.subject.endswith(".scale")
            if any_gradient and note.kind in _ABOUT_GRADIENTS and not scales:
                continue
            if note.kind == "small-layers" and _ignores_sizes(expected):
                continue
            if note.kind == "optimizer-class" and self._is_known(note.subject, trial):
                continue
            if expected.kind == "gradients" and note.kind in _ABOUT_SIZES:
                continue
            # Whatever a loss hangs on: nothing has scaled it, and a clip shortens what comes of it.
            any_loss = expected.kind in _ABOUT_ANY_LOSS or all_half
            if any_loss and note.kind in _ABOUT_WAYS | _ABOUT_SIZES | _INSIDE:
                continue
            # Whatever else a loss hangs on: what an optimizer owns is not among it.
            if expected.kind == "no-gradient" and note.subject == OTHER_SOURCES:
                continue
            yield note
        counted = self._builder.rows_by_counter.intersection(result.rows)
        if expected.kind in _ABOUT_ALL_STEPS and counted:
            yield Note("some-epochs", row=min(counted))
        filtered = self._builder.rows_that_filter.intersection(result.rows)
        if filtered and self._finding.code in _ABOUT_PARAMETERS and has_model_of_ours(result):
            yield Note("filter", row=min(filtered))
        if trial.plan.calls > 1 and is_second_call(trial):
            yield SECOND_CALL
        if expected.relies_on == "protocol":
            yield from self._doubts_about_the_protocol(trial, by_order)

    def _is_known(self, optimizer: str, trial: Trial) -> bool:
        """Whether an optimizer is known to be torch's, by its class or by who passes it."""
        return is_optimizer(optimizer) or self._builder.is_passed_optimizer(trial.plan, optimizer)

    def _takes_any_gradient(self, trial: Trial, expected: Expectation) -> bool:
        """Whether an optimizer takes gradients as they are, where every loss was scaled.

        Then it is the same for all of them, whatever class the optimizer has.
        """
        backwards = [event for event in trial.result.events if event.kind == "backward"]
        return (
            expected.kind == "gradients"
            and self._finding.code in _APPLIES_SCALED
            and all(event.facts.get("scaled") for event in backwards)
        )

    def _doubts_about_the_protocol(self, trial: Trial, by_order: bool) -> Iterator[Note]:
        result = trial.result
        same = may_be_the_same(result)
        if same:
            yield Note("different-scalers", " and ".join(f"`{path}`" for path in same))
        for name, row in self._builder.calls_with(owners(trial)):
            if row in result.rows:
                yield Note("untouched", name, row)
        if not by_order:
            yield from self._doubts_about_gradients(trial)
        if self._finding.code in _ABOUT_GRAPHS and has_model_of_ours(result):
            yield Note("graphs")
        if self._finding.code in _WITHOUT_BACKWARD:
            return
        if any(event.kind == "backward" for event in result.events):
            return
        if not self._builder.builds_scaler_here(result.events, self._finding.span.start.row):
            yield Note("no-backward")

    def _doubts_about_gradients(self, trial: Trial) -> Iterator[Note]:
        if any(expected.kind == "unscaled" for expected in self._expectations):
            touched = self._builder.touched_gradients
            if touched:
                yield Note("by-hand", row=touched)
        built = (event for event in trial.result.events if event.kind == "optimizer")
        classes = dict.fromkeys(str(event.facts["class"]) for event in built)
        steps = (self._builder.touched_in_step(name, trial.plan) for name in classes)
        for row in filter(None, steps):
            yield Note("by-hand", row=row)
        by_hand = self._builder.rows_by_hand.intersection(trial.result.rows)
        if by_hand:
            yield Note("by-hand", row=min(by_hand))
        if self._builder.may_scale_itself and has_scaler(trial.result):
            yield Note("scales-itself")
        if is_never_fed(trial):
            yield Note("never-fed")
        if shares_invented_parameters(trial):
            yield OWNERS

    # -- gate 7: the control -------------------------------------------------------------------

    def controlled(self, shown: Shown, trials: list[Trial]) -> bool:
        """Whether the same stand-ins also get past the line, under some inputs.

        Either a call of the same kind on the same objects succeeded earlier in the run, or
        another run passed the line, or this one does with every scaler disabled.

        Raises:
            BudgetSpent: no run was left for the last of them.
        """
        if shown.prediction.kind != "raises":
            return True  # a second run, or the event itself, is its control
        expected = next(
            e
            for e in self._expectations
            if e.pattern == shown.prediction.pattern and e.exception == shown.prediction.exception
        )
        if expected.without or expected.relies_on == "place":
            return True  # the counterfactual run got past it; wrong arguments are wrong always
        if self._succeeded_before(shown.trial.result):
            return True
        if any(self._passes(trial.result, shown) for trial in trials):
            return True
        # Past the line is far enough: in the round after the one that failed.
        rounds = len(shown.trial.result.steps) + 2
        disabled: Request = replace(shown.trial.request, enabled=False, most_steps=rounds)
        return self._passes(self._budget.run(disabled), shown)

    def ignores_sizes(self, shown: Shown | None) -> bool:
        """Whether what a run shows, or else all that is looked for, depends on no size of a layer."""
        if shown is None:
            return all(map(_ignores_sizes, self._expectations))
        looked_for = zip(shown.trial.plan.predictions, self._expectations)
        return all(
            _ignores_sizes(e) for prediction, e in looked_for if prediction == shown.prediction
        )

    def is_about_form(self, shown: Shown) -> bool:
        """Whether it is the names and the number of a call's arguments that torch refuses: then
        no value of anything makes a difference, as long as the text names them all."""
        return _FORM.search(shown.words) is not None and self._builder.names_arguments(shown.row)

    def is_past(self, results: Iterable[RunResult], shown: Shown) -> bool:
        """Whether any of some runs gets past the line."""
        return any(self._passes(result, shown) for result in results)

    def _succeeded_before(self, result: RunResult) -> bool:
        events = protocol_events(result.events)
        if not events:
            return False
        failed = events[-1]
        return any(
            event.kind == failed.kind
            and (event.scaler, event.optimizer) == (failed.scaler, failed.optimizer)
            and not event.facts.get("raised")
            for event in events[:-1]
        )

    @staticmethod
    def _passes(result: RunResult, shown: Shown) -> bool:
        if shown.row not in result.rows or result.status not in ("returned", "raised", "stopped"):
            return False
        return result.raised is None or shown.row not in _rows_on_the_way(result, shown)


def _ignores_sizes(expected: Expectation) -> bool:
    """Whether something depends on no size of a layer: a place, or what torch refuses anyway."""
    return not expected.shapes and (expected.relies_on == "place" or expected.kind == "raises")


def _rows_on_the_way(result: RunResult, shown: Shown) -> tuple[int, ...]:
    assert result.raised is not None
    return result.raised.rows_of(shown.trial.plan.sources[0].filename)


def _may_call_a_scaler(call: Handed) -> bool:
    return not _CAN_CALL.isdisjoint(call.kinds) or bool(_ACTS.search(call.name.rpartition(".")[2]))


def _explains(broken: tuple[Broken, ...], result: RunResult, expected: Expectation) -> bool:
    """Whether the last event of a run breaks a rule that entails the exception."""
    assert result.raised is not None
    if not broken:
        return False
    last = broken[-1]
    return (
        last.slug in expected.slugs
        and last.violation.exception == result.raised.type
        and last.event.row == result.raised.row
        and last.index == len(protocol_events(result.events)) - 1
    )


def _is_torchs(raised: Raised) -> bool:
    """Whether torch raised it, or Python about a None that stands for a scaler."""
    return raised.inside.startswith("torch") or raised.type == "AttributeError"


def _first_line(message: str) -> str:
    """The first sentence or line of what torch says; hints follow after two spaces."""
    line = message.strip().split("\n")[0].split("  ")[0].strip()
    return line if len(line) <= MESSAGE else line.split(". ")[0]
