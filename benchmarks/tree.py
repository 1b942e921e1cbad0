"""What checking a whole tree costs, beside ruff on the same tree: `python benchmarks/tree.py`.

The tree has 2,000 Python files, one in twenty of which mentions AMP (tree_text.py). Everything
is measured in one run, as whole processes that take turns. See README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from tree_text import write_tree

ROOT = Path(__file__).resolve().parent.parent

COLD_BUDGET = 4.0
WARM_BUDGET = 1.5
#: Of all processes of one run together, in MB (10**6 bytes).
MEMORY_BUDGET = 500.0
#: Of a tree four times as large: a quarter more than four times as much.
GROWTH_BUDGET = 5.0
SAMPLE_SECONDS = 0.005

Command = Sequence[str]


@dataclass(frozen=True)
class Row:
    """One figure.

    Args:
        value: in `unit`.
        budget: the largest acceptable value, None where there is none.
    """

    name: str
    value: float
    unit: str
    budget: float | None = None

    @property
    def verdict(self) -> str:
        """PASS or FAIL, "" where there is no budget."""
        if self.budget is None:
            return ""
        return "PASS" if self.value <= self.budget else "FAIL"


def main() -> int:
    """Measure, print, and return 1 if a figure is over its budget."""
    options = _options()
    with _tree(options) as folder:
        rows = list(against_ruff(folder, options.repetitions))
        rows += memory(folder)
        if options.folder is None:
            rows += growth(Path(folder).parent, options.files, options.repetitions)
    if options.json:
        print(json.dumps({**_machine(), "rows": [asdict(row) for row in rows]}, indent=2))
    else:
        _print_table(rows)
    return int(any(row.verdict == "FAIL" for row in rows))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="measure this tree, without its growth")
    parser.add_argument("--files", type=int, default=2000, help="of the tree (default: 2000)")
    parser.add_argument("--repetitions", type=int, default=5, help="of which the median counts")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser.parse_args()


@contextmanager
def _tree(options: argparse.Namespace) -> Iterator[Path]:
    if options.folder is not None:
        yield options.folder.resolve()
        return
    with tempfile.TemporaryDirectory() as top:
        folder = Path(top, "x1")
        write_tree(folder, options.files)
        yield folder


def _machine() -> dict[str, object]:
    ruff = subprocess.run([_ruff(), "--version"], capture_output=True, text=True, check=True)
    return {
        "python": platform.python_version(),
        "ruff": ruff.stdout.split()[-1],
        "processors": len(os.sched_getaffinity(0)),
    }


def _print_table(rows: list[Row]) -> None:
    print(", ".join(f"{key} {value}" for key, value in _machine().items()) + "\n")
    width = max(len(row.name) for row in rows)
    for row in rows:
        budget = "" if row.budget is None else f"  {row.verdict} (at most {row.budget:g})"
        print(f"{row.name:<{width}}  {row.value:9.2f} {row.unit:<7}{budget}")


# -- figures -----------------------------------------------------------------------------


def against_ruff(folder: Path, repetitions: int) -> list[Row]:
    """Wall time of ruff, of amplint without a cache, and of amplint with a full one."""
    with tempfile.TemporaryDirectory() as cache:
        ruff, cold, warm = _medians(
            repetitions,
            partial(_run, _ruff_check(folder), folder),
            partial(_run, _amplint(folder), folder),
            partial(_run, _amplint(folder, cache), folder),
        )
    return [
        Row("ruff check --no-cache", ruff, "s"),
        Row("amplint check, cold", cold, "s"),
        Row("amplint check, warm", warm, "s"),
        Row("cold / ruff", cold / ruff, "times", COLD_BUDGET),
        Row("warm / ruff", warm / ruff, "times", WARM_BUDGET),
    ]


def memory(folder: Path) -> list[Row]:
    """Peaks of the resident memory, worker processes included."""
    with tempfile.TemporaryDirectory() as cache:
        command = _amplint(folder, cache)
        cold, warm = _peak_memory(command, folder), _peak_memory(command, folder)
    return [
        Row("memory, cold", cold, "MB", MEMORY_BUDGET),
        Row("memory, warm", warm, "MB", MEMORY_BUDGET),
    ]


def growth(top: Path, files: int, repetitions: int) -> list[Row]:
    """Processor time and memory of trees of twice and four times as many files."""
    for factor in (2, 4):
        write_tree(top / f"x{factor}", factor * files)
    folders = [top / f"x{factor}" for factor in (1, 2, 4)]
    cold = [partial(_run, _amplint(folder), folder) for folder in folders]
    warm = [partial(_run, _amplint(folder, f"{folder}.cache"), folder) for folder in folders]
    figures = {
        "cold": _medians(repetitions, *cold, clock=_processor_seconds),
        "warm": _medians(repetitions, *warm, clock=_processor_seconds),
        "memory": [_peak_memory(_amplint(folder), folder) for folder in folders],
    }
    rows = []
    for name, (once, twice, four_times) in figures.items():
        rows.append(Row(f"{name}, 2 x files", twice / once, "times"))
        rows.append(Row(f"{name}, 4 x files", four_times / once, "times", GROWTH_BUDGET))
    return rows


# -- measuring ---------------------------------------------------------------------------


def _processor_seconds() -> float:
    """Of all processes that this one has waited for, and of those that they have."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _medians(
    repetitions: int,
    *tasks: Callable[[], object],
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Median seconds of each task after one run that does not count; they take turns."""
    seconds: list[list[float]] = [[] for _ in tasks]
    for task in tasks:
        task()
    for _ in range(repetitions):
        for index, task in enumerate(tasks):
            started = clock()
            task()
            seconds[index].append(clock() - started)
    return [statistics.median(times) for times in seconds]


def _run(command: Command, folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, env=_environment(), capture_output=True, check=False)
    _expect_a_report(command, done.returncode, done.stderr.decode())


def _expect_a_report(command: Command, status: int, errors: str) -> None:
    # 2: a file of a real tree may be no Python; both tools go on to the end.
    if status not in (0, 1, 2) or "Traceback" in errors:
        raise RuntimeError(f"{' '.join(command)} failed: {errors}")


def _ruff() -> str:
    beside = Path(sys.executable).with_name("ruff")
    return str(beside) if beside.exists() else "ruff"


def _ruff_check(folder: Path) -> Command:
    return [_ruff(), "check", "--no-cache", "--isolated", "--quiet", str(folder)]


def _amplint(folder: Path, cache: str | None = None) -> Command:
    """A check with its results kept in `cache`, or not kept at all."""
    command = [sys.executable, "-m", "amplint", "check", "--isolated", str(folder)]
    if cache is None:
        return [*command, "--no-cache"]
    return ["env", f"AMPLINT_CACHE_DIR={cache}", *command]


def _environment() -> dict[str, str]:
    # An installed amplint has its bytecode beside it; a checkout may be told to write none.
    inherited = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**inherited, "PYTHONPATH": str(ROOT)}


def _peak_memory(command: Command, folder: Path) -> float:
    """Largest sum of the resident memory of a command and its children, in MB.

    Read from /proc, so on Linux only. Pages that forked processes share count in each of them:
    the truth is not larger.
    """
    running = subprocess.Popen(
        command,
        cwd=folder,
        env=_environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    peak = 0
    while running.poll() is None:
        peak = max(peak, sum(map(_resident, _family(running.pid))))
        time.sleep(SAMPLE_SECONDS)
    return peak / 1e6


def _family(pid: int) -> list[int]:
    """A process and its descendants."""
    found = [pid]
    for parent in found:
        try:
            children = Path(f"/proc/{parent}/task/{parent}/children").read_text()
        except OSError:  # it has ended
            continue
        found += map(int, children.split())
    return found


def _resident(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    sys.exit(main())
