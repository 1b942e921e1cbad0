"""Whether amplint says the same on real code, however it is asked.

    python scripts/deterministic.py LIST DIR

LIST names repositories, one on each line: `owner/name`, a tab and the commit. The code is read
from checkouts laid out as `DIR/<owner>__<name>@<commit12>`.

Each checkout is checked without a cache, with an empty one, with a full one, with the index of the
project alone, and in two processes; then with its files named one by one, sorted and in an order
drawn from `--seed`. Each time Python hashes strings with another seed. The JSON reports of a folder
must be equal, byte for byte, and so must those of its files; only the time that they took may
differ.

Exit status: 0 (always the same), 1 (something differs), 2 (a checkout is missing, or amplint did
not deliver a report).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from itertools import islice
from pathlib import Path

from ecosystem import EcosystemError, read_list

REPOSITORY = Path(__file__).resolve().parent.parent
_SHOWN_LINES = 20
#: `python -m` would import from the working directory, and so execute the checked code.
_START = (
    "import sys; del sys.path[0]; import runpy; runpy.run_module('amplint', run_name='__main__')"
)
_CHECK = ("check", "--isolated", "--output-format", "json")


@dataclass(frozen=True, slots=True)
class Way:
    """One way to ask.

    Args:
        options: of `amplint check`.
        keep: what of the cache is left from the way before: "results", "indexes" or nothing.
        shuffled: the files are named in a drawn order.
    """

    name: str
    options: tuple[str, ...] = ("--no-cache", "--jobs", "1")
    keep: str = ""
    shuffled: bool = False


#: For a folder; the first one is what the others are compared with.
OF_FOLDER = (
    Way("without a cache"),
    Way("once more"),
    Way("in two processes", ("--no-cache", "--jobs", "2")),
    Way("with an empty cache", ("--jobs", "1")),
    Way("with a full cache", ("--jobs", "1"), keep="results"),
    Way("with the project's index", ("--jobs", "1"), keep="indexes"),
    Way("with an empty cache, in two processes", ("--jobs", "2")),
    Way("with that index, in two processes", ("--jobs", "2"), keep="indexes"),
)
#: For files that are named: what is named is parsed in any case, so this is another report.
OF_FILES = (
    Way("file by file"),
    Way("in another order", shuffled=True),
    Way("in another order, in two processes", ("--no-cache", "--jobs", "2"), shuffled=True),
)


def differences(folder: Path, tree: Path, seed: int) -> Iterator[tuple[Way, list[str]]]:
    """Ways of asking that give another report, each with the lines in which it differs.

    Args:
        folder: the checked code.
        tree: a folder with amplint's sources.
        seed: of the order of files.

    Raises:
        EcosystemError: amplint does not deliver a report.
    """
    files = python_files(folder)
    shuffled = random.Random(seed).sample(files, len(files))
    for ways, named in ((OF_FOLDER, ["."]), (OF_FILES, files)):
        expected: list[str] | None = None
        with tempfile.TemporaryDirectory() as cache:
            for number, way in enumerate(ways if named else ()):
                clear(Path(cache), way.keep)
                paths = shuffled if way.shuffled else named
                environment = {"AMPLINT_CACHE_DIR": cache, "PYTHONHASHSEED": str(number)}
                lines = report(tree, folder, environment, way.options, paths)
                expected = expected or lines
                if lines != expected:
                    yield way, list(unified_diff(expected, lines, lineterm="", n=0))[2:]


def python_files(folder: Path) -> list[str]:
    """The files that amplint would check, relative to the folder, sorted."""
    files = (path.relative_to(folder) for path in folder.rglob("*.py"))
    return sorted(str(path) for path in files if not any(part[0] == "." for part in path.parts))


def clear(cache: Path, keep: str) -> None:
    """Empty a cache, but for what is kept."""
    for path in cache.rglob("*"):
        kept = keep == "results" or (keep == "indexes" and path.suffix == ".index")
        if path.is_file() and path.suffix in (".json", ".index") and not kept:
            path.unlink()


def report(
    tree: Path,
    folder: Path,
    environment: Mapping[str, str],
    options: Sequence[str],
    paths: Sequence[str],
) -> list[str]:
    """The lines of a JSON report, without the time that it took.

    Raises:
        EcosystemError: there is none.
    """
    done = subprocess.run(
        [sys.executable, "-c", _START, *_CHECK, *options, "--", *paths],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(tree), **environment},
        capture_output=True,
        check=False,
    )
    try:
        found = json.loads(done.stdout)
    except ValueError:
        words = done.stderr.decode(errors="replace").strip() or "no output"
        raise EcosystemError(f"status {done.returncode}: {words.splitlines()[-1]}") from None
    found["summary"].pop("seconds", None)
    return json.dumps(found, indent=1).splitlines()


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    options = _parse(arguments)
    try:
        checkouts = read_list(options.list)
    except EcosystemError as error:
        print(f"deterministic: {error}", file=sys.stderr)
        return 2
    status = 0
    for item in checkouts:
        folder = (options.folder / item.folder).resolve()
        try:
            if not folder.is_dir():
                raise EcosystemError(f"no such folder: {folder}")
            found = list(differences(folder, options.tree.resolve(), options.seed))
        except EcosystemError as error:
            print(f"{item.repository}: not compared: {error}")
            status = 2
            continue
        print(f"{item.repository}: {'differs' if found else 'the same'}", flush=True)
        for way, lines in found:
            status = max(status, 1)
            print(f"  {way.name}:")
            print("\n".join(f"    {line}" for line in islice(lines, _SHOWN_LINES)))
    return status


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("list", type=Path, metavar="LIST", help="owner/name, a tab, a commit")
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder of checkouts")
    parser.add_argument("--tree", type=Path, default=REPOSITORY, help="amplint's sources")
    parser.add_argument("--seed", type=int, default=0, help="of the order of files (default: 0)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
