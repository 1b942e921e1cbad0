"""`amplint check --fix` and `--diff`: apply or show the fixes, and say what became of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from amplint.cli.terminal import tell

if TYPE_CHECKING:
    from amplint.checker import Report
    from amplint.config import Settings
    from amplint.fixing.run import FixedFile

_STDIN = "-"


def show_diff(report: Report, paths: Sequence[str], settings: Settings, stdin: bytes | None) -> int:
    """Print what `--fix` would change as a unified diff; the number of findings it would fix."""
    from amplint.cli.terminal import write_lines
    from amplint.fixing.run import fix_files
    from amplint.report.text import printable_source

    files = fix_files(report, paths, settings, stdin=stdin)
    write_lines(printable_source(line) for file in files for line in file.diff())
    _tell_refused(files)
    count = sum(len(file.outcome.fixed) for file in files)
    tell(f"Would fix {_plural(count)}." if count else "No fixes would be made.")
    return count


def apply_fixes(
    report: Report,
    paths: Sequence[str],
    settings: Settings,
    stdin: bytes | None,
    check_again: Callable[[bytes | None], Report],
) -> tuple[Report, bool]:
    """Write the fixed files, and standard input, fixed, to standard output.

    Args:
        report: of the files as they are.
        check_again: makes the report anew, with other standard input.

    Returns:
        The report on what is left, and whether every fixed file could be written.
    """
    from amplint.fixing.run import fix_files

    files = fix_files(report, paths, settings, stdin=stdin)
    _tell_refused(files)
    written = [file for file in files if file.outcome.fixed and _write(file)]
    if _STDIN in paths:
        stdin = _print_stdin(written, stdin or b"")
    fixed = tuple(finding for file in written for finding in file.outcome.fixed)
    if fixed:
        report = replace(check_again(stdin), fixed=fixed)
    failed = any(file.outcome.fixed and file not in written for file in files)
    return report, not failed


def _write(file: FixedFile) -> bool:
    """Write a file, or check that standard input can be printed; False after a complaint."""
    from amplint.fixing.files import Unwritable

    try:
        if file.path == _STDIN:
            file.encoded()
        else:
            file.write()
    except Unwritable as error:
        tell(f"error: {file.source.filename} is not fixed: {error}")
        return False
    return True


def _print_stdin(written: Iterable[FixedFile], stdin: bytes) -> bytes:
    """Print the text that came through standard input, fixed or as it was."""
    for file in written:
        if file.path == _STDIN:
            stdin = file.encoded()
    sys.stdout.buffer.write(stdin)
    sys.stdout.flush()
    return stdin


def _tell_refused(files: Iterable[FixedFile]) -> None:
    for file in files:
        for refusal in file.outcome.refused:
            place = f"{file.source.filename}:{refusal.finding.span.start.row}"
            tell(
                f"note: {place}: the fix of {refusal.finding.code} is not applied: {refusal.reason}"
            )


def _plural(count: int) -> str:
    return f"{count} finding" if count == 1 else f"{count} findings"


def fix_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of `amplint check` that are about fixes."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_OPTIONS = (
    click.option(
        "--fix/--no-fix",
        default=None,
        help="Apply the safe fixes; with `-`, print the fixed text.",
    ),
    click.option(
        "--unsafe-fixes/--no-unsafe-fixes",
        default=None,
        help="Also those that change what the program does.",
    ),
    click.option("--diff", is_flag=True, help="Print what --fix would change; write nothing."),
    click.option(
        "--exit-non-zero-on-fix",
        is_flag=True,
        help="Exit with 1 if something was fixed, even if nothing is left.",
    ),
)
