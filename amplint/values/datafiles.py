"""Data files of a project that code reads under a constant path: JSON, TOML and YAML."""

from __future__ import annotations

import ast
import json
import os
import sys

from amplint.code.expressions import last_name
from amplint.code.module import Module
from amplint.code.project import Project
from amplint.errors import UnreadableFile

_JSON = frozenset(("json.load", "json.loads"))
_TOML = frozenset(("tomllib.load", "tomllib.loads", "tomli.load", "tomli.loads", "toml.load"))
_YAML = frozenset(f"yaml.{name}" for name in ("safe_load", "load", "full_load", "unsafe_load"))
_LIMIT = 1_000_000


class NoData(Exception):
    """A call that reads no data file that can be found and read."""


def loads_data(dotted: str | None) -> bool:
    """Whether a call of this name turns a file or a text into plain data."""
    return dotted in _JSON or dotted in _TOML or dotted in _YAML


def content_of(path: str, dotted: str | None, module: Module, project: Project) -> object:
    """The data of a file, read as the named function reads it.

    Args:
        path: as the code writes it, relative to the project's root or to the module's folder.
        dotted: "json.load" and its like.

    Raises:
        NoData: there is no such file, or it is no such data.
    """
    for folder in project.folders_of(module):
        found = project.lookups.file(os.path.join(folder, path))
        if found:
            return _parsed(_read(found, project), dotted)
    raise NoData(path)


def _read(path: str, project: Project) -> str:
    try:
        data = project.lookups.read(path)
    except UnreadableFile as error:
        raise NoData(path) from error
    if len(data) > _LIMIT:
        raise NoData(path)
    return data.decode("utf-8", "replace")


def _parsed(text: str, dotted: str | None) -> object:
    if dotted in _YAML:
        return _parsed_yaml(text)
    try:
        if dotted in _JSON:
            return json.loads(text)
        if sys.version_info >= (3, 11):
            import tomllib
        else:
            import tomli as tomllib
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise NoData(dotted) from error


def _parsed_yaml(text: str) -> object:
    """Plain data only: whatever loader the code uses, no tag makes an object here."""
    import yaml  # type: ignore[import-untyped]

    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise NoData("yaml") from error


def path_argument(call: ast.Call) -> ast.expr | None:
    """The path in `open(path)`, `Path(path).open()`, `Path(path).read_text()`; None if none."""
    name = last_name(call.func)
    if isinstance(call.func, ast.Name) and name == "open" and call.args:
        return call.args[0]
    if isinstance(call.func, ast.Attribute) and name in ("open", "read_text", "read", "read_bytes"):
        inner = call.func.value
        if isinstance(inner, ast.Call):
            return path_argument(inner)
        return inner
    if name in ("Path", "PurePath") and len(call.args) == 1:
        return call.args[0]
    return None
