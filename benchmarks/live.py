"""What watching costs: steps without and with the hooks, in turn, in one process.

    python benchmarks/live.py [PAIRS]

Prints the time of a step without, the median of the differences, and the same for steps compared
with themselves, which is the noise; then what clocks at the edges of amplint's own parts say of one
step ("in situ"), and what a sampled step costs more than its neighbours. The last line is the mean of
one event, wrappers included, in a loop in which torch's own parts do nothing ("hot"); and in situ of
a tiny step, in which they run in between ("warm"). Not a test: a busy machine moves the figures.
"""

from __future__ import annotations

import gc
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

import amplint
from amplint.live.watching import Journal, Options
from amplint.runtime.hooks import Hooks, Switch
from amplint.runtime.observer import Observer
from amplint.runtime.patches import Patches
from amplint.runtime.places import Territory
from amplint.runtime.sampling import SamplingObserver

#: Calls of a step that are watched.
EVENTS = 9
SHAPES = {"3 layers of 64": (64, 3), "3 layers of 512": (512, 3), "100 layers of 16": (16, 100)}


def make_step(width: int, depth: int) -> Callable[[], None]:
    """A float16 step of nine events: clear, region, scale, backward, unscale, clip, step, update."""
    layers = [each for _ in range(depth) for each in (nn.Linear(width, width), nn.ReLU())]
    net, inputs = nn.Sequential(*layers), torch.randn(32, width)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = net(inputs).float().square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()

    return step


def seconds(step: Callable[[], None]) -> float:
    """CPU time of one step."""
    start = time.process_time()
    step()
    return time.process_time() - start


class Timed(Hooks):
    """Hooks with clocks around what amplint does before and after each call."""

    def __init__(self, observer: Observer, switch: Switch) -> None:
        self.seconds = 0.0
        super().__init__(observer, switch)

    def _timed(self, action: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any) -> Any:
            start = time.perf_counter()
            try:
                return action(*args)
            finally:
                self.seconds += time.perf_counter() - start

        return timed

    def _wrap(self, owner: Any, name: str, before: Any, after: Any, prepare: Any = None) -> None:
        super()._wrap(owner, name, self._timed(before), self._timed(after), prepare)

    def _step_hook(self, tell: Any) -> Any:
        return super()._step_hook(self._timed(tell))


def territory() -> Territory:
    """Torch and amplint are nobody's."""
    own = os.path.dirname(os.path.abspath(str(amplint.__file__)))
    return Territory((os.path.dirname(torch.__file__), own))


def in_situ(width: int, depth: int, steps: int) -> float:
    """Seconds of amplint's own parts of one step, the median."""
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Options(folder, quiet=True))
        hooks = Timed(Observer(journal, territory()), Switch(print))
        step, found = make_step(width, depth), []
        for number in range(steps + 100):
            hooks.seconds = 0.0
            step()
            if number >= 100:
                found.append(hooks.seconds)
        hooks.undo()
        journal.end(())
    return statistics.median(found)


def sampled(width: int, depth: int, samples: int) -> float:
    """Seconds that a sampled step takes more than the one before it, the median."""
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Options(folder, quiet=True))
        observer = SamplingObserver(journal, territory(), every=5, complain=print)
        hooks = Hooks(observer, Switch(print))
        step = make_step(width, depth)
        times = [seconds(step) for _ in range(5 * samples)]
        hooks.undo()
        observer.stop()
        journal.end(())
    return statistics.median(b - a for a, b in zip(times[5::5], times[6::5]))


def compare(width: int, depth: int, pairs: int) -> tuple[float, float, float]:
    """Seconds of a step without, the median difference with hooks, and the noise."""
    with tempfile.TemporaryDirectory() as folder:
        switch = Switch(lambda error: print("switched off:", repr(error)))
        journal = Journal(Options(folder, quiet=True))
        hooks = Hooks(Observer(journal, territory()), switch)
        step = make_step(width, depth)
        for _ in range(30):
            step()
        plain, with_hooks, noise = [], [], []
        for _ in range(pairs):
            switch.is_on = False
            first, again = seconds(step), seconds(step)
            switch.is_on = True
            step()  # the observer has missed a round
            with_hooks.append(seconds(step) - again)
            noise.append(again - first)
            plain.append(again)
        hooks.undo()
        journal.end(())
    return tuple(map(statistics.median, (plain, with_hooks, noise)))  # type: ignore[return-value]


class Stubbed:
    """A step of nine events in which what torch does is left away: hooks see nothing else."""

    def __init__(self) -> None:
        net = nn.Linear(2, 2)
        self._parameters = list(net.parameters())
        self._gradients = [[torch.ones_like(each) for each in self._parameters] for _ in "ab"]
        self._optimizer = torch.optim.SGD(self._parameters, lr=1e-3)
        self._scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        self._region = torch.autocast("cpu", dtype=torch.bfloat16)
        self._loss = net(torch.ones(1, 2)).sum()
        self._scaled = self._scaler.scale(self._loss)

    def stubs(self) -> Patches:
        """Put something that does nothing in the place of torch's methods."""
        stubs, scaler = Patches(), torch.amp.GradScaler
        nothing = [(scaler, "unscale_"), (scaler, "update")]
        nothing += [(torch.autocast, "__enter__"), (torch.autocast, "__exit__")]
        nothing += [(nn.utils.clip_grad, "_clip_grads_with_norm_")]
        for owner, name in nothing:
            stubs.set(owner, name, lambda *_args: None)
        stubs.set(scaler, "scale", lambda *_args: self._scaled)
        stubs.set(scaler, "step", lambda *_args: self._take())
        stubs.set(torch.optim.Optimizer, "zero_grad", lambda _self: self._put((None, None)))
        stubs.set(torch.autograd, "backward", lambda _loss: self._feed())
        return stubs

    def _put(self, gradients: Sequence[Any]) -> None:
        for parameter, gradient in zip(self._parameters, gradients):
            parameter.grad = gradient

    def _feed(self) -> None:
        self._gradients.reverse()
        self._put(self._gradients[0])

    def _take(self) -> None:
        for hooks in (_global_optimizer_pre_hooks, _global_optimizer_post_hooks):
            for hook in hooks.values():
                hook(self._optimizer, (self._optimizer,), {})

    def step(self) -> None:
        """Nine events."""
        self._optimizer.zero_grad()
        with self._region:
            pass
        torch.autograd.backward(self._scaler.scale(self._loss))
        self._scaler.unscale_(self._optimizer)
        nn.utils.clip_grad._clip_grads_with_norm_(self._parameters, 1.0)
        self._scaler.step(self._optimizer)
        self._scaler.update()


def hot(rounds: int) -> float:
    """Seconds that one event adds in a tight loop: wrappers, hooks, observer and record."""
    stubbed = Stubbed()
    stubs = stubbed.stubs()
    with tempfile.TemporaryDirectory() as folder:
        plain = _median(stubbed.step, rounds)
        journal = Journal(Options(folder, quiet=True))
        hooks = Hooks(Observer(journal, territory()), Switch(print))
        watched = _median(stubbed.step, rounds)
        hooks.undo()
        journal.end(())
    stubs.undo()
    return (watched - plain) / EVENTS


def _median(action: Callable[[], None], rounds: int) -> float:
    """Seconds of wall clock of one call, which is short enough to be mostly undisturbed."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    """One line for each shape, in microseconds of CPU."""
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    torch.set_num_threads(1)
    gc.disable()
    for name, (width, depth) in SHAPES.items():
        plain, cost, noise = (1e6 * each for each in compare(width, depth, pairs))
        own = 1e6 * in_situ(width, depth, pairs)
        more = 1e6 * sampled(width, depth, max(20, pairs // 10))
        share = more / 50 / plain
        print(
            f"{name}: step {plain:.0f} us, watching +{cost:.0f} us, noise {noise:+.0f} us; "
            f"in situ {own:.0f} us; a sampled step +{more:.0f} us, {share:.1%} with --sample 50"
        )
    warm = 1e6 * in_situ(2, 1, 5 * pairs) / EVENTS
    print(f"hot: {1e6 * hot(20 * pairs):.1f} us for an event; warm: {warm:.1f} us")


if __name__ == "__main__":
    main()
