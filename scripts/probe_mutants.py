"""Break correct training functions where breaking must show, and count what the probe confirms.

    python scripts/probe_mutants.py LIST.jsonl DIR

LIST and DIR are those of `probe_corpus.py --list`: correct functions ("paths", "lines") of
checkouts. Each is broken by four recipes of `mutators.py`. A mutant counts only if plain
reasoning says that it fails whenever the function trains:

* `unscale_` deleted: a clip surely follows before the step, and nothing else unscales;
* `update` deleted: it is the only one of its loop, in which an optimizer is stepped;
* `scale` dropped from the backward: always;
* `optimizer.step()` for `scaler.step(optimizer)`: nothing unscaled before.

That the loop comes there in this project is not plain from the function alone. What can never
fail, because no caller enters the branch, is named in a file of its own (`--never`), one JSON
object per line with the reason: {"path": ..., "row": ..., "why": ...}. It is not counted.

The mutant is checked in the place of its file in a copy of the project, and every finding on it
is probed. It is confirmed if one of them is. Exit status: 0, 1 (share under `--min-share`).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import mutators
from mutators import Mutation
from probe_corpus import Job, listed
from scaler_source import Source, read_source

from amplint.checker import check_paths
from amplint.config import Settings
from amplint.probe.confirmation import plan_builder
from amplint.probe.interpreter import find_interpreter
from amplint.probe.predictions import predict
from amplint.probe.prober import Prober
from amplint.probe.process import Worker

#: Files of a project that findings may depend on.
COPIED = frozenset({".py", ".toml", ".cfg", ".ini", ".yaml", ".yml", ".json"})
LARGEST = 1 << 20
#: From the best to the worst; "unnoticed" is a mutant without a finding.
STATUSES = (
    *("confirmed", "conditional", "inconclusive", "not-reproduced", "not-reached"),
    *("not-probed", "unnoticed"),
)
#: Of mutants whose line was executed.
REACHED = frozenset(STATUSES[:4])


@dataclass(frozen=True, slots=True)
class Mutant:
    """A broken function.

    Args:
        row: of the edit.
    """

    recipe: str
    job: Job
    row: int
    text: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a mutant: the best status of its findings, and the words for it."""

    mutant: Mutant
    status: str
    words: str = ""


def delete_unscale(source: Source) -> Iterator[Mutation]:
    """As `mutators.delete_unscale`, which asks for all that is needed."""
    return mutators.delete_unscale(source)


def delete_update(source: Source) -> Iterator[Mutation]:
    """Only where the loop is in the function itself: a second step comes."""
    stepped = {loop for event in source.events if event.kind == "step" for loop in event.loops}
    rows = {
        event.statement.lineno
        for event in source.statements("update")
        if stepped.intersection(event.loops)
    }
    return (mutation for mutation in mutators.delete_update(source) if mutation.row in rows)


def drop_scale(source: Source) -> Iterator[Mutation]:
    """As `mutators.plain_backward`."""
    return mutators.plain_backward(source)


def plain_step(source: Source) -> Iterator[Mutation]:
    """Only where no `unscale_` may have run: after it, only infinite gradients do harm."""
    unscaled = {
        event.statement.lineno
        for event in source.statements("step")
        if mutators.may_unscale(source, event)
    }
    return (m for m in mutators.plain_step(source) if m.row not in unscaled)


RECIPES: tuple[Callable[[Source], Iterator[Mutation]], ...] = (
    delete_unscale,
    delete_update,
    drop_scale,
    plain_step,
)


def main() -> int:
    """Print one line for each mutant, then a table; 1 if too few are confirmed."""
    options = _options()
    outcomes: list[Outcome] = []
    copies: dict[str, Path] = {}
    dead = _dead(options.never)
    mutants = [
        mutant
        for job in listed(options.list, options.checkouts)
        for mutant in break_(job)
        if (job.path.relative_to(options.checkouts).as_posix(), mutant.row) not in dead
    ]
    with (
        tempfile.TemporaryDirectory(prefix="probe-mutants-") as folder,
        contextlib.closing(Worker(find_interpreter(options.python, os.getcwd()))) as worker,
    ):
        for number, mutant in enumerate(mutants[options.start :: options.every]):
            root, path = str(mutant.job.root), Path(folder) / str(number)
            if root in copies:
                copies[root].rename(path)  # a warm worker reads a path only once
            else:
                copy_project(Path(root), path)
            copies[root] = path
            outcome = judge(mutant, path, worker, options)
            outcomes.append(outcome)
            place = mutant.job.path.relative_to(options.checkouts)
            print(f"{outcome.status:<15}{mutant.recipe:<16}{place}:{mutant.row} {outcome.words}")
            sys.stdout.flush()
    _print_table(outcomes)
    confirmed = sum(outcome.status == "confirmed" for outcome in outcomes)
    return int(confirmed < options.min_share * len(outcomes))


def _dead(file: Path | None) -> set[tuple[str, int]]:
    lines = file.read_text(encoding="utf-8").splitlines() if file is not None else []
    return {(entry["path"], entry["row"]) for entry in map(json.loads, lines)}


def break_(job: Job) -> Iterator[Mutant]:
    """The mutants of one function."""
    source = read_source(job.path)
    if source is None:
        return
    for recipe in RECIPES:
        for mutation in recipe(source):
            if job.first <= mutation.row <= job.last:
                name = recipe.__name__.replace("_", "-")
                yield Mutant(name, job, mutation.row, source.apply(mutation.edits))


def copy_project(root: Path, into: Path) -> Path:
    """The files of a project that findings may depend on; the copy may be changed."""
    for file in root.rglob("*"):
        if file.suffix not in COPIED or file.is_symlink() or not file.is_file():
            continue
        if file.stat().st_size <= LARGEST:
            target = into / file.relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
    return into


def judge(mutant: Mutant, root: Path, worker: Worker, options: argparse.Namespace) -> Outcome:
    """Check and probe one mutant in the place of its file."""
    path = root / mutant.job.path.relative_to(str(mutant.job.root))
    original = path.read_bytes()
    path.write_text(mutant.text, encoding="utf-8")
    try:
        settings = Settings(project_root=str(root))
        rows = range(mutant.job.first, mutant.job.last + 1)
        found = [
            finding
            for finding in check_paths([str(path)], settings).findings
            if finding.span.start.row in rows and finding.code < "AMP5"
        ]
        best = Outcome(mutant, "not-probed" if found else "unnoticed")
        found.sort(key=lambda finding: abs(finding.span.start.row - mutant.row))
        for finding in filter(predict, found):
            builder = plan_builder(finding.filename, settings)
            if builder is None:
                continue
            prober = Prober(
                builder,
                worker.run,
                runs=options.runs,
                seconds=options.seconds,
                torch=worker.hello().torch,
            )
            evidence = prober.probe(finding).evidence
            words = f"{finding.code}:{finding.span.start.row} {evidence.detail}"
            words += "".join(f" | assuming {doubt}" for doubt in evidence.assumptions)
            if STATUSES.index(evidence.status) < STATUSES.index(best.status):
                best = Outcome(mutant, evidence.status, words)
            if best.status == "confirmed":
                break
        return best
    finally:
        path.write_bytes(original)


def _print_table(outcomes: list[Outcome]) -> None:
    for recipe in (*(r.__name__.replace("_", "-") for r in RECIPES), "all"):
        mine = [o for o in outcomes if recipe in ("all", o.mutant.recipe)]
        reached = [o for o in mine if o.status in REACHED]
        counts = Counter(o.status for o in mine)
        confirmed = counts["confirmed"]
        listed = ", ".join(f"{name} {counts[name]}" for name in STATUSES if counts[name])
        print(
            f"{recipe:<16}confirmed {confirmed} of {len(mine)} ({_percent(confirmed, len(mine))}), "
            f"of {len(reached)} reached ({_percent(confirmed, len(reached))}): {listed}"
        )


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "-"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("list", type=Path, metavar="LIST")
    parser.add_argument("checkouts", type=Path, metavar="DIR")
    parser.add_argument("--never", type=Path, metavar="FILE", help="what cannot fail, and why")
    parser.add_argument("--runs", type=int, default=150, help="for each finding (default 150)")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each finding")
    parser.add_argument("--python", help="the interpreter whose torch is used")
    parser.add_argument("--start", type=int, default=0, help="the first mutant to take")
    parser.add_argument("--every", type=int, default=1, help="take every n-th mutant from there")
    parser.add_argument("--min-share", type=float, default=0.7)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
