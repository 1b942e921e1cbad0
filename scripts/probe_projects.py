"""Ask the probe about small projects whose truth is known.

    python scripts/probe_projects.py tests/probe/projects/wrong
    python scripts/probe_projects.py --forced tests/probe/projects/correct
    python scripts/probe_projects.py --truth tests/probe/projects/correct

A project is a folder, or a text file that holds several: `--- train.py` begins a file of the
project, `--- lib/kit.py` one of a library that the project imports and amplint does not see, and
`--- run` lists command lines, one a line: `ok` has to end without an error, `refused` has to exit
with a status of its own, `wrong` has to show an exception or the mistake. `--truth` executes them with
torch alone, at two initial loss scales: an exception, or other weights at the end, is a mistake.

Without an option, what `amplint check --probe` says of each project is printed, one line for
each finding; `--forced` asks about every rule at every scaler call instead. The exit status is 1
if a project in a folder called `correct` is confirmed, or what `--truth` executes is otherwise.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import importlib.util
import io
import os
import resource
import runpy
import shlex
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from amplint.checker import check_paths
from amplint.config import Settings
from amplint.probe.confirmation import Limits, Probed, probe_with
from amplint.probe.interpreter import find_interpreter
from amplint.probe.process import Worker

#: Where a library of a packed project lies, beside the project.
LIBRARY = "lib/"
RUN = "run"
#: Initial loss scales that `--truth` compares. Powers of two: nothing is rounded otherwise.
SCALES = (4.0, 1024.0)


def main() -> int:
    """Print one line for each finding; 1 if something is confirmed that is right."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--forced", action="store_true", help="ask about every rule")
    parser.add_argument("--truth", action="store_true", help="execute instead of probing")
    parser.add_argument("--only", default="", help="part of the names to take")
    parser.add_argument("--runs", type=int, default=150, help="for each finding")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each finding")
    options = parser.parse_args()
    names = [name for name in sorted(_names(options.folders)) if options.only in str(name)]
    with tempfile.TemporaryDirectory() as scratch:
        projects = {name: unpacked(name, Path(scratch)) for name in names}
        if options.truth:
            _warm()
            executed = [_is_true(name, folder) for name, folder in projects.items()]
            return int(not all(executed))
        return _probed(projects, options)


def _names(folders: list[Path]) -> Iterator[Path]:
    for folder in folders:
        yield from (item for item in folder.iterdir() if item.is_dir() or item.suffix == ".txt")


def unpacked(name: Path, scratch: Path) -> Path:
    """The folder of a project; a packed one is written to `scratch`, its library beside it."""
    if name.is_dir():
        return name
    folder = scratch / name.stem / "project"
    for path, text in parts_of(name):
        if path == RUN:
            continue
        inside = path.startswith(LIBRARY)
        place = (folder.parent / path) if inside else (folder / path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    return folder


def parts_of(name: Path) -> Iterator[tuple[str, str]]:
    """The files of a packed project, and their texts."""
    _, *parts = ("\n" + name.read_text(encoding="utf-8")).split("\n--- ")
    for part in parts:
        path, _, text = part.partition("\n")
        yield path.strip(), text.strip("\n") + "\n"


# -- the truth -----------------------------------------------------------------------------------


def _warm() -> None:
    """Import what torch imports when an optimizer is first used, once for all children."""
    import torch

    torch.set_num_threads(1)
    weight = torch.nn.Parameter(torch.ones(1))
    (weight * 2).sum().backward()
    torch.optim.SGD([weight], lr=0.1).step()


def _is_true(name: Path, folder: Path) -> bool:
    lines = dict(parts_of(name)).get(RUN, "").splitlines()
    good = bool(lines)
    for line in filter(None, lines):
        wanted, *command = shlex.split(line)
        seen = _seen(folder, command)
        as_said = seen.split(" ")[0] == wanted
        good = good and as_said
        print(f"{name.stem}: {' '.join(command)}: {seen}" + ("" if as_said else "  UNTRUE"))
    sys.stdout.flush()
    return good


def _seen(folder: Path, command: list[str]) -> str:
    """What a command line shows: "ok", "refused" or "wrong"."""
    ends = [_executed(folder, command, scale) for scale in SCALES]
    if all(end.startswith("exit ") for end in ends):
        return "refused"
    right = ends[0] == ends[1] and ends[0].startswith("weights ")
    return "ok" if right else f"wrong ({ends[0]:.70} | {ends[1]:.70})"


def _executed(folder: Path, command: list[str], scale: float) -> str:
    """How a script ends in a process of its own, which has torch already."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        with os.fdopen(writing, "w") as told:
            told.write(_end_of(folder, command, scale))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        text = told.read()
    os.waitpid(child, 0)
    return text


def _end_of(folder: Path, command: list[str], scale: float) -> str:
    """Run a script: "weights ...", "exit ..." or the exception."""
    import torch

    warnings.simplefilter("ignore")
    os.chdir(folder)
    sys.path[:0] = [str(folder), str(folder.parent / LIBRARY)]
    sys.argv = command
    optimizers = []
    init_scaler, init_optimizer = torch.amp.GradScaler.__init__, torch.optim.Optimizer.__init__

    def scaled(self: Any, *args: Any, **kwargs: Any) -> None:
        init_scaler(self, *args[:1], **{**kwargs, "init_scale": scale})

    def remembered(self: Any, *args: Any) -> None:
        init_optimizer(self, *args)
        optimizers.append(self)

    torch.amp.GradScaler.__init__ = scaled  # type: ignore[method-assign]
    torch.optim.Optimizer.__init__ = remembered  # type: ignore[method-assign]
    torch.manual_seed(0)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            runpy.run_path(command[0], run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0):
            return f"exit {end.code}"
    except Exception as error:  # noqa: BLE001 -- that is what is asked
        return f"{type(error).__name__}: {error}"
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    sums = [float(p.detach().double().sum()) for group in groups for p in group["params"]]
    return "weights " + " ".join(f"{value:.6g}" for value in sums)


# -- the probe -----------------------------------------------------------------------------------


def _probed(projects: dict[Path, Path], options: argparse.Namespace) -> int:
    counts: collections.Counter[str] = collections.Counter()
    bad = False
    with contextlib.closing(Worker(find_interpreter(None, os.getcwd()))) as worker:
        for name, folder in projects.items():
            before = _seconds()
            if options.forced:
                lines = list(_forced(folder, worker, options))
                statuses = {"confirmed"} if lines else {"silent"}
            else:
                found = _plain(folder, worker, options)
                lines = [_line(folder, probed) for probed in found]
                statuses = {probed.finding.evidence.status for probed in found} or {"silent"}
            best = min(statuses, key=_ORDER.index)
            counts[best] += 1
            bad = bad or (best == "confirmed" and name.parent.name == "correct")
            print(f"{name.stem}: {best.upper()} ({_seconds() - before:.1f} s of this process)")
            print("".join(f"    {line}\n" for line in lines), end="", flush=True)
    print(", ".join(f"{count} {status}" for status, count in counts.most_common()))
    return int(bad)


_ORDER = [
    *("confirmed", "conditional", "inconclusive", "not-reproduced", "not-reached", "not-probed"),
    "silent",
]


def _seconds() -> float:
    own = resource.getrusage(resource.RUSAGE_SELF)
    return own.ru_utime + own.ru_stime


def _plain(folder: Path, worker: Worker, options: argparse.Namespace) -> list[Probed]:
    settings = Settings(project_root=str(folder))
    files = sorted(str(path) for path in folder.rglob("*.py"))
    findings = check_paths(files, settings).findings
    return probe_with(
        [worker], findings, settings, Limits(seconds=options.seconds, runs=options.runs)
    )


def _line(folder: Path, probed: Probed) -> str:
    finding, evidence = probed.finding, probed.finding.evidence
    assert evidence is not None
    place = f"{os.path.relpath(finding.filename, folder)}:{finding.span.start.row}"
    assumed = "".join(f"\n        assuming {words}" for words in evidence.assumptions)
    runs = f"{probed.seconds:.1f} s, {probed.verdict.runs} runs"
    return f"{finding.code} {place} {evidence.status} ({runs}): {evidence.detail}{assumed}"


def _forced(folder: Path, worker: Worker, options: argparse.Namespace) -> Iterator[str]:
    corpus = _corpus()
    for path in sorted(folder.rglob("*.py")):
        asked = corpus.ask(corpus.Job(path, str(folder)), worker, 12, options.seconds)
        if asked is not None:
            yield from (f"{path.relative_to(folder)}: {line}" for line in asked.confirmed)


def _corpus() -> ModuleType:
    known = sys.modules.get("probe_corpus")
    if known is not None:
        return known
    path = Path(__file__).with_name("probe_corpus.py")
    spec = importlib.util.spec_from_file_location("probe_corpus", path)
    assert spec is not None and spec.loader is not None
    module = sys.modules["probe_corpus"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    sys.exit(main())
