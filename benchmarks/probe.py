"""What probing costs: `python benchmarks/probe.py [--json]`.

The findings of the recorded incidents, and the first one of every rule's fixtures, all in one
probe with its workers in parallel, as `amplint check --probe` does it. The import of torch and
the warm-up of a worker are given apart, because a run of amplint pays them once. Wall time
depends on what else the machine does; processor time (Linux, all processes of the probe) hardly
does.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from amplint.checker import check_paths
from amplint.config import Settings
from amplint.findings import Finding
from amplint.probe import confirmation
from amplint.probe.confirmation import Limits, probe_findings
from amplint.probe.interpreter import find_interpreter
from amplint.probe.predictions import EXPECTATIONS, predict
from amplint.probe.process import Worker

#: Seconds for one finding in the median, and for so many, on two cores without other work.
MEDIAN_BUDGET, TOTAL_BUDGET, FINDINGS = 1.0, 30.0, 20


def main() -> int:
    """Print the figures; 1 if a budget is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print for programs")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--python", help="the interpreter whose torch is used")
    options = parser.parse_args()
    os.chdir(ROOT)
    figures = measure(options.workers, options.python)
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        for name, value in figures.items():
            print(f"{name:>28}  {value}")
    return int(
        figures["seconds, median"] > MEDIAN_BUDGET or figures["seconds, for 20"] > TOTAL_BUDGET
    )


def measure(workers: int, python: str | None) -> dict[str, object]:
    """Seconds and runs of all findings."""
    start, start_cpu, torch = _start(python)
    findings = list(_findings())
    confirmation.Worker = _Measured  # type: ignore[misc]
    own, started = time.process_time(), time.perf_counter()
    found = probe_findings(findings, Settings(), Limits(workers=workers, python=python))
    elapsed = time.perf_counter() - started - start
    cpu = time.process_time() - own + _Measured.used - workers * start_cpu
    seconds = [item.seconds for item in found]
    runs = sum(item.verdict.runs for item in found)
    statuses = [item.finding.evidence.status for item in found]
    return {
        "python": platform.python_version(),
        "torch": torch,
        "processors": os.cpu_count(),
        "load at the end": round(os.getloadavg()[0], 1),
        "workers": workers,
        "findings": len(found),
        "confirmed": statuses.count("confirmed"),
        "conditional": statuses.count("conditional"),
        "seconds, start": round(start, 2),
        "seconds, median": round(statistics.median(seconds), 2),
        "seconds, slowest": round(max(seconds), 2),
        "seconds, all": round(elapsed, 2),
        "seconds, for 20": round(elapsed * FINDINGS / len(found), 2),
        "processor seconds, for 20": round(cpu * FINDINGS / len(found), 2),
        "processor seconds, for each": round(cpu / len(found), 2),
        "runs for each finding": round(runs / len(found)),
        "milliseconds for a run": round(1000 * sum(seconds) / max(runs, 1)),
    }


def _findings() -> Iterator[Finding]:
    """What is probed: several findings of each incident, one of every rule."""
    incidents = sorted((ROOT / "fixtures" / "incidents").glob("*/before"))
    for folder in incidents:
        yield from filter(predict, check_paths([str(folder)], Settings()).findings)
    for code in sorted(EXPECTATIONS):
        for path in sorted((ROOT / "fixtures" / code).glob("bad_*")):
            found = check_paths([str(path)], Settings()).findings
            mine = [finding for finding in found if finding.code == code and predict(finding)]
            if mine:
                yield mine[0]
                break


def _start(python: str | None) -> tuple[float, float, str]:
    """Seconds until a worker is ready, processor seconds that it took, and its torch."""
    worker = _Measured(find_interpreter(python, str(ROOT)))
    started = time.perf_counter()
    torch = worker.hello().torch
    elapsed = time.perf_counter() - started
    worker.close()
    used, _Measured.used = _Measured.used, 0.0
    return elapsed, used, torch


class _Measured(Worker):
    """A worker that says in the end how much processor time it took, its runs included."""

    used = 0.0

    def close(self) -> None:
        """Add up the times of its session, which are in no account of this process."""
        if self._process is not None:
            ticks = os.sysconf("SC_CLK_TCK")
            for stat in Path("/proc").glob("[0-9]*/stat"):
                with contextlib.suppress(OSError):
                    # The name may hold spaces and brackets; the state is first after it.
                    fields = stat.read_text().rpartition(")")[2].split()
                    if int(fields[3]) == self._process.pid:
                        _Measured.used += sum(map(int, fields[11:15])) / ticks
        super().close()


if __name__ == "__main__":
    sys.exit(main())
