"""`--sample`: figures that are true, origins that were planted, and a training that stays as it is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import amplint
from amplint.runtime import sampling
from amplint.runtime.hooks import Hooks, Switch
from amplint.runtime.measures import VALUES, Pending
from amplint.runtime.observer import Observer
from amplint.runtime.places import Territory
from amplint.runtime.sampling import SamplingObserver
from amplint.runtime.sink import Sample
from tests.budget import THOROUGH
from tests.live.fixture_runs import Told
from tests.live.programs import plain, row_of, watch
from tests.live.test_programs import COMPILED, assert_compiled_alike


class Samples(Told):
    """Keeps the samples that it hears of."""

    def __init__(self) -> None:
        super().__init__()
        self.samples: list[Sample] = []
        self.complaints: list[str] = []

    def sample(self, sample: Sample) -> None:
        self.samples.append(sample)


@contextmanager
def sampled(every: int = 1) -> Iterator[Samples]:
    """Watch this process for a while."""
    told, defects = Samples(), []
    nobody = (os.path.dirname(torch.__file__), os.path.dirname(str(amplint.__file__)))
    observer = SamplingObserver(
        told, Territory(nobody), every=every, complain=told.complaints.append
    )
    hooks = Hooks(observer, Switch(defects.append))
    try:
        yield told
    finally:
        hooks.undo()
        observer.stop()
    assert defects == []


def train(
    net: nn.Module,
    batches: list[torch.Tensor],
    *,
    scale: float = 8.0,
    loss_of: Callable[[Any], Any] = lambda out: out.float().square().mean(),
    before_step: Callable[[], None] = lambda: None,
    **more: Any,
) -> None:
    """A loop with float16 regions."""
    optimizer = torch.optim.SGD(net.parameters(), **{"lr": 0.01, **more})
    scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    for batch in batches:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            out = net(batch)
        scaler.scale(loss_of(out)).backward()
        before_step()
        scaler.step(optimizer)
        scaler.update()


class Block(nn.Module):
    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.first(x))
        return self.second(hidden * self.factor)


# -- figures


def test_shares_of_small_gradients_are_exact() -> None:
    parameters = [
        nn.Parameter(torch.zeros(4)),
        nn.Parameter(torch.zeros(3)),
        nn.Parameter(torch.zeros(2)),
    ]
    parameters[0].grad = torch.tensor([0.0, 1e-5, -2e-5, 3.0])
    parameters[2].grad = torch.tensor([float("inf"), -1.0])
    first, second = Pending(parameters).read()
    assert (first.values, first.zeros, first.tiny, first.bad, first.top) == (4, 1, 2, 0, 3.0)
    assert (second.values, second.zeros, second.tiny, second.bad) == (2, 0, 0, 1)
    assert second.top == float("inf")


def test_shares_of_large_gradients_are_close() -> None:
    parameter = nn.Parameter(torch.zeros(300, 700))
    made = torch.Generator().manual_seed(0)
    parameter.grad = torch.randn(700, 300, generator=made).mul(1e-4).exp2().sub(1).mT
    (shares,) = Pending([parameter]).read()
    truth = float(((parameter.grad.abs() < 2.0**-14) & (parameter.grad != 0)).float().mean())
    assert 0.9 * VALUES < shares.values <= VALUES
    assert abs(shares.tiny / shares.values - truth) < 0.05
    assert 0.1 < truth < 0.9


@pytest.mark.parametrize("count", [VALUES, VALUES + 1, 2 * VALUES - 1, 2 * VALUES + 1])
def test_shares_are_of_the_values_that_were_looked_at(count: int) -> None:
    parameters = [nn.Parameter(torch.zeros(count)) for _ in range(4)]
    for parameter, value in zip(parameters, (0.0, 2.0**-15, 2.0**-14, float("nan"))):
        parameter.grad = torch.full((count,), value)
    rows = Pending(parameters).read()
    looked = rows[0].values
    assert [(row.values, row.zeros, row.tiny, row.bad) for row in rows] == [
        (looked, looked, 0, 0),
        (looked, 0, looked, 0),
        (looked, 0, 0, 0),
        (looked, 0, 0, looked),
    ]


def test_shares_of_every_dtype() -> None:
    """With what lies next to the bound of the tiny ones."""
    below = torch.nextafter(torch.tensor(2.0**-14), torch.tensor(0.0))
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        parameter = nn.Parameter(torch.zeros(5, dtype=dtype))
        parameter.grad = torch.tensor([0.0, -(2.0**-15), 2.0**-14, float("inf"), -3.0]).to(dtype)
        (row,) = Pending([parameter]).read()
        assert (row.values, row.zeros, row.tiny, row.bad, row.top) == (5, 1, 1, 1, float("inf"))
    parameter = nn.Parameter(torch.zeros(1))
    parameter.grad = below[None]
    assert Pending([parameter]).read()[0].tiny == 1


def test_norms_before_and_after_unscaling_and_dtypes() -> None:
    torch.manual_seed(0)
    net = Block()
    seen: list[float] = []

    def norm() -> None:
        seen.append(float(nn.utils.get_total_norm([p.grad for p in net.parameters()])))

    with sampled() as told:
        train(net, [torch.randn(4, 8)] * 3, before_step=norm, scale=64.0)
    (first, second) = told.samples
    assert [each.update for each in told.samples] == [2, 3]
    assert first.before == pytest.approx(seen[1])
    assert second.after == pytest.approx(seen[2] / 64.0)
    assert first.kinds["first"].ran == "torch.float16"
    assert first.kinds["first"].gradient == "torch.float32"
    assert set(first.shares) == {"first", "second"}
    assert first.origin is None


def test_two_networks_with_the_same_names_have_rows_of_their_own() -> None:
    one, other = Block(), Block()
    both = nn.ModuleList([one, other])
    optimizer = torch.optim.SGD(both.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    measure = nn.MSELoss()
    with sampled() as told:
        for number in range(4):
            optimizer.zero_grad()
            inputs = torch.randn(4, 8)
            with torch.autocast("cpu", dtype=torch.float16):
                outs = [net(inputs) for net in (one, other)[:: -1 if number % 2 else 1]]
            loss = sum(measure(out.float(), torch.zeros(4, 4)) for out in outs)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    names = {"first", "second", "Block.first", "Block.second"}
    assert [set(each.shares) for each in told.samples] == [names] * 3
    weights = one.first.weight.numel() + one.first.bias.numel()
    assert {each.shares["first"].values for each in told.samples} == {weights}
    assert "MSELoss" in told.samples[0].kinds


def test_weights_that_do_not_move() -> None:
    """Half of the weights are too large for the step to change them."""
    torch.manual_seed(0)
    net = nn.Linear(8, 8, bias=False).bfloat16()
    with torch.no_grad():
        net.weight[:4], net.weight[4:] = 512.0, 2.0**-20
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    with sampled() as told:
        for _ in range(2):
            optimizer.zero_grad()
            net(torch.ones(1, 8, dtype=torch.bfloat16)).sum().backward()
            optimizer.step()
    (sample,) = told.samples
    assert (sample.shares[""].compared, sample.shares[""].still) == (64, 32)


# -- origins


def planted(name: str) -> tuple[nn.Module, list[torch.Tensor], dict[str, Any]]:
    torch.manual_seed(0)
    batches = [torch.randn(4, 8) for _ in range(3)]
    if name == "data":
        batches[1][0, 0] = float("inf")
    if name == "between":
        return Block(factor=1e9), batches, {}
    if name == "loss":
        return Block(), batches, {"loss_of": lambda out: out.float().mean() / 0.0}
    if name == "scale":
        return Block(), batches, {"scale": 3e38, "loss_of": lambda o: o.float().square().sum() * 9}
    if name == "gradient":
        return Block(), batches, {"scale": 2.0**30}
    if name == "module":
        net = Block()
        net.second.weight.data.fill_(1e6)
        return net, batches, {}
    return Block(), batches, {}


@pytest.mark.parametrize(
    ("name", "way", "module"),
    [
        ("healthy", None, None),
        ("data", "input of", "first"),
        ("between", "input of", "second"),
        ("module", "output of", "second"),
        ("loss", "loss", ""),
        ("scale", "scaled loss", ""),
        ("gradient", "gradient at the output of", "second"),
    ],
)
def test_the_first_value_that_is_not_finite(name: str, way: str, module: str) -> None:
    net, batches, more = planted(name)
    with sampled() as told:
        train(net, batches, **more)
    origin = told.samples[0].origin
    if way is None:
        assert origin is None
        return
    assert origin is not None
    assert (origin.way, origin.module) == (way, module)
    assert os.path.basename(origin.place[0]) == "test_samples.py"


def test_a_skip_is_looked_into_although_its_step_was_not_sampled() -> None:
    """The step after it is sampled; a training that always skips is not always sampled."""
    with sampled(every=1000) as told:
        train(Block(), [torch.full((4, 8), float("nan"))] * 30)
    assert [each.update for each in told.samples] == list(range(2, 11))
    assert told.samples[0].origin is not None


# -- the training stays as it is


class Count(TorchDispatchMode):
    """The operators that ran since `taken`."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))

    def taken(self) -> list[str]:
        names, self.names = self.names, []
        return names


def operators(watching: Callable[[], Any]) -> list[list[str]]:
    """Those of each step."""
    torch.manual_seed(0)
    steps: list[list[str]] = []
    count = Count()
    with watching(), count:
        train(Block(), [torch.randn(4, 8)] * 9, before_step=lambda: steps.append(count.taken()))
    return steps


@contextmanager
def watched() -> Iterator[None]:
    told, defects = Told(), []
    hooks = Hooks(
        Observer(told, Territory((os.path.dirname(torch.__file__),))), Switch(defects.append)
    )
    yield
    hooks.undo()


def test_steps_that_are_not_sampled_run_the_same_operators() -> None:
    without, with_samples = operators(watched), operators(lambda: sampled(every=5))
    differing = [n for n, pair in enumerate(zip(without, with_samples)) if pair[0] != pair[1]]
    # What step 1 and 6 add is seen from the middle of one step to the middle of the next.
    assert differing == [1, 2, 6, 7]
    reads = "aten._local_scalar_dense.default"
    assert [s.count(reads) for s in with_samples][3:6] == [s.count(reads) for s in without][3:6]


PROGRAM = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(8, 32), nn.ReLU(inplace=True), nn.Dropout(0.2))
        self.middle = nn.Sequential(nn.Linear(32, 32), nn.ReLU(inplace=True), nn.Dropout(0.2))
        self.last = nn.Linear(32, 1)

    def forward(self, x):
        x = self.first(x)
        x = checkpoint(self.middle, x, use_reentrant=False)
        return self.last(checkpoint(self.middle, x, use_reentrant=True))


net = Net()
optimizer = torch.optim.AdamW(net.parameters(), 0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**22, growth_interval=3)
for step in range(24):
    with torch.autocast("cpu", dtype=torch.float16):
        loss = net(torch.randn(4, 8)).float().square().mean()
    scaler.scale(loss).backward()
    if step % 2:
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    print(loss.item().hex(), scaler.get_scale(), torch.rand(()).item().hex())
"""


def test_the_same_losses_bit_for_bit(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM, "utf-8")
    seen = watch(tmp_path, "train.py", options=("--sample", "2"))
    assert (seen.status, seen.told) == (0, []), seen.stderr
    assert seen.stdout == plain(tmp_path, "train.py").stdout
    samples = seen.report["processes"][0]["samples"]
    assert samples["failed"] == ""
    assert len(samples["steps"]) >= 6
    assert {"first.0", "middle.0", "last"} <= set(samples["modules"])
    assert samples["modules"]["last"]["ran"] == "torch.float16"
    assert samples["not_finite"][0]["row"] == row_of(PROGRAM, "return self.last")
    assert "the first inf or NaN, before update 2" in seen.stderr
    page = (tmp_path / "record" / "report.html").read_text("utf-8")
    assert "<h2>Sampled steps</h2>" in page and "<code>middle.0</code>" in page


@pytest.mark.parametrize("part", ["step", "model"] if THOROUGH else ["model"])
def test_compiled_programs_have_the_same_graphs(tmp_path: Path, part: str) -> None:
    """And torch has nothing to say about hooks, which its compiled modules warn of."""
    body = COMPILED
    if part == "model":
        body = body.replace('@torch.compile(backend="aot_eager")\n', "")
        body = body.replace("inputs =", 'net = torch.compile(net, backend="aot_eager")\ninputs =')
    (tmp_path / "train.py").write_text(body, "utf-8")
    seen = watch(tmp_path, "train.py", options=("--sample", "1"))
    unwatched = plain(tmp_path, "train.py")
    assert_compiled_alike(seen.stdout, unwatched.stdout)
    # Python 3.13.0 has one of its own.
    assert seen.stderr.count("Warning") == unwatched.stderr.count("Warning")
    assert "so modules were not looked at" in seen.stderr


def test_an_error_of_the_samples_own_ends_the_samples_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_args: Any) -> None:
        raise KeyError("planted")

    monkeypatch.setattr(sampling, "Pending", broken)
    with sampled() as told:
        train(Block(), [torch.randn(4, 8)] * 4)
    assert (told.samples, told.updates) == ([], 4)
    assert told.complaints == ["no samples from here on (KeyError: 'planted')"]
