"""From a report to a report with evidence: the probe of all findings of a run.

This is the only way in: `check` comes here only if the user asked for it by name.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby

from amplint.analysis import analyse
from amplint.config import Settings
from amplint.errors import UnreadableFile
from amplint.findings import Evidence, Finding
from amplint.probe.interpreter import find_interpreter
from amplint.probe.planning import PlanBuilder
from amplint.probe.predictions import predict
from amplint.probe.prober import Prober, Verdict
from amplint.probe.process import Worker
from amplint.project.project import Project
from amplint.source.parsing import parse
from amplint.source.reading import read_source


@dataclass(frozen=True, slots=True)
class Limits:
    """How much the probe may do.

    Args:
        seconds, runs: for each finding.
        python: the interpreter to use; None looks for one, see `find_interpreter`.
    """

    seconds: float = 10.0
    runs: int = 150
    python: str | None = None


@dataclass(frozen=True, slots=True)
class Probed:
    """A finding with its evidence, and the verdict that it comes from."""

    finding: Finding
    verdict: Verdict


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
    if not any(predict(finding) for finding in findings):
        return [Probed(finding, Verdict(finding.evidence)) for finding in findings]
    interpreter = find_interpreter(limits.python, settings.project_root or os.getcwd())
    found: list[Probed] = []
    with contextlib.closing(Worker(interpreter)) as worker:
        device = _device(worker.hello().devices)
        for filename, group in groupby(findings, key=lambda finding: finding.filename):
            builder = plan_builder(filename, settings)
            for finding in group:
                verdict = _UNREADABLE
                if builder is not None:
                    prober = Prober(
                        builder,
                        worker.run,
                        runs=limits.runs,
                        seconds=limits.seconds,
                        torch=worker.hello().torch or interpreter.torch,
                        device=device,
                    )
                    verdict = prober.probe(finding)
                found.append(Probed(replace(finding, evidence=verdict.evidence), verdict))
                if progress is not None:
                    progress(len(found), len(findings))
    return found


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
    view = analyse(filename, source.text, tree, path=path, project=project)
    return PlanBuilder(view, path)
