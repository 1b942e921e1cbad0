"""What every file of an ecosystem costs, beside the state before.

    python scripts/costs.py BEFORE AFTER LIST DIR

BEFORE and AFTER are two states of this repository, LIST and DIR are those of ecosystem.py. Both
states check each checkout in one process, without a cache. Printed are the files that cost more
than `--factor` times what they did and more than `--seconds` of processor time, those that let the
process grow by more than `--megabytes` and did not before, and those in which a run ended. At the
end stand the sums and the dearest file.

Exit status: 0 (nothing printed), 1 (some file costs too much more), 2 (a checkout is missing).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ecosystem import EcosystemError, read_list, source_tree

#: Notes the name of each file when its check begins, and its costs when it ends: processor seconds,
#: and by how many kB the peak of the resident memory grew.
NOTED = """
import resource, sys, time
from amplint import checker
from amplint.cli.main import main

inspect = checker.inspect
notes = open(sys.argv[1], "w", encoding="utf-8", errors="surrogateescape")

def used():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss

def noted(task):
    print(task.source.filename, file=notes, flush=True)
    seconds, peak = used()
    result = inspect(task)
    later, grown = used()
    print(later - seconds, grown - peak, file=notes, flush=True)
    return result

checker.inspect = noted
sys.argv[:] = ["amplint", "check", "--isolated", "--no-cache", "--jobs", "1", "--quiet"]
sys.argv += ["--exit-zero", "--select", "ALL", "."]
main()
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """What checking one file took.

    Args:
        seconds: processor time.
        megabytes: by which the peak of the process's resident memory grew.
        ended: False for the file in which a run ended.
    """

    seconds: float = 0.0
    megabytes: float = 0.0
    ended: bool = True


def main() -> int:
    """Measure, print, and return the exit status."""
    options = _arguments()
    status = 0
    try:
        checkouts = read_list(options.list)
        with source_tree(options.before) as before, source_tree(options.after) as after:
            for item in checkouts:
                folder = (options.folder / item.folder).resolve()
                if not folder.is_dir():
                    print(f"costs: no such folder: {folder}", file=sys.stderr)
                    status = 2
                    continue
                old, new = (costs(tree, folder, options.limit) for tree in (before, after))
                lines = list(differences(old, new, options))
                print(f"{item.repository}: {_sum(old)}, now {_sum(new)}")
                print(*(f"  {line}" for line in lines), sep="\n", end="\n" if lines else "")
                status = status or int(bool(lines))
    except EcosystemError as error:
        print(f"costs: {error}", file=sys.stderr)
        return 2
    return status


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("before", help="a folder with amplint's sources, or a commit")
    parser.add_argument("after", help="the same for the changed amplint")
    parser.add_argument("list", type=Path, metavar="LIST", help="owner/name, a tab, a commit")
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder of checkouts")
    parser.add_argument("--factor", type=float, default=2.0, help="default: 2")
    parser.add_argument("--seconds", type=float, default=1.0, help="default: 1")
    parser.add_argument("--megabytes", type=float, default=100.0, help="default: 100")
    parser.add_argument(
        "--limit", type=float, default=600.0, help="seconds a checkout (default: 600)"
    )
    return parser.parse_args()


def costs(tree: Path, folder: Path, limit: float) -> dict[str, Cost]:
    """The cost of each file of a folder, by name, for the amplint of a source tree."""
    with tempfile.TemporaryDirectory() as scratch:
        notes = Path(scratch, "notes")
        # `-c` imports from the working directory first: that must not be the checked code.
        command = [sys.executable, "-c", "import sys; del sys.path[0]\n" + NOTED, str(notes)]
        try:
            subprocess.run(
                command,
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(tree)},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=False,
                timeout=limit,
            )
        except subprocess.TimeoutExpired:
            pass
        text = notes.read_text("utf-8", "surrogateescape") if notes.exists() else ""
    lines = text.splitlines()
    found = {}
    for name, words in zip(lines[::2], lines[1::2], strict=False):
        seconds, kilobytes = words.split()
        found[name] = Cost(float(seconds), float(kilobytes) * 1024 / 1e6)
    if len(lines) % 2:
        found[lines[-1]] = Cost(limit, ended=False)
    return found


def differences(
    old: dict[str, Cost], new: dict[str, Cost], options: argparse.Namespace
) -> Iterator[str]:
    """The files that cost too much more than before, in words."""
    for name, now in sorted(new.items()):
        before = old.get(name, Cost())
        if not now.ended:
            yield f"{name}: the run ended here"
        elif now.seconds > max(options.seconds, options.factor * before.seconds):
            yield f"{name}: {before.seconds:.2f} s, now {now.seconds:.2f} s"
        elif now.megabytes > options.megabytes + before.megabytes:
            yield f"{name}: {before.megabytes:.0f} MB, now {now.megabytes:.0f} MB"


def _sum(found: dict[str, Cost]) -> str:
    name = max(found, key=lambda each: found[each].seconds, default="")
    total = sum(cost.seconds for cost in found.values())
    dearest = f", dearest {found[name].seconds:.2f} s {name}" if name else ""
    return f"{total:.1f} s in {len(found)} files{dearest}"


if __name__ == "__main__":
    sys.exit(main())
