"""From a report to a report with evidence: the probe of all findings of a run.

This is the only way in: `check` comes here only if the user asked for it by name.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from amplint.code.project import Project
from amplint.config import Settings
from amplint.errors import UnreadableFile
from amplint.findings import Evidence, Finding
from amplint.levels import seen_as
from amplint.probe.cases import Repair, Verdict, not_probed
from amplint.probe.interpreter import find_interpreter
from amplint.probe.messages import Request, RunResult
from amplint.probe.planning import PlanBuilder
from amplint.probe.predictions import expectations
from amplint.probe.prober import Prober
from amplint.probe.process import Worker
from amplint.rules import load
from amplint.source.parsing import parse
from amplint.source.reading import read_source
from amplint.view import view_of
from amplint.workers import available_processors

#: Findings for each worker that make up for its start, and workers at most: each has some
#: hundred megabytes.
EACH, MOST = 3, 4


#: One round for each finding, and one for those that a confirmed failure hides.
ROUNDS = 2


@dataclass(frozen=True, slots=True)
class Limits:
    """How much the probe may do.

    Args:
        seconds, runs: for each finding.
        python: the interpreter to use; None looks for one, see `find_interpreter`.
        workers: how many findings are probed at once; None for as many as pay. A GPU has one.
    """

    seconds: float = 10.0
    runs: int = 150
    python: str | None = None
    workers: int | None = None


@dataclass(frozen=True, slots=True)
class Probed:
    """A finding with its evidence, and the verdict that it comes from.

    Args:
        seconds: wall time that the verdict took.
    """

    finding: Finding
    verdict: Verdict
    seconds: float = 0.0


def probe_findings(
    findings: Iterable[Finding],
    settings: Settings,
    limits: Limits,
    progress: Callable[[int, int], None] | None = None,
) -> list[Probed]:
    """Execute the code of every finding that a run can show; the others keep their evidence.

    Raises:
        ProbeUnavailable, WorkerFailed: there is nothing to execute it with.
    """
    findings = list(findings)
    probeable = sum(bool(expectations(finding.code)) for finding in findings)
    if not probeable:
        verdicts = [not_probed(finding) for finding in findings]
        return [Probed(replace(f, evidence=v.evidence), v) for f, v in zip(findings, verdicts)]
    interpreter = find_interpreter(limits.python, settings.project_root or os.getcwd())
    with contextlib.ExitStack() as stack:
        stack.enter_context(ended_by_sigterm())
        count = limits.workers or min(available_processors(), -(-probeable // EACH), MOST)
        workers = [
            stack.enter_context(contextlib.closing(Worker(interpreter))) for _ in range(count)
        ]
        device = _device(workers[0].hello().devices)
        if device != "cpu":
            workers = workers[:1]
        return probe_with(workers, findings, settings, limits, progress)


def probe_with(
    workers: list[Worker],
    findings: Iterable[Finding],
    settings: Settings,
    limits: Limits,
    progress: Callable[[int, int], None] | None = None,
) -> list[Probed]:
    """The same with workers that are there already, and stay.

    Raises:
        WorkerFailed: there is nothing to execute it with.
    """
    device = _device(workers[0].hello().devices)
    session = _Session(list(findings), settings, limits, device, progress)
    with ThreadPoolExecutor(len(workers)) as threads:
        try:
            for _ in range(ROUNDS):
                for future in [threads.submit(session.work, worker) for worker in workers]:
                    future.result()
                session.look_behind()
        except BaseException:
            for worker in workers:
                worker.stop()
            raise
    return session.probed()


@contextlib.contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends the program as an exit does: workers end, and scratch folders go."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may say what a signal does
        return
    before = signal.signal(signal.SIGTERM, _exit)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _exit(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


class _Session:
    """Findings that several threads probe, each with a worker of its own.

    The analysis is not made for threads. A thread holds the lock except while a run goes on.
    """

    def __init__(
        self,
        findings: list[Finding],
        settings: Settings,
        limits: Limits,
        device: str,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self._findings = findings
        self._settings = settings
        self._limits = limits
        self._device = device
        self._progress = progress
        self._lock = threading.Lock()
        self._left = iter(range(len(findings)))
        self._repairs: dict[str, tuple[Repair, ...]] = {}
        self._builders: dict[str, PlanBuilder | None] = {}
        self._probed: dict[int, Probed] = {}

    def work(self, worker: Worker) -> None:
        """Probe findings until none is left."""
        torch = worker.hello().torch or worker.interpreter.torch
        with self._lock:
            for index in self._left:
                started = time.monotonic()
                finding = self._findings[index]
                verdict = self._probe(finding, worker, torch)
                self._keep(index, verdict, time.monotonic() - started)
                if self._progress is not None:
                    self._progress(len(self._probed), len(self._findings))

    def look_behind(self) -> None:
        """Probe again what is not confirmed in files where a confirmed failure ends every run."""
        for probed in self._probed.values():
            finding, cure = probed.finding, probed.verdict.cure
            if cure is not None:
                repair = Repair(finding.code, finding.span.start.row, cure)
                known = self._repairs.get(finding.filename, ())
                self._repairs[finding.filename] = (*known, repair)
        self._left = iter(
            index
            for index, probed in self._probed.items()
            if probed.finding.filename in self._repairs
            and probed.finding.evidence.status not in ("confirmed", "not-probed")
        )

    def _keep(self, index: int, verdict: Verdict, seconds: float) -> None:
        """Remember a verdict; one of the second round only if it shows something."""
        known = self._probed.get(index)
        if known is not None and verdict.evidence.status != "conditional":
            return
        finding = _with(self._findings[index], verdict.evidence)
        self._probed[index] = Probed(finding, verdict, seconds + (known.seconds if known else 0.0))

    def probed(self) -> list[Probed]:
        """All findings, in the order in which they were given."""
        return [self._probed[index] for index in sorted(self._probed)]

    def _probe(self, finding: Finding, worker: Worker, torch: str) -> Verdict:
        if not expectations(finding.code):
            return not_probed(finding)
        name = finding.filename
        if name not in self._builders:
            self._builders[name] = plan_builder(name, self._settings)
        builder = self._builders[name]
        if builder is None:
            return _UNREADABLE

        def run(request: Request) -> RunResult:
            self._lock.release()
            try:
                return worker.run(request)
            finally:
                self._lock.acquire()

        prober = Prober(
            builder,
            run,
            runs=self._limits.runs,
            seconds=self._limits.seconds,
            torch=torch,
            device=self._device,
            repairs=self._repairs.get(name, ()),
        )
        return prober.probe(finding)


def _with(finding: Finding, evidence: Evidence) -> Finding:
    if evidence.status != "confirmed":
        return replace(finding, evidence=evidence)
    return seen_as(finding, load(finding.code).RULE.severity, evidence)


def select(found: Iterable[Probed], *, confirmed_only: bool) -> Iterator[Finding]:
    """The findings to report."""
    for probed in found:
        if not confirmed_only or probed.finding.evidence.status == "confirmed":
            yield probed.finding


_UNREADABLE = Verdict(Evidence("inconclusive", None, "own-code", "the file lies nowhere on disk"))


def _device(devices: Iterable[str]) -> str:
    """A GPU where there is one: there the scaler is the one that trains."""
    return next((device for device in devices if device != "cpu"), "cpu")


def plan_builder(filename: str, settings: Settings) -> PlanBuilder | None:
    """Plans for a file; None where it cannot be read any more, as standard input."""
    path = os.path.realpath(filename)
    if not os.path.isfile(path):
        return None
    try:
        source = read_source(path, filename, max_file_size=settings.max_file_size)
        tree = parse(source)
    except UnreadableFile:
        return None
    project = Project(settings.project_root, settings.src)
    view = view_of(filename, source.text, tree, path=path, project=project)
    return PlanBuilder(view, path)
