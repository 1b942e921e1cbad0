"""What checking real repositories costs, beside ruff: `python benchmarks/real.py LIST CHECKOUTS`.

LIST names repositories, one on each line: `owner/name`, a tab and the commit (real.tsv). The code
is read from checkouts laid out as `CHECKOUTS/<owner>__<name>@<commit12>`. See README.md.

Exit status: 0, 1 (a figure is over its budget or a run did not end), 2 (a checkout is missing).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

from ecosystem import EcosystemError, read_list

#: Times what ruff needs for the same repository, and for all of them together.
RATIO_BUDGET = 12.0
SUM_BUDGET = 6.0
#: CPU seconds of the dearest file of a repository, start-up not included.
FILE_BUDGET = 3.0
#: Peak resident memory, in MB (10**6 bytes).
MEMORY_BUDGET = 400.0
#: CPU seconds of one file alone, the first time and once the index of its project is there.
FIRST_BUDGET = 1.0
INDEXED_BUDGET = 0.3

#: The file with most of these words, and one of AMP, is the one that is checked alone.
_WORDS = re.compile(rb"autocast|[sS]caler|unscale_|\.backward\(|\.step\(|zero_grad")
_AMP = re.compile(rb"autocast|GradScaler")


@dataclass(frozen=True)
class Cost:
    """What one run took.

    Args:
        seconds: processor time, user and system, of the process and its children; without
            that of the start for amplint.
        memory: the largest resident memory of one process of the run, in MB.
        ended: False where the run was stopped at its limit.
        slowest: the dearest file; of a stopped run the one that it was in.
        slowest_seconds: of that file; 0 where it is not known.
    """

    seconds: float
    memory: float
    ended: bool = True
    slowest: str = ""
    slowest_seconds: float = 0.0


@dataclass(frozen=True)
class Row:
    """One repository.

    Args:
        costs: by the name of the run.
        file: the one that was checked alone, "" where all were checked.
    """

    repository: str
    costs: dict[str, Cost]
    file: str = ""

    @property
    def ratio(self) -> float:
        """amplint's seconds divided by ruff's."""
        return self.costs["amplint"].seconds / self.costs["ruff"].seconds

    @property
    def failed(self) -> bool:
        """Whether a figure is over its budget."""
        if not all(cost.ended for cost in self.costs.values()):
            return True
        if any(self.costs[name].memory > MEMORY_BUDGET for name in self.costs if name != "ruff"):
            return True
        if self.file:
            return (
                self.costs["first"].seconds > FIRST_BUDGET
                or self.costs["indexed"].seconds > INDEXED_BUDGET
            )
        slowest = self.costs["amplint"].slowest_seconds
        return self.ratio > RATIO_BUDGET or slowest > FILE_BUDGET


def main() -> int:
    """Measure, print, and return the exit status."""
    options = _arguments()
    measure = one_file if options.one_file else whole
    try:
        checkouts = read_list(options.list)
    except EcosystemError as error:
        print(f"real: {error}", file=sys.stderr)
        return 2
    there = [item for item in checkouts if (options.folder / item.folder).is_dir()]
    for item in checkouts:
        if item not in there:
            print(f"real: no such folder: {options.folder / item.folder}", file=sys.stderr)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(Path(scratch), options.limit)
        startup = bench.startup()
        if not options.json:
            print(f"start-up {startup:.2f} s, part of no other figure of amplint\n")
            print(_HEADS[options.one_file])
        for item in there:
            folder = (options.folder / item.folder).resolve()
            rows.append(Row(item.repository, *measure(bench, folder, options.jobs)))
            if not options.json:
                line = _one_file_line if options.one_file else _whole_line
                print(line(rows[-1]), flush=True)
    total = _total(rows) if rows and not options.one_file else None
    _print_end(rows, total, options.json)
    if len(there) < len(checkouts):
        return 2
    return int(any(row.failed for row in rows) or (total or 0.0) > SUM_BUDGET)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("list", type=Path, metavar="LIST", help="owner/name, a tab, a commit")
    parser.add_argument("folder", type=Path, metavar="CHECKOUTS", help="folder of checkouts")
    parser.add_argument("--one-file", action="store_true", help="one file of each, alone")
    parser.add_argument("--jobs", type=int, default=1, help="of amplint (default: 1)")
    parser.add_argument(
        "--limit", type=int, default=300, help="CPU seconds of one run (default: 300)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser.parse_args()


# -- measuring -----------------------------------------------------------------------------


Measured = tuple[dict[str, Cost], str]


class Bench:
    """Runs commands and tells what they cost.

    Args:
        scratch: an empty folder.
        limit: CPU seconds after which a process is stopped.
    """

    def __init__(self, scratch: Path, limit: int) -> None:
        self._scratch = scratch
        self._limit = limit
        self._startup = 0.0
        # An installed linter has its bytecode; whether this checkout has any is chance.
        self._environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(scratch / "bytecode")}
        self._environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def startup(self) -> float:
        """Measure CPU seconds of a check in which there is nothing to do, to subtract them."""
        (self._scratch / "empty").mkdir()
        (self._scratch / "empty" / "scaler.py").write_text("scaler = None\n", "utf-8")
        seconds = [
            self.check(self._scratch / "empty", "--no-cache", "scaler.py").seconds for _ in range(4)
        ]
        self._startup = min(seconds)
        return self._startup

    def check(self, folder: Path, *arguments: str, cache: str = "") -> Cost:
        """`amplint check` in a folder, with the dearest of its files; without start-up."""
        notes = self._scratch / "notes"
        notes.unlink(missing_ok=True)
        script = str(ROOT / "benchmarks" / "timed_check.py")
        command = [script, str(notes), "--isolated", "--quiet", *arguments]
        cost = self.run(folder, *command, cache=cache)
        cost = replace(cost, seconds=max(0.0, cost.seconds - self._startup))
        lines = notes.read_text("utf-8").splitlines() if notes.exists() else []
        if not cost.ended:
            return replace(cost, slowest=lines[-1] if len(lines) % 2 else "")
        seconds = dict(zip(lines[::2], map(float, lines[1::2]), strict=True))
        slowest = max(seconds, key=seconds.__getitem__, default="")
        return replace(cost, slowest=slowest, slowest_seconds=seconds.get(slowest, 0.0))

    def run(self, folder: Path, *arguments: str, cache: str = "") -> Cost:
        """Run Python in a folder."""
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=folder,
            env={**self._environment, "AMPLINT_CACHE_DIR": cache},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        resource.prlimit(process.pid, resource.RLIMIT_CPU, (self._limit, self._limit))
        assert process.stderr is not None
        words = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        ended = process.returncode >= 0
        if ended and process.returncode not in (0, 1):
            # Files that are no Python make both linters complain; they count as checked.
            last = words.decode(errors="replace").strip().splitlines()[-1:]
            print(f"note: {folder.name}: {arguments[0]}: {last}", file=sys.stderr)
        return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6, ended)


def whole(bench: Bench, folder: Path, jobs: int) -> Measured:
    """A whole repository, with ruff and with amplint."""
    ruff = ("-m", "ruff", "check", "--isolated", "--select", "ALL", "--no-cache", ".")
    return {
        "ruff": bench.run(folder, *ruff),
        "amplint": bench.check(folder, "--no-cache", "--jobs", str(jobs), "."),
    }, ""


def one_file(bench: Bench, folder: Path, jobs: int) -> Measured:
    """One file alone: with an empty cache, and with the project's index.

    Between the two the results are removed from the cache, as if that file had changed.
    """
    chosen = amp_file(folder)
    with tempfile.TemporaryDirectory() as cache:
        first = bench.check(folder, "--jobs", str(jobs), chosen, cache=cache)
        for result in Path(cache).rglob("*.json"):
            result.unlink()
        indexed = bench.check(folder, "--jobs", str(jobs), chosen, cache=cache)
    return {"first": first, "indexed": indexed}, chosen


def amp_file(folder: Path) -> str:
    """The file that mentions AMP and has most of `_WORDS`; of several the first by its path."""
    texts = {path: path.read_bytes() for path in sorted(folder.rglob("*.py"))}
    counts = {path: len(_WORDS.findall(text)) for path, text in texts.items() if _AMP.search(text)}
    return str(max(counts, key=counts.__getitem__).relative_to(folder))


# -- printing --------------------------------------------------------------------------------

_HEADS = {
    False: f"{'repository':<36} {'ruff s':>7} {'amplint s':>9} {'ratio':>7} {'MB':>5}  slowest file",
    True: f"{'repository':<36} {'first s':>9} {'indexed s':>9} {'MB':>5}  file",
}


def _whole_line(row: Row) -> str:
    ruff, amplint = row.costs["ruff"], row.costs["amplint"]
    ratio = f"{row.ratio:7.1f}" if amplint.ended else f"{'over':>7}"
    slowest = f"{amplint.slowest_seconds:.2f} s {amplint.slowest}"
    end = slowest if amplint.ended else f"DID NOT END, in {amplint.slowest}"
    figures = f"{ruff.seconds:7.2f} {amplint.seconds:9.2f} {ratio} {amplint.memory:5.0f}"
    return f"{row.repository:<36} {figures}  {end}{_mark(row)}"


def _one_file_line(row: Row) -> str:
    first, indexed = row.costs["first"], row.costs["indexed"]
    memory = max(first.memory, indexed.memory)
    ends = "" if first.ended and indexed.ended else "  DID NOT END"
    figures = f"{first.seconds:9.2f} {indexed.seconds:9.2f} {memory:5.0f}"
    return f"{row.repository:<36} {figures}  {row.file}{ends}{_mark(row)}"


def _mark(row: Row) -> str:
    return "  TOO MUCH" if row.failed else ""


def _total(rows: Sequence[Row]) -> float:
    """All seconds of amplint, those of stopped runs included, divided by all of ruff."""
    amplint, ruff = (sum(row.costs[name].seconds for row in rows) for name in ("amplint", "ruff"))
    return amplint / ruff


def _print_end(rows: Sequence[Row], total: float | None, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"sum": total, "rows": list(_records(rows))}, indent=2))
    elif total is not None:
        words = "" if all(row.costs["amplint"].ended for row in rows) else " at least"
        print(f"{'sum':<36} {'':>17} {total:7.1f}{words}")


def _records(rows: Sequence[Row]) -> Iterator[dict[str, object]]:
    for row in rows:
        ratio = None if row.file else row.ratio
        yield {**asdict(row), "ratio": ratio, "failed": row.failed}


if __name__ == "__main__":
    sys.exit(main())
