"""What amplint must not do to a training: an error at any place inside it, disks, kills."""

from __future__ import annotations

import inspect
import io
import os
import resource
import signal
import sys
import types
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import amplint
from amplint.live import record, watching
from amplint.live.merge import read_run
from amplint.live.watching import Journal, Options
from amplint.protocol import tracker
from amplint.runtime import (
    endings,
    forwards,
    losses,
    measures,
    objects,
    observer,
    places,
    regions,
    reloads,
    sampling,
    sets,
)
from amplint.runtime import hooks as wrappers
from amplint.runtime.hooks import Hooks, Switch
from amplint.runtime.places import Territory
from amplint.runtime.sampling import SamplingObserver
from amplint.runtime.sink import Finding

_STEPS = 4
MODULES = (
    *(observer, regions, sets, losses, objects, places, tracker, record, watching),
    *(sampling, forwards, measures, endings, reloads),
)
#: What runs before or after the training, or is no part of what is called for an event.
_OTHER_TIMES = ("Hooks", "Switch", "Watch", "Options", "Patches")
#: The guard that Python calls where an object dies; what it calls is planted in.
_GUARDS = ("_gone",)


def training() -> list[Any]:
    """Every kind of call that is watched, two mistakes among them; what came of it."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    other = torch.optim.Adam([nn.Parameter(torch.ones(2))], 0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2)
    seen: list[Any] = []
    torch.autocast("cpu", dtype=torch.float16)
    for step in range(_STEPS):
        optimizer.zero_grad(set_to_none=bool(step % 2))
        with torch.autocast("cpu", dtype=torch.float16):
            loss = net(torch.randn(4, 8)).float().square().mean()
        scaler.scale(loss).backward()
        nn.utils.clip_grad_value_(net.parameters(), 1.0)
        scaler.unscale_(optimizer)
        seen.append(nn.utils.clip_grad_norm_(net.parameters(), 1.0).item())
        scaler.step(optimizer)
        other.step(lambda: torch.zeros(()))
        scaler.update()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.load_state_dict(scaler.state_dict())
        optimizer.state_dict()
        net.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            net.load_state_dict(net.state_dict())
            net(torch.randn(4, 8)).float().mean().backward()
            optimizer.step()
        seen.extend((loss.item(), scaler.get_scale()))
    try:
        scaler.step(optimizer)
        scaler.step(optimizer)
    except RuntimeError as error:
        seen.append(str(error))
    return [*seen, *(weight.detach().clone() for weight in net.parameters())]


def territory() -> Territory:
    nobody = (os.path.dirname(torch.__file__), os.path.dirname(str(amplint.__file__)))
    return Territory(nobody)


def same(first: list[Any], second: list[Any]) -> bool:
    return len(first) == len(second) and all(
        torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in zip(first, second)
    )


# -- an error at every place


def functions() -> Iterator[tuple[Any, str]]:
    """All functions of the monitor: of its modules, and of the classes in them."""
    for module in (*MODULES, wrappers):
        for name, value in vars(module).items():
            if getattr(value, "__module__", "") != module.__name__:
                continue
            if inspect.isfunction(value):
                yield module, name
            elif inspect.isclass(value) and name not in _OTHER_TIMES:
                for method, function in vars(value).items():
                    is_plain = inspect.isfunction(function) or isinstance(function, property)
                    if (
                        is_plain
                        and method not in _GUARDS
                        and (not method.startswith("__") or method == "__init__")
                    ):
                        yield value, method


def planted(plain: Any, at: int) -> tuple[Any, list[int]]:
    """The same function, or property, which raises at its call with this number."""
    calls = [0]

    def broken(*args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        if calls[0] == at:
            raise KeyError("planted")
        return (plain.fget if isinstance(plain, property) else plain)(*args, **kwargs)

    return property(broken) if isinstance(plain, property) else broken, calls


def run_with(owner: Any, name: str, at: int, folder: Path) -> tuple[list[Any], int, int]:
    """What came of the training, how often the function was called, and how often amplint failed."""
    failures: list[BaseException] = []
    journal = Journal(Options(str(folder), quiet=True))
    unsampled: list[str] = []
    watching_observer = SamplingObserver(journal, territory(), every=2, complain=unsampled.append)
    plain = vars(owner)[name]
    broken, calls = planted(plain, at)
    setattr(owner, name, broken)
    watched = None
    try:
        try:
            watched = Hooks(watching_observer, Switch(failures.append))
        except KeyError as error:  # so this process is not watched
            failures.append(error)
        return training(), calls[0], len(failures) + len(unsampled)
    finally:
        setattr(owner, name, plain)
        if watched is not None:
            watched.undo()
        watching_observer.stop()
        journal.recorder.close()


def test_an_error_at_any_place_is_never_the_trainings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, planted_in = training(), []
    #: What Python would print: errors where nobody can catch them, as when an object dies.
    unraised: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", unraised.append)
    owners = (torch.amp.GradScaler, torch.optim.Optimizer, torch.autocast, nn.Module)
    plain = [vars(each).copy() for each in owners]
    for number, (owner, name) in enumerate(list(functions())):
        for at in (1, 2, 5):
            came, calls, failures = run_with(owner, name, at, tmp_path / str(number))
            where = f"{owner.__name__}.{name}, call {at}"
            assert same(came, expected), where
            if calls >= at:
                planted_in.append(where)
                assert failures <= 1, where
    assert len(planted_in) > 350
    assert not [str(each.object) for each in unraised]
    assert [vars(each) for each in owners] == plain


# -- disks and kills: in children, which end as they like


def in_child(action: Callable[[], None]) -> int:
    """The status of a forked process that does this."""
    child = os.fork()
    if child == 0:
        try:
            action()
            os._exit(0)
        except BaseException:  # noqa: BLE001 - a child must not become a second pytest
            os._exit(99)
    return os.waitpid(child, 0)[1]


def watched_training(folder: Path, expected: list[Any]) -> None:
    """A whole training under a watch; it has to come out as it does without."""
    watch = watching.begin(Options(str(folder)))
    came = training()
    watch.close()
    assert same(came, expected)


def test_a_disk_without_room(tmp_path: Path) -> None:
    """The record may grow to 700 bytes; the training ends as it would have, findings are told."""
    expected = training()

    def full() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (700, 700))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        sys.stderr = io.StringIO()  # a file of stderr's would be full as well
        watched_training(tmp_path / "record", expected)
        assert sys.stderr.getvalue().count("cannot write the record") == 1

    assert in_child(full) == 0
    (made,) = read_run(str(tmp_path / "record")).processes
    assert sum(map(len, made.rounds.values())) < _STEPS


def test_a_folder_that_cannot_be_made(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    expected = training()
    (tmp_path / "file").write_text("", "utf-8")
    assert in_child(lambda: watched_training(tmp_path / "file" / "record", expected)) == 0
    told = capfd.readouterr().err.splitlines()
    assert sum("cannot write the record" in line for line in told) == 1
    # Once when it happens, and once more at the end, because the record will not say so.
    assert sum("clip-without-unscale" in line for line in told) == 2


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_kill_at_each_write(tmp_path: Path, share: float) -> None:
    """Killed before, within or after the n-th write: all whole lines before it are there."""
    killed_at = []
    for number in range(1, 40):
        folder = tmp_path / str(number)
        status = in_child(partial(_killed, folder, number, share))
        if status == 0:
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
        made = read_run(str(folder)).processes
        lines = sum(_lines(path) for path in folder.glob("*.jsonl")) if folder.exists() else 0
        assert lines == number - 1 + (share == 1.0)
        assert sum(each.unread for each in made) == (0 < share < 1 and number > 1)
        killed_at.append(number)
    assert len(killed_at) > 15


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def _killed(folder: Path, number: int, share: float) -> None:
    plain, calls = os.write, [0]

    def write(file: int, data: bytes) -> int:
        calls[0] += 1
        if calls[0] == number:
            plain(file, data[: int(len(data) * share)])
            os.kill(os.getpid(), signal.SIGKILL)
        return plain(file, data)

    watch = watching.begin(Options(str(folder), quiet=True))
    record.os = types.SimpleNamespace(**{**vars(os), "write": write})  # type: ignore[assignment]
    training()
    watch.close()


def test_findings_that_are_kept_are_not_lost(tmp_path: Path) -> None:
    """A journal without a place to write keeps every finding until the end."""
    (tmp_path / "file").write_text("", "utf-8")
    journal = Journal(Options(str(tmp_path / "file" / "record"), quiet=True))
    said: list[str] = []
    journal.say = said.append  # type: ignore[method-assign]
    found = [Finding("clip-of-scaled", ("train.py", row)) for row in (1, 2)]
    for each in found:
        journal.finding(each)
    journal.end(found)
    assert [line.split(": ")[0] for line in said if "AMP110" in line] == [
        "train.py:1",
        "train.py:2",
    ]
