"""What probing costs: `python benchmarks/probe.py [--json]`.

The findings of the recorded incidents, several times over until there are twenty, in one
worker. Import of torch and the start of the worker are given apart, because a run of amplint
pays them once.
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
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from amplint.checker import check_paths
from amplint.config import Settings
from amplint.probe.confirmation import plan_builder
from amplint.probe.interpreter import find_interpreter
from amplint.probe.predictions import predict
from amplint.probe.prober import Prober
from amplint.probe.process import Worker

FINDINGS = 20
#: Seconds for one finding in the median, and for all of them, on two cores without other work.
MEDIAN_BUDGET, TOTAL_BUDGET = 1.0, 30.0


def main() -> int:
    """Print the figures; 1 if a budget is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print for programs")
    options = parser.parse_args()
    os.chdir(ROOT)
    figures = measure()
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        for name, value in figures.items():
            print(f"{name:>22}  {value}")
    return int(figures["seconds, median"] > MEDIAN_BUDGET or figures["seconds, all"] > TOTAL_BUDGET)


def measure() -> dict[str, object]:
    """Seconds and runs of twenty findings."""
    jobs = []
    for folder in sorted((ROOT / "fixtures" / "incidents").glob("*/before")):
        settings = Settings(project_root=str(folder))
        for finding in check_paths([str(folder)], settings).findings:
            builder = plan_builder(finding.filename, settings)
            if builder is not None and predict(finding):
                jobs.append((finding, builder))
    jobs = (jobs * FINDINGS)[:FINDINGS]
    seconds, runs, confirmed = [], [], 0
    with contextlib.closing(Worker(find_interpreter(None, str(ROOT)))) as worker:
        started = time.perf_counter()
        torch = worker.hello().torch
        start = time.perf_counter() - started
        for finding, builder in jobs:
            prober = Prober(builder, worker.run, runs=150, seconds=60.0, torch=torch)
            started = time.perf_counter()
            verdict = prober.probe(finding)
            seconds.append(time.perf_counter() - started)
            runs.append(verdict.runs)
            confirmed += verdict.evidence.status == "confirmed"
    return {
        "python": platform.python_version(),
        "torch": torch,
        "processors": os.cpu_count(),
        "load at the end": round(os.getloadavg()[0], 1),
        "findings": len(jobs),
        "confirmed": confirmed,
        "seconds, start": round(start, 2),
        "seconds, median": round(statistics.median(seconds), 2),
        "seconds, slowest": round(max(seconds), 2),
        "seconds, all": round(sum(seconds), 2),
        "runs, median": statistics.median(runs),
        "milliseconds for a run": round(1000 * sum(seconds) / max(sum(runs), 1)),
    }


if __name__ == "__main__":
    sys.exit(main())
