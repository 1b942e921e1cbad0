"""Plain data from text: JSON, TOML and YAML, within limits.

A text of some hundred bytes can stand for more data than there is memory: in YAML an alias costs a
few letters and doubles what it names. Numbers of thousands of digits are as bad.
"""

from __future__ import annotations

import json
import re
import sys
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

    from yaml.nodes import Node

#: Nodes of a YAML document, those behind an alias counted wherever it stands.
_NODES = 20_000
#: Characters of a number in YAML; one in base 60 may otherwise have as many digits as it likes.
_NUMBER = 60
_NUMBERS = frozenset(("tag:yaml.org,2002:int", "tag:yaml.org,2002:float"))

#: What may end the reading of TOML: numbers longer than Python reads, and brackets.
_DIGITS, _NESTING = re.compile(r"\d[\d_]{600,}"), re.compile(r"[\[{]")
#: Characters of a TOML text in which the place of such an end is looked for, and how often.
_LOCATED, _TRIES = 100_000, 10
#: A number that stands nowhere else; `parse_float` keeps its text.
_MARK = "0.6180339887498948e-77"
_BARE = re.compile(r"[A-Za-z0-9_-]+")


class NoData(Exception):
    """A text that is no such data, or too much of it; the text says why."""


def from_json(text: str) -> Any:
    """The value of a JSON text.

    Raises:
        NoData: it is no JSON.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NoData(_words(error)) from error


def from_toml(text: str) -> dict[str, Any]:
    """The table of a TOML text.

    Raises:
        NoData: it is no TOML, or more than can be read; the text names the line, and the key whose
            value that is.
    """
    try:
        table: dict[str, Any] = _toml().loads(text)
        return table
    except (ValueError, RecursionError) as error:
        raise NoData(_words(error) + _place_in(text, error)) from error


def _toml() -> ModuleType:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    module: ModuleType = tomllib
    return module


def _place_in(text: str, error: Exception) -> str:
    """Where a limit of the interpreter ends the reading of TOML; a syntax error says it itself."""
    if isinstance(error, _toml().TOMLDecodeError) or len(text) > _LOCATED:
        return ""
    mark = _NESTING if isinstance(error, RecursionError) else _DIGITS
    lines = text.split("\n")
    suspects = [row for row, line in enumerate(lines) if mark.search(line)]
    # Reading ends there in every beginning of the text that has this line.
    first = bisect_left(suspects, True, key=lambda row: _ends_reading(lines[: row + 1], error))
    row = suspects[min(first, len(suspects) - 1)] if suspects else 0
    key = _key_above(lines, row)
    return f" (at line {row + 1}{f', in `{key}`' if key else ''})"


def _ends_reading(lines: list[str], error: Exception) -> bool:
    try:
        _toml().loads("\n".join(lines))
    except (ValueError, RecursionError) as other:
        return type(other) is type(error)
    return False


def _key_above(lines: list[str], row: int) -> str:
    """The key of the statement that a row belongs to; "" where it is not found nearby."""
    begins = [top for top in range(row, -1, -1) if "=" in lines[top]]
    for top in begins[:_TRIES]:
        above, line = "\n".join(lines[:top]), lines[top]
        for equals in [match.start() for match in re.finditer("=", line)][:_TRIES]:
            try:
                table = _toml().loads(f"{above}\n{line[:equals]}={_MARK}", parse_float=str)
            except (ValueError, RecursionError):
                continue
            return dotted_key(_path_to(_MARK, table))
    return ""


def _path_to(value: str, table: Mapping[str, Any]) -> tuple[str, ...]:
    """The keys that lead to a value. Dotted keys nest deeper than functions may."""
    todo: list[tuple[tuple[str, ...], Any]] = [((), table)]
    while todo:
        keys, inner = todo.pop()
        if isinstance(inner, dict):
            todo += [((*keys, key), part) for key, part in inner.items()]
        elif isinstance(inner, list):
            todo += [(keys, part) for part in inner]
        elif inner == value:
            return keys
    return ()


def dotted_key(keys: Sequence[str]) -> str:
    """Keys of nested tables as one key of TOML: `tool.amplint.per-file-ignores."tests/*"`."""
    return ".".join(key if _BARE.fullmatch(key) else f'"{key}"' for key in keys)


def from_yaml(text: str) -> Any:
    """The plain value of a YAML document: no tag makes an object.

    Raises:
        NoData: it is no YAML, or more data than anybody writes.
    """
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
    try:
        root = loader.get_single_node()
        if root is None:
            return None
        _measure(root, {})
        return loader.construct_document(root)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise NoData(_words(error)) from error
    finally:
        loader.dispose()


def _measure(node: Node, known: dict[int, int]) -> int:
    """How many nodes a node stands for; each is looked at once.

    Raises:
        NoData: too many, or a number that is too long, or a node that holds itself.
    """
    if id(node) in known:
        return known[id(node)]
    known[id(node)] = _NODES + 1  # where it is met again inside of itself
    value = node.value
    if isinstance(value, str):
        if node.tag in _NUMBERS and len(value) > _NUMBER:
            raise NoData("a number has too many digits")
        known[id(node)] = 1
        return 1
    size = 1
    for item in value:
        size += sum(
            _measure(part, known) for part in (item if isinstance(item, tuple) else (item,))
        )
        if size > _NODES:
            raise NoData("there are too many values in it")
    known[id(node)] = size
    return size


def _words(error: Exception) -> str:
    """One line; of the interpreter's own limits in words that everybody knows."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    words = " ".join(str(error).split())
    return "a number has too many digits" if "integer string conversion" in words else words
