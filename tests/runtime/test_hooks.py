"""The hooks around whole programs: same results, no harm, nothing kept alive."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn

import amplint
from amplint.runtime.dynamo import keep_from_dynamo
from amplint.runtime.hooks import Hooks, Switch
from amplint.runtime.objects import ScalerRecord
from amplint.runtime.observer import Observer
from amplint.runtime.places import Owner, Place, Territory
from amplint.runtime.regions import Regions
from amplint.runtime.sink import Finding

HERE = os.path.dirname(__file__)


class Told:
    """A sink that keeps what it hears."""

    def __init__(self) -> None:
        self.findings: dict[tuple[str, int], Finding] = {}
        self.rounds: list[tuple[float | None, bool | None]] = []

    def finding(self, found: Finding) -> None:
        self.findings[found.slug, found.place[1]] = found

    def reached(self, place: Place) -> None:
        """Not of interest here."""

    def round(self, scaler: ScalerRecord, skipped: bool | None) -> None:
        self.rounds.append((scaler.scale, skipped))

    def stepped(self) -> None:
        """Not of interest here."""

    @property
    def slugs(self) -> set[str]:
        return {slug for slug, _ in self.findings}


@contextmanager
def watching(*, errors: list[BaseException] | None = None) -> Iterator[Told]:
    """Hooks for the time of a block; an error of their own fails the test."""
    told, own = Told(), [] if errors is None else errors
    hooks = Hooks(Observer(told, _territory()), Switch(own.append))
    try:
        yield told
    finally:
        hooks.undo()
    assert errors is not None or own == []


def _territory() -> Territory:
    own = os.path.dirname(str(amplint.__file__))
    return Territory((os.path.dirname(torch.__file__), own), (HERE,))


def _small_scaler() -> Any:
    return torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=4)


def train(
    steps: int = 12,
    *,
    make: Callable[[Any], torch.optim.Optimizer] = lambda p: torch.optim.SGD(p, 0.1),
    overflow: int = -1,
) -> list[str]:
    """A healthy loop in float16, with clipping; the losses bit for bit."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer, scaler = make(net.parameters()), _small_scaler()
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = net(torch.randn(4, 8)).float().square().mean()
        factor = float("inf") if step == overflow else 1.0
        scaler.scale(loss * factor).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item().hex())
    return [*losses, f"{scaler.get_scale()}", f"{torch.rand(1).item()}"]


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
    "adam foreach": lambda p: torch.optim.Adam(p, 0.01, foreach=True),
    "adamw fused": lambda p: torch.optim.AdamW(p, 0.01, fused=True),
    "sgd fused": lambda p: torch.optim.SGD(p, 0.1, fused=True),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("overflow", [-1, 5])
def test_healthy_loops_are_silent_and_bit_for_bit_the_same(name: str, overflow: int) -> None:
    plain = train(make=OPTIMIZERS[name], overflow=overflow)
    with watching() as told:
        assert train(make=OPTIMIZERS[name], overflow=overflow) == plain
    assert told.slugs == set()
    assert [skipped for _, skipped in told.rounds] == [step == overflow for step in range(12)]
    assert told.rounds[-1][0] == float(plain[-2])


def test_the_measured_scale_and_threshold_stand_in_the_finding() -> None:
    with watching() as told:
        net = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=4096.0)
        scaler.scale(net(torch.ones(1, 2)).sum()).backward()
        nn.utils.clip_grad_value_(net.parameters(), 0.5)
        scaler.step(optimizer)
    (found,) = told.findings.values()
    assert (found.slug, found.facts) == ("clip-of-scaled", {"scale": 4096.0, "bound": 0.5})


def _divided_by_hand(net: nn.Module, optimizer: Any, scaler: Any) -> None:
    for parameter in net.parameters():
        parameter.grad /= scaler.get_scale()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()


def _divided_out_of_sight(net: nn.Module, optimizer: Any, scaler: Any) -> None:
    for parameter in net.parameters():
        parameter.grad.data.copy_(parameter.grad.data / scaler.get_scale())
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()


def _threshold_times_scale(net: nn.Module, optimizer: Any, scaler: Any) -> None:
    nn.utils.clip_grad_norm_(net.parameters(), 0.5 * scaler.get_scale())
    scaler.step(optimizer)
    scaler.update()


def _norm_only(net: nn.Module, optimizer: Any, scaler: Any) -> None:
    nn.utils.clip_grad_norm_(net.parameters(), float("inf"))
    scaler.step(optimizer)
    scaler.update()


@pytest.mark.parametrize(
    "rest", [_divided_by_hand, _divided_out_of_sight, _threshold_times_scale, _norm_only]
)
def test_programs_that_scale_by_themselves_are_right(rest: Callable[..., None]) -> None:
    with watching() as told:
        net = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
        for _ in range(3):
            optimizer.zero_grad()
            scaler.scale(net(torch.ones(1, 2)).sum()).backward()
            rest(net, optimizer, scaler)
    assert told.slugs == set()


def test_nothing_is_wrong_at_a_scale_of_one() -> None:
    with watching() as told:
        net = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
        scaler.scale(net(torch.ones(1, 2)).sum()).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
    assert told.slugs == set()


@pytest.mark.parametrize(("second", "slugs"), [(None, set()), (128.0, {"stale-scale"})])
def test_a_stale_scale_is_one_that_differs(second: float | None, slugs: set[str]) -> None:
    with watching() as told:
        first, other = nn.Linear(2, 1), nn.Linear(2, 1)
        optimizers = [torch.optim.SGD(net.parameters(), 0.1) for net in (first, other)]
        scaler = torch.amp.GradScaler("cpu", init_scale=512.0)
        scaler.scale((first(torch.ones(1, 2)) + other(torch.ones(1, 2))).sum()).backward()
        scaler.step(optimizers[0])
        scaler.update(second)
        scaler.step(optimizers[1])
    assert told.slugs == slugs
    facts = [found.facts for found in told.findings.values()]
    assert facts == ([{"scale": 128.0, "was": 512.0}] if slugs else [])


def test_parts_of_a_loss() -> None:
    """A sum of scaled parts is scaled; a plain part in it is a mistake of its own."""
    with watching() as told:
        net = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        scaler = torch.amp.GradScaler("cpu")
        loss = lambda: net(torch.ones(1, 2)).sum()
        ((scaler.scale(loss()) + scaler.scale(loss())) / 2).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        assert told.slugs == set()
        (scaler.scale(loss()) + 0.1 * net.weight.square().sum()).backward()
    assert told.slugs == {"losses-mixed"}


@pytest.mark.parametrize("is_replayed", [True, False])
def test_a_captured_backward(monkeypatch: pytest.MonkeyPatch, is_replayed: bool) -> None:
    """Whoever replays a graph gets new gradients, in tensors whose versions do not move."""
    net = nn.Linear(2, 1)

    def replay(_graph: Any) -> None:
        for parameter in net.parameters():
            parameter.grad.data.fill_(256.0)

    monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", replay)
    with watching() as told:
        optimizer, scaler = torch.optim.SGD(net.parameters(), 0.1), _small_scaler()
        scaler.scale(net(torch.ones(1, 2)).sum()).backward()  # what a capture would keep
        for _ in range(4):
            if is_replayed:
                torch.cuda.CUDAGraph.replay(None)
            scaler.step(optimizer)
            scaler.update()
    assert told.slugs == (set() if is_replayed else {"step-on-spent"})


def test_private_names_that_a_version_of_torch_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Norm clips are seen at their public name; frames of amplint's are left to dynamo."""

    def clip_grad_norm_(parameters: Any, max_norm: float) -> None:
        """As before torch 2.6: all in one function."""
        for parameter in parameters:
            parameter.grad.mul_(max_norm / max(max_norm, float(parameter.grad.norm())))

    with monkeypatch.context() as dynamo:
        dynamo.delattr(torch._C._dynamo.eval_frame, "_FrameExecStrategy", raising=False)
        keep_from_dynamo(clip_grad_norm_)
    for owner in (nn.utils, nn.utils.clip_grad):
        monkeypatch.setattr(owner, "clip_grad_norm_", clip_grad_norm_)
    monkeypatch.delattr(nn.utils.clip_grad, "_clip_grads_with_norm_", raising=False)
    with watching() as told:
        train()
        assert told.slugs == set()
        net = nn.Linear(2, 1)
        optimizer, scaler = torch.optim.SGD(net.parameters(), 0.1), _small_scaler()
        scaler.scale(net(torch.ones(1, 2)).sum()).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
    assert told.slugs == {"clip-of-scaled"}


def test_threads_that_train_at_once() -> None:
    with watching() as told:
        threads = [threading.Thread(target=train, args=(80,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (told.slugs, len(told.rounds)) == (set(), 240)


_METHODS = [
    *((Observer, name) for name in vars(Observer) if not name.startswith("_")),
    *((Observer, name) for name in ("_apply", "_judge", "_follow", "_claim", "_feed", "_cleared")),
    *((Regions, name) for name in ("entering", "left", "after_backward", "stepped")),
]


@pytest.mark.parametrize(("owner", "name"), _METHODS)
def test_an_error_of_the_observer_is_not_the_users(
    owner: type, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted error ends the watching; the training is what it was."""
    if not callable(vars(owner)[name]) or name in ("findings", "forget_findings", "adopt"):
        pytest.skip("not on the way of a training")
    plain = train(6, overflow=2)

    def planted(*_args: Any, **_kwargs: Any) -> None:
        raise KeyError("planted")

    monkeypatch.setattr(owner, name, planted)
    errors: list[BaseException] = []
    with watching(errors=errors):
        assert train(6, overflow=2) == plain
    assert len(errors) <= 1


def test_errors_of_torch_go_on_to_the_user() -> None:
    net = nn.Linear(2, 1)
    optimizer, scaler = torch.optim.SGD(net.parameters(), 0.1), torch.amp.GradScaler("cpu")
    with watching() as told:
        with pytest.raises(AssertionError, match="_scale is None"):
            scaler.step(optimizer)
        with pytest.raises(TypeError):
            scaler.unscale_()  # type: ignore[call-arg]
        with pytest.raises(RuntimeError, match="does not require grad"):
            torch.ones(1).backward()
    assert told.slugs == {"step-uninitialised"}


def test_nothing_is_kept_alive() -> None:
    with watching():
        net = nn.Linear(2, 1)
        optimizer, scaler = torch.optim.SGD(net.parameters(), 0.1), torch.amp.GradScaler("cpu")
        scaler.scale(net(torch.ones(1, 2)).sum()).backward()
        gradient = weakref.ref(net.weight.grad)
        optimizer.zero_grad()
        gc.collect()
        assert gradient() is None
        left = [weakref.ref(thing) for thing in (net.weight, optimizer, scaler)]
        del net, optimizer, scaler
        gc.collect()
        assert [reference() for reference in left] == [None, None, None]


def test_undo_leaves_torch_as_it_was() -> None:
    region = torch.amp.autocast_mode.autocast
    owners = (torch.amp.GradScaler, torch.optim.Optimizer, torch.autograd, nn.utils, region)
    before = [dict(vars(owner)) for owner in owners]
    with watching():
        assert dict(vars(torch.amp.GradScaler)) != before[0]
    assert [dict(vars(owner)) for owner in owners] == before


def test_whose_files_are_whose() -> None:
    territory = Territory(("/env/lib/python3/site-packages/torch",), ("/env/lib/python3/mine",))
    owners = {
        "/home/me/train.py": Owner.USER,
        "/env/lib/python3/mine/train.py": Owner.USER,
        "/env/lib/python3/site-packages/lightning/loop.py": Owner.LIBRARY,
        "/env/lib/python3/site-packages/torch/optim/sgd.py": Owner.NOBODY,
        "<frozen runpy>": Owner.NOBODY,
        "<ipython-input-3-abc>": Owner.USER,
        os.__file__: Owner.NOBODY,
    }
    assert {name: territory.owner(name) for name in owners} == owners
