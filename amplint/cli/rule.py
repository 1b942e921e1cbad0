"""`amplint rule`: the page of a rule, or the catalogue."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from difflib import get_close_matches
from types import ModuleType
from typing import Any

import click

from amplint.cli.terminal import wants_color, write_lines
from amplint.errors import UsageError
from amplint.levels import unseen
from amplint.rule import Rule


@click.command()
@click.argument("selector", metavar="CODE_OR_NAME", required=False)
@click.option("--all", "every", is_flag=True, help="List every rule.")
@click.option("--test", "package", metavar="PACKAGE", help="Run the cases of a package's rules.")
@click.option(
    "--output-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="json: code, name, severity, effect, summary, fix, facts and page.",
)
def rule(selector: str | None, every: bool, package: str | None, output_format: str) -> None:
    """Explain a rule, by CODE or name: `amplint rule AMP110`."""
    from amplint import rules

    if [every, selector is not None, package is not None].count(True) != 1:
        raise UsageError("give one rule, `--all` or `--test`", "for example `amplint rule AMP110`")
    if package is not None:
        sys.exit(_test(package))
    table = rules.known()
    codes = list(table) if every else [find_code(selector or "", table)]
    modules = [rules.load(code) for code in codes]
    if output_format == "json":
        shown = [describe(module) for module in modules]
        write_lines([json.dumps(shown if every else shown[0], indent=2)])
    elif every:
        write_lines(_catalogue(modules))
    else:
        write_lines(_page(modules[0], color=wants_color("auto", sys.stdout)))


def _test(package: str) -> int:
    """Run the cases of a package's rules; the exit status."""
    from amplint.cli.cases import failures

    status = 0
    for code, wrong in failures(package):
        write_lines([f"{code}  ok"] if not wrong else [f"{code}  {line}" for line in wrong])
        status = max(status, int(bool(wrong)))
    return status


def find_code(selector: str, table: dict[str, str]) -> str:
    """The code of a rule given by code or name, in any case.

    Raises:
        UsageError: there is no such rule; the hint names the closest one.
    """
    by_name = {module.replace("_", "-"): code for code, module in table.items()}
    if selector.upper() in table:
        return selector.upper()
    wanted = selector.lower().replace("_", "-")
    if wanted in by_name:
        return by_name[wanted]
    close = get_close_matches(selector.upper(), table, n=1) or get_close_matches(
        wanted, by_name, n=1
    )
    hint = f"did you mean `{close[0]}`?" if close else "`amplint rule --all` lists the rules"
    raise UsageError(f"there is no rule `{selector}`", hint)


def describe(module: ModuleType) -> dict[str, Any]:
    """A rule as JSON values."""
    metadata = module.RULE
    return {
        "code": metadata.code,
        "name": metadata.name,
        "severity": metadata.severity.value,
        "unseen_severity": unseen(metadata.code, metadata.severity).value,
        "effect": metadata.effect,
        "summary": metadata.summary,
        "fix": metadata.fix,
        "facts": list(metadata.facts),
        "page": _docstring(module),
    }


def _catalogue(modules: list[ModuleType]) -> Iterator[str]:
    width = max(len(module.RULE.name) for module in modules)
    for module in modules:
        metadata = module.RULE
        severity = unseen(metadata.code, metadata.severity).value
        yield (f"{metadata.code}  {severity:<7}  {metadata.name:<{width}}  {metadata.summary}")


def _page(module: ModuleType, *, color: bool) -> Iterator[str]:
    """The page, with a line of metadata below its title."""
    metadata = module.RULE
    title, *text = _docstring(module).splitlines()
    fix = "no automatic fix" if metadata.fix == "none" else f"{metadata.fix} fix"
    facts = f"{_severity(metadata)}, {metadata.effect}, {fix}, since {metadata.since}"
    page = [title, "", facts, *text]
    yield from _styled(page) if color else page


def _severity(metadata: Rule) -> str:
    """How severe findings of a rule are, and what that depends on."""
    before = unseen(metadata.code, metadata.severity)
    if before is metadata.severity:
        return before.value
    return f"{before.value} ({metadata.severity.value} where a run has shown it)"


def _styled(page: list[str]) -> Iterator[str]:
    """The Markdown of a page for a terminal: bold headings, code without its fences."""
    from amplint.report.text import paint

    in_code = False
    for line in page:
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif in_code:
            yield paint(f"    {line}".rstrip(), "state", True)
        elif line.startswith("#"):
            yield paint(line.lstrip("# "), "bold", True)
        else:
            yield re.sub(r"`([^`]+)`", lambda match: paint(match[1], "state", True), line)


def _docstring(module: ModuleType) -> str:
    import inspect

    return inspect.cleandoc(module.__doc__ or "")
