"""Whether a killed run leaves anything behind.

    python scripts/kills.py FOLDER --kills 500 --rows FILE
    python scripts/kills.py --sum FILE...

Copies the Python files of a folder, and kills runs of amplint over the copy at random moments:
`check` in two processes, `check --fix`, and two runs of `check` at once that share a cache. The
signal is SIGTERM, SIGHUP or SIGKILL; after the first two, no file may be left beside the sources
that was not there.

After each kill, within `--grace` seconds, no process of the run may be left, unless it waits for a
processor and has not had its `SHARE` since (such kills are counted); each source must hold what it held
before or what the fix writes; and a check with the cache that the killed run has left must find what a
check without one finds.

Each kill is written to `--rows` as a line of JSON when it is over. A run that was ended goes on
behind the rows that are there: what is drawn for a kill depends on the seed and its number alone.
`--sum` counts the rows of several runs, by the way to run and the signal.

Exit status: 0 (nothing was left behind), 1, or 2 (the folder has no findings to lose).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from amplint.cache import open_cache
from amplint.checker import check_paths
from amplint.config import Settings

#: The options of each way to run, for each process that is started at once.
WAYS: dict[str, tuple[tuple[str, ...], ...]] = {
    "check": (("--jobs", "2"),),
    "fix": (("--fix", "--jobs", "2"),),
    "two runs, one cache": (("--jobs", "2"), ("--jobs", "1")),
}
#: Seconds of processor time within which a run ends that was asked to; 0.1 are usual.
SHARE = 0.5
#: Seconds of a clock in which a process gets that much, however busy the machine is.
STARVED = 60.0
SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill.

    Args:
        signal: its name.
        part: when, as a part of what such a run takes.
    """

    number: int
    way: str
    signal: str
    part: float

    @classmethod
    def drawn(cls, seed: int, number: int) -> Kill:
        """The kill of this number; the same in every run with this seed."""
        chance = random.Random(f"{seed} {number}")
        return cls(
            number, chance.choice(list(WAYS)), chance.choice(SIGNALS).name, chance.uniform(0.0, 1.0)
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a kill did: a row of the report.

    Args:
        delay: seconds from the start of the run to the kill.
        late: the run had ended by then; such a kill does not count.
        problems: what is wrong afterwards.
        starved: a process was there after the grace, because it had had no processor.
    """

    number: int
    way: str
    signal: str
    delay: float
    late: bool
    problems: tuple[str, ...] = ()
    starved: bool = False

    def __str__(self) -> str:
        what = "; ".join(self.problems) or ("had ended" if self.late else "nothing left")
        return f"{self.number}: {self.way}, {self.signal} after {self.delay:.2f} s: {what}"


def main() -> int:
    """Kill, print, and return the exit status."""
    options = _options()
    if options.sum:
        return _told([outcome for file in options.sum for outcome in _read(file)])
    for each in (signal.SIGTERM, signal.SIGHUP):  # under nohup one is ignored, and handed on so
        signal.signal(each, signal.SIG_DFL)
    outcomes = _read(options.rows) if options.rows and options.rows.exists() else []
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(Path(scratch), options.folder, options.grace)
        if not bench.expected:
            print("kills: there are no findings that a run could lose", file=sys.stderr)
            return 2
        for number in count(len(outcomes)):
            if sum(not outcome.late for outcome in outcomes) >= options.kills:
                break
            outcomes.append(bench.try_out(Kill.drawn(options.seed, number)))
            print(outcomes[-1], file=sys.stderr, flush=True)
            if options.rows:
                with options.rows.open("a", encoding="utf-8") as rows:
                    print(json.dumps(asdict(outcomes[-1])), file=rows)
    return _told(outcomes)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="FOLDER", nargs="?")
    parser.add_argument("--kills", type=int, default=500, help="how many (default: 500)")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    parser.add_argument("--grace", type=float, default=2.0, help="seconds (default: 2)")
    parser.add_argument("--rows", type=Path, metavar="FILE", help="append each kill to this file")
    parser.add_argument("--sum", type=Path, metavar="FILE", nargs="+", help="only count rows")
    options = parser.parse_args()
    if (options.folder is None) == (options.sum is None):
        parser.error("give a folder, or --sum with files")
    return options


def _read(file: Path) -> list[Outcome]:
    rows = (json.loads(line) for line in file.read_text("utf-8").splitlines())
    return [Outcome(**{**row, "problems": tuple(row["problems"])}) for row in rows]


def _told(outcomes: Iterable[Outcome]) -> int:
    """Print what came of all kills; returns the exit status."""
    outcomes = list(outcomes)
    met = [outcome for outcome in outcomes if not outcome.late]
    failures = [f"{one}" for one in outcomes if one.problems]
    done = Counter(f"{one.way} {one.signal}" for one in met)
    done["ended before"] = len(outcomes) - len(met)
    done["waited for a processor"] = sum(one.starved for one in met)
    counts = ", ".join(f"{what}: {times}" for what, times in sorted(done.items()) if times)
    print(f"{len(met)} kills ({counts}): {len(failures)} failures", *failures, sep="\n")
    return int(bool(failures))


class Bench:
    """A copy of a folder, and what runs over it must give.

    Args:
        scratch: an empty folder.
        folder: what is copied of it: the Python files.
        grace: so many seconds after a kill no process of its run may be left.

    Attributes:
        expected: what a check finds.
        seconds: how long each way to run takes, about: a busy machine changes that.
    """

    def __init__(self, scratch: Path, folder: Path, grace: float) -> None:
        self._grace = grace
        self._folder = scratch / "project"
        self._cache = scratch / "cache"
        for path in sorted(folder.rglob("*.py")):
            copied = self._folder / path.relative_to(folder)
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copied)
        self._before = self._sources()
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "AMPLINT_CACHE_DIR": str(self._cache),
        }
        os.environ["AMPLINT_CACHE_DIR"] = str(self._cache)
        self.expected = self._findings(use_cache=False)
        self.seconds = {way: self._measure(way) for way in WAYS}
        self._measure("fix")
        self._fixed = self._sources()
        self._restore()

    def _sources(self) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in self._folder.rglob("*") if path.is_file()}

    def _restore(self) -> None:
        for path in self._sources().keys() - self._before.keys():
            path.unlink()
        for path, data in self._before.items():
            if path.read_bytes() != data:
                path.write_bytes(data)

    def _findings(self, *, use_cache: bool) -> list[tuple[str, int, str, str]]:
        settings = Settings(jobs=1, cache=use_cache, project_root=str(self._folder))
        cache = open_cache(settings)
        report = check_paths([str(self._folder)], settings, cache=cache)
        assert not report.errors
        return [
            (item.filename, item.span.start.row, item.code, item.message)
            for item in report.findings
        ]

    def _start(self, way: str) -> list[subprocess.Popen[bytes]]:
        command = [sys.executable, "-m", "amplint", "check", "--isolated", "--quiet"]
        return [
            subprocess.Popen(
                [*command, *arguments, "."],
                cwd=self._folder,
                env=self._environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            for arguments in WAYS[way]
        ]

    def _measure(self, way: str) -> float:
        self._restore()
        shutil.rmtree(self._cache, ignore_errors=True)
        start = time.monotonic()
        for process in self._start(way):
            process.wait()
        return time.monotonic() - start

    def try_out(self, kill: Kill) -> Outcome:
        """Start a run, kill it, and look at what it left."""
        if kill.number % 3 == 0:
            shutil.rmtree(self._cache, ignore_errors=True)
        delay = kill.part * self.seconds[kill.way]
        processes = self._start(kill.way)
        time.sleep(delay)
        late = all(process.poll() is not None for process in processes)
        self.seconds[kill.way] *= 0.97 if late else 1.01
        for process in processes:
            process.send_signal(signal.Signals[kill.signal])
        problems, starved = self._left([process.pid for process in processes])
        for process in processes:
            process.wait()
        found = self._sources()
        for path in found.keys() - self._before.keys():
            if kill.signal != signal.SIGKILL.name:
                problems.append(f"{path.name} was left")
        for path, data in self._before.items():
            if found.get(path) not in (data, self._fixed[path]):
                problems.append(f"{path.name} is damaged")
        self._restore()
        if self._findings(use_cache=True) != self.expected:
            problems.append("the cache gives another answer")
        return Outcome(
            kill.number, kill.way, kill.signal, round(delay, 3), late, tuple(problems), starved
        )

    def _left(self, sessions: Sequence[int]) -> tuple[list[str], bool]:
        """What is left of sessions when the time is over, and whether it took more than the grace."""
        start = time.monotonic()
        before = _members(sessions)
        starved = False
        while found := _members(sessions):
            passed = time.monotonic() - start
            waits = any(
                each.is_runnable and each.seconds < SHARE + before.get(pid, each).seconds
                for pid, each in found.items()
            )
            if passed >= (max(STARVED, self._grace) if waits else self._grace):
                break
            starved = passed >= self._grace
            time.sleep(0.02)
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return [f"process {pid} is left" for pid in found], starved


@dataclass(frozen=True, slots=True)
class _Member:
    """A living process of a session.

    Args:
        is_runnable: it works, or waits for a processor or a disk.
        seconds: of processor time until now.
    """

    is_runnable: bool
    seconds: float


def _members(sessions: Sequence[int]) -> dict[int, _Member]:
    """The living processes of sessions by their ids, from /proc; a zombie is none."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The name stands in brackets and may hold anything.
            words = stat.read_text().rpartition(")")[2].split()
            if int(words[3]) in sessions and words[0] != "Z":
                seconds = (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
                found[int(stat.parent.name)] = _Member(words[0] in "RD", seconds)
    return found


if __name__ == "__main__":
    sys.exit(main())
