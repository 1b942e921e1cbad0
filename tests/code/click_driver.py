"""A command line of click's that uses many of its classes, for `test_truth.py` to record."""

from __future__ import annotations

import click
from click.testing import CliRunner


class Even(click.ParamType):
    """An even number."""

    name = "even"

    def convert(self, value: object, param: object, ctx: object) -> object:
        """The number."""
        return int(value) if int(value) % 2 == 0 else self.fail(f"{value} is odd", param, ctx)


class Quiet(click.Group):
    """Takes names of commands in capitals, too."""

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The command."""
        return super().get_command(ctx, name.lower())


@click.group(cls=Quiet, invoke_without_command=True)
@click.version_option("1.0")
def cli() -> None:
    """The program."""


@cli.command()
@click.argument("paths", nargs=-1, type=click.Path())
@click.option("--rate", type=click.FloatRange(0, 1), default=0.5, show_default=True)
@click.option("--size", type=Even(), multiple=True)
@click.option("--kind", type=click.Choice(["a", "b"]), envvar="KIND")
@click.option("--fast/--slow", default=True)
def train(**options: object) -> None:
    """Train on PATHS."""
    click.echo(click.style(str(options), fg="red"))


if __name__ == "__main__":
    for line in ("--help", "--version", "", "train --help", "TRAIN x --size 2", "train --size 3"):
        CliRunner().invoke(cli, line.split())
    for line in ("train --rate 7", "train --kind c", "nothing", "train --slow --kind a p q"):
        CliRunner().invoke(cli, line.split())
