"""`amplint`: the command group, and the one place that turns errors into exit statuses.

Starting up must stay cheap: everything heavier than click is imported by the command that
needs it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

import click

from amplint import __version__
from amplint.cli.check import check
from amplint.cli.clean import clean
from amplint.cli.doctor import doctor
from amplint.cli.probe import probe
from amplint.cli.problem_matcher import problem_matcher
from amplint.cli.protocol import protocol
from amplint.cli.rule import rule
from amplint.cli.run import report, run
from amplint.cli.terminal import tell
from amplint.errors import AmplintError

#: Findings at or above the fail level.
#: Usage, configuration, a file that could not be analysed, or a defect of amplint itself.
EXIT_ERROR = 2
#: 128 + SIGINT, what a shell reports for a program that Ctrl-C ended.
EXIT_INTERRUPTED = 130
#: They end a run as Ctrl-C does: workers are ended, and no half-written file stays.
_ENDING = ("SIGTERM", "SIGHUP")
#: Python drops what a handler raises inside a destructor or a callback of a weak reference: after so
#: many seconds a signal that has ended nothing is raised again.
_AGAIN = 5.0


class Terminated(KeyboardInterrupt):
    """A signal that asks the program to end; its number is the only argument."""


class _Cli(click.Group):
    """A group that prints errors as `error:` and `hint:` lines and never a traceback."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> NoReturn:
        sys.exit(self._run(args, prog_name, complete_var, extra))

    def _run(
        self,
        args: Sequence[str] | None,
        prog_name: str | None,
        complete_var: str | None,
        extra: dict[str, Any],
    ) -> int:
        try:
            status = super().main(
                args, prog_name or self.name, complete_var, standalone_mode=False, **extra
            )
        except AmplintError as error:
            return _complain(error.message, error.hint, error.exit_status)
        except click.UsageError as error:
            hint = f"run `{error.ctx.command_path} --help`" if error.ctx else None
            return _complain(error.format_message(), hint, EXIT_ERROR)
        except click.ClickException as error:
            return _complain(error.format_message(), None, EXIT_ERROR)
        except (click.Abort, KeyboardInterrupt) as error:
            _taken()
            cause = error if isinstance(error, Terminated) else error.__cause__
            return 128 + cause.args[0] if isinstance(cause, Terminated) else EXIT_INTERRUPTED
        except Exception as error:
            if os.environ.get("AMPLINT_DEBUG") == "1":
                raise
            return _report_defect(error)
        return status or 0

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Like click's, with a suggestion for an unknown command."""
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            raise AmplintError(f"there is no command `{name}`", self._suggest(ctx, name))
        return super().resolve_command(ctx, args)

    def _suggest(self, ctx: click.Context, name: str) -> str:
        close = get_close_matches(name, self.list_commands(ctx), n=1)
        if close:
            return f"did you mean `amplint {close[0]}`?"
        if os.path.exists(name):
            return f"to check it, run `amplint check {name}`"
        return "run `amplint --help` for the list of commands"


def _complain(message: str, hint: str | None, status: int) -> int:
    tell(f"error: {message}")
    if hint:
        tell(f"hint: {hint}")
    return status


def _report_defect(error: Exception) -> int:
    tell(
        f"internal error: {type(error).__name__}: {error}; please report it, with the output of "
        "the same command under AMPLINT_DEBUG=1"
    )
    return EXIT_ERROR


@click.group(
    "amplint",
    cls=_Cli,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, "-V", "--version", message="amplint %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Find misuse of PyTorch automatic mixed precision (GradScaler, autocast)."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(EXIT_ERROR)


for _command in (check, probe, run, report, rule, protocol, problem_matcher, clean, doctor):
    cli.add_command(_command)


def main() -> NoReturn:
    """The console script: never returns, exits with 0, 1, 2, or 128 and the signal's number."""
    for name in _ENDING:
        number = getattr(signal, name, None)
        # `nohup` has a signal ignored: it stays so.
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, _end)
    cli.main()


def _end(number: int, frame: object) -> NoReturn:
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, lambda *_: _end(number, None))
        signal.setitimer(signal.ITIMER_REAL, _AGAIN)
    raise Terminated(number)


def _taken() -> None:
    """The signal has arrived."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, 0)
