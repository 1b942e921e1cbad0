"""On which versions of torch the checked code has to run: from the settings or the project.

The answer is the oldest version that is allowed. Where only an upper bound is given, it is
the newest one below it; where nothing is said, the newest torch there is (None).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from amplint.code.lookups import Lookups
from amplint.code.module import Module
from amplint.code.project import Project
from amplint.errors import UnreadableFile
from amplint.files import NotRegular
from amplint.plaindata import NoData, from_toml

#: A release, compared part by part: (2, 3) for 2.3, (2, 3, 1) for 2.3.1.
Version = tuple[int, ...]

#: Larger than any part of a version: "<2.3" allows 2.2.(any).
_ANY = 9999

_CLAUSE = re.compile(
    r"(?P<operator>===|==|~=|!=|>=|<=|>|<|\^|~|=)?\s*v?(?P<release>\d{1,9}(?:\.\d{1,9})*)(?P<rest>[\w.+*]*)"
)
_LOWER = frozenset((">=", ">", "==", "===", "~=", "^", "~", "=", None))

#: Begins one requirement on torch: PEP 508, or a conda match specification with its channel.
_REQUIREMENT = re.compile(r"(?:[\w-]+::)?(?P<name>(?:py)?torch)(?![\w.-])")
#: Characters of a requirement that somebody has written.
_LONGEST = 1_000
_QUOTED = re.compile(r"""["'](?P<text>torch\b[^"'\n]*)["']""")


def oldest(specifier: str) -> Version | None:
    """The version that stands for a range such as ">=2.1,<3", "==2.0.*" or "2.3".

    None for a text that is no range or does not bound it.
    """
    if len(specifier) > _LONGEST:
        return None
    lower: list[Version] = []
    upper: list[Version] = []
    for clause in specifier.strip(" ()").split(","):
        match = _CLAUSE.fullmatch(clause.strip())
        if match is None:
            return None
        version = tuple(int(part) for part in match["release"].split("."))
        if match["operator"] in _LOWER:
            lower.append(version if len(version) > 1 else (*version, 0))
        elif match["operator"] == "<=":
            upper.append(version)
        elif match["operator"] == "<":
            upper.append((*version[:-1], version[-1] - 1, _ANY))
    return max(lower) if lower else min(upper, default=None)


def target_torch(project: Project, module: Module) -> Version | None:
    """The oldest torch that a module of the project has to run on; None for the newest."""
    if project.target_torch is not None:
        return oldest(project.target_torch)
    return required_version(project.lookups, project.folders_up(module))


def required_version(lookups: Lookups, folders: list[str]) -> Version | None:
    """What the nearest folder that bounds torch allows; the oldest where its files differ.

    Args:
        folders: from the one of the checked file up to the root of its project.
    """
    for folder in folders:
        found = [
            version
            for path in lookups.requirement_files(folder)
            for requirement in _requirements(lookups, path)
            if (version := oldest(requirement)) is not None
        ]
        if found:
            return min(found)
    return None


def _requirements(lookups: Lookups, path: str) -> Iterator[str]:
    """The version ranges that one file demands of torch."""
    try:
        text = lookups.read(path).decode("utf-8", "replace")
    except NotRegular as error:
        lookups.odd[path] = error.message
        return
    except UnreadableFile:
        return
    name = os.path.basename(path)
    if name == "pyproject.toml":
        yield from _of_pyproject(text)
    elif name == "setup.py":
        for match in _QUOTED.finditer(text):
            yield from _of_line(match["text"])
    else:
        for line in text.splitlines():
            # The dash of a list in YAML, the key of an option in one line of setup.cfg.
            yield from _of_line(re.sub(r"^\s*-\s+|^\s*\w+\s*=\s*(?=torch\b)", "", line))


def _of_line(line: str) -> Iterator[str]:
    text = line.strip().strip("\"'")
    match = _REQUIREMENT.match(text)
    if match is None or len(text) > _LONGEST:
        return
    from packaging.requirements import InvalidRequirement, Requirement

    # Behind the versions stand markers, options of pip and comments.
    text = re.split(r"[;#]| --", text[match.start("name") :], maxsplit=1)[0]
    try:
        versions = str(Requirement(text).specifier)
    except InvalidRequirement:
        versions = _of_conda(text[len(match["name"]) :])
    if versions:
        yield versions


def _of_conda(versions: str) -> str:
    """The versions of `=1.12=py39_0`, without the build; "" where none are named so."""
    found = re.match(r"\s*(=[\d.*]+)", versions)
    return found[1] if found else ""


def _of_pyproject(text: str) -> Iterator[str]:
    try:
        document = from_toml(text)
    except NoData:
        return
    project = _table(document, "project")
    yield from _of_list(project.get("dependencies"))
    for group in (_table(project, "optional-dependencies"), _table(document, "dependency-groups")):
        for requirements in group.values():
            yield from _of_list(requirements)
    poetry = _table(_table(document, "tool"), "poetry")
    groups = [_table(group, "dependencies") for group in _tables(_table(poetry, "group"))]
    for table in (_table(poetry, "dependencies"), _table(poetry, "dev-dependencies"), *groups):
        yield from _of_poetry(table.get("torch"))


def _of_list(requirements: Any) -> Iterator[str]:
    if isinstance(requirements, list):
        for requirement in requirements:
            if isinstance(requirement, str):
                yield from _of_line(requirement)


def _of_poetry(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        value = value.get("version")
    if isinstance(value, str):
        yield value


def _table(table: Any, key: str) -> Mapping[str, Any]:
    value = table.get(key) if isinstance(table, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def _tables(table: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    return (value for value in table.values() if isinstance(value, Mapping))
