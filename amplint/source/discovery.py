"""From the arguments of the command line to the files to check, in a fixed order.

Folders are walked without following links to folders, as git does; an excluded or
git-ignored folder is not entered. What is named explicitly is checked whatever its suffix,
and even if excluded, unless `force_exclude` is set.
"""

from __future__ import annotations

import functools
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from amplint.config import Settings
from amplint.files import reason
from amplint.findings import FileError, Remark
from amplint.source.ignores import IgnoreFiles, Patterns

SUFFIXES = (".py", ".pyi")
STDIN = "-"
NOTEBOOK = "notebooks are not supported yet"


@dataclass(frozen=True, slots=True)
class Discovered:
    """One file to check.

    Args:
        path: to open; `STDIN` for standard input.
        filename: as findings print it: relative to the working directory, forward slashes.
        explicit: whether the user named the file itself, not a folder that holds it.
        size: in bytes; 0 for standard input.
        folder: the walked folder that holds it, "" if it is explicit.
    """

    path: str
    filename: str
    explicit: bool
    size: int = 0
    folder: str = ""


Found = Discovered | FileError | Remark


def discover(paths: Sequence[str], settings: Settings) -> Iterator[Found]:
    """Find the files to check, each file once, however often and by whatever link reached.

    Args:
        paths: files, folders and "-"; in this order, the content of folders sorted.

    Raises:
        ConfigError: an `exclude` pattern is malformed.
    """
    excluded = Patterns((*settings.exclude, *settings.extend_exclude), settings.root)
    seen: set[str] = set()
    real_folder = functools.cache(os.path.realpath)
    for path in paths:
        for found in _expand(path, settings, excluded):
            if isinstance(found, Discovered) and found.path != STDIN:
                real = _real(found.path, real_folder)
                if real in seen:
                    continue
                seen.add(real)
            yield found


def _real(path: str, real_folder: Callable[[str], str]) -> str:
    """The real path of a file; its folder's is looked up once for all files in it."""
    if os.path.islink(path):
        return os.path.realpath(path)
    folder, name = os.path.split(path)
    return os.path.join(real_folder(folder), name)


def relative(path: str) -> str:
    """A path as findings print it: relative to the working directory, forward slashes."""
    try:
        shown = os.path.relpath(path)
    except ValueError:  # another drive on Windows
        shown = os.path.abspath(path)
    # Names that are not UTF-8 must not break the reporters that print them.
    shown = os.fsencode(shown).decode("utf-8", "replace")
    return shown.replace(os.sep, "/")


def _expand(path: str, settings: Settings, excluded: Patterns) -> Iterator[Found]:
    if path == STDIN:
        name = settings.stdin_filename
        if name and name.endswith(".ipynb"):
            yield FileError(relative(name), NOTEBOOK)
            return
        yield Discovered(STDIN, relative(name) if name else "<stdin>", True)
        return
    try:
        state = os.stat(path)
    except (OSError, ValueError) as error:
        yield FileError(relative(path) if path else path, _missing(error))
        return
    if settings.force_exclude and excluded.match_with_parents(path):
        return
    if stat.S_ISDIR(state.st_mode):
        yield from _walk(path, settings, excluded.without_those_matching(path))
    elif path.endswith(".ipynb"):
        yield FileError(relative(path), NOTEBOOK)
    else:
        yield Discovered(path, relative(path), True, state.st_size)


def _missing(error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError):
        return "does not exist"
    return f"cannot be read: {reason(error) if isinstance(error, OSError) else error}"


def _walk(top: str, settings: Settings, excluded: Patterns) -> Iterator[Found]:
    ignores = IgnoreFiles(top) if settings.respect_gitignore else None
    pending = [(top, True)]
    while pending:
        path, is_folder = pending.pop()
        if not is_folder:
            yield from _file_in_folder(path, top)
            continue
        if ignores is not None:
            ignores.enter(path)
            for item in ignores.said:
                yield replace(item, filename=relative(item.filename))
            ignores.said.clear()
        try:
            with os.scandir(path) as listing:
                entries = [entry for entry in listing if _is_candidate(entry)]
        except OSError as error:
            yield FileError(relative(path), f"cannot be listed: {reason(error)}")
            continue
        entries.sort(key=lambda entry: entry.name, reverse=True)
        pending.extend(_not_ignored(entries, excluded, ignores))


def _is_candidate(entry: os.DirEntry[str]) -> bool:
    if entry.is_dir(follow_symlinks=False):
        return True
    # Editors' lock files are dangling links named ".#file.py".
    return entry.name.endswith(SUFFIXES) and not entry.name.startswith(".#")


def _not_ignored(
    entries: Iterable[os.DirEntry[str]], excluded: Patterns, ignores: IgnoreFiles | None
) -> Iterator[tuple[str, bool]]:
    for entry in entries:
        is_folder = entry.is_dir(follow_symlinks=False)
        if excluded.match(entry.path, is_folder=is_folder):
            continue
        if ignores is not None and ignores.match(entry.path, is_folder=is_folder):
            continue
        yield entry.path, is_folder


def _file_in_folder(path: str, top: str) -> Iterator[Discovered | FileError]:
    try:
        state = os.stat(path)
    except OSError as error:
        yield FileError(relative(path), f"cannot be read: {reason(error)}")
        return
    # A pipe or a socket would block; a link to a folder is not followed.
    if stat.S_ISREG(state.st_mode):
        yield Discovered(path, relative(path), False, state.st_size, top)
