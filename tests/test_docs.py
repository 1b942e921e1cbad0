"""The documentation says what is true: outputs, tables, paths, options, settings.

What the README shows of amplint is generated. After a change of a rule or of a report,
`pytest tests/test_docs.py --update-golden` writes it anew.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import click
import pytest

from amplint import rules
from amplint.cli.main import cli
from amplint.config import DEFAULT_EXCLUDE, Settings, settings_from_table
from amplint.levels import unseen
from amplint.source.suppressions import collect

try:
    import tomllib
except ModuleNotFoundError:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
DOCUMENTS = (
    README,
    ARCHITECTURE,
    CONTRIBUTING,
    ROOT / "CHANGELOG.md",
    ROOT / "docs/protocol.md",
    ROOT / "docs/probe.md",
)

#: What stands in the README and is generated: name -> the part of the text.
OUTPUT = re.compile(
    r"(?<=^```console\n)\$ amplint (?P<arguments>.*)\n(?:.*\n)*?(?=```$)", re.MULTILINE
)
RULE_TABLE = re.compile(r"(?<=<!-- rules: begin -->\n)(?:.*\n)*?(?=<!-- rules: end -->)")
TASKS = re.compile(r"(?<=^```json\n)\{\n(?:.*\n)*?(?=```$)", re.MULTILINE)

#: Values of settings that the README describes in words.
IN_WORDS = {"exclude": DEFAULT_EXCLUDE, "output-format": None}
#: Options in the documents that belong to other programs.
OTHER_OPTIONS = frozenset(
    {"--update-golden", "--mixed-precision", "--accumulation-steps", "--no-deps"}
    # of the scripts
    | {"--codes", "--needs", "--min-recall", "--recipe", "--limit", "--misses", "--json"}
    | {"--markdown", "--list", "--start", "--every", "--seconds", "--min-share", "--execute"}
    | {"--forced", "--truth", "--listed", "--part", "--sheets", "--lists", "--in"}
    | {
        "--report",
        "--links",
        "--rules",
        "--share",
        "--tree",
        "--programs",
        "--files",
        "--keep",
        "--kills",
    }
)


def amplint(arguments: str) -> subprocess.CompletedProcess[str]:
    """Run this checkout's amplint in its root."""
    return subprocess.run(
        [sys.executable, "-m", "amplint", *arguments.split()],
        cwd=ROOT,
        capture_output=True,
        check=False,
        text=True,
        encoding="utf-8",
    )


def real_output(match: re.Match[str]) -> str:
    """The command of the block and what it prints."""
    arguments = match["arguments"]
    done = amplint(arguments)
    assert done.returncode == 1, done.stdout + done.stderr
    return f"$ amplint {arguments}\n{done.stdout}"


def rule_table(match: re.Match[str]) -> str:
    """The catalogue as a Markdown table."""
    lines = ["| code | name | severity | effect | what is reported |", "|---|---|---|---|---|"]
    for code in rules.TABLE:
        rule = rules.load(code).RULE
        summary = rule.summary.replace("|", "\\|")
        severity = unseen(code, rule.severity)
        mark = "*" if severity is not rule.severity else ""
        lines.append(
            f"| {code} | {rule.name} | {severity.value}{mark} | {rule.effect} | {summary} |"
        )
    return "".join(line + "\n" for line in lines)


def tasks_file(match: re.Match[str]) -> str:
    """The same tasks.json, with the matcher that amplint prints."""
    document = json.loads(match.group())
    (task,) = document["tasks"]
    task["problemMatcher"] = json.loads(amplint("problem-matcher vscode").stdout)
    return json.dumps(document, indent=2) + "\n"


@pytest.mark.parametrize(
    ("part", "generate"),
    [(OUTPUT, real_output), (RULE_TABLE, rule_table), (TASKS, tasks_file)],
    ids=["output", "rules", "tasks"],
)
def test_generated_parts_are_fresh(
    part: re.Pattern[str],
    generate: Callable[[re.Match[str]], str],
    request: pytest.FixtureRequest,
) -> None:
    text = README.read_text(encoding="utf-8")
    fresh, count = part.subn(generate, text)
    assert count == 1
    if request.config.getoption("--update-golden"):
        README.write_text(fresh, encoding="utf-8", newline="\n")
        return
    assert text == fresh, "run `pytest tests/test_docs.py --update-golden`"


def test_the_shown_finding_has_a_path_and_its_repair_is_silent() -> None:
    match = OUTPUT.search(README.read_text(encoding="utf-8"))
    assert match is not None
    assert "path that leads here" in match.group()
    repaired = match["arguments"].replace("/before", "/after")
    assert repaired != match["arguments"]
    assert amplint(match["arguments"]).returncode == 1
    assert amplint(repaired).returncode == 0


# -- links, paths, options -----------------------------------------------------------------


def prose_and_code(document: Path) -> list[str]:
    """Everything between single backticks."""
    return re.findall(r"`([^`\n]+)`", document.read_text(encoding="utf-8"))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", document.read_text(encoding="utf-8"))
    missing = [
        link for link in links if "://" not in link and not (document.parent / link).exists()
    ]
    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_named_paths_exist(document: Path) -> None:
    """`amplint/flow/events.py` and `flow/events.py` alike; patterns must match something."""
    missing = [
        path
        for path in prose_and_code(document)
        if re.fullmatch(r"[\w./*-]+/[\w./*-]*|[\w*-]+\.(?:py|toml|md|txt|yaml)", path)
        and path.startswith(TOP_FOLDERS)
        and not (list(ROOT.glob(path)) or list((ROOT / "amplint").glob(path)))
    ]
    assert missing == []


TOP_FOLDERS = tuple(
    f"{name}/"
    for name in (
        *("amplint", "rules", "tests", "fixtures", "scripts", "docs", "benchmarks"),
        *("cli", "flow", "project", "protocol", "report", "source", "data"),
    )
)


#: Click remembers the first help option that a command is asked for.
HELP = cli.context_settings["help_option_names"]


def known_options() -> set[str]:
    """Every long option of every command."""
    commands: list[click.Command] = [cli, *cli.commands.values()]
    return {
        option
        for command in commands
        for parameter in command.get_params(click.Context(command, help_option_names=HELP))
        for option in (*parameter.opts, *parameter.secondary_opts)
        if option.startswith("--")
    }


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_named_options_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8").replace("<!--", "").replace("-->", "")
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))
    assert named - known_options() - OTHER_OPTIONS == set()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_named_codes_exist(document: Path) -> None:
    """But for `later:`, which speaks of rules to come."""
    text = re.sub(r"# later: AMP\d{3}", "", document.read_text(encoding="utf-8"))
    named = set(re.findall(r"\bAMP\d{3}\b", text))
    assert named - set(rules.TABLE) == set()


# -- README ----------------------------------------------------------------------------------


def rows_below(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading of the README, without its head."""
    text = README.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2]
    table = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert table is not None
    lines = table.group().splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_every_setting_is_described_with_its_default() -> None:
    described = {key.strip("`"): default for key, default, _ in rows_below("Configuration")}
    expected = {
        item.name.replace("_", "-"): getattr(Settings(), item.name)
        for item in fields(Settings)
        if item.metadata.get("file_key", True)
    }
    assert set(described) == set(expected)
    for key, default in expected.items():
        if key in IN_WORDS:
            assert default == IN_WORDS[key]
        else:
            assert described[key] == shown(key, default)


def shown(key: str, default: object) -> str:
    """A default as TOML."""
    if default is None:
        return "none"
    if default == ():
        return "`{}`" if key == "per-file-ignores" else "`[]`"
    return f"`{json.dumps(default)}`"


def test_the_configuration_example_is_valid() -> None:
    text = README.read_text(encoding="utf-8")
    (example,) = re.findall(r"^```toml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    table = tomllib.loads(example)["tool"]["amplint"]
    settings = settings_from_table(table, str(ROOT / "pyproject.toml"))
    assert settings.fail_on == "error"
    assert settings.per_file_ignores == (("tests/**", ("AMP119",)),)


@pytest.mark.parametrize(("comment", "_"), rows_below("Suppressions"))
def test_the_suppressions_silence(comment: str, _: str) -> None:
    found = collect(f"scaler.step(optimizer)  {comment.strip('`')}\n")
    assert found.match("AMP101", 1)
    assert list(found.unused(rules.TABLE)) == []


def test_the_hook_exists() -> None:
    (shown_id,) = re.findall(r"^ +- id: (\w+)$", README.read_text(encoding="utf-8"), re.MULTILINE)
    manifest = (ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")
    assert re.findall(r"^- id: (\w+)$", manifest, re.MULTILINE) == [shown_id]


def test_the_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    for document in (README, CONTRIBUTING):
        text = document.read_text(encoding="utf-8")
        named = re.findall(r"(?:^    |`)make ([a-z ]+?)(?: *$|`| +#)", text, re.MULTILINE)
        assert named
        assert {target for names in named for target in names.split()} <= targets


# -- ARCHITECTURE ------------------------------------------------------------------------------


def table_entries() -> list[str]:
    """The first cell of every row of the tables of rooms and modules."""
    return re.findall(r"^\| `([^`]+)` \|", ARCHITECTURE.read_text(encoding="utf-8"), re.MULTILINE)


def rooms() -> list[str]:
    """Package folders and top-level modules, as ARCHITECTURE names them."""
    package = ROOT / "amplint"
    folders = [
        f"{path.parent.relative_to(ROOT).as_posix()}/" for path in package.glob("*/__init__.py")
    ]
    modules = [f"amplint/{path.name}" for path in package.glob("*.py")]
    return sorted([*folders, *modules, "rules/"])


def test_every_room_is_named_once() -> None:
    named = [entry for entry in table_entries() if entry.startswith(("amplint/", "rules/"))]
    assert sorted(named) == rooms()


@pytest.mark.parametrize("room", ["flow", "values", "regions", "code", "amp"])
def test_every_module_of_a_described_room_is_named_once(room: str) -> None:
    named = [entry for entry in table_entries() if entry.startswith(f"{room}/")]
    modules = (ROOT / "amplint" / room).glob("*.py")
    expected = [f"{room}/{path.name}" for path in modules if path.name != "__init__.py"]
    assert sorted(named) == sorted(expected)


def test_recipes_for_ci_take_no_cache_from_a_checkout() -> None:
    """A pull request could bring one."""
    recipes = [
        line for line in README.read_text("utf-8").splitlines() if "--output-format github" in line
    ]
    recipes += re.findall(r"^    amplint check .*$", README.read_text("utf-8"), re.MULTILINE)
    of_ci = [line for line in recipes if "run:" in line or "--output-format concise" in line]
    assert len(of_ci) >= 2
    assert all("--no-cache" in line for line in of_ci)
