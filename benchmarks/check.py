"""What checking costs, as ratios within one run: `python benchmarks/check.py`.

Seconds of two machines cannot be compared; the ratios below can, roughly. See README.md.
"""

from __future__ import annotations

import argparse
import ast
import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from script import training_script
from shapes import SHAPES

#: Times the parse of LibCST on the same text, without start-up; more is a regression.
LIBCST_BUDGET = 2.5
#: Times the cost when the number of tests in a function doubles.
DOUBLING_BUDGET = 4.0
COUNTS = (10, 20, 40, 80)


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
    def failed(self) -> bool:
        """Whether the figure is over its budget."""
        return self.budget is not None and self.value > self.budget


def main() -> int:
    """Measure, print, and return 1 if a figure is over its budget."""
    arguments = _arguments()
    text = Path(arguments.file).read_text("utf-8") if arguments.file else training_script()
    rows = [
        *startup(arguments.repetitions),
        *one_file(text, arguments.repetitions),
        *many_tests(max(3, arguments.repetitions // 2)),
        *tree_of_files(text, arguments.files),
    ]
    if arguments.json:
        facts = {"python": platform.python_version(), "lines": text.count("\n")}
        print(json.dumps({**facts, "rows": [asdict(row) for row in rows]}, indent=2))
    else:
        _print_table(rows, text)
    return int(any(row.failed for row in rows))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", help="check this file instead of the generated script")
    parser.add_argument("--files", type=int, default=100, help="size of the tree (default: 100)")
    parser.add_argument("--repetitions", type=int, default=9, help="of which the median counts")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser.parse_args()


def _print_table(rows: list[Row], text: str) -> None:
    lines = text.count("\n")
    print(f"Python {platform.python_version()}, a script of {lines} lines\n")
    width = max(len(row.name) for row in rows)
    for row in rows:
        budget = "" if row.budget is None else f"  (at most {row.budget:g})"
        mark = "  TOO MUCH" if row.failed else ""
        print(f"{row.name:<{width}}  {row.value:9.2f} {row.unit:<10}{budget}{mark}")


# -- measuring ---------------------------------------------------------------------------


def medians(repetitions: int, *tasks: Callable[[], object]) -> list[float]:
    """Median seconds of each task; they take turns, so that a slow spell hits all of them."""
    seconds: list[list[float]] = [[] for _ in tasks]
    for task in tasks:
        task()
    for _ in range(repetitions):
        for index, task in enumerate(tasks):
            gc.collect()
            started = time.perf_counter()
            task()
            seconds[index].append(time.perf_counter() - started)
    return [statistics.median(times) for times in seconds]


def _process(*command: str) -> Callable[[], object]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def run() -> None:
        done = subprocess.run(
            [sys.executable, *command], env=environment, capture_output=True, check=False
        )
        if done.returncode not in (0, 1):
            raise RuntimeError(f"{' '.join(command)} failed: {done.stderr.decode()}")

    return run


def _check(*paths: str) -> Callable[[], object]:
    return _process("-m", "amplint", "check", "--isolated", "--no-cache", "--jobs", "1", *paths)


# -- figures -----------------------------------------------------------------------------


def startup(repetitions: int) -> list[Row]:
    """`amplint --version` against an interpreter that does nothing."""
    bare, version = medians(repetitions, _process("-c", ""), _process("-m", "amplint", "--version"))
    return [Row("start-up of `amplint --version` / bare interpreter", version / bare, "times")]


def one_file(text: str, repetitions: int) -> list[Row]:
    """One script in a fresh process against LibCST's parse; then its parts in this process."""
    import libcst

    with tempfile.TemporaryDirectory() as folder:
        script, empty = Path(folder, "train.py"), Path(folder, "empty.py")
        script.write_text(text, "utf-8")
        empty.write_text("", "utf-8")
        whole, nothing, parse = medians(
            repetitions, _check(str(script)), _check(str(empty)), lambda: libcst.parse_module(text)
        )
    rows = [
        Row(
            "one script, start-up subtracted / LibCST parse",
            (whole - nothing) / parse,
            "times",
            LIBCST_BUDGET,
        ),
        Row("one script, start-up included / LibCST parse", whole / parse, "times"),
    ]
    return rows + _parts(text, parse, repetitions)


def _parts(text: str, parse: float, repetitions: int) -> list[Row]:
    """Cumulative steps of the analysis; each row is what its step adds."""
    from amplint.amp.roles import build_roles
    from amplint.checker import check_source
    from amplint.code.module import build_module
    from amplint.config import Settings
    from amplint.view import view_of

    data = text.encode()
    steps: dict[str, Callable[[], object]] = {
        "ast.parse": lambda: ast.parse(text),
        "index": lambda: build_module("train.py", text, ast.parse(text)),
        "roles": lambda: build_roles(build_module("train.py", text, ast.parse(text))),
        "flow": lambda: view_of("train.py", text, ast.parse(text)).flow_misuses,
        "rules and the rest": lambda: check_source("train.py", data, Settings()),
    }
    rows, before = [], 0.0
    for name, seconds in zip(steps, medians(repetitions, *steps.values()), strict=True):
        rows.append(Row(f"  of it {name} / LibCST parse", (seconds - before) / parse, "times"))
        before = seconds
    return rows


def many_tests(repetitions: int) -> list[Row]:
    """Functions with ever more tests in a row (benchmarks/shapes.py)."""
    from amplint.view import view_of

    rows = []
    for name, write in SHAPES.items():
        programs = [(text, ast.parse(text)) for text in map(write, COUNTS)]
        seconds = medians(
            repetitions,
            *(
                lambda text=text, tree=tree: view_of("train.py", text, tree).flow_misuses
                for text, tree in programs
            ),
        )
        budgets = {40: DOUBLING_BUDGET}
        for index in range(1, len(COUNTS)):
            rows.append(
                Row(
                    f"{COUNTS[index]} against {COUNTS[index - 1]} tests, {name.replace('_', ' ')}",
                    seconds[index] / seconds[index - 1],
                    "times",
                    budgets.get(COUNTS[index]),
                )
            )
    return rows


def tree_of_files(text: str, count: int) -> list[Row]:
    """A folder of files, every tenth of which trains with AMP."""
    other = training_script().partition("def parse_arguments")[0]
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            content = text if number % 10 == 0 else other
            Path(folder, f"module{number}.py").write_text(content, "utf-8")
        Path(folder, "one").mkdir()
        Path(folder, "one", "train.py").write_text(text, "utf-8")
        one, one_job, two_jobs = medians(
            3,
            _check(str(Path(folder, "one"))),
            _check(folder),
            _process("-m", "amplint", "check", "--isolated", "--no-cache", "--jobs", "2", folder),
        )
    name = f"tree of {count} files, a tenth with AMP"
    return [
        Row(f"{name} / one script", one_job / one, "times"),
        Row(f"{name}, two processes / one", two_jobs / one_job, "times"),
    ]


if __name__ == "__main__":
    sys.exit(main())
