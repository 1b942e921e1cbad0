"""Check files: discover, read, screen, inspect, report.

No checked file is imported or executed, and none is passed over silently: what cannot be
analysed is a `FileError` of the report.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from amplint import files
from amplint.code.index import forget
from amplint.config import Settings
from amplint.errors import UnreadableFile
from amplint.findings import FileError, Finding, Incomplete, Remark
from amplint.inspection import OUT_OF_MEMORY, FileResult, Task, inspect, place, unreadable
from amplint.selection import Selection
from amplint.source.discovery import NOTEBOOK, STDIN, Discovered, discover
from amplint.source.reading import SourceFile, decode, is_notebook
from amplint.source.screen import mentions_amp, trains

if TYPE_CHECKING:
    from amplint.cache import Cache
    from amplint.workers import Died

#: Starting worker processes costs about as much as analysing half as many characters (measured
#: with two of them).
WORTH_PROCESSES = 50_000

#: So many of the largest files are read first.
_LARGEST = 16

CRASHED = "the analysis crashed; please report it with the file"
TOO_LONG = "takes longer to be analysed than a file may"
KILLED = "was ended by the system while it was analysed, perhaps for want of memory"
ALONE = "no other process can be started here, so that one process did all the work"

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Report:
    """What one run gave.

    Args:
        findings: sorted by filename, row, column and code.
        errors: files that could not be analysed, sorted by filename; any makes the exit
            status 2.
        files: number of files found, those screened out and unreadable ones included.
        screened_out: number of files that take no part in mixed precision; see `FileResult`.
        incomplete: files that were followed in part, sorted by filename.
        reused: number of files whose result came from the cache.
        seconds: wall time of the run.
        fixed: findings that were there before fixes were applied.
        unsafe_fixes: whether fixes that change what the program does count as fixes, too.
        notes: remarks about the run, for the person who started it.
        explain: whether people want to read what each finding rests on.
    """

    findings: tuple[Finding, ...] = ()
    errors: tuple[FileError, ...] = ()
    files: int = 0
    screened_out: int = 0
    incomplete: tuple[Incomplete, ...] = ()
    reused: int = 0
    seconds: float = 0.0
    fixed: tuple[Finding, ...] = ()
    unsafe_fixes: bool = False
    notes: tuple[str, ...] = ()
    explain: bool = False

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
        progress: called with the number of finished files and the number of all files, at
            last with all of them.
        cache: where results of earlier runs are looked for, and those of this run are kept.

    Raises:
        ConfigError: a pattern of the settings is malformed.
    """
    started = time.perf_counter()
    forget()
    preparation = _Preparation(settings, stdin, cache)
    results: list[FileResult] = []
    for task, result in _inspect_all(preparation, paths, settings.jobs):
        results.append(result)
        if cache is not None and task.key:
            cache.put(task.key, result)
        if progress is not None:
            progress(len(preparation.results) + len(results), preparation.files)
    results += preparation.results
    if cache is not None:
        cache.keep_searches(results)
    if progress is not None and results:
        progress(len(results), len(results))
    report = _report(results, preparation.errors, time.perf_counter() - started)
    return replace(report, notes=tuple(dict.fromkeys(preparation.notes)))


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


class _Preparation:
    """Reads files, and tells those that have to be inspected from the others.

    Args:
        settings: what to check and how.
        stdin: the content of standard input; None reads it.
        cache: of earlier results.

    Attributes:
        files: how many there are, known from the first task on.
        results: of files in which there is nothing left to inspect.
        errors: of paths that are no files.
        notes: of the report.
    """

    def __init__(self, settings: Settings, stdin: bytes | None, cache: Cache | None) -> None:
        self.files = 0
        self.results: list[FileResult] = []
        self.errors: list[FileError] = []
        self.notes: list[str] = []
        self._settings = settings
        self._selection = Selection(settings)
        self._stdin = stdin
        self._cache = cache

    def tasks(self, paths: Sequence[str]) -> Iterator[Task]:
        """What has to be inspected; `results` and `errors` grow meanwhile.

        Raises:
            ConfigError: a pattern of the settings is malformed.
        """
        found: list[Discovered] = []
        for item in discover(paths, self._settings):
            if isinstance(item, FileError):
                self.errors.append(item)
            elif isinstance(item, Remark):
                self.notes.append(f"{item.filename}:{item.row}: {item.message}")
            else:
                found.append(item)
        self.files = len(found)
        for item in _largest_first(found):
            prepared = self._prepare(item)
            if isinstance(prepared, Task):
                yield prepared
            else:
                self.results.append(prepared)

    def _prepare(self, found: Discovered) -> Task | FileResult:
        """Read one file; a result where there is nothing left to inspect."""
        limit = self._settings.max_file_size
        try:
            data = self._read(found)
            source = decode(data, found.filename, max_file_size=limit)
        except UnreadableFile as error:
            return FileResult(found.filename, errors=(unreadable(found.filename, error),))
        if found.explicit and is_notebook(source.text):
            return FileResult(found.filename, errors=(FileError(found.filename, NOTEBOOK),))
        # What the user names is parsed in any case: a broken file must not look checked.
        plain = not found.explicit and not mentions_amp(data)
        if plain and not trains(data):
            return FileResult(found.filename, screened_out=True)
        if found.path == STDIN:
            return self._task(source, self._settings.stdin_filename or found.filename)
        if self._cache is None:
            return self._task(source, found.path, found, plain=plain)
        key = self._cache.key(found.filename, found.path, data, found.folder)
        known = self._cache.get(key, plain=plain)
        return known or self._task(source, found.path, found, key, plain=plain)

    def _read(self, found: Discovered) -> bytes:
        if found.path != STDIN:
            return files.read(found.path, self._settings.max_file_size)
        if self._stdin is None:
            return files.read_stream(sys.stdin.buffer, self._settings.max_file_size)
        return self._stdin

    def _task(
        self,
        source: SourceFile,
        name: str,
        found: Discovered | None = None,
        key: str = "",
        *,
        plain: bool = False,
    ) -> Task:
        """The task of a file, or of standard input, which lies nowhere."""
        settings = self._settings
        path = found.path if found is not None else ""
        return Task(
            source,
            self._selection.codes_for(name),
            self._selection.off_by_default,
            path,
            key,
            settings.project_root if path else None,
            settings.src if path else (),
            settings.target_torch,
            self._cache.indexes if self._cache is not None and path else "",
            found.folder if found is not None else "",
            plain,
            settings.wants_edits,
        )


def _largest_first(found: Sequence[Discovered]) -> list[Discovered]:
    """The largest files, so that none of them is alone at the end; then the others.

    These stay in the order of their folders: files of one folder import the same modules, and
    a worker has the last ones at hand.
    """
    by_size = sorted(range(len(found)), key=lambda index: -found[index].size)
    first = by_size[:_LARGEST]
    rest = sorted(by_size[_LARGEST:])
    return [found[index] for index in (*first, *rest)]


def _inspect_all(
    preparation: _Preparation, paths: Sequence[str], jobs: int
) -> Iterator[tuple[Task, FileResult]]:
    """Inspect here, or in several processes where there proves to be enough to do."""
    tasks = preparation.tasks(paths)
    first: list[Task] = []
    characters = 0
    for task in tasks:
        first.append(task)
        characters += len(task.source.text)
        if jobs != 1 and len(first) > 1 and (jobs or characters >= WORTH_PROCESSES):
            break
    else:
        yield from ((task, inspect(task)) for task in first)
        return
    from amplint import workers

    processes = min(jobs or workers.available_processors(), preparation.files)
    alone = partial(preparation.notes.append, ALONE)
    for task, result in workers.run(inspect, chain(first, tasks), processes, alone=alone):
        if isinstance(result, workers.Died):
            filename = task.source.filename
            result = FileResult(filename, errors=(FileError(filename, _words_of(result)),))
        yield task, result


def _words_of(died: Died) -> str:
    if died.of_time:
        return TOO_LONG
    if died.of_memory:
        return OUT_OF_MEMORY
    return KILLED if died.was_killed else CRASHED


def _report(results: Iterable[FileResult], errors: Iterable[FileError], seconds: float) -> Report:
    results = list(results)
    findings = [finding for result in results for finding in result.findings]
    all_errors = {*errors, *(error for result in results for error in result.errors)}
    return Report(
        findings=tuple(sorted(findings, key=place)),
        errors=tuple(sorted(all_errors, key=astuple)),
        files=len(results),
        screened_out=sum(result.screened_out for result in results),
        incomplete=tuple(sorted(set(_incomplete(results)))),
        reused=sum(result.reused for result in results),
        seconds=seconds,
    )


def _incomplete(results: Iterable[FileResult]) -> Iterator[Incomplete]:
    for result in results:
        if result.unfinished:
            yield Incomplete(result.filename, result.unfinished)
