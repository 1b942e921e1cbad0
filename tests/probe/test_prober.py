"""The gates of a confirmation, one by one, with runs that are made up.

Each case changes one thing of a run that would be confirmed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from amplint.config import Settings
from amplint.findings import Evidence, Finding, Position, Severity, Span
from amplint.probe.confirmation import plan_builder
from amplint.probe.dependence import LAST, needs
from amplint.probe.doubts import SECOND_CALL, in_words
from amplint.probe.inputs import Need
from amplint.probe.messages import (
    Decision,
    Event,
    Handed,
    Note,
    Plan,
    Raised,
    Request,
    RunResult,
    Skipped,
    Source,
)
from amplint.probe.prober import Prober
from amplint.probe.search import Budget, BudgetSpent, Trial

from .scripted import ROW, SOURCE, TWICE, missing_update, prepare, round_of

Change = Callable[[RunResult, str], RunResult]

#: A stand-in for an optimizer of an unknown class.
UNRESOLVED = Note("optimizer-class", "Lion")


def probe(folder: Path, change: Change | None = None, source: str = SOURCE) -> Evidence:
    finding, builder, path = prepare(folder, source)

    def run(request: Request) -> RunResult:
        result = missing_update(request, path)
        return change(result, path) if change is not None else result

    return Prober(builder, run, runs=60, seconds=30.0, torch="2.13.0").probe(finding).evidence


def test_confirmed(tmp_path: Path) -> None:
    evidence = probe(tmp_path)
    assert evidence.status == "confirmed"
    assert evidence.device == "cpu"
    assert evidence.kind == "own-code"
    assert evidence.assumptions == ()
    assert evidence.detail == (
        "ran `train` with torch 2.13.0 on cpu: `RuntimeError: step() has already been called "
        "since the last update().` at line 7; needs 2 batches"
    )


def when_raised(**changes: object) -> Change:
    """Change the runs that raise, and no others."""
    return lambda result, _: replace(result, **changes) if result.raised else result  # type: ignore[arg-type]


def raised_as(**changes: object) -> Change:
    def change(result: RunResult, _: str) -> RunResult:
        if result.raised is None:
            return result
        return replace(result, raised=replace(result.raised, **changes))  # type: ignore[arg-type]

    return change


@pytest.mark.parametrize(
    ("change", "status"),
    [
        # 1: the exception, its words, its place and where it comes from have to match
        (raised_as(type="ValueError"), "not-reproduced"),
        (raised_as(message="something else"), "not-reproduced"),
        (raised_as(row=5), "not-reproduced"),
        (raised_as(filename="/elsewhere.py"), "not-reproduced"),
        (raised_as(inside="user"), "not-reproduced"),
        # 2: the events have to explain it
        (lambda r, p: replace(r, events=round_of(p, raises=True)), "inconclusive"),
        (
            lambda r, p: replace(
                r,
                events=(*round_of(p), Event("update", p, 8, 1), *round_of(p, raises=True)),
            ),
            "inconclusive",
        ),
        # 4: nothing of the run may be a guess
        (when_raised(skipped=(Skipped(5, "TypeError"),)), "conditional"),
        (when_raised(opaque=(Handed("utils.cancel_gradients", 5),)), "conditional"),
        (when_raised(notes=(Note("scaler-class", "Mine"),)), "conditional"),
        # ... but the order of the scaler's calls is the same for every optimizer
        (when_raised(notes=(UNRESOLVED, Note("connected", "features"))), "confirmed"),
        # ... and nobody who gets a scaler is excused but by the module he comes from
        (when_raised(opaque=(Handed("loguru.logger.info", 5),)), "confirmed"),
        (when_raised(opaque=(Handed("logger.info", 5),)), "conditional"),
        (when_raised(opaque=(Handed("profile", 5, ("model", "loss")),)), "confirmed"),
        (when_raised(opaque=(Handed("build().scale", 5, ("loss",)),)), "conditional"),
        # ... and does not hang on a statement that no test before them reads
        (when_raised(skipped=(Skipped(5, "TypeError", apart=True),)), "confirmed"),
        (when_raised(skipped=(Skipped(5, "TypeError", True, ("x",)),)), "confirmed"),
        # ... unless a test does, and it has to come out as it did
        (when_raised(skipped=(Skipped(5, "TypeError", True, ("loader",)),)), "conditional"),
        # ... unless something unknown may have scaled
        (when_raised(notes=(Note("connected", "run.build().scale"),)), "conditional"),
        (when_raised(opaque=(Handed("build_lr_scheduler()", 5),)), "conditional"),
        (when_raised(opaque=(Handed("build_lr_scheduler()", 5, ("optimizer",)),)), "confirmed"),
        (when_raised(opaque=(Handed("scheduled_step()", 5),)), "conditional"),
        # nothing came to an end
        (lambda r, _: RunResult("timeout", "killed after 4 s"), "inconclusive"),
        (lambda r, _: RunResult("killed", "ended by signal SIGKILL"), "inconclusive"),
    ],
)
def test_gate(tmp_path: Path, change: Change, status: str) -> None:
    evidence = probe(tmp_path, change)
    if change is not None and status == "not-reproduced":
        # Where every run raises something else at the line, nothing got past it either.
        assert evidence.status in ("not-reproduced", "inconclusive")
    else:
        assert evidence.status == status, evidence
    assert (evidence.status == "conditional") == bool(evidence.assumptions)


CLEARED = """\
import torch

def train(model, optimizer, loader, scaler):
    for inputs in loader:
        scaler.scale(model(inputs).sum()).backward()
        optimizer.zero_grad()
        scaler.step(optimizer)
        scaler.update()
"""


@pytest.mark.parametrize(
    ("notes", "status"),
    [((), "confirmed"), ((UNRESOLVED,), "conditional")],
    ids=["known", "unresolved"],
)
def test_gate_4_missing_gradients_depend_on_the_optimizer(
    tmp_path: Path, notes: tuple[Note, ...], status: str
) -> None:
    finding, builder, path = prepare(tmp_path, CLEARED)
    events = (
        Event("scale", path, 5, 1),
        Event("forward", path, 5),
        Event("backward", path, 5, 1, 1, facts={"scaled": True, "optimizers": [1]}),
        Event("zero_grad", path, 6, 0, 1),
        Event("step", path, ROW, 1, 1, facts={"gradients": 0, "raised": "AssertionError"}),
    )
    message = "No inf checks were recorded for this optimizer."
    raised = Raised("AssertionError", message, "torch.amp", path, ROW)

    def run(request: Request) -> RunResult:
        if not request.enabled:
            return RunResult("returned", rows=(4, 5, 6, ROW), notes=notes)
        return RunResult("raised", raised=raised, events=events, rows=(4, 5, 6, ROW), notes=notes)

    prober = Prober(builder, run, runs=60, seconds=30.0, torch="2.13.0")
    assert prober.probe(finding).evidence.status == status


def test_gate_5_a_backward_has_to_be_seen(tmp_path: Path) -> None:
    def without_backward(result: RunResult, _: str) -> RunResult:
        events = tuple(event for event in result.events if event.kind != "backward")
        return replace(result, events=events)

    assert probe(tmp_path, without_backward).status != "confirmed"


CALLER = (
    SOURCE
    + """
def main(model, optimizer, loader, scaler):
    train(model, optimizer, loader[:1], scaler)
"""
)


def test_gate_6_a_caller_has_to_be_able_to(tmp_path: Path) -> None:
    """The function fails only with `flag`, which its only caller never passes."""

    def change(result: RunResult, path: str) -> RunResult:
        return result

    finding, builder, path = prepare(tmp_path, CALLER)

    def run(request: Request) -> RunResult:
        flag = request.assignment.get("scaler.flag", True)
        raises = request.plan.entry == "train" and flag
        result = missing_update(replace(request, enabled=raises), path)
        decisions = (
            ()
            if request.plan.entry == "main"
            else (Decision("scaler.flag", (True, False), flag, 6),)
        )
        return replace(result, decisions=decisions)

    prober = Prober(builder, run, runs=60, seconds=30.0, torch="2.13.0")
    evidence = prober.probe(finding).evidence
    assert evidence.status == "conditional"
    assert evidence.assumptions == ("a caller passes `scaler.flag` = True: none was seen to do it",)


def test_gate_6_a_caller_that_gets_past_the_line_is_a_doubt(tmp_path: Path) -> None:
    """By itself the function fails whatever it is given; run by its caller it never does."""
    finding, builder, path = prepare(tmp_path, CALLER)

    def run(request: Request) -> RunResult:
        raises = request.plan.entry == "train" and request.enabled
        result = missing_update(replace(request, enabled=raises), path)
        return replace(result, decisions=())

    prober = Prober(builder, run, runs=60, seconds=30.0, torch="2.13.0")
    evidence = prober.probe(finding).evidence
    assert evidence.status == "conditional"
    assert evidence.assumptions == ("`main` does not pass what prevents it",)


FLAGGED = SOURCE.replace("scaler):", "scaler, flag=False, steps=1):")
PARSED = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--flag", action="store_true")
parser.add_argument("--amp", action="store_true")
parser.add_argument("--steps", type=int, default=1)
args = parser.parse_args()
"""


@pytest.mark.parametrize(
    ("calls", "doubt"),
    [
        (("flag=True",), ""),
        (("flag=args.amp",), ""),
        (("flag=False", "flag=True"), ""),
        (("flag=args.amp, steps=args.steps",), ""),
        # every caller passes something else
        ((), "`flag` = True (default False)"),
        (("flag=False",), "`flag` = True (default False)"),
        (("flag=not args.amp, steps=3",), "`flag` = True (default False)"),
        (("flag=False, steps=1", "steps=args.steps"), "`flag` = True (default False)"),
        # no caller passes both, or nobody knows
        (("flag=True, steps=2", "steps=1"), "`flag` = True (default False) and `steps` = 1"),
        (("flag=choose()",), "`flag` = True (default False)"),
        (("flag=True, steps=count()",), "`steps` = 1 (its default)"),
        (("True, count()",), "`steps` = 1 (its default)"),
    ],
)
def test_gate_6_callers_that_no_run_gets_through(
    tmp_path: Path, calls: tuple[str, ...], doubt: str
) -> None:
    """The function fails with the flag, and only in single steps; its callers end early."""
    lines = [f"train(model, optimizer, loader, scaler, {call})" for call in calls or ("",)]
    finding, builder, path = prepare(tmp_path, FLAGGED + PARSED + "\n".join(lines) + "\n")

    def run(request: Request) -> RunResult:
        if request.plan.entry != "train":
            return RunResult("raised", raised=Raised("KeyError", "'x'", "user", path, 9))
        flag, steps = (request.assignment.get(name, False) for name in ("flag", "steps"))
        raises = bool(flag) and steps in (False, 1)
        result = missing_update(replace(request, enabled=request.enabled and raises), path)
        decisions = (
            Decision("flag", (False, True), flag, 4, "default"),
            Decision("steps", (1, 2), steps or 1, 4, "default"),
        )
        return replace(result, decisions=decisions)

    prober = Prober(builder, run, runs=60, seconds=30.0, torch="2.13.0")
    evidence = prober.probe(finding).evidence
    assert evidence.status == ("conditional" if doubt else "confirmed"), evidence
    if doubt:
        (assumption,) = evidence.assumptions
        assert assumption.startswith(f"a caller passes {doubt}")


def test_what_fails_in_the_function_is_tried_first_in_its_callers(tmp_path: Path) -> None:
    finding, builder, path = prepare(tmp_path, CALLER)
    asked: dict[str, dict[str, object]] = {}

    def run(request: Request) -> RunResult:
        asked.setdefault(request.plan.entry, request.assignment)
        nan = request.assignment.get("nan in forward 1", False)
        decision = Decision("nan in forward 1", (False, True), nan, 6)
        result = missing_update(replace(request, enabled=request.enabled and bool(nan)), path)
        return replace(result, decisions=(decision,))

    prober = Prober(builder, run, runs=60, seconds=30.0, torch="2.13.0")
    evidence = prober.probe(finding).evidence
    assert evidence.status == "confirmed", evidence
    assert asked == {"train": {}, "main": {"nan in forward 1": True}}


def test_a_run_that_is_known_is_not_repeated() -> None:
    runs = []

    def run(request: Request) -> RunResult:
        runs.append(request.init_scale)
        return RunResult("timeout" if request.init_scale == 2.0 else "returned")

    budget = Budget(run, runs=9, seconds=30.0)
    request = Request(Plan((), "train", ()))
    for scale in (1.0, 1.0, 2.0, 2.0, 1.0):
        budget.run(replace(request, init_scale=scale))
    budget.run_again(replace(request, init_scale=1.0))
    # What did not come to an end may come to one the next time.
    assert runs == [1.0, 2.0, 2.0, 1.0]


def test_gate_7_the_line_has_to_succeed_sometimes(tmp_path: Path) -> None:
    def always(result: RunResult, path: str) -> RunResult:
        """Raises at the first step already, whatever the inputs are."""
        return RunResult(
            "raised",
            raised=Raised(
                "RuntimeError",
                "step() has already been called since the last update().",
                "torch.amp",
                path,
                ROW,
            ),
            events=(*round_of(path, raises=True)[:3], *round_of(path, raises=True)),
            rows=(4, 5, 6, ROW),
        )

    assert probe(tmp_path, always).status != "confirmed"


@pytest.mark.parametrize(
    ("launch", "status"),
    [("fire.Fire(train)", "confirmed"), ("kit.start(train)", "conditional")],
)
def test_who_gets_a_function_calls_it_with_what_he_likes(
    tmp_path: Path, launch: str, status: str
) -> None:
    source = SOURCE.replace("scaler):", "scaler, half=False):")
    finding, builder, path = prepare(tmp_path, f"import fire\nimport kit\n{source}\n{launch}\n")

    def run(request: Request) -> RunResult:
        half = bool(request.assignment.get("half", False))
        decision = Decision("half", (False, True), half, 4, "default")
        result = missing_update(replace(request, enabled=request.enabled and half), path)
        raised = result.raised and replace(result.raised, row=ROW + 2)
        events = tuple(replace(event, row=event.row + 2) for event in result.events)
        rows = tuple(row + 2 for row in result.rows)
        decisions = (*result.decisions, decision)
        return replace(result, raised=raised, events=events, rows=rows, decisions=decisions)

    prober = Prober(builder, run, runs=60, seconds=30.0, torch="2.13.0")
    evidence = prober.probe(finding).evidence
    assert evidence.status == status, evidence
    assert evidence.assumptions in ((), ("`kit.start` calls it with such arguments",))


def test_gate_7_no_input_gets_past_the_line(tmp_path: Path) -> None:
    """What the events explain, but happens whatever the inputs are, may be the stand-ins'."""
    finding, builder, path = prepare(tmp_path, CLEARED)
    events = (
        Event("scaler", path, 4, 1),
        Event("scale", path, 5, 1),
        Event("forward", path, 5),
        Event("backward", path, 5, 1, 1, facts={"scaled": True, "optimizers": [1]}),
        Event("zero_grad", path, 6, 0, 1),
        Event("step", path, 7, 1, 1, facts={"gradients": 0, "raised": "AssertionError"}),
    )
    message = "No inf checks were recorded for this optimizer."

    def run(_: Request) -> RunResult:
        raised = Raised("AssertionError", message, "torch.amp", path, 7)
        return RunResult("raised", raised=raised, events=events, rows=(4, 5, 6, 7))

    prober = Prober(builder, run, runs=60, seconds=30.0, torch="2.13.0")
    evidence = prober.probe(finding).evidence
    assert evidence.status == "conditional"
    assert evidence.assumptions == ("no input was found with which the line succeeds",)


IDLE = """\
import torch

def train(model, optimizer, loader, epoch=0):
    scaler = torch.amp.GradScaler("cuda")
    kind = torch.bfloat16 if epoch < 3 else torch.float16
    for inputs in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=kind):
            loss = model(inputs).sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
"""


@pytest.mark.parametrize(
    ("test", "assumed"),
    [
        ("epoch < 3", "what is measured does not change with the counter that line 5 tests"),
        ("torch.cuda.is_available()", ""),
    ],
)
def test_what_is_measured_of_all_steps_needs_all_epochs(
    tmp_path: Path, test: str, assumed: str
) -> None:
    path = tmp_path / "train.py"
    path.write_text(IDLE.replace("epoch < 3", test))
    span = Span(Position(4, 5), Position(4, 6))
    finding = Finding("AMP402", "asked", Severity.ERROR, "", "", str(path), span)
    builder = plan_builder(str(path), Settings())
    assert builder is not None
    name = builder.path
    region = {"enabled": True, "dtype": "torch.bfloat16", "explicit": True}
    events = (
        Event("scaler", name, 4, 1, facts={"enabled": True}),
        Event("zero_grad", name, 7, 0, 1),
        Event("autocast-enter", name, 8, facts=region),
        Event("forward", name, 9, facts={"model": "TinyModel", "autocast": True}),
        Event("scale", name, 10, 1),
        Event("backward", name, 10, 1, 1, facts={"scaled": True, "optimizers": [1]}),
        Event("step", name, 11, 1, 1, facts={"gradients": 1}),
        Event("update", name, 12, 1),
    )
    seen = RunResult("returned", events=events, rows=tuple(range(4, 13)), steps=((11, (1.0,)),))
    prober = Prober(builder, lambda _: seen, runs=60, seconds=30.0, torch="2.13.0")
    evidence = prober.probe(finding).evidence
    assert evidence.status == ("conditional" if assumed else "confirmed"), evidence
    assert "; ".join(evidence.assumptions) == assumed


def test_not_reached(tmp_path: Path) -> None:
    blocked = Raised("KeyError", "'image'", "user", "", 5)
    evidence = probe(
        tmp_path, lambda r, p: RunResult("raised", raised=replace(blocked, filename=p), rows=(4,))
    )
    assert evidence.status == "not-reached"
    assert evidence.detail == "line 5 raises `KeyError: 'image'`"


def test_not_reproduced_says_how_much_was_tried(tmp_path: Path) -> None:
    evidence = probe(
        tmp_path, lambda r, p: RunResult("returned", events=round_of(p), rows=(4, 5, 6, ROW))
    )
    assert evidence.status == "not-reproduced"
    assert evidence.detail is not None
    assert "1 assignment tried, all that the probe can make" in evidence.detail


def test_what_cannot_be_reached_is_replayed(tmp_path: Path) -> None:
    """The replay runs another program; its failure is no confirmation."""
    finding, builder, path = prepare(tmp_path)
    replayed = []

    def run(request: Request) -> RunResult:
        if request.plan.entry == "replay":
            replayed.append(Path(request.plan.sources[0].filename).read_text())
            row = request.plan.target_rows[0]
            raised = Raised("RuntimeError", TWICE, "torch.amp", "replay.py", row)
            return RunResult("raised", raised=raised)
        return RunResult("raised", raised=Raised("KeyError", "'x'", "user", path, 5), rows=(4,))

    evidence = Prober(builder, run, runs=9, seconds=30.0, torch="2.13.0").probe(finding).evidence
    assert (evidence.status, evidence.kind) == ("not-reached", "replay")
    assert evidence.detail is not None and TWICE in evidence.detail
    assert replayed[0].count("scaler.step(optimizer)") == 2


def test_decisions_that_no_guard_reads_are_flipped_together() -> None:
    """100 idle decisions cost one run, after the one with all of them as they were; and one
    among them that matters is still found."""
    idle = [Decision(f"width_{n}", (1, 2), 1) for n in range(100)]

    def run(request: Request) -> RunResult:
        made = [replace(d, choice=request.assignment.get(d.path, d.choice)) for d in decisions]
        broken = any(d.path == "depth" and d.choice == 2 for d in made)
        return RunResult("returned" if broken else "raised", decisions=tuple(made))

    def needed() -> tuple[list[str], int]:
        budget = Budget(run, runs=100, seconds=60.0)
        request = Request(Plan((), "train", (1,)))
        found = needs(
            Trial(request, run(request)), lambda trial: trial.result.status == "raised", budget
        )
        return [need.decision.path for need in found], budget.used

    decisions = idle
    assert needed() == ([], 2)
    decisions = [*idle[:50], Decision("depth", (1, 2), 1), *idle[50:]]
    paths, runs = needed()
    assert paths == ["depth"]
    assert runs < 25


def needs_of_failing(run: Callable[[Request], RunResult]) -> tuple[Need, ...]:
    """What the failure of a run depends on, where all inputs are doubts and guards read them."""
    request = Request(Plan((), "train", (1,), slice_rows=(4,)))
    return needs(
        Trial(request, run(request)),
        lambda trial: trial.result.status == "raised",
        Budget(run, runs=100, seconds=60.0),
        lambda decision: 0,
    )


def test_inputs_that_are_asked_together_are_asked_for_each_option() -> None:
    """Only the last option of one of two, which guards read, prevents it."""

    def run(request: Request) -> RunResult:
        modes = [
            Decision(path, (1, 2, 3), request.assignment.get(path, 1), row=4)
            for path in ("mode", "other")
        ]
        fine = modes[0].choice == 3
        return RunResult("returned" if fine else "raised", decisions=tuple(modes))

    found = needs_of_failing(run)
    assert [(need.decision.path, need.holding) for need in found] == [("mode", (1, 2))]


def test_two_inputs_that_are_compared_are_not_flipped_together_only() -> None:
    """What prevents it is that one differs from the other, whatever they are."""

    def run(request: Request) -> RunResult:
        paths = ("depth", "width", "other")
        made = [Decision(p, (1, 2), request.assignment.get(p, 1), row=4) for p in paths]
        fine = made[0].choice != made[1].choice
        return RunResult("returned" if fine else "raised", decisions=tuple(made))

    found = needs_of_failing(run)
    assert [need.decision.path for need in found] == ["depth", "width"]


def either(request: Request, *paths: str, lazy: bool, row: int = 4) -> RunResult:
    """A run that fails where one of several inputs is true; lazily, it reads no more than it has
    to, and what it reads first is true by itself, as the last one is."""
    made = []
    for number, path in enumerate(paths):
        chosen = request.assignment.get(path, not lazy or number in (0, len(paths) - 1))
        made.append(Decision(path, (True, False), chosen, row=row))
        if lazy and chosen:
            break
    failed = any(decision.choice for decision in made)
    return RunResult("raised" if failed else "returned", decisions=tuple(made))


@pytest.mark.parametrize("row", [4, 5])
@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("paths", [("a", "b"), ("a", "b", "c"), ("a", "b", "c", "d", "e")])
def test_of_several_inputs_one_is_needed(paths: tuple[str, ...], lazy: bool, row: int) -> None:
    # Row 5 is none that guards read.
    (found,) = needs_of_failing(lambda request: either(request, *paths, lazy=lazy, row=row))
    assert found.decision.path == paths[0]
    named = [decision.path for decision in found.instead]
    assert named == ([paths[-1]] if lazy else list(paths[1:]))
    assert found.without


def test_of_several_inputs_the_known_one_is_needed() -> None:
    request = Request(Plan((), "train", (1,), slice_rows=(4,)))
    found = needs(
        Trial(request, either(request, "a", "b", "c", lazy=False)),
        lambda trial: trial.result.status == "raised",
        Budget(lambda r: either(r, "a", "b", "c", lazy=False), runs=100, seconds=60.0),
        lambda decision: 0,
        lambda decision: decision.path == "b",
    )
    assert [need.decision.path for need in found] == ["b"]


def test_two_inputs_may_decide_although_a_third_brings_it_back() -> None:
    def run(request: Request) -> RunResult:
        paths = ("a", "b", "c", "d", "e")
        made = [Decision(p, (True, False), request.assignment.get(p, True), row=4) for p in paths]
        a, b, _, d, _ = (decision.choice for decision in made)
        failed = a or b or not d
        return RunResult("raised" if failed else "returned", decisions=tuple(made))

    (found,) = needs_of_failing(run)
    assert (found.decision.path, [d.path for d in found.instead]) == ("a", ["b"])


def test_what_one_run_alone_reads_besides_is_flipped() -> None:
    """`b` is read where `a` is false, and decides unless `c` or `d` is false as well."""

    def run(request: Request) -> RunResult:
        def decide(path: str) -> bool:
            made.append(Decision(path, (True, False), request.assignment.get(path, True), row=4))
            return bool(made[-1].choice)

        made: list[Decision] = []
        a, c, d, _ = (decide(path) for path in ("a", "c", "d", "e"))
        failed = a or decide("b") or not c or not d
        return RunResult("raised" if failed else "returned", decisions=tuple(made))

    (found,) = needs_of_failing(run)
    assert (found.decision.path, [d.path for d in found.instead]) == ("a", ["b"])


def test_what_could_not_be_flipped_together_is_needed() -> None:
    """No run is left after each has been flipped alone."""

    def needed(runs: int) -> list[tuple[str, bool]]:
        request = Request(Plan((), "train", (1,), slice_rows=(4,)))
        found = needs(
            Trial(request, either(request, "a", "b", "c", lazy=False)),
            lambda trial: trial.result.status == "raised",
            Budget(lambda r: either(r, "a", "b", "c", lazy=False), runs=runs, seconds=60.0),
            lambda decision: 0,
        )
        return [(need.decision.path, need.tried) for need in found]

    assert all(needed(runs) for runs in range(30))


def test_what_a_default_decides_is_not_flipped_together() -> None:
    """`a` is what nobody has to set."""
    request = Request(Plan((), "train", (1,), slice_rows=(4,)))
    found = needs(
        Trial(request, either(request, "a", "b", lazy=False)),
        lambda trial: trial.result.status == "raised",
        Budget(lambda request: either(request, "a", "b", lazy=False), runs=100, seconds=60.0),
        lambda decision: LAST if decision.path == "a" else 0,
    )
    assert not found


def test_what_has_been_begun_may_use_what_is_kept_for_later() -> None:
    budget = Budget(lambda request: RunResult("returned", processor=4.0), runs=9, seconds=10.0)
    plan = Plan((), "train", (1,))
    with budget.first(0.3):
        budget.run(Request(plan))
        with pytest.raises(BudgetSpent):
            budget.run(Request(plan, {"a": 1}))
        with budget.whole():
            budget.run(Request(plan, {"a": 1}))
        with pytest.raises(BudgetSpent):
            budget.run(Request(plan, {"a": 2}))
    budget.run(Request(plan, {"a": 2}))
    assert budget.is_spent


def test_what_cannot_be_assigned_is_left_as_it_came() -> None:
    """Assigning `size` where it was made up makes another run: flips start from the first."""

    def run(request: Request) -> RunResult:
        steps = request.assignment.get("steps", 1)
        decisions = (Decision("size", (1, 2), 1), Decision("steps", (1, 2), steps))
        holds = "size" not in request.assignment and steps == 1
        return RunResult("raised" if holds else "returned", decisions=decisions)

    budget = Budget(run, runs=100, seconds=60.0)
    request = Request(Plan((), "train", (1,)))
    found = needs(
        Trial(request, run(request)), lambda trial: trial.result.status == "raised", budget
    )
    assert [(need.decision.path, need.holding) for need in found] == [
        ("size", (1,)),
        ("steps", (1,)),
    ]


def test_entries_of_one_name_in_two_files_are_two() -> None:
    seen = []

    def run(request: Request) -> RunResult:
        seen.append(request.plan.sources[1].filename)
        return RunResult("returned")

    budget = Budget(run, runs=9, seconds=30.0)
    for name in ("a.py", "b.py", "a.py"):
        sources = (Source("train.py"), Source(name))
        budget.run(Request(Plan(sources, "<module>", (), entry_source=1)))
    assert seen == ["a.py", "b.py"]


def test_a_share_of_the_time_ends() -> None:
    budget = Budget(lambda request: RunResult("returned"), runs=9, seconds=1000.0)
    with budget.share(0.0):
        assert budget.is_spent
    assert not budget.is_spent


def test_what_runs_take_of_the_processor_is_spent() -> None:
    busy = RunResult("returned", seconds=400.0, processor=4.0)
    waiting = RunResult("returned", seconds=400.0, processor=0.5)
    budget = Budget(lambda request: waiting, runs=9, seconds=10.0)
    for scale in (1.0, 2.0, 4.0):
        budget.run(Request(Plan((), "train", ()), init_scale=scale))
    assert not budget.is_spent  # however long the machine has let it wait
    budget = Budget(lambda request: busy, runs=9, seconds=10.0)
    with budget.share(0.5):
        budget.run(Request(Plan((), "train", ())))
        assert not budget.is_spent
        budget.run(Request(Plan((), "train", ()), init_scale=1.0))
        assert budget.is_spent
    budget.run(Request(Plan((), "train", ()), init_scale=2.0))
    assert budget.is_spent


CLIPPED = """\
import torch
from torch.nn.utils import clip_grad_norm_

def update(model, optimizer, scaler, loss):
    scaler.scale(loss).backward()
    clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
"""


def clipped(path: str) -> tuple[Event, ...]:
    return (
        Event("scale", path, 5, 1),
        Event("backward", path, 5, 1, 1, facts={"scaled": True, "optimizers": [1]}),
        Event("clip", path, 6, 0, 1, facts={"gradients": 1}),
        Event("step", path, 7, 1, 1, facts={"gradients": 1}),
        Event("update", path, 8, 1),
    )


Events = tuple[Event, ...]


@pytest.mark.parametrize(
    ("change", "doubt"),
    [
        (lambda events, path: events, ""),
        # somewhere else gradients come from that are not scaled
        (
            lambda events, path: (
                Event("backward", path, 4, 0, 0, facts={"scaled": False, "optimizers": []}),
                *events,
            ),
            "`loss` passes gradients on",
        ),
        # nothing asks for gradients: no step of a scaler succeeds
        (
            lambda events, path: (
                *events[:3],
                replace(events[3], facts={"gradients": 1, "raised": "AssertionError"}),
            ),
            "`loss` passes gradients on",
        ),
        (
            lambda events, path: (*events[:3], Event("plain-step", path, 7, 0, 1)),
            "`loss` passes gradients on",
        ),
        # the first call does it, and what a second one sees does not matter
        (lambda events, path: (*events, *events), ""),
    ],
    ids=["one backward", "two backwards", "no step", "a plain step", "two calls"],
)
def test_through_what_clipped_gradients_came_makes_no_difference(
    tmp_path: Path, change: Callable[[Events, str], Events], doubt: str
) -> None:
    finding, builder, path = prepare(tmp_path, CLIPPED)

    def run(request: Request) -> RunResult:
        events = change(clipped(path), path)
        steps = tuple((7, (1.0 / request.init_scale,)) for e in events if "step" in e.kind)
        notes = (Note("connected", "loss"), Note("no-parameters"))
        return RunResult("returned", events=events, rows=(5, 6, 7, 8), steps=steps, notes=notes)

    prober = Prober(builder, run, runs=60, seconds=30.0, torch="2.13.0")
    evidence = prober.probe(finding).evidence
    assert evidence.status == ("conditional" if doubt else "confirmed"), evidence
    assert doubt in (*evidence.assumptions, "")


def test_what_only_a_second_call_does_depends_on_the_caller(tmp_path: Path) -> None:
    finding, builder, path = prepare(tmp_path, CLIPPED)

    def run(request: Request) -> RunResult:
        events = (*clipped(path), *clipped(path))
        steps = ((7, (1.0,)), (7, (1.0 / request.init_scale,)))
        return RunResult("returned", events=events, rows=(5, 6, 7, 8), steps=steps)

    prober = Prober(builder, run, runs=60, seconds=30.0, torch="2.13.0")
    assert prober.probe(finding).evidence.assumptions == in_words([SECOND_CALL])


@pytest.mark.parametrize(
    ("note", "status"),
    [
        (Note("connected", "loss"), "confirmed"),
        (Note("optimizer-class", "optimizer"), "confirmed"),
        # the caller does not make it
        (Note("connected", "features"), "conditional"),
        (Note("scaler-class", "Mine"), "conditional"),
    ],
)
def test_callers_that_build_what_is_passed_in_are_searched_further(
    tmp_path: Path, note: Note, status: str
) -> None:
    """The caller comes to the line in its tenth run, and makes loss and optimizer itself."""
    source = CLEARED.replace("train(model", "train(loss, model").replace(
        "model(inputs).sum()", "loss"
    )
    source = source.replace("backward()", "backward(retain_graph=True)")  # of one loss each round
    finding, builder, path = prepare(
        tmp_path, f"{source}\ndef main(net, data, s):\n    train(net(), net, make(), data, s)\n"
    )
    events = (
        Event("scale", path, 5, 1),
        Event("forward", path, 5),
        Event("backward", path, 5, 1, 1, facts={"scaled": True, "optimizers": [1]}),
        Event("zero_grad", path, 6, 0, 1),
        Event("step", path, ROW, 1, 1, facts={"gradients": 0, "raised": "AssertionError"}),
    )
    message = "No inf checks were recorded for this optimizer."
    raised = Raised("AssertionError", message, "torch.amp", path, ROW)

    def run(request: Request) -> RunResult:
        decisions: tuple[Decision, ...] = ()
        if request.plan.entry == "main":
            size = request.assignment.get("data.size", 0)
            decisions = (Decision("data.size", tuple(range(12)), size, 11),)
            if size < 10:
                early = Raised("KeyError", "'x'", "user", path, 11)
                return RunResult("raised", raised=early, decisions=decisions)
        rows = (4, 5, 6, ROW)
        notes = (note,) if request.plan.entry == "train" else ()
        if not request.enabled:
            return RunResult("returned", rows=rows, notes=notes, decisions=decisions)
        return RunResult(
            "raised", raised=raised, events=events, rows=rows, notes=notes, decisions=decisions
        )

    prober = Prober(builder, run, runs=100, seconds=30.0, torch="2.13.0")
    assert prober.probe(finding).evidence.status == status


PLAIN = """\
import torch

def train(model, optimizer, loader, scaler):
    for inputs in loader:
        optimizer.zero_grad()
        scaler.scale(model(inputs).sum()).backward()
        optimizer.step()
        scaler.update()
"""


@pytest.mark.parametrize(
    ("scaled", "status"), [(True, "confirmed"), (False, "conditional")], ids=["all", "not all"]
)
def test_whoever_applies_what_is_scaled_everywhere(
    tmp_path: Path, scaled: bool, status: str
) -> None:
    """An optimizer whose class is unknown takes scaled gradients if there are no others."""
    finding, builder, path = prepare(tmp_path, PLAIN)
    assert (finding.code, finding.span.start.row) == ("AMP112", 7)

    def run(request: Request) -> RunResult:
        events = (
            Event("backward", path, 5, int(scaled), facts={"scaled": scaled, "optimizers": []}),
            Event("zero_grad", path, 5, 0, 1),
            Event("scale", path, 6, 1, 0),
            Event("backward", path, 6, 1, 1, facts={"scaled": True, "optimizers": [1]}),
            Event("plain-step", path, 7, 0, 1, facts={"gradients": 1}),
        )
        steps = ((7, (request.init_scale,)),)
        notes = (UNRESOLVED,)
        return RunResult("returned", events=events, rows=(5, 6, 7, 8), steps=steps, notes=notes)

    prober = Prober(builder, run, runs=60, seconds=30.0, torch="2.13.0")
    assert prober.probe(finding).evidence.status == status


@pytest.mark.parametrize(("last", "status"), [(12, "confirmed"), (10, "conditional")])
def test_inputs_that_fulfil_an_assertion_are_searched_further(
    tmp_path: Path, last: int, status: str
) -> None:
    """It holds from the tenth value on, which the first round of runs does not try."""
    finding, builder, path = prepare(tmp_path, SOURCE)

    def run(request: Request) -> RunResult:
        result = missing_update(request, path)
        size = request.assignment.get("loader.size", 0)
        decision = Decision("loader.size", tuple(range(last)), size, 5)
        notes = () if size >= 10 else (Note("assertion", row=5),)
        return replace(result, decisions=(*result.decisions, decision), notes=notes)

    prober = Prober(builder, run, runs=200, seconds=30.0, torch="2.13.0")
    assert prober.probe(finding).evidence.status == status


@pytest.mark.parametrize(
    ("other", "status"), [("scaler", "confirmed"), ("b.scaler", "conditional")]
)
def test_scalers_that_are_made_up_may_be_one(tmp_path: Path, other: str, status: str) -> None:
    finding, builder, path = prepare(tmp_path, SOURCE)

    def run(request: Request) -> RunResult:
        result = missing_update(request, path)
        made = [
            Event("scaler", path, 0, number, facts={"stands-for": place})
            for number, place in enumerate(["scaler", other], 1)
        ]
        return replace(result, events=(*made, *result.events))

    prober = Prober(builder, run, runs=60, seconds=30.0, torch="2.13.0")
    evidence = prober.probe(finding).evidence
    assert evidence.status == status
    assert evidence.assumptions in ((), ("`b.scaler` and `scaler` are different scalers",))


def test_what_was_assigned_keeps_its_options() -> None:
    """A run names the assigned value only; an earlier one has told what else there is."""

    def run(request: Request) -> RunResult:
        if "half" not in request.assignment:
            return RunResult("returned", decisions=(Decision("half", (False, True), False),))
        made = Decision("half", (request.assignment["half"],), request.assignment["half"])
        return RunResult("raised" if made.choice else "returned", decisions=(made,))

    budget = Budget(run, runs=9, seconds=30.0)
    request = Request(Plan((), "train", (1,)))
    budget.run(request)
    flipped = replace(request, assignment={"half": True})
    trial = Trial(flipped, budget.run(flipped))
    (need,) = needs(trial, lambda trial: trial.result.status == "raised", budget)
    assert (need.decision.options, need.holding) == ((False, True), (True,))


@pytest.mark.parametrize(
    ("parameter", "loop", "options", "status"),
    [
        ("rounds", "range(rounds)", (2, 1, 0), "confirmed"),
        ("rounds", "range(1, rounds + 1)", (2, 1, 0), "confirmed"),
        # one of them has to be large, is left out by default, or counts nothing
        ("rounds", "range(rounds)", (2, 1), "conditional"),
        ("rounds=0", "range(rounds)", (2, 1, 0), "conditional"),
        ("rounds", "loader", (2, 1, 0), "conditional"),
    ],
)
def test_gate_6_a_loop_is_called_to_run(
    tmp_path: Path, parameter: str, loop: str, options: tuple[int, ...], status: str
) -> None:
    source = SOURCE.replace("scaler):", f"scaler, {parameter}):").replace(
        "in loader:", f"in {loop}:"
    )
    call = "train(model, optimizer, loader, scaler, rounds=choose())\n"
    finding, builder, path = prepare(tmp_path, source + call)
    least = min(option for option in options if option > 0) if 0 in options else 2

    def run(request: Request) -> RunResult:
        if request.plan.entry != "train":
            return RunResult("raised", raised=Raised("KeyError", "'x'", "user", path, 9))
        rounds = request.assignment.get("rounds", options[0])
        enabled = request.enabled and rounds >= least
        result = missing_update(replace(request, enabled=enabled), path)
        return replace(result, decisions=(Decision("rounds", options, rounds, 4),))

    prober = Prober(builder, run, runs=60, seconds=30.0, torch="2.13.0")
    assert prober.probe(finding).evidence.status == status


@pytest.mark.parametrize(
    ("kind", "status"), [("autocast", "confirmed"), ("StandIn", "not-reproduced")]
)
def test_failures_about_stand_ins_show_nothing(tmp_path: Path, kind: str, status: str) -> None:
    found, builder, path = prepare(tmp_path, SOURCE)
    finding = replace(found, code="AMP209")
    message = f"{kind}.__init__() got an unexpected keyword argument 'model'"

    def run(request: Request) -> RunResult:
        raised = Raised("TypeError", message, "user", path, ROW)
        return RunResult("raised", raised=raised, rows=(4, ROW))

    prober = Prober(builder, run, runs=60, seconds=30.0, torch="2.13.0")
    verdict = prober.probe(finding).evidence.status
    assert (verdict == "confirmed") == (status == "confirmed")
