"""`amplint protocol`: the table that every observer looks at."""

from __future__ import annotations

import json

import click

from amplint.cli.terminal import write_lines


@click.command()
@click.option(
    "--output-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="text for people, json for programs.",
)
def protocol(output_format: str) -> None:
    """Print what a scaler may do in which order, and what each wrong order does."""
    from amplint.protocol.render import render_json, render_text

    if output_format == "json":
        write_lines([json.dumps(render_json(), indent=2)])
    else:
        write_lines(render_text())
