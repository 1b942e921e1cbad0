"""Plain data from text: JSON, TOML and YAML, within limits.

A text of some hundred bytes can stand for more data than there is memory: in YAML an alias costs a
few letters and doubles what it names. Numbers of thousands of digits are as bad.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from yaml.nodes import Node

#: Nodes of a YAML document, those behind an alias counted wherever it stands.
_NODES = 20_000
#: Characters of a number in YAML; one in base 60 may otherwise have as many digits as it likes.
_NUMBER = 60
_NUMBERS = frozenset(("tag:yaml.org,2002:int", "tag:yaml.org,2002:float"))


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
        NoData: it is no TOML.
    """
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise NoData(_words(error)) from error


def from_yaml(text: str) -> Any:
    """The plain value of a YAML document: no tag makes an object.

    Raises:
        NoData: it is no YAML, or more data than anybody writes.
    """
    import yaml  # type: ignore[import-untyped]

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
