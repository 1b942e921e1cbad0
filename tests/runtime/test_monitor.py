"""The monitor against real torch: what it says of a program is what torch does."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
import torch

from amplint.runtime.instrument import instrument
from amplint.runtime.monitor import Monitor, Observation
from amplint.runtime.places import user_place


class Watched:
    """A monitor on a program of one parameter."""

    def __init__(self) -> None:
        self.seen: list[Observation] = []
        self.monitor = Monitor(self.seen.append, user_place(lambda name: name == __file__))
        self.patches = instrument(self.monitor)

    def program(self, dtype: torch.dtype = torch.float32) -> tuple:
        weight = torch.nn.Parameter(torch.ones(2, dtype=dtype))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        return weight, optimizer, torch.amp.GradScaler("cpu", init_scale=4.0)

    @property
    def kinds(self) -> list[str]:
        return [event.kind for event in self.seen]

    @property
    def broken(self) -> list[str]:
        return [event.violation.slug for event in self.seen if event.violation]


@pytest.fixture
def watched() -> Iterator[Watched]:
    made = Watched()
    yield made
    made.patches.undo()


def test_a_correct_loop_breaks_nothing(watched: Watched) -> None:
    weight, optimizer, scaler = watched.program()
    for _ in range(3):
        optimizer.zero_grad()
        with torch.autocast("cpu"):
            loss = (weight * 2).sum()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_([weight], 1.0)
        scaler.step(optimizer)
        scaler.update()
    round_ = ["zero_grad", "autocast-enter", "autocast-exit", "scale", "backward"]
    assert watched.kinds == [*round_, "unscale_", "clip", "step", "update"] * 3
    assert watched.broken == []


@pytest.mark.parametrize("seed", range(40))
def test_stages_and_exceptions_agree_with_torch(watched: Watched, seed: int) -> None:
    weight, optimizer, scaler = watched.program()
    words: dict[str, Callable[[], object]] = {
        "scaled": lambda: scaler.scale((weight * 2).sum()).backward(),
        "plain": lambda: (weight * 2).sum().backward(),
        "unscale_": lambda: scaler.unscale_(optimizer),
        "step": lambda: scaler.step(optimizer),
        "update": scaler.update,
        "set": lambda: scaler.update(8.0),
        "zero": optimizer.zero_grad,
        "keep": lambda: optimizer.zero_grad(set_to_none=False),
        "clip": lambda: torch.nn.utils.clip_grad_norm_([weight], 1.0),
        "drop": lambda: setattr(weight, "grad", None),
        "give": lambda: setattr(weight, "grad", torch.ones_like(weight)),
        "plain-step": optimizer.step,
    }
    chosen = random.Random(seed)
    for _ in range(30):
        word = chosen.choice(list(words))
        before = len(watched.seen)
        raised = None
        try:
            words[word]()
        except (AssertionError, RuntimeError) as error:
            raised = error
        told = [event.violation for event in watched.seen[before:] if event.violation]
        expected = [violation for violation in told if violation.raises]
        assert bool(raised) == bool(expected), (word, raised, told)
        if raised is not None:
            assert str(raised) == expected[0].error
        stage = scaler._per_optimizer_states[id(optimizer)]["stage"].name.lower()
        state = next((event.state for event in reversed(watched.seen) if event.optimizer), "")
        if word in ("unscale_", "step") and state:
            assert state.split(",")[0] == stage


def test_a_refused_unscale_leaves_the_stage_as_torch_does(watched: Watched) -> None:
    weight, optimizer, scaler = watched.program(torch.float16)
    scaler.scale((weight * 2).sum()).backward()
    with pytest.raises(ValueError, match="FP16"):
        scaler.unscale_(optimizer)
    assert watched.seen[-1].facts["raised"] == "ValueError"
    assert watched.seen[-1].state == "ready, scaled"
    assert scaler._per_optimizer_states[id(optimizer)]["stage"].name == "READY"


def test_gradients_that_were_there_before_are_unknown(watched: Watched) -> None:
    """Nobody knows what they hold, so only torch's own stages are broken."""
    weight, _, scaler = watched.program()
    scaler.scale((weight * 2).sum()).backward()
    other = torch.optim.SGD([weight], lr=0.1)
    torch.nn.utils.clip_grad_norm_([weight], 1.0)
    scaler.step(other)
    assert [event.state for event in watched.seen if event.optimizer == 2] == ["", ""]
    with pytest.raises(RuntimeError, match="already been called"):
        scaler.step(other)
    assert watched.broken == ["clip-of-scaled", "step-twice"]


def test_only_optimizers_that_are_reached_are_fed(watched: Watched) -> None:
    first, first_optimizer, scaler = watched.program()
    _, second_optimizer, _ = watched.program()
    scaler.scale(first.sum()).backward()
    numbers = watched.seen[-1].facts["optimizers"]
    assert numbers == [watched.monitor.optimizer_number(first_optimizer)]
    assert watched.monitor.optimizer_number(second_optimizer) not in numbers


def test_a_loss_stays_scaled_through_arithmetic(watched: Watched) -> None:
    weight, _, scaler = watched.program()
    loss = scaler.scale(weight.sum())
    ((loss / 2) + (loss * 3)).backward()
    assert watched.seen[-1].facts["scaled"] is True
    weight.sum().backward()
    assert watched.seen[-1].facts["scaled"] is False


def test_silent_violations(watched: Watched) -> None:
    weight, optimizer, scaler = watched.program()
    scaler.scale(weight.sum()).backward()
    torch.nn.utils.clip_grad_norm_([weight], 1.0)
    optimizer.step()
    assert watched.broken == ["clip-of-scaled", "optimizer-step-on-scaled"]


def test_a_failing_backward_is_an_event(watched: Watched) -> None:
    weight, _, scaler = watched.program()
    with pytest.raises(RuntimeError, match="does not require grad"):
        scaler.scale(weight.detach().sum()).backward()
    assert watched.seen[-1].kind == "backward"
    assert watched.seen[-1].facts["raised"] == "RuntimeError"


def test_rows_are_the_users(watched: Watched) -> None:
    weight, _, scaler = watched.program()
    scaler.scale(weight.sum())
    row = test_rows_are_the_users.__code__.co_firstlineno + 2
    assert (watched.seen[-1].filename, watched.seen[-1].row) == (__file__, row)


def test_a_disabled_scaler_is_no_scaler(watched: Watched) -> None:
    weight, optimizer, _ = watched.program()
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    scaler.scale(weight.sum()).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert watched.kinds == ["backward", "plain-step"]
    assert watched.broken == []


def test_undo_leaves_torch_as_it_was() -> None:
    owners = (torch.amp.GradScaler, torch.optim.Optimizer, torch.autograd, torch.nn.utils)
    before = [dict(vars(owner)) for owner in owners]
    Watched().patches.undo()
    assert [dict(vars(owner)) for owner in owners] == before
