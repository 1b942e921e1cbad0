"""Rules that installed packages bring: entry points of the group `amplint.rules`.

An entry point is named for the code of its rule and names the module:

    [project.entry-points."amplint.rules"]
    ACM101 = "acme_rules.no_empty_cache"

Only the folders of installed packages are looked at, never the checked tree. They are read without
`importlib.metadata`, which takes ten times as long as everything here.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import site
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType

from amplint import files
from amplint.errors import ConfigError, UnreadableFile

GROUP = "amplint.rules"
#: Three letters that are not amplint's own, and three digits.
_CODE = re.compile(r"(?!AMP)[A-Z]{3}\d{3}")
_SECTION = re.compile(r"^\[(.+)\]\s*$")
_ENTRY = re.compile(r"^(\w+)\s*=\s*([\w.]+)\s*$")


@dataclass(frozen=True, slots=True)
class Plugin:
    """One rule of an installed package.

    Args:
        module: the dotted name of the rule's module.
        package: the distribution that brings it ("acme-rules").
    """

    code: str
    module: str
    package: str


@lru_cache(maxsize=1)
def installed() -> Mapping[str, Plugin]:
    """The rules of installed packages by code.

    Raises:
        ConfigError: a code is none, or two packages claim the same three letters.
    """
    found: dict[str, Plugin] = {}
    owners: dict[str, str] = {}
    for plugin in sorted(_entries(), key=lambda each: (each.code, each.package)):
        if not _CODE.fullmatch(plugin.code):
            raise ConfigError(
                f"`{plugin.package}` calls a rule `{plugin.code}`: a code is three letters other "
                "than AMP, and three digits",
                "use `--isolated` to check without the rules of other packages",
            )
        owner = owners.setdefault(plugin.code[:3], plugin.package)
        if owner != plugin.package or plugin.code in found:
            raise ConfigError(
                f"`{owner}` and `{plugin.package}` both have rules {plugin.code[:3]}…: one of them "
                "has to use other letters",
                "use `--isolated` to check without the rules of other packages",
            )
        found[plugin.code] = plugin
    return found


def _entries() -> Iterator[Plugin]:
    folders = [*site.getsitepackages()]
    folders += [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    for folder in dict.fromkeys(map(os.path.realpath, folders)):
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            continue
        for name in names:
            if name.endswith((".dist-info", ".egg-info")):
                yield from _entries_of(os.path.join(folder, name))


def _entries_of(folder: str) -> Iterator[Plugin]:
    try:
        text = files.read(os.path.join(folder, "entry_points.txt"), files.DATA).decode()
    except (UnreadableFile, UnicodeError):
        return
    if GROUP not in text:
        return
    package = os.path.basename(folder).partition("-")[0].removesuffix(".egg").replace("_", "-")
    section = ""
    for line in text.splitlines():
        head, entry = _SECTION.match(line), _ENTRY.match(line)
        section = head[1].strip() if head else section
        if entry and section == GROUP:
            yield Plugin(entry[1], entry[2], package)


@lru_cache(maxsize=64)
def load(code: str) -> ModuleType:
    """Import the module of a rule, as if the working directory were not on the path.

    Raises:
        KeyError: there is no rule with this code.
        Exception: whatever the module raises.
    """
    with _without_working_directory():
        return importlib.import_module(installed()[code].module)


@contextmanager
def _without_working_directory() -> Iterator[None]:
    """`python -m amplint` puts the checked tree in front, where it would stand in for packages."""
    before = list(sys.path)
    if before and os.path.realpath(before[0] or ".") == os.path.realpath("."):
        del sys.path[0]
    try:
        yield
    finally:
        sys.path[:] = before


def digest() -> str:
    """What the rules of other packages are made of, for the cache; "" where there are none."""
    found = hashlib.sha256()
    for plugin in installed().values():
        top = plugin.module.partition(".")[0]
        found.update(f"{plugin.code} {plugin.module}".encode())
        for folder in _folders_of(top):
            for path in sorted(_files_below(folder)):
                found.update(files.read(path, files.INDEX))
    return found.hexdigest() if installed() else ""


def _folders_of(top: str) -> list[str]:
    from importlib.util import find_spec

    with _without_working_directory():
        spec = find_spec(top)
    if spec is None:
        return []
    return list(spec.submodule_search_locations or ()) or [spec.origin or ""]


def _files_below(path: str) -> Iterator[str]:
    if os.path.isfile(path):
        yield path
    for folder, _, names in os.walk(path):
        yield from (os.path.join(folder, name) for name in names if name.endswith(".py"))
