"""`amplint problem-matcher`: how CI and editors read the concise format."""

from __future__ import annotations

import click

from amplint.cli.terminal import write_lines


@click.command("problem-matcher")
@click.argument("tool", type=click.Choice(["github", "vscode"]))
def problem_matcher(tool: str) -> None:
    """Print the problem matcher of a TOOL that reads `--output-format concise`.

    \b
    github  for `echo "::add-matcher::FILE"` in a workflow
    vscode  for "problemMatcher" in tasks.json
    """
    from importlib.resources import files

    text = (files("amplint") / "data" / f"{tool}-problem-matcher.json").read_text("utf-8")
    write_lines(text.splitlines())
