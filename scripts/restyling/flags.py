"""Styles that give a literal switch from elsewhere: a data class, options, a dict, YAML, constants."""

from __future__ import annotations

import ast
from collections.abc import Callable

from restyling.program import DoesNotApplyError, Edit, Program, Source

Flags = dict[str, bool]


def _flags(source: Source) -> list[ast.Constant]:
    """`True` and `False` as arguments by keyword, or as the value of a name, inside functions."""
    found = []
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, bool):
            continue
        around = source.parents[node]
        by_keyword = isinstance(around, ast.keyword) and around.arg != "action"
        assigned = (
            isinstance(around, ast.Assign)
            and isinstance(around.targets[0], ast.Name)
            and not isinstance(source.parents[around], ast.ClassDef)
        )
        if (by_keyword or assigned) and _not_in_decorator(source, node):
            found.append(node)
    return sorted(found, key=lambda node: (node.lineno, node.col_offset))


def _not_in_decorator(source: Source, node: ast.AST) -> bool:
    if source.of(node) not in {"True", "False"}:
        return False
    while node in source.parents:
        parent = source.parents[node]
        if node in getattr(parent, "decorator_list", []) or isinstance(parent, ast.arguments):
            return False
        if isinstance(parent, ast.ClassDef):
            return any(isinstance(one, ast.FunctionDef) for one in [node])
        node = parent
    return True


def _from(
    program: Program,
    define: Callable[[Flags], str],
    use: Callable[[str], str],
    elsewhere: str = "",
    line: str = "",
    extra: Callable[[Flags], dict[str, str]] = lambda flags: {},
) -> Program:
    changed: dict[str, str] = {}
    every: Flags = {}
    module = program.new_file("settings") if elsewhere else ""
    for source in program.python:
        flags: Flags = {}
        edits: list[Edit] = []
        for node in _flags(source):
            name = f"flag_{len(every) + len(flags) + 1}"
            flags[name] = node.value
            edits.append(source.replace(node, use(name).replace("MODULE", module)))
        if not flags:
            continue
        every.update(flags)
        if elsewhere:
            names = ", ".join(map(use, flags))
            head = line.replace("MODULE", module).replace("NAMES", names)
            edits.append(source.before_row(source.import_row(), head))
        else:
            edits.append(source.before_row(source.import_row(), define(flags) + "\n\n"))
        changed[source.name] = source.edited(edits)
    if not every:
        raise DoesNotApplyError("no literal switch")
    if elsewhere:
        changed[f"{module}.py"] = define(every)
    return program.with_texts({**changed, **extra(every)})


def flags_from_dataclass(program: Program) -> Program:
    """Switches are defaults of a data class."""
    return _from(
        program,
        lambda flags: (
            "import dataclasses\n\n\n@dataclasses.dataclass\nclass Settings:\n"
            + "".join(f"    {name}: bool = {value}\n" for name, value in flags.items())
            + "\n\nSETTINGS = Settings()\n"
        ),
        lambda name: f"SETTINGS.{name}",
    )


def flags_from_argparse(program: Program) -> Program:
    """Switches are defaults of options, and the command line is empty."""
    return _from(
        program,
        lambda flags: (
            "import argparse\n\nPARSER = argparse.ArgumentParser()\n"
            + "".join(_option(name, value) for name, value in flags.items())
            + "OPTIONS = PARSER.parse_args([])\n"
        ),
        lambda name: f"OPTIONS.{name}",
    )


def _option(name: str, value: bool) -> str:
    action = "store_false" if value else "store_true"
    return f'PARSER.add_argument("--{name}", action="{action}")\n'


def flags_from_click(program: Program) -> Program:
    """Switches are defaults of click options, and the command line is empty."""

    def define(flags: Flags) -> str:
        options = "".join(
            f'@click.option("--{name.replace("_", "-")}/--no-{name.replace("_", "-")}", '
            f"default={value})\n"
            for name, value in flags.items()
        )
        names = ", ".join(flags)
        first = next(iter(flags))
        number = first.removeprefix("flag_")
        result = "{" + ", ".join(f'"{name}": {name}' for name in flags) + "}"
        return (
            f"import click\n\n\n@click.command()\n{options}def read_{number}({names}):\n"
            f"    return {result}\n\n\nOPTIONS = read_{number}.main([], standalone_mode=False)\n"
        )

    return _from(program, define, lambda name: f'OPTIONS["{name}"]')


def other_way(program: Program) -> Program:
    """The program with each literal switch the other way, as somebody may choose an option."""
    changed = {
        source.name: source.edited(
            [source.replace(node, str(not node.value)) for node in _flags(source)]
        )
        for source in program.python
    }
    return program.with_texts(changed)


def flags_from_dict(program: Program) -> Program:
    """Switches are values of a dict."""
    return _from(
        program,
        lambda flags: (
            "CONFIG = {" + ", ".join(f'"{name}": {value}' for name, value in flags.items()) + "}\n"
        ),
        lambda name: f'CONFIG["{name}"]',
    )


def flags_from_yaml(program: Program) -> Program:
    """Switches stand in a YAML file beside the program."""
    return _from(
        program,
        lambda flags: (
            "import pathlib\n\nimport yaml\n\nCONFIG = yaml.safe_load(\n"
            '    (pathlib.Path(__file__).parent / "switches.yaml").read_text()\n)\n'
        ),
        lambda name: f'CONFIG["{name}"]',
        extra=lambda flags: {
            f"{folder}switches.yaml": "".join(
                f"{name}: {str(value).lower()}\n" for name, value in flags.items()
            )
            for folder in _folders(program)
        },
    )


def _folders(program: Program) -> set[str]:
    return {name.rpartition("/")[0] + "/" if "/" in name else "" for name in program.texts}


def flags_from_constants(program: Program) -> Program:
    """Switches are constants of another file, imported by name."""
    return _from(
        program,
        lambda flags: "".join(f"{name.upper()} = {value}\n" for name, value in flags.items()),
        str.upper,
        elsewhere="names",
        line="from MODULE import NAMES\n",
    )


def flags_from_module(program: Program) -> Program:
    """Switches are constants of another file, used as its attributes."""
    return _from(
        program,
        lambda flags: "".join(f"{name.upper()} = {value}\n" for name, value in flags.items()),
        lambda name: f"MODULE.{name.upper()}",
        elsewhere="module",
        line="import MODULE\n",
    )
