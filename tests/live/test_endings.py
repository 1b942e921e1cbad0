"""What can only be said at the end: steps that never came, and overflows that ended a program."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import nn

from amplint.runtime.hooks import Hooks, Switch
from amplint.runtime.observer import Observer
from amplint.runtime.places import Territory
from tests.live.fixture_runs import Told
from tests.live.programs import row_of, watch


@contextmanager
def watched() -> Iterator[tuple[Observer, Told]]:
    """An observer of this process; an error of its own fails the test."""
    told, failures = Told(), []
    observer = Observer(told, Territory((str(Path(torch.__file__).parent),)))
    hooks = Hooks(observer, Switch(failures.append))
    try:
        yield observer, told
    finally:
        hooks.undo()
    assert failures == []


class Training:
    """Unscales and updates; what lies between is the test's."""

    def __init__(self) -> None:
        self.net = nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.net.parameters(), 0.1)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=64.0)

    def run(self, rounds: int, between: Callable[[], object], factor: float = 1.0) -> None:
        for _ in range(rounds):
            self.optimizer.zero_grad()
            self.scaler.scale(self.net(torch.ones(2, 4)).mean() * factor).backward()
            self.scaler.unscale_(self.optimizer)
            between()
            self.scaler.update()

    def nothing(self) -> None:
        """No step."""

    def step(self) -> None:
        self.scaler.step(self.optimizer)

    def by_hand(self) -> None:
        """Moves the weights without an optimizer's step, by a way that no version tells."""
        for weight in self.net.parameters():
            weight.data.add_(weight.grad, alpha=-0.1)


def test_an_optimizer_that_never_steps_is_told_at_the_end() -> None:
    with watched() as (observer, told):
        training = Training()
        training.run(3, training.nothing)
        assert told.findings == {}
        observer.ended(None)
    ((slug, _),) = told.findings
    (finding,) = told.findings.values()
    assert (slug, finding.facts["rounds"], finding.inside) == ("never-stepped", 3.0, ("", 0))


def test_after_twenty_updates_it_is_told_at_once_and_once() -> None:
    with watched() as (observer, told):
        training = Training()
        training.run(20, training.nothing)
        assert [slug for slug, _ in told.findings] == ["never-stepped"]
        observer.ended(None)
    assert [found.count for found in told.findings.values()] == [1]


@pytest.mark.parametrize(
    ("first", "then", "factor"),
    [
        ("nothing", "step", 1.0),  # it steps after all
        ("by_hand", "by_hand", 1.0),
        ("nothing", "nothing", math.inf),  # nothing to step with: every gradient is infinite
    ],
)
def test_a_step_that_is_left_out_for_a_reason(first: str, then: str, factor: float) -> None:
    with watched() as (observer, told):
        training = Training()
        training.run(6, getattr(training, first), factor)
        training.run(6, getattr(training, then), factor)
        observer.ended(None)
    assert told.findings == {}


def test_a_forked_child_speaks_for_itself() -> None:
    with watched() as (observer, told):
        training = Training()
        training.run(6, training.nothing)
        observer.forget_findings()
        observer.ended(None)
    assert told.findings == {}


@pytest.mark.parametrize(
    ("factor", "rounds", "kind", "found"),
    [
        (math.inf, 0, RuntimeError, ["ended-at-overflow"]),
        (math.inf, 1, RuntimeError, []),  # one was skipped before: the program has counted
        (1.0, 0, RuntimeError, []),
        (math.inf, 0, KeyboardInterrupt, []),
    ],
)
def test_an_exception_between_unscale_and_update(
    factor: float, rounds: int, kind: type[BaseException], found: list[str]
) -> None:
    def fail() -> None:
        raise kind

    with watched() as (observer, told):
        training = Training()
        training.run(rounds, training.step, factor)
        with pytest.raises(kind) as caught:
            training.run(1, fail, factor)
        observer.ended(caught.value)
    assert [slug for slug, _ in told.findings] == found


ENDS = """
import sys, torch

net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)


def step(factor):
    optimizer.zero_grad()
    scaler.scale(net(torch.ones(2, 4)).mean() * factor).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0, error_if_nonfinite=True)
    scaler.step(optimizer)


for factor in (1.0, float("inf"), 1.0):
    try:
        step(factor)
    except RuntimeError:
        if sys.argv[1] == "lets it through":
            raise
    scaler.update()
"""


@pytest.mark.parametrize("what", ["lets it through", "goes on"])
def test_a_program_that_ends_at_its_first_overflow(tmp_path: Path, what: str) -> None:
    (tmp_path / "train.py").write_text(ENDS, "utf-8")
    seen = watch(tmp_path, "train.py", what)
    if what == "goes on":
        assert (seen.status, seen.told) == (0, [])
        return
    row = row_of(ENDS, "clip_grad_norm_")
    assert (seen.status, seen.told) == (1, [("ended-at-overflow", "train.py", row)])
    words = seen.report["findings"][0]["words"]
    assert words.startswith("the program ends with RuntimeError while its unscaled gradients are")
    assert words.endswith("halved the loss scale (64)")
