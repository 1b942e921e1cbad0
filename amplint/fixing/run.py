"""Fix the files of a report: find them again, fix each one, write or show the result."""

from __future__ import annotations

import difflib
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from amplint import files
from amplint.checker import WORTH_PROCESSES, Report
from amplint.config import Settings
from amplint.errors import UnreadableFile
from amplint.fixing.files import encoded, replace_file
from amplint.fixing.fixer import Fixed, FixTask, fix
from amplint.inspection import Task
from amplint.selection import Selection
from amplint.selectors import UNREADABLE
from amplint.source.discovery import STDIN, Discovered, discover
from amplint.source.reading import SourceFile, decode

_NO_NEWLINE = "\\ No newline at end of file"


@dataclass(frozen=True, slots=True)
class FixedFile:
    """One file that fixes are for.

    Args:
        path: where it lies; `STDIN` for standard input.
        source: as it was.
        original: its bytes.
        outcome: its new text, and what became of each fix.
        inside: the folder that a link to it may not lead out of, "" for anywhere.
    """

    path: str
    source: SourceFile
    original: bytes
    outcome: Fixed
    inside: str = ""

    def encoded(self) -> bytes:
        """The bytes of the fixed file.

        Raises:
            Unwritable: the encoding cannot carry them.
        """
        return encoded(self.source, self.outcome.text, self.original)

    def write(self) -> None:
        """Put the fixed text in the place of the file.

        Raises:
            Unwritable: the file stays as it is.
        """
        replace_file(self.path, self.encoded(), self.original, self.inside)

    def diff(self) -> Iterator[str]:
        """The lines of a unified diff, without their "\\n"; a "\\r" before it stays."""
        # Lines as `patch` counts them: only "\n" ends one.
        before, after = (
            io.StringIO(each).readlines() for each in (self.source.text, self.outcome.text)
        )
        name = self.source.filename
        for line in difflib.unified_diff(before, after, name, name, lineterm="\n"):
            yield line.removesuffix("\n")
            if not line.endswith("\n"):
                yield _NO_NEWLINE


def fix_files(
    report: Report, paths: Sequence[str], settings: Settings, *, stdin: bytes | None
) -> list[FixedFile]:
    """Fix the files of a report that was made with the same paths and settings.

    Nothing is written. A file that has become unreadable since is left out.

    Args:
        stdin: what was checked as standard input.
    """
    report = replace(report, unsafe_fixes=settings.unsafe_fixes)
    wanted = {finding.filename for finding in report.findings if report.is_fixable(finding)}
    if not wanted:
        return []
    selection = Selection(settings)
    work = [
        (found, task)
        for found in discover(paths, settings)
        if isinstance(found, Discovered) and found.filename in wanted
        for task in _task(found, settings, selection, stdin)
    ]
    outcomes = _fix_all([task for _, task in work], settings.jobs)
    return [
        FixedFile(found.path, work_item.task.source, work_item.original, outcome, found.folder)
        for (found, work_item), outcome in zip(work, outcomes)
        if outcome is not None
    ]


def _task(
    found: Discovered, settings: Settings, selection: Selection, stdin: bytes | None
) -> Iterator[FixTask]:
    from amplint.rules import TABLE

    is_stdin = found.path == STDIN
    try:
        data = (stdin or b"") if is_stdin else files.read(found.path, settings.max_file_size)
        source = decode(data, found.filename, max_file_size=settings.max_file_size)
    except UnreadableFile:
        return
    named = settings.stdin_filename or found.filename if is_stdin else found.path
    task = Task(
        source,
        selection.codes_for(named),
        selection.off_by_default,
        "" if is_stdin else found.path,
        "",
        settings.project_root,
        settings.src,
        settings.target_torch,
        checked="" if is_stdin else found.folder,
    )
    # Notices that nobody selected are no reason against a fix.
    on = frozenset(TABLE) - {UNREADABLE} - selection.off_by_default
    yield FixTask(task, on | task.codes, settings.unsafe_fixes, data)


def _fix_all(tasks: Sequence[FixTask], jobs: int) -> list[Fixed | None]:
    """The results in the order of the tasks; None where the process died."""
    characters = sum(len(each.task.source.text) for each in tasks)
    if jobs == 1 or len(tasks) < 2 or (not jobs and characters < WORTH_PROCESSES):
        return [fix(each) for each in tasks]
    from amplint import workers

    processes = min(jobs or workers.available_processors(), len(tasks))
    results = {
        id(task): None if isinstance(result, workers.Died) else result
        for task, result in workers.run(fix, tasks, processes)
    }
    return [results[id(task)] for task in tasks]
