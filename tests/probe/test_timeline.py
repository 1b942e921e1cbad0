"""`--explain`: a run as a reader follows it, from made-up events."""

from __future__ import annotations

from amplint.findings import Evidence, Finding, Position, Severity, Span
from amplint.probe.cases import Verdict
from amplint.probe.messages import Decision, Event, Plan, Raised, Request, RunResult, Source
from amplint.probe.search import Trial
from amplint.probe.timeline import timeline

PATH = "/project/train.py"
OTHER = "/project/policy.py"
FINDING = Finding("AMP105", "x", Severity.ERROR, "", "", PATH, Span(Position(7, 5), Position(7, 9)))


def told(*events: Event, raised: Raised | None = None, **changes: object) -> list[str]:
    result = RunResult("raised" if raised else "returned", raised=raised, events=events, **changes)  # type: ignore[arg-type]
    plan = Plan((Source(PATH),), "train", (7,))
    trial = Trial(Request(plan), result)
    verdict = Verdict(Evidence("confirmed"), trial, 3)
    return list(timeline(verdict, FINDING))


def step(row: int = 7, **facts: object) -> Event:
    return Event("step", PATH, row, 1, 1, "stepped, spent", dict(facts))


def test_nothing_was_run() -> None:
    assert list(timeline(Verdict(Evidence("not-probed")), FINDING)) == ["No run was made."]


def test_inputs_and_ending() -> None:
    raised = Raised("RuntimeError", "step() has already been called", "torch.amp", PATH, 7)
    decision = Decision("args.amp", (True, False), True, 3, "default")
    lines = told(
        step(), step(raised="RuntimeError"), raised=raised, decisions=(decision,), torch="2.13.0"
    )
    assert lines[0] == "This run: `train`, torch 2.13.0 on cpu (one of 3 runs)"
    assert "    args.amp = True  declared" in lines
    assert lines[-3:] == [
        "  > line 7  scaler.step(optimizer)  gradients applied",
        "  > line 7  scaler.step(optimizer)  raises RuntimeError",
        "The run ends at line 7 with RuntimeError: step() has already been called",
    ]


def test_several_objects_are_told_apart() -> None:
    lines = told(
        Event("optimizer", OTHER, 18, 0, 1, facts={"class": "Adam"}),
        Event("optimizer", PATH, 0, 0, 2, facts={"class": "SGD", "stands-for": "optimizer_g"}),
        Event("scaler", PATH, 4, 1, facts={"class": "GradScaler", "enabled": True}),
        Event("scaler", PATH, 5, 2, facts={"class": "GradScaler", "enabled": False}),
        Event("backward", OTHER, 20, 2, 2, "ready, scaled", {"scaled": True, "optimizers": [2]}),
        Event("step", PATH, 9, 2, 2, "stepped, spent"),
    )
    assert "    optimizer 1  Adam, built at policy.py:18" in lines
    assert "    optimizer 2  SGD, stands for `optimizer_g`" in lines
    assert "    scaler 2     GradScaler, built at line 5, disabled" in lines
    assert any(
        line.split("  ")[-1] == "gradients scaled"
        and "policy.py:20  backward of the scaled loss (feeds optimizer 2)" in line
        for line in lines
    )
    assert any("line 9  scaler 2.step(optimizer 2)" in line for line in lines)


def test_rounds_that_repeat_are_told_once() -> None:
    forward = Event("forward", PATH, 6, facts={"model": "Net"})
    lines = told(*[forward, step()] * 4)
    assert lines.count("  > line 7  scaler.step(optimizer)  gradients applied") == 1
    assert lines[-2] == "    (the last 2 lines 3 times more)"
    assert lines[-1] == "The run returned."


def test_silent_mistakes_name_their_damage() -> None:
    clip = Event("clip", PATH, 7, 1, 1, "ready, scaled", {"violation": "clip-of-scaled"})
    (line,) = [line for line in told(clip) if "clip the gradients" in line]
    assert "gradients scaled: " in line


def test_regions_and_calls_in_other_files() -> None:
    facts = {"device": "cpu", "dtype": "torch.float16", "enabled": True, "through": 7}
    lines = told(
        Event("autocast-enter", OTHER, 3, facts=facts),
        Event("autocast-exit", OTHER, 3, facts={"leaks": True}),
    )
    assert "  > policy.py:3  autocast(cpu, float16)" in lines
    assert "    policy.py:3  end of autocast         autocast is not as it was before" in lines
