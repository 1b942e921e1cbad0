"""Ask the probe about findings that people have judged to be true.

    python scripts/probe_findings.py --sheets docs/survey/batch-*-sheet.tsv --in DIR [DIR ...]
    python scripts/probe_findings.py --lists LIST.jsonl --in DIR

A row of a sheet counts if every reader calls it true; of a list (see `corpus.py`) the bugs do.
Checkouts lie in one of the folders as `<owner>__<name>@<commit12>`. A true finding that amplint
no longer reports there is told as "silent", and is not asked about.

One line for each finding says the verdict, the processor seconds (of this process, the worker and
its runs) and what the probe has to say; at the end come the verdicts by list and by reason.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import csv
import hashlib
import json
import os
import re
import resource
import statistics
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from amplint.checker import check_paths
from amplint.config import Settings
from amplint.findings import Finding
from amplint.probe.confirmation import Limits, Probed, probe_with
from amplint.probe.interpreter import find_interpreter
from amplint.probe.process import Worker

#: Rows between a listed place and a finding that is about it, as in `corpus.py`.
NEAR = 5
#: Clock ticks in which Linux tells the time of other processes, per second.
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Truth:
    """A finding that is true.

    Args:
        listed: the name of the sheet or list.
        folder: the checkout.
        rows: any of them.
        codes: any of them.
    """

    listed: str
    folder: Path
    path: str
    rows: tuple[int, ...]
    codes: tuple[str, ...]

    def is_told_by(self, finding: Finding) -> bool:
        """Whether a finding is this one."""
        places = [(finding.filename, finding.span.start.row)]
        places += [(step.filename, step.row) for step in finding.path]
        filename = os.path.realpath(self.folder / self.path)
        return finding.code in self.codes and any(
            os.path.realpath(name) == filename and abs(row - own) <= NEAR
            for name, row in places
            for own in self.rows
        )


def main() -> int:
    """Print what the probe says of each finding."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--sheets", nargs="*", default=[], type=Path)
    parser.add_argument("--lists", nargs="*", default=[], type=Path)
    parser.add_argument("--in", nargs="+", required=True, type=Path, dest="folders")
    parser.add_argument("--only", default="", help="pattern for `list folder path:row code`")
    parser.add_argument(
        "--share",
        choices=("all", "open", "held-out"),
        default="all",
        help="held-out: a third of the repositories, by a hash of their names; open: the others",
    )
    parser.add_argument("--part", default="1/1", help="1/4: the first quarter of the repositories")
    parser.add_argument("--runs", type=int, default=150, help="for each finding")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each finding")
    options = parser.parse_args()
    checkouts = {
        entry.name.lower(): entry for folder in options.folders for entry in folder.iterdir()
    }
    truths = [*_of_sheets(options.sheets, checkouts), *_of_lists(options.lists, checkouts)]
    chosen = [
        truth
        for truth in truths
        if re.search(options.only, _name(truth)) and options.share in ("all", _share(truth))
    ]
    files = sorted({(truth.folder, truth.path) for truth in chosen})
    part, parts = map(int, options.part.split("/"))
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    costs: list[float] = []
    with contextlib.closing(Worker(find_interpreter(None, os.getcwd()))) as worker:
        for folder, path in files[part - 1 :: parts]:
            wanted = [t for t in chosen if (t.folder, t.path) == (folder, path)]
            for truth, probed, cost in _asked(folder, path, wanted, worker, options):
                status = "silent"
                if probed is not None:
                    status = probed.finding.evidence.status
                    if status != "not-probed":
                        costs.append(cost)
                counts[truth.listed, status] += 1
                print(_line(truth, probed, status, cost), flush=True)
    for (listed, status), count in sorted(counts.items()):
        print(f"{listed}: {count} {status}")
    if costs:
        ordered = sorted(costs)
        most = ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))]
        print(f"processor seconds: p50 {statistics.median(ordered):.1f}, p90 {most:.1f}")
    return 0


def _of_sheets(sheets: Iterable[Path], checkouts: dict[str, Path]) -> Iterator[Truth]:
    for sheet in sheets:
        judged: dict[tuple[str, ...], set[str]] = {}
        with sheet.open(encoding="utf-8") as text:
            for row in csv.DictReader(text, delimiter="\t", quoting=csv.QUOTE_NONE):
                if row["code"]:
                    key = (row["repository"], row["commit"], row["file"], row["row"], row["code"])
                    judged.setdefault(key, set()).add(row["verdict"])
        for (repository, commit, path, number, code), verdicts in judged.items():
            folder = checkouts.get(_folder(repository, commit))
            if verdicts == {"true"} and folder is not None and (folder / path).is_file():
                yield Truth(sheet.stem[:7], folder, path, (int(number),), (code,))


def _of_lists(lists: Iterable[Path], checkouts: dict[str, Path]) -> Iterator[Truth]:
    for name in lists:
        for line in name.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            folder = checkouts.get(_folder(entry["repo"], entry["commit"]))
            if entry["kind"] == "bug" and folder is not None:
                rows, codes = tuple(entry["lines"]), tuple(entry["codes"])
                yield Truth(name.stem, folder, entry["path"], rows, codes)


def _folder(repository: str, commit: str) -> str:
    return f"{repository.replace('/', '__')}@{commit[:12]}".lower()


def _share(truth: Truth) -> str:
    repository = truth.folder.name.partition("@")[0].lower()
    digest = hashlib.sha256(repository.encode()).hexdigest()
    return "held-out" if int(digest, 16) % 3 == 0 else "open"


def _name(truth: Truth) -> str:
    return f"{truth.listed} {truth.folder.name} {truth.path}:{truth.rows[0]} {truth.codes[0]}"


def _asked(
    folder: Path, path: str, truths: list[Truth], worker: Worker, options: argparse.Namespace
) -> Iterator[tuple[Truth, Probed | None, float]]:
    """What the probe says of the true findings of one file, and the processor seconds."""
    settings = Settings(project_root=str(folder))
    findings = check_paths([str(folder / path)], settings).findings
    for truth in truths:
        told = next((finding for finding in findings if truth.is_told_by(finding)), None)
        if told is None:
            yield truth, None, 0.0
            continue
        before = _processor_seconds(worker)
        limits = Limits(seconds=options.seconds, runs=options.runs)
        [probed] = probe_with([worker], [told], settings, limits)
        yield truth, probed, max(0.0, _processor_seconds(worker) - before)


def _processor_seconds(worker: Worker) -> float:
    """What this process, the worker and its runs have used."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    used = own.ru_utime + own.ru_stime
    return used + (_used_below(worker.process) if worker.process is not None else 0.0)


def _used_below(process: int) -> float:
    """Of a process and those that it has started; what has ended counts with its parent."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="ascii")
        children = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii")
    except OSError:
        return 0.0
    # user, system, and of children that have ended: fields 14 to 17 of proc(5).
    ticks = sum(map(int, text.rpartition(")")[2].split()[11:15]))
    return ticks / TICKS + sum(_used_below(int(child)) for child in children.split())


def _line(truth: Truth, probed: Probed | None, status: str, cost: float) -> str:
    if probed is None:
        return f"{_name(truth)} | silent"
    finding, evidence = probed.finding, probed.finding.evidence
    place = f"{os.path.relpath(finding.filename, truth.folder)}:{finding.span.start.row}"
    assumed = "".join(f"\n    assuming {words}" for words in evidence.assumptions)
    effort = f"{cost:.1f} s of CPU, {probed.seconds:.1f} s, {probed.verdict.runs} runs"
    name = f"{truth.listed} {truth.folder.name} {place} {finding.code}"
    return f"{name} | {status} ({effort}): {evidence.detail}{assumed}"


if __name__ == "__main__":
    sys.exit(main())
