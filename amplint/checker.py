"""Check files: discover, read, screen, inspect, report.

No checked file is imported or executed, and none is passed over silently: what cannot be
analysed is a `FileError` of the report.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

from amplint.config import Settings
from amplint.errors import UnreadableFile
from amplint.findings import FileError, Finding
from amplint.inspection import FileResult, Task, inspect, place, unreadable
from amplint.project.lookups import forget
from amplint.selection import Selection
from amplint.source.discovery import STDIN, Discovered, discover
from amplint.source.reading import decode, read_bytes
from amplint.source.screen import mentions_amp

if TYPE_CHECKING:
    from amplint.cache import Cache

#: Starting worker processes costs about as much as analysing this many characters.
WORTH_PROCESSES = 200_000

CRASHED = "the analysis crashed; please report it with the file"

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Report:
    """What one run gave.

    Args:
        findings: sorted by filename, row, column and code.
        errors: files that could not be analysed, sorted by filename; any makes the exit
            status 2.
        files: number of files found, those screened out and unreadable ones included.
        screened_out: number of files in which no rule can fire, judged by their bytes.
        unfinished: number of functions that were too large to be followed to their end.
        reused: number of files whose result came from the cache.
        seconds: wall time of the run.
        fixed: findings that were there before fixes were applied.
        unsafe_fixes: whether fixes that change what the program does count as fixes, too.
    """

    findings: tuple[Finding, ...] = ()
    errors: tuple[FileError, ...] = ()
    files: int = 0
    screened_out: int = 0
    unfinished: int = 0
    reused: int = 0
    seconds: float = 0.0
    fixed: tuple[Finding, ...] = ()
    unsafe_fixes: bool = False

    def is_fixable(self, finding: Finding) -> bool:
        """Whether `--fix` would try the fix of a finding."""
        applied = ("safe", "unsafe") if self.unsafe_fixes else ("safe",)
        return finding.fix is not None and finding.fix.applicability in applied


def check_paths(
    paths: Sequence[str],
    settings: Settings,
    *,
    stdin: bytes | None = None,
    progress: Progress | None = None,
    cache: Cache | None = None,
) -> Report:
    """Check files and folders.

    Args:
        paths: files, folders, and "-" for standard input.
        settings: what to check and how.
        stdin: the content of standard input; None reads it where "-" is among the paths.
        progress: called with the number of finished files and the number of all files.
        cache: where results of earlier runs are looked for, and those of this run are kept.

    Raises:
        ConfigError: a pattern of the settings is malformed.
    """
    started = time.perf_counter()
    forget()
    selection = Selection(settings)
    errors: list[FileError] = []
    results: list[FileResult] = []
    tasks: list[Task] = []
    for found in discover(paths, settings):
        if isinstance(found, FileError):
            errors.append(found)
            continue
        prepared = _prepare(found, settings, selection, stdin, cache)
        if isinstance(prepared, Task):
            tasks.append(prepared)
        else:
            results.append(prepared)
    total = len(results) + len(tasks)
    for task, result in _inspect_all(tasks, settings.jobs):
        results.append(result)
        if cache is not None and task.key:
            cache.put(task.key, result)
        if progress is not None:
            progress(len(results), total)
    return _report(results, errors, time.perf_counter() - started)


def check_source(filename: str, data: bytes, settings: Settings) -> FileResult:
    """Check one file by its bytes, in this process; see `check_paths`."""
    selection = Selection(settings)
    try:
        source = decode(data, filename, max_file_size=settings.max_file_size)
    except UnreadableFile as error:
        return FileResult(filename, errors=(unreadable(filename, error),))
    codes = selection.codes_for(filename)
    torch = settings.target_torch
    return inspect(Task(source, codes, selection.off_by_default, target_torch=torch))


def _prepare(
    found: Discovered,
    settings: Settings,
    selection: Selection,
    stdin: bytes | None,
    cache: Cache | None,
) -> Task | FileResult:
    """Read one file; a result where there is nothing left to inspect."""
    try:
        if found.path == STDIN:
            data = sys.stdin.buffer.read() if stdin is None else stdin
        else:
            data = read_bytes(found.path, settings.max_file_size)
        source = decode(data, found.filename, max_file_size=settings.max_file_size)
    except UnreadableFile as error:
        return FileResult(found.filename, errors=(unreadable(found.filename, error),))
    # What the user names is parsed in any case: a broken file must not look checked.
    if not found.explicit and not mentions_amp(data):
        return FileResult(found.filename, screened_out=True)
    if found.path == STDIN:
        codes = selection.codes_for(settings.stdin_filename or found.filename)
        torch = settings.target_torch
        return Task(source, codes, selection.off_by_default, target_torch=torch)
    key = cache.key(found.filename, found.path, data) if cache is not None else ""
    known = cache.get(key) if cache is not None else None
    if known is not None:
        return known
    # Only now: which rules are off by default is known when all of them are imported.
    codes = selection.codes_for(found.path)
    return Task(
        source,
        codes,
        selection.off_by_default,
        found.path,
        key,
        settings.project_root,
        settings.src,
        settings.target_torch,
    )


def _inspect_all(tasks: Sequence[Task], jobs: int) -> Iterator[tuple[Task, FileResult]]:
    characters = sum(len(task.source.text) for task in tasks)
    if jobs == 1 or len(tasks) < 2 or (not jobs and characters < WORTH_PROCESSES):
        yield from ((task, inspect(task)) for task in tasks)
        return
    from amplint import workers

    processes = min(jobs or workers.available_processors(), len(tasks))
    ordered = _largest_first(tasks, 2 * processes)
    for task, result in workers.run(inspect, ordered, processes):
        if isinstance(result, workers.Died):
            filename = task.source.filename
            result = FileResult(filename, errors=(FileError(filename, CRASHED),))
        yield task, result


def _largest_first(tasks: Sequence[Task], count: int) -> list[Task]:
    """The largest tasks, so that none of them is alone at the end; then the others.

    These stay in the order of their folders: files of one folder import the same modules, and
    a worker has the last ones at hand.
    """
    by_size = sorted(range(len(tasks)), key=lambda index: -len(tasks[index].source.text))
    first = by_size[:count]
    rest = sorted(by_size[count:])
    return [tasks[index] for index in (*first, *rest)]


def _report(results: Iterable[FileResult], errors: Iterable[FileError], seconds: float) -> Report:
    results = list(results)
    findings = [finding for result in results for finding in result.findings]
    all_errors = {*errors, *(error for result in results for error in result.errors)}
    return Report(
        findings=tuple(sorted(findings, key=place)),
        errors=tuple(sorted(all_errors, key=astuple)),
        files=len(results),
        screened_out=sum(result.screened_out for result in results),
        unfinished=sum(result.unfinished for result in results),
        reused=sum(result.reused for result in results),
        seconds=seconds,
    )
