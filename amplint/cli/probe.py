"""`amplint probe`, and the options with which `amplint check` probes.

Both execute code of the checked project. That is never a default, and a hook never does it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from amplint.errors import UsageError

if TYPE_CHECKING:
    from amplint.checker import Report
    from amplint.config import Settings
    from amplint.findings import Finding
    from amplint.probe.confirmation import Limits, Probed

_Command = TypeVar("_Command", bound=Callable[..., Any])

_LIMITS = (
    click.option(
        "--probe-timeout",
        type=click.FloatRange(min=0.1),
        default=10.0,
        show_default=True,
        metavar="SECONDS",
        help="Processor time for each probed finding; three times as long by the clock.",
    ),
    click.option(
        "--probe-runs",
        type=click.IntRange(min=1),
        default=150,
        show_default=True,
        metavar="N",
        help="Runs for each probed finding.",
    ),
    click.option(
        "--python",
        metavar="PATH",
        help="Interpreter with the project's torch.  [default: the active or the project's "
        "environment, else amplint's]",
    ),
)


def limit_options(command: _Command) -> _Command:
    """Add the options that limit the probe."""
    for option in reversed(_LIMITS):
        command = option(command)
    return command


def probe_options(command: _Command) -> _Command:
    """Add the options with which `amplint check` probes."""
    command = limit_options(command)
    only = click.option(
        "--probe-only-confirmed", is_flag=True, help="Probe, and report what it confirms."
    )
    on = click.option(
        "--probe",
        is_flag=True,
        help="Execute the code of each finding with real torch, to confirm it.",
    )
    return on(only(command))


def wants_probe(options: dict[str, Any], settings: Settings) -> bool:
    """Whether to probe.

    Raises:
        UsageError: only confirmed findings shall fail, and nothing shall confirm any.
    """
    wanted = bool(options["probe"] or options["probe_only_confirmed"])
    if settings.fail_on == "confirmed" and not wanted:
        raise UsageError(
            "`--fail-on confirmed` needs the probe: nothing is confirmed without running it",
            "add --probe",
        )
    return wanted


def with_evidence(report: Report, settings: Settings, options: dict[str, Any]) -> Report:
    """The report with the evidence of the probe; without what is not confirmed, if asked."""
    from amplint.probe.confirmation import select

    found = _probe(report, settings, options)
    only = bool(options["probe_only_confirmed"])
    return replace(report, findings=tuple(select(found, confirmed_only=only)))


def _probe(report: Report, settings: Settings, options: dict[str, Any]) -> list[Probed]:
    from amplint.cli.terminal import Progress, is_terminal
    from amplint.probe.confirmation import probe_findings

    watched = is_terminal(sys.stderr) and not options["quiet"]
    with Progress(sys.stderr, enabled=watched, verb="probing", noun="findings") as progress:
        return probe_findings(report.findings, settings, _limits(options), progress)


def _limits(options: dict[str, Any]) -> Limits:
    from amplint.probe.confirmation import Limits

    return Limits(options["probe_timeout"], options["probe_runs"], options["python"])


@click.command()
@click.argument("target", metavar="PATH[::FUNCTION]", required=False)
@click.option(
    "--run",
    "command",
    metavar="COMMAND",
    help="Run the training itself, as in --run 'train.py --cfg small.yaml', for a few steps.",
)
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    metavar="N",
    help="With --run: end it after so many optimizer steps.",
)
@click.option(
    "--overflow",
    type=click.IntRange(min=0),
    default=0,
    metavar="K",
    help="With --run: make the gradients of step K infinite.",
)
@click.option("--explain", metavar="RULE:LINE", help="Tell what happened in the run of a finding.")
@click.option(
    "--config", multiple=True, metavar="PATH|'KEY = VALUE'", help="As for `amplint check`."
)
@click.option("--isolated", is_flag=True, help="Ignore configuration files.")
@click.option(
    "--project-root", metavar="PATH", help="Where imports are looked up. [default: upwards]"
)
@limit_options
@click.option("-q", "--quiet", is_flag=True, help="Print findings only.")
@click.pass_context
def probe(
    ctx: click.Context,
    /,
    target: str | None,
    command: str | None,
    steps: int,
    overflow: int,
    explain: str | None,
    **options: Any,
) -> None:
    """Execute the functions that findings are in, with real torch, to confirm the findings.

    This runs code of the checked project, on small stand-ins for its models and data. It is
    protected against accidents, and is no jail for hostile code.

    Exit status: 0 nothing confirmed; 1 confirmed findings; 2 as for `amplint check`.
    """
    if command is not None:
        ctx.exit(_run(command, target, steps, overflow, options["python"]))
    if target is None:
        raise UsageError("what shall be probed?", "name a file, or a command with --run")
    from amplint.cli.options import build_settings, unset_options
    from amplint.cli.output import color_for
    from amplint.cli.terminal import write_lines
    from amplint.probe.timeline import timeline
    from amplint.report.text import printable

    path, _, function = target.partition("::")
    settings = build_settings({**unset_options(), **options})
    report = _check(path, settings)
    rows = _rows_of(function, path, settings) if function and not report.errors else None
    chosen = [finding for finding in report.findings if rows is None or _touches(finding, rows)]
    if explain is not None:
        chosen = [finding for finding in chosen if _matches(finding, explain)]
        if not chosen:
            raise UsageError(
                f"there is no finding `{explain}` in {path}", f"run `amplint check {path}`"
            )
    elsewhere = len(report.findings) - len(chosen)
    report = replace(report, findings=tuple(chosen))
    found = _probe(report, settings, options)
    report = replace(report, findings=tuple(probed.finding for probed in found))
    nothing_there = bool(function) and not chosen and not report.errors
    silent = options["quiet"] or nothing_there
    write_lines(_render(report, settings, color=color_for("auto", None), quiet=silent))
    if nothing_there and not options["quiet"]:
        others = f"but {elsewhere}" if elsewhere else "nor"
        words = f"No finding in `{function}`, {others} elsewhere in {path}"
        # What the function calls may stand in any file, and only this one was asked.
        write_lines([printable(f"{words}; no other file was checked.")])
    if explain is not None:
        for probed in found:
            write_lines(map(printable, timeline(probed.verdict, probed.finding)))
    confirmed = any(p.finding.evidence.status == "confirmed" for p in found)
    ctx.exit(2 if report.errors else int(confirmed))


def _run(command: str, target: str | None, steps: int, overflow: int, python: str | None) -> int:
    """Run the user's own training for a few steps; the exit status.

    Raises:
        UsageError: the command cannot be run, or overflows where it has ended.
    """
    import shlex

    from amplint.cli.run import checked, launched, whole_command
    from amplint.cli.terminal import tell, write_lines
    from amplint.report.text import printable

    words = shlex.split(command)
    if not words:
        raise UsageError("`--run` names no command")
    if overflow > steps:
        raise UsageError(f"`--overflow {overflow}` comes after the {steps} steps of the run")
    is_module = words[0] == "-m"
    whole = whole_command(tuple(words[is_module:]), module=is_module, python=python)
    tell(
        f"running {command} for {steps} steps, with all that it does: the probe's cage is not around it"
    )
    status, seen = launched(whole, None, {"quiet": True, "steps": steps, "overflow": overflow})
    found = checked(seen, [target] if target else None)
    updates = sum(len(rounds) for each in seen.processes for rounds in each.rounds.values())
    write_lines(map(printable, found.lines), sys.stderr)
    done = updates or sum(each.steps for each in seen.processes)
    tell(f"{done} steps ran, {found.confirmed} findings confirmed; the record is in {seen.folder}")
    if status:
        tell(f"the command ended with status {status}")
    return 2 if found.has_failed else status or int(found.confirmed > 0)


def _check(path: str, settings: Settings) -> Report:
    from amplint.checker import check_paths

    return check_paths([path], settings)


def _render(report: Report, settings: Settings, *, color: bool, quiet: bool) -> Iterator[str]:
    from amplint.cli.output import render, source_reader

    return render(
        report,
        "full",
        sources=source_reader(settings, None),
        color=color,
        table=False,
        quiet=quiet,
    )


def _rows_of(name: str, path: str, settings: Settings) -> frozenset[int]:
    """The 1-based rows of the function, or of the class and its methods, with this name.

    Raises:
        UsageError: the file has none.
    """
    from amplint.code.module import build_module
    from amplint.errors import did_you_mean
    from amplint.source.parsing import parse
    from amplint.source.reading import read_source

    source = read_source(path, path, max_file_size=settings.max_file_size)
    module = build_module(path, source.text, parse(source))
    known = module.definitions.values()
    rows = {
        row
        for each in known
        if each.qualname == name
        for row in range(each.node.lineno, each.node.end_lineno + 1)  # type: ignore
    }
    if not rows:
        hint = did_you_mean(name, [each.qualname for each in known])
        raise UsageError(f"there is no function or class `{name}` in {path}", hint)
    return frozenset(rows)


def _touches(finding: Finding, rows: frozenset[int]) -> bool:
    """Whether a finding is in these rows, or in what they call: its path leads through them."""
    here = (step.row for step in finding.path if step.filename == finding.filename)
    return not rows.isdisjoint((finding.span.start.row, *here))


def _matches(finding: Finding, wanted: str) -> bool:
    """Whether a finding is `AMP103:99`.

    Raises:
        UsageError: `wanted` has another form.
    """
    match = re.fullmatch(r"([A-Za-z]+\d+):(\d+)", wanted)
    if match is None:
        raise UsageError(
            f"`--explain {wanted}` is not of the form RULE:LINE", "for example --explain AMP103:99"
        )
    return finding.code == match[1].upper() and finding.span.start.row == int(match[2])
