"""Data files of a project that code reads under a constant path: JSON, TOML and YAML."""

from __future__ import annotations

import ast
import os

from amplint import files
from amplint.code.expressions import last_name
from amplint.code.filepaths import is_own_file
from amplint.code.module import Module
from amplint.code.project import Project
from amplint.errors import UnreadableFile
from amplint.plaindata import NoData, from_json, from_toml, from_yaml

_JSON = frozenset(("json.load", "json.loads"))
_TOML = frozenset(("tomllib.load", "tomllib.loads", "tomli.load", "tomli.loads", "toml.load"))
#: What opens the file itself.
_BY_PATH = frozenset(("omegaconf.OmegaConf.load",))
_YAML = _BY_PATH | {f"yaml.{name}" for name in ("safe_load", "load", "full_load", "unsafe_load")}


def loads_data(dotted: str | None) -> bool:
    """Whether a call of this name turns a file or a text into plain data."""
    return dotted in _JSON or dotted in _TOML or dotted in _YAML


def is_given_path(dotted: str | None) -> bool:
    """Whether a call that loads data is given the path, and no open file."""
    return dotted in _BY_PATH


def content_of(path: str, dotted: str | None, module: Module, project: Project) -> object:
    """The data of a file, read as the named function reads it.

    What lies outside of the project is nobody's business here, wherever a path or a link leads.

    Args:
        path: as the code writes it, relative to the project's root or to the module's folder.
        dotted: "json.load" and its like.

    Raises:
        NoData: there is no such file in the project, or it is no such data.
    """
    folders = project.folders_of(module)
    limit = files.YAML if dotted in _YAML else files.DATA
    for folder in folders:
        found = project.lookups.file(os.path.join(folder, path))
        if found and any(_is_inside(found, root) for root in folders):
            try:
                return _parsed(project.lookups.read(found, limit), dotted)
            except UnreadableFile as error:
                raise NoData(error.message) from error
    raise NoData("there is no such file")


def _is_inside(path: str, root: str) -> bool:
    return path.startswith(os.path.join(os.path.realpath(root), ""))


def _parsed(data: bytes, dotted: str | None) -> object:
    text = data.decode("utf-8", "replace")
    if dotted in _YAML:
        return from_yaml(text)
    return from_json(text) if dotted in _JSON else from_toml(text)


def path_argument(call: ast.Call) -> ast.expr | None:
    """The path in `open(path)`, `Path(path).open()`, `Path(path).read_text()`; None if none."""
    name = last_name(call.func)
    if isinstance(call.func, ast.Name) and name == "open" and call.args:
        return _beside(call.args[0])
    if isinstance(call.func, ast.Attribute) and name in ("open", "read_text", "read", "read_bytes"):
        inner = call.func.value
        return _path_of(inner)
    return _path_of(call) if name in ("Path", "PurePath") else None


def _path_of(place: ast.expr) -> ast.expr | None:
    """The path in `Path(path)`, and in an `open` of it."""
    if not isinstance(place, ast.Call) or last_name(place.func) == "joinpath":
        return _beside(place)
    if last_name(place.func) in ("Path", "PurePath"):
        return _beside(place.args[0]) if len(place.args) == 1 else None
    return path_argument(place)


def _beside(path: ast.expr) -> ast.expr:
    """A path without the folder of the file that names it: there it is looked up anyway.

    `Path(__file__).parent / "x.yaml"`, `os.path.join(os.path.dirname(__file__), "x.yaml")`.
    """
    if isinstance(path, ast.BinOp) and isinstance(path.op, ast.Div):
        parts = [path.left, path.right]
    elif isinstance(path, ast.Call) and last_name(path.func) == "join":
        parts = path.args
    elif isinstance(path, ast.Call) and isinstance(path.func, ast.Attribute):
        parts = [path.func.value, *path.args] if path.func.attr == "joinpath" else []
    else:
        parts = []
    return parts[1] if len(parts) == 2 and _is_own_folder(parts[0]) else path


def _is_own_folder(folder: ast.expr) -> bool:
    if isinstance(folder, ast.Attribute) and folder.attr == "parent":
        return is_own_file(folder.value)
    if not isinstance(folder, ast.Call) or last_name(folder.func) != "dirname":
        return False
    return bool(folder.args) and is_own_file(folder.args[0])
