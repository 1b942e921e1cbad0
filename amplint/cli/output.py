"""From a `Report` to lines on stdout or in a file."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, TextIO

from amplint.cli.terminal import is_terminal, wants_color, write_lines
from amplint.errors import UsageError

if TYPE_CHECKING:
    from amplint.checker import Report
    from amplint.config import Settings

#: Formats that people read, which end in a summary.
TEXT_FORMATS = ("full", "concise")
#: Formats that programs read: nothing may follow.
DATA_FORMATS = ("json", "sarif")


def choose_format(settings: Settings, output_file: str | None) -> str:
    """The configured format, else full on a terminal and concise elsewhere."""
    if settings.output_format is not None:
        return settings.output_format
    return "full" if output_file is None and is_terminal(sys.stdout) else "concise"


def source_reader(settings: Settings, stdin: bytes | None) -> Callable[[str], list[str] | None]:
    """How reporters get the lines of a file: read again, because findings do not keep them."""
    from amplint.errors import UnreadableFile
    from amplint.source.discovery import relative
    from amplint.source.positions import split_lines
    from amplint.source.reading import read_source

    name = settings.stdin_filename
    stdin_name = relative(name) if name else "<stdin>"

    @lru_cache(maxsize=16)
    def read(filename: str) -> list[str] | None:
        source = stdin if stdin is not None and filename == stdin_name else filename
        try:
            text = read_source(source, filename, max_file_size=settings.max_file_size).text
        except UnreadableFile:
            return None
        return split_lines(text)

    return read


def render(
    report: Report,
    form: str,
    *,
    sources: Callable[[str], list[str] | None],
    color: bool,
    table: bool,
    quiet: bool,
) -> Iterator[str]:
    """The lines of a report.

    Args:
        form: one of `FORMATS`.
        table: print the table of `--statistics` instead of the findings.
        quiet: leave out the summary.
    """
    from amplint.report.summary import fixable, statistics, summarise, summarise_evidence

    if table:
        yield from statistics(report)
    else:
        module = importlib.import_module(f"amplint.report.{form}")
        yield from module.render(report, sources=sources, color=color)
    if form not in DATA_FORMATS and not quiet and (report.files or report.errors):
        yield summarise(report)
        executed = summarise_evidence(report.findings)
        if executed:
            yield executed
        yield from fixable(report)


def write(lines: Iterable[str], output_file: str | None, stream: TextIO | None = None) -> None:
    """Write to a file, or to a stream, stdout unless another one is given.

    Raises:
        UsageError: the file cannot be written.
    """
    if output_file is None:
        write_lines(lines, stream)
        return
    try:
        with open(output_file, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.writelines(line + "\n" for line in lines)
    except OSError as error:
        raise UsageError(f"cannot write {output_file}: {error.strerror}") from error


def color_for(choice: str, output_file: str | None) -> bool:
    """Whether to colour; a file only where the user insists."""
    if output_file is not None:
        return choice == "always"
    return wants_color(choice, sys.stdout)
