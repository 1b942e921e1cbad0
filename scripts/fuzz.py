"""Whether amplint survives programs that no person would write.

    python scripts/fuzz.py FOLDER... --programs 1000

Takes Python files below the folders that mention AMP, breaks them by structural edits
(breaking.py; the same `--seed` gives the same programs), and checks each program with every rule,
in a process of its own kind: limits of memory and processor time are the operating system's.

What counts as a failure:

- `internal`: an error that says so, or a traceback;
- `outside`: a finding or an error that lies outside of the file;
- `refused`: an error of a program that Python compiles, other than a limit that amplint names;
- `late`: more than `--limit` seconds of processor time;
- `died`: the process ended.

`--keep FOLDER` gets a file for each failure, reduced to what still fails in the same way. At the
end stand the seconds of the median program of each size, and the largest multiple of it.

Exit status: 0 (no failure, and nothing above `MULTIPLE` times the median of its size), 1, or 2 (no
files).
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import resource
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from breaking import blocks_in, broken

#: No program may cost more than so many times the median program of its size.
MULTIPLE = 30.0
#: Below this many seconds a multiple of the median says nothing: garbage collection, imports.
SMALL = 3.0
#: Larger files are left out: what a program costs is for benchmarks/real.py.
MOST_LINES = 700
MEMORY = 3 << 30
#: A worker is replaced after so many programs.
BATCH = 200
_AMP = (b"autocast", b"GradScaler", b"scaler")


@dataclass(frozen=True, slots=True)
class Program:
    """A program, and how checking it went.

    Args:
        number: with the seed, all that is needed to make it again.
        origin: the file that was broken.
        lines: of the program.
        seconds: processor time.
        failure: its kind, "" for none.
        words: what was said, for a failure.
    """

    number: int
    origin: str
    lines: int
    seconds: float
    failure: str = ""
    words: str = ""


class Late(BaseException):
    """The processor time of one program is spent; no `except Exception` takes it."""


def main() -> int:
    """Run, print, and return the exit status."""
    options = _arguments()
    if options.worker:
        return _work(options)
    files = _files(options.folders, options.files, options.seed)
    if not files:
        print("fuzz: no file that mentions AMP", file=sys.stderr)
        return 2
    found = list(_run(options, files))
    failures = [item for item in found if item.failure]
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
        for item in failures:
            text = _made(item.number, files, options.seed)
            small = (
                reduced(text, _fails_like(item, options.limit)) if item.failure != "died" else text
            )
            (options.keep / f"{item.failure}-{item.number}.py").write_text(small, "utf-8")
    return _report(found, failures, len({item.origin for item in found}), options.json)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--programs", type=int, default=1000, help="how many (default: 1000)")
    parser.add_argument("--start", type=int, default=0, help="number of the first (default: 0)")
    parser.add_argument("--files", type=int, default=200, help="at most so many (default: 200)")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    parser.add_argument("--limit", type=float, default=30.0, help="seconds for one (default: 30)")
    parser.add_argument("--keep", type=Path, help="folder for programs that fail, made smaller")
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each program")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _files(folders: Sequence[Path], most: int, seed: int) -> list[Path]:
    """Files that mention AMP, drawn: one of each folder, and again."""
    by_folder = [sorted(each.rglob("*.py")) for each in folders]
    chance = random.Random(seed)
    for each in by_folder:
        chance.shuffle(each)
    drawn: list[Path] = []
    while len(drawn) < most and any(by_folder):
        for each in by_folder:
            drawn += islice((path for path in iter(partial(_next, each), None) if _counts(path)), 1)
    return drawn[:most]


def _next(paths: list[Path]) -> Path | None:
    return paths.pop() if paths else None


def _counts(path: Path) -> bool:
    if not path.is_file() or path.is_symlink():
        return False
    data = path.read_bytes()
    if data.count(b"\n") > MOST_LINES or not any(word in data for word in _AMP):
        return False
    try:
        ast.parse(data)
    except (SyntaxError, ValueError, RecursionError):
        return False
    return True


# -- programs ----------------------------------------------------------------------------------


def _made(number: int, files: Sequence[Path], seed: int) -> str:
    """The program of a number; an edit that cannot be written is drawn again."""
    for attempt in range(20):
        chance = random.Random(f"{seed} {number} {attempt}")
        text = files[number % len(files)].read_bytes()
        other = chance.choice(files).read_bytes()
        try:
            made = broken(ast.unparse(ast.parse(text)), ast.unparse(ast.parse(other)), chance)
            made.encode()
        except (SyntaxError, ValueError, RecursionError, AttributeError, TypeError):
            continue
        return made
    return "pass\n"


def _run(options: argparse.Namespace, files: Sequence[Path]) -> Iterator[Program]:
    """All programs, in workers; one that dies takes the program with it that it was at."""
    number, end = options.start, options.start + options.programs
    while number < end:
        command = [sys.executable, str(Path(__file__).resolve()), *map(str, files)]
        command += ["--worker", "--seed", str(options.seed)]
        command += ["--limit", str(options.limit), "--start", str(number)]
        command += ["--programs", str(min(BATCH, end - number))]
        first = number
        worker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert worker.stdout is not None
        for line in worker.stdout:
            found = Program(**json.loads(line))
            number = found.number + 1
            if options.json:
                print(line, end="", flush=True)
            yield found
        if worker.wait() and number < min(first + BATCH, end):
            origin = str(files[number % len(files)])
            yield Program(number, origin, 0, 0.0, "died", f"status {worker.returncode}")
            number += 1


def _work(options: argparse.Namespace) -> int:
    files: list[Path] = options.folders
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    checked(_made(options.start, files, options.seed), options.limit)  # imports
    for number in range(options.start, options.start + options.programs):
        text = _made(number, files, options.seed)
        seconds, failure, words = checked(text, options.limit)
        lines = text.count("\n")
        found = Program(number, str(files[number % len(files)]), lines, seconds, failure, words)
        print(json.dumps(asdict(found)), flush=True)
    return 0


def checked(text: str, limit: float) -> tuple[float, str, str]:
    """Check a program with every rule: seconds, the kind of a failure and its words."""
    from amplint.checker import check_source
    from amplint.config import Settings

    def late(*_: object) -> None:
        raise Late

    signal.signal(signal.SIGVTALRM, late)
    start = time.process_time()
    signal.setitimer(signal.ITIMER_VIRTUAL, limit)
    try:
        result = check_source("a.py", text.encode(), Settings(select=("ALL",)))
    except Late:
        return limit, "late", ""
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
        return time.process_time() - start, "internal", f"{type(error).__name__}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    seconds = time.process_time() - start
    messages = [error.message for error in result.errors]
    internal = next((words for words in messages if "internal error" in words), "")
    if internal:
        return seconds, "internal", internal
    places = [(item.span.start, item.span.end) for item in result.findings]
    length = len(text.splitlines()) + 1
    if any(not 1 <= place.row <= length for pair in places for place in pair):
        return seconds, "outside", ""
    if messages and len(text.encode()) <= Settings().max_file_size and _compiles(text):
        return seconds, "refused", messages[0]
    return seconds, "", ""


def _compiles(text: str) -> bool:
    try:
        compile(text, "a.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        return False
    return True


# -- making a failure smaller ----------------------------------------------------------------------


def _fails_like(program: Program, limit: float) -> Callable[[str], bool]:
    kind = program.words.partition("(")[2].partition(":")[0]  # of the exception

    def fails(text: str) -> bool:
        _, failure, words = checked(text, limit)
        return failure == program.failure and kind in words

    return fails


def reduced(text: str, fails: Callable[[str], bool]) -> str:
    """A program with as few statements as still fail: halves first, then single ones.

    A text that does not parse is reduced by lines.
    """
    if not fails(text):
        return text
    smaller = True
    while smaller:
        smaller = False
        size = max(1, _size(text) // 2)
        while size:
            index = 0
            while (candidate := _without(text, index, size)) is not None:
                if fails(candidate):
                    text, smaller = candidate, True
                else:
                    index += size
            size //= 2
    return text


def _size(text: str) -> int:
    tree = _tree(text)
    if tree is None:
        return text.count("\n")
    return max((len(block) for block in blocks_in(tree)), default=0)


def _without(text: str, index: int, size: int) -> str | None:
    """The program without `size` statements (or lines) from a place on; None behind the end.

    Places are counted over all blocks: a statement before those inside it.
    """
    tree = _tree(text)
    if tree is None:
        lines = text.splitlines(keepends=True)
        return "".join(lines[:index] + lines[index + size :]) if index < len(lines) else None
    for block in blocks_in(tree):
        if index < len(block):
            block[index : index + size] = [] if block is tree.body else [ast.Pass()]
            made = ast.unparse(ast.fix_missing_locations(tree)) + "\n"
            return made if made != text else ""
        index -= len(block)
    return None


def _tree(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None


# -- the result --------------------------------------------------------------------------------


def _report(found: list[Program], failures: list[Program], files: int, as_json: bool) -> int:
    out = sys.stderr if as_json else sys.stdout
    sizes: dict[int, list[float]] = defaultdict(list)
    for item in found:
        sizes[item.lines.bit_length()].append(item.seconds)
    medians = {size: statistics.median(seconds) for size, seconds in sizes.items()}
    slow = [
        item
        for item in found
        if item.seconds > max(SMALL, MULTIPLE * medians[item.lines.bit_length()])
    ]
    kinds = Counter(item.failure for item in failures)
    print(f"{len(found)} programs from {files} files: {len(failures)} failures", file=out)
    for kind, count in sorted(kinds.items()):
        print(f"  {kind}: {count}", file=out)
    for item in (*failures, *slow):
        what = item.failure or f"{item.seconds:.1f} s"
        print(f"  {item.number}: {what} {item.words} ({item.origin})", file=out)
    for size, seconds in sorted(sizes.items()):
        most = max(seconds)
        print(
            f"up to {1 << size:5} lines: {len(seconds):5} programs, median {medians[size]:.3f} s, "
            f"most {most:.2f} s ({most / max(medians[size], 1e-3):.0f} x)",
            file=out,
        )
    return int(bool(failures or slow))


if __name__ == "__main__":
    sys.exit(main())
