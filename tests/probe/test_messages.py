"""Messages between the probe and its worker survive JSON."""

from __future__ import annotations

import json

from amplint.probe.messages import (
    Decision,
    Domain,
    Event,
    Handed,
    Hello,
    Note,
    Plan,
    Prediction,
    Raised,
    Request,
    Role,
    RunResult,
    Skipped,
    Source,
    decode_hello,
    decode_request,
    decode_result,
    encode,
)


def test_hello() -> None:
    hello = Hello("2.13.0", ("cpu", "cuda:0"), ("no network",))
    assert decode_hello(json.loads(json.dumps(encode(hello)))) == hello


def test_request() -> None:
    plan = Plan(
        sources=(Source("/p/train.py"), Source("/p/clip.py", "clip")),
        entry="Trainer.step",
        target_rows=(12, 14),
        roles=(Role("self.scaler", "scaler", "constructor", "GradScaler()"),),
        domains=(Domain("args.amp", (True, False), "default"),),
        predictions=(Prediction("raises", "AssertionError", "No inf checks", (14,)),),
        slice_rows=(10, 11, 12, 14),
        prefer={"args.amp": True},
    )
    request = Request(plan, {"args.steps": 2}, init_scale=256.0, repair=True)
    assert decode_request(json.loads(json.dumps(encode(request)))) == request


def test_result() -> None:
    result = RunResult(
        status="raised",
        raised=Raised("AssertionError", "No inf checks", "torch.amp", "/p/train.py", 14),
        decisions=(Decision("args.amp", (True, False), True, 9, "default"),),
        events=(Event("step", "/p/train.py", 14, 1, 1, "stepped", {"gradients": 2}),),
        rows=(9, 10, 14),
        steps=((14, (0.5, None)),),
        skipped=(Skipped(3, "ValueError", True, ("x", "self.y")),),
        opaque=(Handed("visualise", 7, ("model",)),),
        notes=(Note("scaler-class", "Mine"),),
        torch="2.13.0",
        seconds=0.25,
    )
    assert decode_result(json.loads(json.dumps(encode(result)))) == result
