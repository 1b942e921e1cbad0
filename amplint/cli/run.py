"""`amplint run`: watch a real training; and `amplint report`, which shows its record again."""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from amplint.errors import UsageError

if TYPE_CHECKING:
    from amplint.live.joined import Joined
    from amplint.live.merge import Run
    from amplint.live.progress import Terminal

_NEVER = "never"
#: The page of a run, in its folder.
PAGE = "report.html"
LEVELS = ("error", "warning", "info", _NEVER)


@click.command(
    context_settings={"allow_interspersed_args": False},
    short_help="Watch a real training while it happens.",
)
@click.option("-m", "module", is_flag=True, help="The next word names a module, as with python -m.")
@click.option("-o", "--out", metavar="DIR", help="Folder of the record.  [default: amplint-runs/…]")
@click.option("--json", "json_file", metavar="FILE", help="Write the report as JSON, too.")
@click.option(
    "--sarif", "sarif_file", metavar="FILE", help="Write the findings as SARIF 2.1.0, too."
)
@click.option(
    "--fail-on",
    type=click.Choice(LEVELS),
    default="error",
    show_default=True,
    help="Lowest level of a finding that makes the exit status 1.",
)
@click.option("-q", "--quiet", is_flag=True, help="Say nothing before the end.")
@click.option(
    "--stop-on",
    type=click.Choice(LEVELS[:-1]),
    help="Raise an exception in the training at a finding of this level; the other ranks wait "
    "for this one until their launcher ends them.",
)
@click.option(
    "--sample",
    type=click.IntRange(1),
    metavar="N",
    help="Look closely at one step in N: gradients, weights, modules.",
)
@click.option(
    "--every", type=click.IntRange(1), metavar="N", help="Record the calls of one update in N."
)
@click.option(
    "--progress", is_flag=True, help="Say how far it is on the terminal, where its output is not."
)
@click.option("--with-check", is_flag=True, help="Say what the run confirms of `amplint check`.")
@click.option(
    "--user",
    multiple=True,
    metavar="DIR",
    help="A folder whose lines are yours, although it lies among installed packages.",
)
@click.option("--python", metavar="PATH", help="Interpreter for a script or a module.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True)
@click.pass_context
def run(
    ctx: click.Context,
    module: bool,
    out: str | None,
    json_file: str | None,
    sarif_file: str | None,
    fail_on: str,
    quiet: bool,
    stop_on: str | None,
    sample: int | None,
    every: int | None,
    progress: bool,
    with_check: bool,
    user: tuple[str, ...],
    python: str | None,
    command: tuple[str, ...],
) -> None:
    """Run a training unchanged, and tell misuse of AMP the moment it occurs.

    \b
        amplint run train.py --epochs 3
        amplint run -m package.train
        amplint run -- torchrun --nproc-per-node 2 train.py

    This executes your program. Its output stays its own; amplint writes to stderr, and a report
    when it has ended.

    Exit status: the program's, if it is not 0; else 1 if a finding reaches --fail-on; else 0; 2 if
    the program could not be started.
    """
    from amplint.cli.terminal import write_lines
    from amplint.live import report
    from amplint.report.text import printable

    whole = whole_command(command, module=module, python=python)
    options = {
        "quiet": quiet,
        "user": [os.path.abspath(folder) for folder in user],
        "stop_on": stop_on or "",
        "sample": sample or 0,
        "every": every or 0,
    }
    status, seen = launched(whole, out, options, _terminal() if progress else None)
    found = checked(seen) if with_check else None
    if found is not None:
        write_lines(map(printable, found.lines), sys.stderr)
    write_lines(map(printable, report.text(seen)), sys.stderr)
    if seen.processes:
        page = _page(seen, os.path.join(seen.folder, PAGE))
        write_lines([printable(f"The record is in {seen.folder}{page}")], sys.stderr)
    if json_file is not None:
        _write(json_file, report.as_json(seen, found.findings() if found is not None else None))
    if sarif_file is not None:
        _write(sarif_file, _sarif(seen, found.joined if found is not None else []))
    ctx.exit(status or int(_fails(seen, fail_on)))


@click.command(short_help="Show the record of a run again, or compare two.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--html", metavar="FILE", help="Write the page to a file.")
@click.option("--metrics", metavar="FILE", help="Write the newest figures as OpenMetrics text.")
@click.option("--trace", metavar="FILE", help="Write a trace that Perfetto and Chrome open.")
@click.option(
    "--tensorboard", metavar="DIR", help="Write the curves for TensorBoard into a folder."
)
@click.option("--wandb", metavar="PROJECT", help="Log the curves as a run of a wandb project.")
@click.option("--fail-on", type=click.Choice(LEVELS), default=_NEVER, show_default=True)
@click.argument("folder", type=click.Path(exists=True, file_okay=False))
@click.argument("other", type=click.Path(exists=True, file_okay=False), required=False)
@click.pass_context
def report(
    ctx: click.Context,
    as_json: bool,
    html: str | None,
    metrics: str | None,
    trace: str | None,
    tensorboard: str | None,
    wandb: str | None,
    fail_on: str,
    folder: str,
    other: str | None,
) -> None:
    """Show what `amplint run` has recorded in a folder, or how two runs differ. Needs no torch."""
    from amplint.cli.terminal import write_lines
    from amplint.live import exports, scalars
    from amplint.live import report as writer
    from amplint.live.merge import read_run
    from amplint.live.page import render
    from amplint.report.text import printable

    seen = read_run(folder)
    if other is not None:
        if as_json or html or metrics or trace or tensorboard or wandb or fail_on != _NEVER:
            raise UsageError("two runs are compared as text alone, without any option")
        write_lines(map(printable, writer.comparison(seen, read_run(other))))
        return
    if html is not None:
        _write(html, "\n".join(render(seen)))
    if metrics is not None:
        _write(metrics, "\n".join(exports.metrics(seen)))
    if trace is not None:
        _write(trace, exports.trace(seen))
    if tensorboard is not None:
        scalars.to_tensorboard(seen, tensorboard)
    if wandb is not None:
        scalars.to_wandb(seen, wandb)
    write_lines([writer.as_json(seen)] if as_json else map(printable, writer.text(seen)))
    ctx.exit(int(_fails(seen, fail_on)))


def _page(run: Run, name: str) -> str:
    """Write the page beside the record; a folder that takes none has none."""
    from amplint.live.page import render

    try:
        with open(name, "w", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in render(run))
    except OSError:
        return ""
    return f", with a page: {PAGE}"


def _terminal() -> Terminal | None:
    """Where a line about progress goes; where it has no place of its own, that is said."""
    from amplint.live.progress import Terminal

    terminal = Terminal.open()
    if terminal is None:
        _say("no progress line: there is no terminal that the program does not write to")
    return terminal


def launched(
    whole: list[str], out: str | None, options: dict[str, Any], terminal: Terminal | None = None
) -> tuple[int, Run]:
    """Run a command; its exit status and what was recorded.

    Args:
        terminal: where to say how far it is.

    Raises:
        UsageError: it cannot be run.
    """
    from amplint.live import launch
    from amplint.live.follow import Following
    from amplint.live.merge import Run, read_run
    from amplint.live.record import rank_of_process

    try:
        folder = launch.make_folder(out, whole)
        # Where each rank has a parent of its own (srun), one of them is enough.
        is_heard = not options.get("quiet") and not rank_of_process()
        tell = _say if is_heard else _keep_quiet
        is_followed = is_heard or terminal is not None
        with Following(folder, tell, terminal) if is_followed else contextlib.nullcontext():
            status = launch.run(whole, folder, options)
    except OSError as error:
        raise UsageError(f"cannot run {whole[0]}: {error.strerror or error}") from error
    try:
        return status, read_run(folder)
    except OSError as error:
        _say(f"the record is gone ({error.strerror or error})")
        return status, Run(folder, (), (), {})


def _say(words: str) -> None:
    from amplint.cli.terminal import tell

    tell(f"amplint: {words}")


def _keep_quiet(_words: str) -> None:
    """Somebody else tells it, or nobody wants to hear it."""


def _sarif(seen: Run, joined: list[Joined]) -> str:
    """Findings of the check, with what the run says as their evidence, and what only the run saw."""
    import json

    from amplint.live.joined import live_finding, unforeseen
    from amplint.report.sarif import log

    only_seen = [live_finding(each) for each in unforeseen(joined, seen)]
    return json.dumps(log([*(each.as_finding() for each in joined), *only_seen]), indent=2)


@dataclass(frozen=True)
class Checked:
    """What a run says about the findings of `amplint check`.

    Args:
        lines: in words.
        joined: each finding with its verdict.
        has_failed: a file could not be analysed.
    """

    lines: list[str]
    joined: list[Joined]
    has_failed: bool

    @property
    def confirmed(self) -> int:
        """How many findings the run confirms."""
        from amplint.live.joined import CONFIRMED

        return sum(each.verdict == CONFIRMED for each in self.joined)

    def findings(self) -> list[dict[str, Any]]:
        """The findings as JSON values, with what the run says as their evidence."""
        from amplint.report.json import finding_object

        return [
            {**finding_object(each.as_finding()), "verdict": each.verdict} for each in self.joined
        ]


def checked(seen: Run, paths: list[str] | None = None) -> Checked:
    """Check, and ask the run about each finding.

    Args:
        paths: what is checked; the files that had an event in the run unless given.
    """
    from amplint.checker import check_paths
    from amplint.cli.options import build_settings, unset_options
    from amplint.live import joined
    from amplint.live.report import place

    settings = build_settings(unset_options())
    report = check_paths([os.path.relpath(p) for p in paths or joined.files_of(seen)], settings)
    verdicts = list(joined.join(report.findings, seen))
    lines = []
    for each in verdicts:
        finding = each.finding
        at = f"{finding.filename}:{finding.span.start.row}"
        told = f": {each.seen.words}" if each.seen is not None else ""
        lines.append(f"{at}: {finding.code} {finding.name}: {each.verdict}{told}")
    for found in joined.unforeseen(verdicts, seen):
        code = found.code or found.slug
        lines.append(f"{place(found.file, found.row)}: {code}: seen, not foreseen: {found.words}")
    return Checked(lines, verdicts, bool(report.errors))


def whole_command(command: tuple[str, ...], *, module: bool, python: str | None) -> list[str]:
    """The whole command: a script or a module gets the interpreter of the project."""
    if not module and not _is_script(command[0]):
        return list(command)
    return [python or _interpreter(), *(["-m"] if module else []), *command]


def _is_script(word: str) -> bool:
    return word.endswith(".py") or os.path.isfile(os.path.join(word, "__main__.py"))


def _interpreter() -> str:
    """The active environment's, the project's or amplint's own: the first that has torch."""
    from amplint.probe.interpreter import ProbeUnavailable, find_interpreter

    try:
        return find_interpreter(None, os.getcwd()).path
    except ProbeUnavailable:
        return sys.executable


def _fails(seen: Run, fail_on: str) -> bool:
    from amplint.live.catalogue import reaches
    from amplint.live.report import levels

    return fail_on != _NEVER and any(reaches(level, fail_on) for level in levels(seen))


def _write(name: str, text: str) -> None:
    try:
        with open(name, "w", encoding="utf-8") as file:
            file.write(text + "\n")
    except OSError as error:
        raise UsageError(f"cannot write {name}: {error.strerror}") from error
