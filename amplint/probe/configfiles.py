"""Entries of a project's configuration files, whoever reads them.

Which file a program reads is often settled on its command line, and by code that nothing can
be said about. What can be said is what the files of the project call `clip_max_norm`.
"""

from __future__ import annotations

import ast
import itertools
import os
import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from amplint import files
from amplint.code.definitions import is_test_file
from amplint.errors import UnreadableFile
from amplint.plaindata import NoData, from_json, from_yaml

#: Folders and files that are looked into.
_FOLDERS, _FILES = 2000, 400
_SUFFIXES = (".yaml", ".yml", ".json")
#: A class or module of Python is a file of settings if it assigns that many constants.
_SETTINGS = 5


class ConfigFiles:
    """The YAML and JSON files of a project, and the settings in its Python files.

    Args:
        root: the folder of the project.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._entries: dict[str, list[tuple[Any, str]]] = {}

    def entries(self, key: str) -> list[tuple[Any, str]]:
        """The plain values of a key, in whatever section, each with its file.

        A key with dots is one of a section of that name: "train.clip".

        The file is "" if every file that has the key says the same: it goes with all others.
        """
        known = self._entries.get(key)
        if known is None:
            *sections, last = key.split(".")
            found = [
                (value, path)
                for path, text in self._texts.items()
                if last in text
                for section in _sections(sections, _parsed(path, text))
                for value in _values_of(last, section)
            ]
            found = found or list(self._assigned(last)) or list(self._displayed(sections, last))
            alike = len({repr(value) for value, _ in found}) == 1
            known = self._entries[key] = [(found[0][0], "")] if alike else found
        return known

    def _assigned(self, name: str) -> Iterator[tuple[Any, str]]:
        """What classes and modules of Python that hold settings call by a name."""
        writes = re.compile(rf"^\s*{re.escape(name)}\s*[=:]", re.MULTILINE)
        for path, text in self._sources.items():
            if writes.search(text):
                for place, settings in _settings_of(path, text):
                    if name in settings:
                        yield settings[name], place

    def _displayed(self, sections: list[str], name: str) -> Iterator[tuple[Any, str]]:
        """What dicts of settings that stand in Python call by a name: `DEFAULTS = {"train": {...}}`."""
        for path, text in self._sources.items():
            if not re.search(rf"[\"']{re.escape(name)}[\"']\s*:", text):
                continue
            for place, settings in _displays_of(path, text):
                for section in _sections(sections, settings):
                    yield from ((value, place) for value in _values_of(name, section))

    @cached_property
    def _texts(self) -> dict[str, str]:
        return self._read(_SUFFIXES, files.YAML)

    @cached_property
    def _sources(self) -> dict[str, str]:
        return self._read((".py",), files.DATA)

    def _read(self, suffixes: tuple[str, ...], kind: Any) -> dict[str, str]:
        found: dict[str, str] = {}
        for path in _paths(self._root, suffixes):
            try:
                found[path] = files.read(path, kind).decode("utf-8", "replace")
            except UnreadableFile:
                continue
            if len(found) >= _FILES:
                break
        return found


def _settings_of(path: str, text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The constants that a module of Python assigns, and each of its classes, with a name for it."""
    tree = _tree(text)
    if tree is None:
        return
    bodies: list[ast.Module | ast.ClassDef] = [tree]
    bodies += (node for node in tree.body if isinstance(node, ast.ClassDef))
    for body in bodies:
        settings = dict(filter(None, map(_assignment, body.body)))
        if len(settings) >= _SETTINGS:
            yield f"{path}:{getattr(body, 'name', '')}", settings


def _displays_of(path: str, text: str) -> Iterator[tuple[str, dict[Any, Any]]]:
    """The dicts of constants that a module assigns to a name, those with as many as settings have.

    What a test makes up says nothing of what a program is given.
    """
    tree = None if is_test_file(path) else _tree(text)
    for node in tree.body if tree is not None else ():
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or not isinstance(
            node.value, ast.Dict
        ):
            continue
        constants = [part for part in ast.walk(node.value) if isinstance(part, ast.Constant)]
        if len(constants) >= 2 * _SETTINGS:  # keys and values
            yield f"{path}:{node.lineno}", _plain(node.value)


def _plain(display: ast.Dict) -> dict[Any, Any]:
    """The constants of a dict display, and of those inside."""
    found: dict[Any, Any] = {}
    for key, value in zip(display.keys, display.values):
        if not isinstance(key, ast.Constant):
            continue
        if isinstance(value, ast.Dict):
            found[key.value] = _plain(value)
        elif isinstance(value, ast.Constant):
            found[key.value] = value.value
    return found


def _tree(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _assignment(statement: ast.stmt) -> tuple[str, Any] | None:
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    target = statement.target if isinstance(statement, ast.AnnAssign) else target
    value = getattr(statement, "value", None)
    if not isinstance(target, ast.Name) or not isinstance(value, ast.Constant):
        return None
    return (target.id, value.value) if isinstance(value.value, (bool, int, float, str)) else None


def _paths(root: str, suffixes: tuple[str, ...]) -> Iterator[str]:
    for folder, inner, names in itertools.islice(os.walk(root), _FOLDERS):
        inner[:] = sorted(name for name in inner if not name.startswith((".", "node_modules")))
        yield from (os.path.join(folder, name) for name in sorted(names) if name.endswith(suffixes))


def _parsed(path: str, text: str) -> object:
    """Plain data; None for what is none."""
    try:
        return from_json(text) if path.endswith(".json") else from_yaml(text)
    except NoData:
        return None


def _sections(names: list[str], data: object) -> Iterator[object]:
    """The parts of some data that lie under these keys, one in the other, wherever that is."""
    if not names:
        yield data
        return
    if isinstance(data, dict):
        if names[0] in data:
            yield from _sections(names[1:], data[names[0]])
        data = list(data.values())
    if isinstance(data, list):
        for item in data:
            yield from _sections(names, item)


def _values_of(key: str, data: object) -> Iterator[Any]:
    if isinstance(data, dict):
        value = data.get(key)
        if isinstance(value, (bool, int, float, str)):
            yield _number(value) if isinstance(value, str) else value
        data = list(data.values())
    if isinstance(data, list):
        for item in data:
            yield from _values_of(key, item)


def _number(text: str) -> Any:
    """`1e-8` is a text to YAML 1.1, but a number to whoever wrote it."""
    try:
        return float(text)
    except ValueError:
        return text
