"""The worker's loop: one request a line, one result a line, one process for each run.

The parent has imported torch and built an optimizer once (that alone imports 800 modules),
and has run nothing of the user. Each run is a fork of it, which starts warm and whose
changes to torch die with it. The parent never touches CUDA, so a fork may.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any, TextIO

import torch

from amplint.probe.messages import (
    PATIENCE,
    Hello,
    Request,
    RunResult,
    decode_request,
    decode_result,
    encode,
)
from amplint.probe.worker import limits
from amplint.probe.worker.context import StopRun
from amplint.probe.worker.execution import execute
from amplint.probe.worker.handlers import registrations
from amplint.probe.worker.sources import Project, Projects, Used

#: Seconds between the moment when a run is asked to end and the moment when it is killed.
GRACE = 1.0
START = 60.0
#: What runs are likely to import.
IMPORTED = (
    "torch.distributed",
    "torch.nn.parallel",
    "torch.utils.checkpoint",
    "torch.utils.data",
    "torch.distributions",
    "unittest",
)


def main(measures: tuple[str, ...] = ()) -> None:
    """Answer requests on standard input until it ends.

    Args:
        measures: of isolation that are in force already.
    """
    requests, answers = _take_over_streams()
    warnings.simplefilter("ignore")
    warm()
    measures = (*measures, *_measures_of_runs())
    _send(answers, encode(Hello(torch.__version__, devices(), measures)))
    projects = Projects()
    for line in requests:
        if line.strip():
            _send(answers, encode(answer(line, projects)))
            limits.clear_descendants()


def devices() -> tuple[str, ...]:
    """What scalers may run on. Asked in a child: who has asked CUDA anything cannot fork."""
    count = int(_in_child(lambda: str(torch.cuda.device_count())) or "0")
    return ("cpu", *(f"cuda:{index}" for index in range(count)))


def _measures_of_runs() -> tuple[str, ...]:
    found = _in_child(lambda: "\n".join(limits.confine(os.getcwd(), 5.0)))
    return tuple(found.split("\n")) if found else ()


def _in_child(question: Callable[[], str]) -> str:
    """The answer of a forked child; "" if it died."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            os.write(writing, question().encode())
        finally:
            os._exit(0)
    os.close(writing)
    data, _ = _read(reading, time.monotonic() + START)
    os.waitpid(child, 0)
    return data.decode()


def warm() -> None:
    """Import what runs need, and what torch imports when it is first used."""
    torch.set_num_threads(1)
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.AdamW([weight])
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale((weight * 2).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    for name in IMPORTED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    # Children share the parent's memory as long as no collection touches its objects.
    gc.collect()
    gc.disable()
    gc.freeze()


def answer(line: str, projects: Projects) -> RunResult:
    """The result of one encoded request; what is wrong with the request is a result too."""
    try:
        request = decode_request(json.loads(line))
        project = projects.of(request.plan)
        registrations(project)  # once for all runs
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        return RunResult("failed", reason=f"no request: {type(error).__name__}: {error}")
    result, used = fork_and_execute(request, project)
    projects.prepare(request, used)
    return result


def fork_and_execute(request: Request, project: Project) -> tuple[RunResult, Used]:
    """Execute in a child that is killed when its time is over."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _be_child(request, project, writing)
    os.close(writing)
    patience = request.seconds * PATIENCE + GRACE
    data, in_time = _read(reading, time.monotonic() + patience)
    if not in_time:
        os.kill(child, signal.SIGKILL)
    _, ended, usage = os.wait4(child, 0)
    processor = usage.ru_utime + usage.ru_stime
    if not in_time:
        reason = f"killed after {patience:g} s"
        return RunResult("timeout", reason=reason, processor=processor), Used()
    if not data:
        return RunResult("killed", reason=_ending(ended), processor=processor), Used()
    told = json.loads(data)
    return replace(decode_result(told["result"]), processor=processor), Used(**told["used"])


def _read(descriptor: int, deadline: float) -> tuple[bytes, bool]:
    chunks: list[bytes] = []
    with os.fdopen(descriptor, "rb", buffering=0) as pipe:
        while True:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([pipe], [], [], max(0.0, left))
            if not ready:
                return b"", False
            chunk = pipe.read(1 << 16)
            if not chunk:
                return b"".join(chunks), True
            chunks.append(chunk)


def _ending(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"ended by signal {signal.Signals(os.WTERMSIG(status)).name}"
    return f"ended with status {os.WEXITSTATUS(status)}"


def _be_child(request: Request, project: Project, descriptor: int) -> None:
    """Never returns."""
    used = Used()
    try:
        limits.confine(os.getcwd(), request.seconds + GRACE, device=request.device)
        _end_in_time(request.seconds)
        try:
            result, used = execute(request, project)
        except StopRun as stop:
            result = RunResult(stop.status, reason=stop.reason)
        except BaseException as error:  # noqa: BLE001 -- said in the result
            reason = f"{type(error).__name__}: {error}"
            result = RunResult("failed", reason=reason[:2000])
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        with os.fdopen(descriptor, "w", encoding="utf-8") as pipe:
            json.dump({"result": encode(result), "used": asdict(used)}, pipe, default=str)
    finally:
        os._exit(0)


def _end_in_time(seconds: float) -> None:
    """The run ends itself when its time is over, with what it has seen."""

    def out_of_time(_signal: int, _frame: object) -> None:
        raise StopRun("timeout", f"more than {seconds:g} s")

    signal.signal(signal.SIGALRM, out_of_time)
    signal.signal(signal.SIGPROF, out_of_time)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, seconds * PATIENCE)


def _take_over_streams() -> tuple[TextIO, TextIO]:
    """Keep standard input and output for messages; what runs read and print is nothing."""
    requests = os.fdopen(os.dup(0), "r", encoding="utf-8")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    return requests, answers


def _send(answers: TextIO, message: dict[str, Any]) -> None:
    answers.write(json.dumps(message, default=str) + "\n")
    answers.flush()
