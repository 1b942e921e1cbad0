"""Ask the probe about code that is right: nothing may be confirmed.

    python scripts/probe_corpus.py fixtures/silent fixtures/*/good_*
    python scripts/probe_corpus.py --list LIST.jsonl DIR

LIST holds one JSON object per line, as for `corpus.py`; its clean entries are asked about, in
checkouts laid out as `DIR/<owner>__<name>@<commit12>`. With "lines", the first and last of a
function, only its calls are.

Every function that runs a backward is executed under many inputs, and again with statements that
fail skipped, as the probe does where no run gets through. After each run, every rule
that the probe can confirm is asked about every scaler call of the file, and every cast, grad
mode and region, as if the static analysis had reported it there. What a run seems to show is
then probed in full, with all gates. The exit status is 1 if anything is confirmed.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import itertools
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from amplint.rules import TABLE

from amplint.amp.scaler_calls import expects_error
from amplint.code.expressions import last_name
from amplint.code.project import Project
from amplint.errors import UnreadableFile
from amplint.findings import Finding, Position, Severity, Span
from amplint.flow.facts import EVENT_WORDS, protocol_word
from amplint.probe.interpreter import find_interpreter
from amplint.probe.planning import PlanBuilder
from amplint.probe.predictions import expectations, is_about_calls, predict, rows_of
from amplint.probe.prober import Prober
from amplint.probe.process import Worker
from amplint.probe.search import Budget, Trial, explore
from amplint.probe.verdicts import Judge, Shown
from amplint.source.parsing import parse
from amplint.source.reading import read_source
from amplint.view import FileView, view_of

#: Calls besides those of the protocol that a rule may point at.
SUSPECT = frozenset(
    [
        *("no_grad", "inference_mode", "set_grad_enabled", "enable_grad", "autocast"),
        *("detach", "item", "tensor", "half", "float", "to", "long", "int", "type"),
        *("GradScaler", "Adam", "AdamW", "SGD", "masked_fill", "masked_fill_", "clamp"),
    ]
)


@dataclass(frozen=True)
class Asked:
    """What came of one file."""

    filename: str
    runs: int = 0
    reached: int = 0
    shown: tuple[Finding, ...] = ()
    confirmed: tuple[str, ...] = ()


def main() -> int:
    """Print one line for each file; 1 if anything is confirmed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--list", type=Path, metavar="LIST", help="entries to take from one DIR")
    parser.add_argument("--runs", type=int, default=30, help="of each kind, for each function")
    parser.add_argument("--seconds", type=float, default=30.0, help="for each function")
    parser.add_argument("--project-root", help="where imports are looked up")
    parser.add_argument("--select", nargs="+", default=["AMP"], help="codes or prefixes to ask")
    parser.add_argument("--start", type=int, default=0, help="the first file to take")
    parser.add_argument("--every", type=int, default=1, help="take every n-th file from there")
    options = parser.parse_args()
    jobs = list(
        listed(options.list, options.paths[0])
        if options.list
        else (Job(path, options.project_root) for path in sorted(_files(options.paths)))
    )
    interpreter = find_interpreter(None, os.getcwd())
    confirmed = files = runs = shown = 0
    with contextlib.closing(Worker(interpreter)) as worker:
        for job in jobs[options.start :: options.every]:
            asked = ask(job, worker, options.runs, options.seconds, tuple(options.select))
            if asked is None:
                continue
            files, runs, shown = files + 1, runs + asked.runs, shown + len(asked.shown)
            confirmed += len(asked.confirmed)
            print(f"{job}: {asked.runs} runs, {asked.reached} reached, {len(asked.shown)} shown")
            for line in asked.confirmed:
                print(f"  CONFIRMED {line}")
            sys.stdout.flush()
    print(f"{files} of {len(jobs)} asked, {runs} runs, {shown} shown, {confirmed} confirmed")
    return int(confirmed > 0)


@dataclass(frozen=True)
class Job:
    """A file to ask about.

    Args:
        root: where imports are looked up; None for the project that holds the file.
        first, last: the only rows to ask about.
    """

    path: Path
    root: str | None = None
    first: int = 1
    last: int = 1_000_000

    def __str__(self) -> str:
        return str(self.path) if self.first == 1 else f"{self.path}:{self.first}"


def _files(paths: list[Path]) -> Iterator[Path]:
    for path in paths:
        yield from path.rglob("*.py") if path.is_dir() else [path]


def listed(entries: Path, checkouts: Path) -> Iterator[Job]:
    for line in entries.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        if entry["kind"] != "clean":
            continue
        root = checkouts / f"{entry['repo'].replace('/', '__')}@{entry['commit'][:12]}"
        rows = entry.get("lines")
        if not isinstance(rows, list):  # `corpus.py` has single lines by file
            rows = (1, 1_000_000)
        for path in entry["paths"]:
            yield Job(root / path, str(root), rows[0], rows[-1])


def ask(
    job: Job,
    worker: Worker,
    runs: int,
    seconds: float,
    select: tuple[str, ...] = ("AMP",),
    *,
    insist: int = 150,
) -> Asked | None:
    """Ask about one file; None where it has no scaler calls.

    Args:
        runs, seconds: for each function, of each kind.
        insist: runs for each rule and row at which a run showed what the rule is about.
    """
    path, filename = job.path, str(job.path)
    try:
        source = read_source(filename, filename, max_file_size=10_000_000)
        tree = parse(source)
    except UnreadableFile:
        return None
    project = Project(job.root)
    view = view_of(filename, source.text, tree, path=os.path.realpath(path), project=project)
    builder = PlanBuilder(view, os.path.realpath(path))
    codes = [code for code in sorted(TABLE) if expectations(code) and code.startswith(select)]
    protocol = all(code.startswith(("AMP1", "AMP2")) for code in codes)
    rows = tuple(row for row in sorted(_rows(view, protocol)) if job.first <= row <= job.last)
    suspects = [_finding(filename, code, row) for row in rows for code in codes]
    if not suspects:
        return None
    # What only a second call shows, no run of this pass does: such plans are made for one rule.
    built = {c.node.lineno for c in view.module.calls if last_name(c.node.func) == "GradScaler"}
    found = {
        (suspect.code, suspect.span.start.row): suspect
        for suspect in suspects
        if is_about_calls(suspect.code) and suspect.span.start.row in built
    }
    used = reached = 0
    entries = dict.fromkeys(
        entry for row in rows for entry in builder.entries(_finding(filename, "AMP101", row))
    )
    for entry, repair in itertools.product(entries, (False, True)):
        budget = Budget(worker.run, runs=runs, seconds=seconds)

        def show(trial: Trial, budget: Budget = budget) -> None:
            for suspect in suspects:
                if _shows(suspect, trial, builder, budget) is not None:
                    found.setdefault((suspect.code, suspect.span.start.row), suspect)

        base = builder.plan(suspects[0], entry).plan
        plan = replace(base, target_rows=rows, predictions=(), prefer={})
        exploration = explore(plan, budget, show, lambda _: False, repair=repair)
        used += budget.used
        reached += sum(trial.reached for trial in exploration.trials)
    confirmed = []
    for suspect in found.values():
        prober = Prober(builder, worker.run, runs=insist, seconds=60.0, torch=worker.hello().torch)
        evidence = prober.probe(suspect).evidence
        if evidence.status == "confirmed":
            confirmed.append(f"{suspect.code} at line {suspect.span.start.row}: {evidence.detail}")
    return Asked(filename, used, reached, tuple(found.values()), tuple(confirmed))


def _shows(suspect: Finding, trial: Trial, builder: PlanBuilder, budget: Budget) -> Shown | None:
    plan = replace(trial.plan, target_rows=rows_of(suspect), predictions=predict(suspect))
    seen = Trial(replace(trial.request, plan=plan), trial.result)
    shown = Judge(suspect, builder, budget).look(seen)
    return shown if shown is not None and shown.proves else None


def _rows(view: FileView, only_protocol: bool) -> set[int]:
    """Rows of scaler calls, and of whatever else a rule may point at; none without a scaler."""
    protocol, others = set(), set()
    for site in view.module.calls:
        if expects_error(view, site):
            continue
        if protocol_word(site.node, site.method, site.function, view.roles) in EVENT_WORDS:
            protocol.add(site.node.lineno)
        elif last_name(site.node.func) in SUSPECT:
            others.add(site.node.lineno)
    if only_protocol:
        return protocol
    others |= {
        node.lineno
        for node in ast.walk(view.module.tree)
        if isinstance(node, ast.Attribute) and node.attr == "data"
    }
    return protocol | others if protocol else set()


def _finding(filename: str, code: str, row: int) -> Finding:
    span = Span(Position(row, 1), Position(row, 2))
    return Finding(code, "asked", Severity.ERROR, "", "", filename, span)


if __name__ == "__main__":
    sys.exit(main())
