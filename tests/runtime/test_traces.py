"""Mistakes that raise nothing and break no order of events, but leave a trace; and what looks like them.

Each program is run without hooks, too: what comes out is the same, and what is told of it is so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.runtime.test_hooks import watching

INPUTS = torch.ones(2, 4)


def network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))


# -- weights that are loaded inside a region


class Loads:
    """Two forwards inside a region, and weights that are loaded in between."""

    def __init__(self, seed: int = 1, *, checkpointed: bool = False) -> None:
        self.net, self.other = network(), network(seed).state_dict()
        self.checkpointed = checkpointed
        self.results: list[torch.Tensor] = []

    def forward(self) -> None:
        made = checkpoint(self.net, INPUTS, use_reentrant=False) if self.checkpointed else None
        self.results.append(self.net(INPUTS) if made is None else made)

    def load(self) -> None:
        self.net.load_state_dict(self.other)

    def run(self, *calls: Callable[[], object], **options: Any) -> bool:
        """Whether the last forward computed what the first one did, with other weights."""
        with torch.autocast("cpu", dtype=torch.bfloat16, **options):
            for call in calls:
                call()
        if self.checkpointed:
            self.results[-1].float().sum().backward()
        assert not any(layer._forward_pre_hooks for layer in self.net)
        first, last = self.results[0], self.results[-1]
        return first is not last and torch.equal(first, last)


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad])
@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_forward_with_the_weights_from_before(mode: Any, checkpointed: bool) -> None:
    if checkpointed and mode is torch.no_grad:
        return
    with mode():
        plain = Loads(checkpointed=checkpointed)
        assert plain.run(plain.forward, plain.load, plain.forward)
        with watching() as told:
            seen = Loads(checkpointed=checkpointed)
            assert seen.run(seen.forward, seen.load, seen.forward)
    (slug, row) = next(iter(told.findings))
    assert slug == "weights-loaded-under-autocast"
    assert row == Loads.load.__code__.co_firstlineno + 1
    assert all(map(torch.equal, plain.results, seen.results))
    gradients = [[each.grad for each in loads.net.parameters()] for loads in (plain, seen)]
    assert not checkpointed or all(map(torch.equal, *gradients))


def _right(name: str, seed: int = 1) -> bool:
    loads = Loads(seed)
    forward, load = loads.forward, loads.load
    if name == "loaded first":
        return loads.run(load, forward)
    if name == "loaded last":
        return loads.run(forward, load)
    if name == "copies thrown away":
        return loads.run(forward, load, torch.clear_autocast_cache, forward)
    if name == "no copies":
        return loads.run(forward, load, forward, cache_enabled=False)
    if name == "frozen":  # torch keeps copies of what is trained
        loads.net.requires_grad_(False)
    return loads.run(forward, load, forward)


@pytest.mark.parametrize(
    "name", ["loaded first", "loaded last", "copies thrown away", "no copies", "frozen"]
)
def test_weights_that_are_loaded_in_time(name: str) -> None:
    with watching() as told:
        assert not _right(name)
    assert told.slugs == set()


def test_the_same_weights_are_no_matter() -> None:
    with watching() as told:
        _right("loaded again", seed=0)
    assert told.slugs == set()


# -- regions that nobody enters


def steps(each: Callable[[], object] = lambda: None) -> None:
    """Three steps without a region, and what comes in front of each."""
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for _ in range(3):
        each()
        optimizer.zero_grad()
        scaler.scale(net(INPUTS).mean()).backward()
        scaler.step(optimizer)
        scaler.update()


def _before_all() -> None:
    torch.autocast("cpu", dtype=torch.float16)
    steps()


def _over_rows() -> None:
    torch.autocast(
        "cpu",
        dtype=torch.float16,
    )
    steps()


@pytest.mark.parametrize("program", [_before_all, _over_rows])
def test_a_region_that_is_made_and_let_go(program: Callable[[], None]) -> None:
    with watching() as told:
        program()
    assert list(told.findings) == [
        ("autocast-never-entered", program.__code__.co_firstlineno + 1),
    ]


def _kept() -> None:
    region = torch.autocast("cpu")
    steps()
    del region


def _put_aside() -> None:
    region = torch.autocast("cpu")
    del region
    steps()


def _tried() -> None:
    """Asks whether there is such a region, and uses others."""
    torch.autocast("cpu", dtype=torch.float16)
    steps(_entered)


def _entered() -> None:
    with torch.autocast("cpu", dtype=torch.float16):
        pass


def _switched_off() -> None:
    torch.autocast("cpu", enabled=False)
    steps()


def _decorator() -> None:
    @torch.autocast("cpu", dtype=torch.float16)
    def unused() -> None: ...

    steps()


@pytest.mark.parametrize("program", [_kept, _put_aside, _tried, _switched_off, _decorator])
def test_regions_that_are_made_for_something(program: Callable[[], None]) -> None:
    with watching() as told:
        program()
    assert told.slugs == set()


@pytest.mark.filterwarnings("ignore:.*torch.jit.*")
def test_a_region_of_a_script_is_compiled_as_before() -> None:
    with watching():
        assert torch.jit.script(_multiplied)(torch.ones(2, 2)).dtype is torch.bfloat16


def _multiplied(matrix: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.mm(matrix, matrix)


def test_a_generator_that_leaves_its_region_open_is_told_where_it_harms() -> None:
    def batches() -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            for _ in range(3):
                yield INPUTS

    with watching() as told:
        net = network()
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for inputs in batches():
            optimizer.zero_grad()
            net(inputs).float().mean().backward()
            optimizer.step()
    assert {"backward-under-autocast", "training-loop-under-one-autocast"} <= told.slugs


# -- gradients that are cleared before the step has them


def cleared(rounds: int, drops: Callable[[int], bool], factor: float = 1.0, **options: Any) -> bool:
    """Trains, dropping some batches; whether the weights have moved."""
    net = network()
    before = [weight.detach().clone() for weight in net.parameters()]
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9, weight_decay=0.1, **options)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for number in range(rounds):
        optimizer.zero_grad()
        scaler.scale(net(INPUTS).mean() * factor).backward()
        scaler.unscale_(optimizer)
        if drops(number):
            optimizer.zero_grad()
        scaler.step(optimizer)
        scaler.update()
    return not all(map(torch.equal, before, net.parameters()))


@pytest.mark.parametrize("options", [{}, {"fused": True}])
def test_a_training_that_never_has_a_gradient(options: Any) -> None:
    with watching() as told:
        assert not cleared(20, lambda _: True, **options)
    assert [slug for slug, _ in told.findings] == ["always-cleared"]
    assert told.findings.popitem()[1].facts["rounds"] == 20.0


@pytest.mark.parametrize(
    ("drops", "factor"),
    [
        (lambda number: number < 18, 1.0),  # some batches were bad
        (lambda number: bool(number % 2), 1.0),
        (lambda _: True, math.inf),  # the scaler would have skipped each of them
    ],
)
def test_batches_that_are_dropped(drops: Callable[[int], bool], factor: float) -> None:
    with watching() as told:
        assert cleared(20, drops, factor) == (factor == 1.0)
    assert "always-cleared" not in told.slugs
