"""How often the probe gets to a line: measured on training functions of real projects.

    python scripts/probe_reach.py collect FOLDER... > functions.jsonl
    python scripts/probe_reach.py measure functions.jsonl FOLDER

`collect` lists functions that hold a call of `scaler.step` and, themselves or in a function of
the project that they call, a backward; one JSON object each, in a fixed random order. With `--plain` those
that hold a backward and a step, and no step of a scaler; at the line of the backward. FOLDER
holds checkouts named `owner__name@commit`. `measure` asks the probe about each of these lines as
if there were a finding, and stops at the first run that comes to the line.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import re
import statistics
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue

from amplint.amp.scaler_calls import expects_error
from amplint.config import Settings
from amplint.findings import Finding, Position, Severity, Span
from amplint.flow.facts import STEP, protocol_word
from amplint.probe.confirmation import Limits, plan_builder
from amplint.probe.interpreter import find_interpreter
from amplint.probe.messages import Request, RunResult
from amplint.probe.planning import PlanBuilder
from amplint.probe.prober import Prober
from amplint.probe.process import Worker
from amplint.probe.search import Runner, Trial

#: A finding of this code has predictions at a `scaler.step` line.
CODE = "AMP101"
_TESTS = re.compile(r"(^|/)(tests?|testing)/|(^|/)(test_[^/]*|conftest)\.py$|_test\.py$")
_WORDS = re.compile(rb"\.step\(")
_LARGEST = 1_000_000


@dataclass(frozen=True, slots=True)
class Target:
    """One line of one function; `path` is relative to the checkout."""

    repository: str
    commit: str
    path: str
    function: str
    line: int

    def file_in(self, folder: Path) -> Path:
        """Where the file lies."""
        return folder / f"{self.repository.replace('/', '__')}@{self.commit}" / self.path


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one target.

    Args:
        how: "reached", "repaired" (reached in a run that skips statements), "missed" or
            "unreadable".
        why: what stopped the run that came farthest.
        seconds: planning and runs.
    """

    target: Target
    how: str
    why: str = ""
    runs: int = 0
    seconds: float = 0.0


class _ReachedLine(Exception):
    def __init__(self, trial: Trial) -> None:
        super().__init__()
        self.trial = trial


class _Watch:
    """A runner that ends the search when a run has come to the line."""

    def __init__(self, runner: Runner, path: str, patience: float) -> None:
        self._patience = patience
        self._runner = runner
        self._path = path
        self.trials: list[Trial] = []

    def __call__(self, request: Request) -> RunResult:
        result = self._runner(replace(request, seconds=request.seconds * self._patience))
        trial = Trial(request, result)
        if request.plan.sources[0].filename == self._path:  # a replay runs no file of the project
            self.trials.append(trial)
            if trial.reached:
                raise _ReachedLine(trial)
        return result


def main() -> int:
    """Collect or measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    limits = Limits()
    commands = parser.add_subparsers(dest="command", required=True)
    collecting = commands.add_parser("collect")
    collecting.add_argument("folders", nargs="+", type=Path, help="that hold checkouts")
    collecting.add_argument("--most", type=int, default=2, help="functions of one repository")
    collecting.add_argument("--seed", default="", help="another one, another order")
    collecting.add_argument("--plain", action="store_true", help="functions without a scaler")
    measuring = commands.add_parser("measure")
    measuring.add_argument("list", type=Path, help="what collect printed")
    measuring.add_argument("folder", type=Path, help="that holds the checkouts")
    measuring.add_argument("-n", type=int, default=1, help="workers")
    measuring.add_argument("--seconds", type=float, default=limits.seconds, help="each function")
    measuring.add_argument("--runs", type=int, default=limits.runs, help="each function")
    measuring.add_argument(
        "--patience", type=float, default=1.0, help="times the limits, where others use the machine"
    )
    measuring.add_argument("--only", help="functions whose repository, path or name hold this")
    measuring.add_argument("--totals", action="store_true", help="print nothing but the totals")
    options = parser.parse_args()
    if options.command == "collect":
        for target in collect(options.folders, options.most, options.seed, options.plain):
            print(json.dumps(asdict(target)), flush=True)
        return 0
    outcomes = []
    for outcome in measure(_chosen(options), options):
        outcomes.append(outcome)
        if not options.totals:
            print(_in_words(outcome), flush=True)
    print(_totals(outcomes))
    return 0


# -- collecting --------------------------------------------------------------------------------


def collect(folders: Iterable[Path], most: int, seed: str, plain: bool) -> Iterator[Target]:
    """A few training functions of each repository; of several commits one is taken."""
    checkouts = sorted(
        (checkout for folder in folders for checkout in folder.iterdir() if "@" in checkout.name),
        key=lambda checkout: _rank(seed, checkout.name),
    )
    seen: set[str] = set()
    for checkout in checkouts:
        name, _, commit = checkout.name.rpartition("@")
        repository = name.replace("__", "/", 1)
        if repository in seen:
            continue
        found = sorted(
            _functions(checkout, repository, commit, plain),
            key=lambda target: _rank(seed, repository, target.path, target.function),
        )
        if found:
            seen.add(repository)
        yield from found[:most]


def _rank(*words: str) -> str:
    return hashlib.sha256("\n".join(words).encode()).hexdigest()


def _functions(checkout: Path, repository: str, commit: str, plain: bool) -> Iterator[Target]:
    for path in sorted(checkout.rglob("*.py")):
        relative = path.relative_to(checkout).as_posix()
        if _TESTS.search(relative) or path.stat().st_size > _LARGEST:
            continue
        data = path.read_bytes()
        if not _WORDS.search(data) or (b".backward(" if plain else b"caler") not in data:
            continue
        builder = plan_builder(str(path), Settings(project_root=str(checkout)))
        if builder is None:
            continue
        found = _backwards(builder) if plain else _steps(builder)
        for function, line in found.items():
            yield Target(repository, commit, relative, function, line)


def _backwards(builder: PlanBuilder) -> dict[str, int]:
    """The first backward of each function that steps, and knows of no scaler."""
    found: dict[str, int] = {}
    stepping = set()
    for site in builder.view.module.calls:
        function = builder.function_at(site.node.lineno).qualname
        if site.method == "backward":
            found.setdefault(function, site.node.lineno)
        elif site.method == "step":
            stepping.add(function)
    known = stepping - _steps(builder).keys()
    return {function: line for function, line in found.items() if function in known}


def _steps(builder: PlanBuilder) -> dict[str, int]:
    """The first `scaler.step` of each function that trains."""
    view = builder.view
    found: dict[str, int] = {}
    for site in view.module.calls:
        if expects_error(site):
            continue
        if protocol_word(site.node, site.method, site.function, view.roles) != STEP:
            continue
        function = builder.function_at(site.node.lineno)
        if builder.runs_backward(function):
            found.setdefault(function.qualname, site.node.lineno)
    return found


# -- measuring ---------------------------------------------------------------------------------


def _chosen(options: argparse.Namespace) -> list[Target]:
    lines = options.list.read_text(encoding="utf-8").splitlines()
    targets = [Target(**json.loads(line)) for line in lines if line.strip()]
    if not options.only:
        return targets
    return [
        target
        for target in targets
        if options.only in f"{target.repository}/{target.path}::{target.function}"
    ]


def measure(targets: list[Target], options: argparse.Namespace) -> Iterator[Outcome]:
    """The outcomes in the order of the targets."""
    interpreter = find_interpreter(None, os.getcwd())
    workers: SimpleQueue[Worker] = SimpleQueue()
    with contextlib.ExitStack() as stack:
        for _ in range(options.n):
            workers.put(stack.enter_context(contextlib.closing(Worker(interpreter))))
        pool = stack.enter_context(ThreadPoolExecutor(options.n))
        yield from pool.map(partial(_measured, options, workers), targets)


def _measured(options: argparse.Namespace, workers: SimpleQueue[Worker], target: Target) -> Outcome:
    worker = workers.get()
    try:
        patience = options.patience
        return reach(target, worker, options.folder, options.runs, options.seconds, patience)
    finally:
        workers.put(worker)


def reach(
    target: Target,
    worker: Worker,
    folder: Path,
    runs: int,
    seconds: float,
    patience: float = 1.0,
) -> Outcome:
    """Probe one line until a run comes to it."""
    path = str(target.file_in(folder))
    root = str(target.file_in(folder).parents[target.path.count("/")])
    builder = plan_builder(path, Settings(project_root=root))
    if builder is None:
        return Outcome(target, "unreadable")
    span = Span(Position(target.line, 1), Position(target.line, 2))
    finding = Finding(CODE, "asked", Severity.ERROR, "", "", path, span)
    torch = worker.hello().torch
    watch = _Watch(worker.run, builder.path, patience)
    started = time.monotonic()
    outcome = Outcome(target, "missed")
    try:
        prober = Prober(builder, watch, runs=runs, seconds=seconds * patience, torch=torch)
        prober.probe(finding)
        outcome = replace(outcome, why=_blocked(watch.trials))
    except _ReachedLine as reached:
        how = "repaired" if reached.trial.request.repair else "reached"
        outcome = replace(outcome, how=how, why=_doubts(reached.trial.result))
    took = time.monotonic() - started
    return replace(outcome, runs=len(watch.trials), seconds=took)


def _blocked(trials: list[Trial]) -> str:
    """What stopped the run that came farthest, in the entry or a caller."""
    if not trials:
        return "no run"
    trial = max(trials, key=lambda trial: len(trial.result.rows))
    result = trial.result
    where = f"{trial.plan.entry}, {len(result.rows)} rows, to {max(result.rows, default=0)}"
    if result.raised is not None:
        raised = result.raised
        name = os.path.basename(raised.filename)
        return f"{where}: {name}:{raised.row} {raised.type}: {raised.message[:160]}"
    return f"{where}: {result.status} {result.reason}"


def _doubts(result: RunResult) -> str:
    return f"{len(result.skipped)} skipped, {len(result.notes)} notes, {len(result.opaque)} opaque"


def _in_words(outcome: Outcome) -> str:
    target = outcome.target
    place = f"{target.repository}/{target.path}:{target.line} {target.function}"
    return (
        f"{outcome.how:9} {outcome.runs:3} runs {outcome.seconds:5.1f} s  {place}\n"
        f"            {outcome.why}"
    )


def _totals(outcomes: list[Outcome]) -> str:
    counts = {
        how: sum(outcome.how == how for outcome in outcomes)
        for how in ("reached", "repaired", "missed", "unreadable")
    }
    repositories = len({outcome.target.repository for outcome in outcomes})
    got = counts["reached"] + counts["repaired"]
    share = 100 * got / max(len(outcomes), 1)
    median = statistics.median(outcome.seconds for outcome in outcomes) if outcomes else 0.0
    return (
        f"{got} of {len(outcomes)} reached ({share:.0f} %), {counts['repaired']} of them with "
        f"statements skipped, {counts['unreadable']} unreadable; {repositories} repositories; "
        f"median {median:.1f} s"
    )


if __name__ == "__main__":
    sys.exit(main())
