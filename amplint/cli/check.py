"""`amplint check`: the command itself; what it needs is imported when it runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from amplint.cli.fixes import fix_options
from amplint.cli.output import TEXT_FORMATS
from amplint.cli.probe import probe_options
from amplint.cli.terminal import tell
from amplint.config import FORMATS

if TYPE_CHECKING:
    from amplint.cache import Cache
    from amplint.checker import Report
    from amplint.config import Settings

_STDIN = "-"


def _list_option(
    name: str, metavar: str, help_text: str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(name, metavar=metavar, multiple=True, help=help_text)


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATHS]...")
@_list_option("--select", "RULES", "Rules to check: codes, prefixes, names or ALL, with commas.")
@_list_option("--ignore", "RULES", "Rules not to check.")
@_list_option("--extend-select", "RULES", "Rules to check in addition.")
@_list_option("--per-file-ignores", "PATTERN:RULE", "Rules not to check in some files.")
@_list_option("--exclude", "PATTERNS", "Files and folders to pass over, instead of the default.")
@_list_option("--extend-exclude", "PATTERNS", "Files and folders to pass over in addition.")
@click.option(
    "--force-exclude", is_flag=True, default=None, help="Exclude even files named explicitly."
)
@click.option(
    "--no-respect-gitignore",
    "respect_gitignore",
    flag_value=False,
    default=None,
    type=bool,
    help="Check what .gitignore names, too.",
)
@fix_options
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning", "info", "confirmed", "never"]),
    help="Least severity that makes the exit status 1; `confirmed` needs --probe.  "
    "[default: warning]",
)
@click.option("--exit-zero", is_flag=True, help="Exit with 0 despite findings.")
@click.option("--strict", is_flag=True, help="Exit with 2 if a file was followed in part only.")
@click.option("--statistics", is_flag=True, help="Print how often each rule was broken.")
@click.option(
    "--explain", is_flag=True, help="Print what each finding rests on, in the full format."
)
@click.option("--show-files", is_flag=True, help="Print the files that would be checked.")
@click.option("--isolated", is_flag=True, help="Ignore configuration files.")
@click.option(
    "--config",
    multiple=True,
    metavar="PATH|'KEY = VALUE'",
    help="A configuration file, or one setting as TOML.",
)
@click.option("--stdin-filename", metavar="PATH", help="Name of what is read from `-`.")
@click.option(
    "--no-cache",
    "cache",
    flag_value=False,
    default=None,
    type=bool,
    help="Neither read nor write the cache.",
)
@click.option(
    "--project-root", metavar="PATH", help="Where imports are looked up. [default: upwards]"
)
@probe_options
@click.option("-j", "--jobs", type=click.IntRange(0, 1_000), help="Processes; 0 chooses.")
@click.option(
    "--output-format",
    type=click.Choice(FORMATS),
    help="[default: full on a terminal, else concise]",
)
@click.option("--output-file", metavar="PATH", help="Write the report there.")
@click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    help="auto follows NO_COLOR, FORCE_COLOR and the terminal.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print findings only.")
@click.option("-v", "--verbose", is_flag=True, help="Tell on stderr what was read.")
@click.pass_context
def check(ctx: click.Context, /, paths: tuple[str, ...], **options: Any) -> None:
    """Check files and folders (default: the working directory; `-` for stdin).

    Exit status: 0 clean; 1 findings; 2 wrong usage or configuration, or a file that could
    not be analysed (with --strict: not to its end).
    """
    from amplint.cli.options import build_settings

    settings = build_settings(options)
    named = _named_paths(paths, options["stdin_filename"])
    if options["show_files"]:
        ctx.exit(_show_files(named, settings))
    ctx.exit(_check(named, settings, options))


def _named_paths(paths: tuple[str, ...], stdin_filename: str | None) -> tuple[str, ...]:
    if paths:
        return paths
    return (_STDIN,) if stdin_filename else (".",)


def _check(paths: Sequence[str], settings: Settings, options: dict[str, Any]) -> int:
    from amplint import collector
    from amplint.cache import open_cache
    from amplint.cli import fixes, output, probe

    collector.spare()
    probing = probe.wants_probe(options, settings)
    explain = options["explain"]
    form = "full" if explain else output.choose_format(settings, options["output_file"])
    if options["statistics"] and form not in TEXT_FORMATS:
        raise click.UsageError(f"--statistics prints text; it cannot be had as {form}.")
    stdin = _read_stdin(settings) if _STDIN in paths else None
    cache = open_cache(settings)
    report = _run(paths, settings, stdin, cache, quiet=options["quiet"])
    if options["diff"]:
        count = fixes.show_diff(report, paths, settings, stdin)
        return _diff_status(report, count, exit_zero=options["exit_zero"])
    complete = True
    if settings.fix:
        report, complete = fixes.apply_fixes(
            report,
            paths,
            settings,
            stdin,
            # Files have changed: a cache remembers what it saw during a run.
            lambda text: _run(paths, settings, text, open_cache(settings), quiet=True),
        )
    if probing:
        report = probe.with_evidence(report, settings, options)
    lines = output.render(
        replace(report, unsafe_fixes=settings.unsafe_fixes, explain=explain),
        form,
        sources=output.source_reader(settings, stdin),
        color=output.color_for(options["color"], options["output_file"]),
        table=options["statistics"],
        quiet=options["quiet"],
    )
    # Fixed standard input goes to standard output.
    aside = sys.stderr if settings.fix and stdin is not None else None
    output.write(lines, options["output_file"], aside)
    _tell(report, settings, verbose=options["verbose"])
    for note in () if options["quiet"] else report.notes:
        tell(f"note: {note}")
    if cache is not None:
        _tell_of_cache(cache, report, options)
    status = exit_status(report, settings.fail_on, exit_zero=options["exit_zero"])
    if not complete or (options["strict"] and report.incomplete):
        return 2
    if options["exit_non_zero_on_fix"] and report.fixed and not options["exit_zero"]:
        return status or 1
    return status


def _read_stdin(settings: Settings) -> bytes:
    from amplint import files
    from amplint.errors import UnreadableFile, UsageError

    try:
        return files.read_stream(sys.stdin.buffer, settings.max_file_size)
    except UnreadableFile as error:  # half of it must not be taken for all, least by --fix
        raise UsageError(f"standard input {error.message}") from error


def _run(
    paths: Sequence[str],
    settings: Settings,
    stdin: bytes | None,
    cache: Cache | None,
    *,
    quiet: bool,
) -> Report:
    from amplint.checker import check_paths
    from amplint.cli.terminal import Progress, is_terminal

    with Progress(sys.stderr, enabled=is_terminal(sys.stderr) and not quiet) as progress:
        return check_paths(paths, settings, stdin=stdin, progress=progress, cache=cache)


def _diff_status(report: Report, count: int, *, exit_zero: bool) -> int:
    if report.errors:
        return 2
    return int(count > 0 and not exit_zero)


def exit_status(report: Report, fail_on: str, *, exit_zero: bool) -> int:
    """2 where a file could not be analysed, else 1 for a finding at the level, else 0."""
    from amplint.findings import Severity

    if report.errors:
        return 2
    if exit_zero or fail_on == "never":
        return 0
    if fail_on == "confirmed":
        return int(any(finding.evidence.status == "confirmed" for finding in report.findings))
    level = Severity(fail_on).rank
    return int(any(finding.severity.rank >= level for finding in report.findings))


def _tell(report: Report, settings: Settings, *, verbose: bool) -> None:
    """Remarks for the person at the terminal."""
    if not report.files and not report.errors:
        tell("warning: no Python files found under the given paths")
    if verbose:
        tell(f"configuration: {settings.origin or 'none'}")
        tell(f"{report.files} files, {report.screened_out} without AMP, {report.seconds:.2f} s")
    for item in report.incomplete if verbose else ():
        names = ", ".join(item.functions)
        tell(f"{item.filename}: followed in part, too many paths in {names}")


def _tell_of_cache(cache: Cache, report: Report, options: dict[str, Any]) -> None:
    if cache.failure is not None and not options["quiet"]:
        tell(f"note: results are not kept for the next run: {cache.failure}")
    if options["verbose"]:
        tell(f"cache: {cache.folder}, {report.reused} results reused")


def _show_files(paths: Sequence[str], settings: Settings) -> int:
    from amplint.cli.terminal import write_lines
    from amplint.findings import FileError
    from amplint.report.text import printable
    from amplint.source.discovery import Discovered, discover

    found = list(discover(paths, settings))
    errors = [item for item in found if isinstance(item, FileError)]
    names = sorted(item.filename for item in found if isinstance(item, Discovered))
    write_lines(map(printable, names))
    for error in errors:
        tell(f"error: {error.filename}: {error.message}")
    return 2 if errors else 0
