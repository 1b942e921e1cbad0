"""A call that is followed once for many states says the same as one that is followed each time."""

from __future__ import annotations

from pathlib import Path

import pytest

from amplint.checker import check_paths, check_source
from amplint.config import Settings
from amplint.flow import footprints, interpreter
from tests.budget import THOROUGH
from tests.fixtures_runner import FIXTURES

#: Collections of dozens of small cases: each is followed twice, for as long as all others together.
LONG = frozenset(
    ("gradient_norm_in_utils", "own_grad_scaler", "order_split_over_files", "26_indirection")
)
#: Programs whose protocol is spread over functions, each folder a project of its own.
PROJECTS = sorted(
    path
    for group in ("projects", "incidents", "silent")
    for path in (FIXTURES / group).iterdir()
    if path.is_dir() and path.name not in LONG
)
#: Of these, every sixteenth but two that take fifteen seconds each where nothing is summed up.
SHARE = [
    path
    for path in PROJECTS[::16]
    if path.name not in ("0_leftover_flush", "plain_backward_of_object")
]

HELPER = """
import torch
from torch.amp import GradScaler, autocast

def note(text, table):
    if text is None:
        table["last"] = "nothing"
    for word in ("a", "b"):
        table[word] = text
    return table["last"] is not None

def finish(scaler, optimizer, cfg):
    if cfg.clip:
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(cfg.model.parameters(), 1.0)
    scaler.step(optimizer)
    {update}

def train(cfg, loader, optimizer, first, second, table):
    scaler = GradScaler()
    left = None if first else 1
    right = None if second else 2
    for batch in loader:
        optimizer.zero_grad()
        with autocast("cuda"):
            loss = cfg.model(batch).mean()
        scaler.scale(loss).backward()
        if note("loss", table):
            print(left, right)
        if left is None:
            print("no left")
        if right is None:
            print("no right")
        finish(scaler, optimizer, cfg)
"""


def findings_of(path: Path) -> list[tuple]:
    report = check_paths([str(path)], Settings(jobs=1, cache=False))
    return [
        (item.filename, item.code, item.severity, item.span.start.row, item.message)
        for item in report.findings
    ]


@pytest.mark.parametrize(
    "path",
    PROJECTS if THOROUGH else SHARE,
    ids=lambda path: f"{path.parent.name}-{path.name}",
)
def test_summaries_change_no_finding(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    once = findings_of(path)
    monkeypatch.setattr(footprints.Summaries, "find", lambda *_: None)
    monkeypatch.setattr(footprints.Summaries, "adopt", lambda *_: None)
    assert findings_of(path) == once


def runs_of(name: str, source: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often a function is interpreted."""
    ran = []
    original = interpreter.Interpreter.run

    def run(self, frame, states):
        ran.append(frame.function.name)
        return original(self, frame, states)

    monkeypatch.setattr(interpreter.Interpreter, "run", run)
    result = check_source("train.py", source.encode(), Settings())
    assert result.errors == ()
    return ran.count(name)


def test_what_a_call_cannot_see_does_not_repeat_it(monkeypatch: pytest.MonkeyPatch) -> None:
    source = HELPER.format(update="scaler.update()")
    plain = source.replace("left = None if first else 1", "").replace(
        "right = None if second else 2", ""
    )
    with monkeypatch.context() as patch:
        few = runs_of("finish", plain.replace("left", "first").replace("right", "second"), patch)
    assert runs_of("finish", source, monkeypatch) <= few + 1


ASKING = """
import torch
from torch.amp import GradScaler, autocast

def finish(scaler, optimizer, limit):
    if isinstance(limit, float):
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], limit)
    scaler.step(optimizer)
    scaler.update()

def train(model, loader, optimizer, limit, every, first):
    scaler = GradScaler()
    name = None if {asked} else "steps"
    for batch in loader:
        optimizer.zero_grad()
        with autocast("cuda"):
            loss = model(batch).mean()
        scaler.scale(loss).backward()
        finish(scaler, optimizer, limit)
        if name is None:
            scaler.update()
"""


def test_a_word_of_python_that_both_spell_does_not_repeat_a_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the caller asks `isinstance` about is another place than what the callee asks."""
    with monkeypatch.context() as patch:
        few = runs_of("finish", ASKING.format(asked="first"), patch)
    assert runs_of("finish", ASKING.format(asked="isinstance(every, int)"), monkeypatch) == few


def test_what_a_call_reads_through_an_argument_repeats_it() -> None:
    """The two flags differ in the caller only, but the callee reads one through its parameter."""
    source = """
import torch
from torch.amp import GradScaler

def finish(scaler, optimizer, clip):
    if clip is not None:
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()

def train(model, loader, optimizer, wanted):
    scaler = GradScaler()
    clip = 1.0 if wanted else None
    for batch in loader:
        optimizer.zero_grad()
        scaler.scale(model(batch).mean()).backward()
        if clip is None:
            scaler.unscale_(optimizer)
        {again}
        finish(scaler, optimizer, clip)
"""
    right = check_source("train.py", source.format(again="pass").encode(), Settings())
    wrong = check_source(
        "train.py", source.format(again="scaler.unscale_(optimizer)").encode(), Settings()
    )
    assert [item.code for item in right.findings] == []
    assert {item.code for item in wrong.findings} == {"AMP108"}


def test_a_report_in_a_summarised_call_is_made_for_each_path() -> None:
    source = HELPER.format(update="")
    result = check_source("train.py", source.encode(), Settings())
    assert "AMP105" in {item.code for item in result.findings}


TWO_OPTIMIZERS = """
import torch
from torch.amp import GradScaler, autocast

class Precision:
    def __init__(self, amp):
        self.amp = amp
        self.scaler = GradScaler(enabled=amp)

def train(loader, generator, critic, first, second, amp):
    options = Precision(amp)
    scaler = options.scaler
    for batch in loader:
        with autocast("cuda", enabled=options.amp):
            loss = generator(batch).mean()
            other = critic(batch).mean()
        first.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(first)
        second.zero_grad()
        scaler.scale(other).backward()
        scaler.unscale_(second)
        scaler.unscale_(second)
        scaler.step(second)
        scaler.update()
"""


def test_a_second_attempt_takes_over_what_the_first_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    def codes() -> list[str]:
        report = check_source("train.py", TWO_OPTIMIZERS.encode(), Settings())
        return [item.code for item in report.findings]

    found = codes()
    assert found == ["AMP108"]
    with monkeypatch.context() as patch:
        assert runs_of("train", TWO_OPTIMIZERS, patch) == 2
    with monkeypatch.context() as patch:
        runs = runs_of("__init__", TWO_OPTIMIZERS, patch)
    monkeypatch.setattr(footprints.Summaries, "adopt", lambda *_: None)
    assert codes() == found
    assert runs_of("__init__", TWO_OPTIMIZERS, monkeypatch) == runs + 1
