"""Results of checked files, kept between runs in `.amplint_cache`.

An entry is found by everything that is known before a file is parsed: amplint's own code,
the interpreter, the settings, the file's place and its bytes. It counts only while every
question that its analysis asked of the file system has the answer it had then
(`amplint.code.lookups`). Entries are JSON: reading one cannot execute anything, and what
is not exactly an entry is passed over.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, fields, replace
from typing import Any

import amplint
from amplint import files, plugins
from amplint.code import index, lookups
from amplint.config import Settings
from amplint.errors import UnreadableFile
from amplint.findings import (
    Edit,
    Evidence,
    Finding,
    Fix,
    Link,
    PathStep,
    Position,
    Severity,
    Span,
    Standing,
)
from amplint.inspection import FileResult
from amplint.protocol import Event
from amplint.source.gitindex import tracks
from amplint.source.sealed import seal, unseal

FOLDER = ".amplint_cache"
#: Marks a folder as a cache, for backup programs (https://bford.info/cachedir/) and for us.
TAG = "CACHEDIR.TAG"
TAG_TEXT = """\
Signature: 8a477f597d28d172789f06886806bc55
# This file marks a cache of amplint; `amplint clean` removes the folder.
"""
_TEMPORARY = ".tmp-"

DAY = 24 * 60 * 60
#: Entries that no run has used for so long are removed, in seconds.
MAX_AGE = 30 * DAY

#: Settings that decide which files are checked or how they are reported, but not what is
#: found in a file. Any other one, and so each new one, is part of an entry's key.
_IRRELEVANT = frozenset(
    {
        *("exclude", "extend_exclude", "force_exclude", "respect_gitignore", "max_file_size"),
        *("jobs", "cache", "fail_on", "output_format", "stdin_filename", "origin"),
        *("fix", "unsafe_fixes"),
    }
)


def open_cache(settings: Settings) -> Cache | None:
    """The cache of a run; None where results are not to be reused.

    `AMPLINT_DEBUG=1` is for looking at the analysis, so it must take place.
    """
    if not settings.cache or os.environ.get("AMPLINT_DEBUG") == "1":
        return None
    return Cache(folder_for(settings), settings)


def folder_for(settings: Settings) -> str:
    """Where results are kept: `AMPLINT_CACHE_DIR`, or a folder of the project.

    That is the folder of the configuration file, if it lies in the working directory or
    above; a shared file from somewhere else does not draw the cache there.
    """
    chosen = os.environ.get("AMPLINT_CACHE_DIR")
    if chosen:
        return os.path.abspath(chosen)
    here = os.getcwd()
    root = os.path.abspath(settings.root or here)
    inside = here == root or here.startswith(root.rstrip(os.sep) + os.sep)
    return os.path.join(root if inside else here, FOLDER)


def _distrust(folder: str) -> str | None:
    """Why nothing may be believed that a folder holds, or None.

    Results in it decide whether a run is green: whoever writes them must be who runs amplint, and
    no pull request may bring them along.
    """
    try:
        if files.is_of_another_user(folder):
            return f"{folder} belongs to another user, so it is ignored"
    except OSError:  # there is none yet
        return None
    return f"{folder} is tracked by git, so it is ignored" if tracks(folder) else None


def is_cache(folder: str) -> bool:
    """Whether a folder carries the tag that amplint writes into its caches."""
    try:
        return files.head(os.path.join(folder, TAG), len(TAG_TEXT) + 1) == TAG_TEXT.encode()
    except UnreadableFile:
        return False


class Cache:
    """Results in a folder, which is made when the first one is put in.

    Args:
        folder: see `folder_for`.
        settings: of the run.

    Attributes:
        failure: why nothing more is written, or None.
    """

    def __init__(self, folder: str, settings: Settings) -> None:
        self.folder = folder
        self.failure = _distrust(folder)
        self._is_trusted = self.failure is None
        self._settings = settings
        # Files do not change during a run, or else the next run notices.
        self._answer = functools.cache(functools.partial(lookups.answer, index=self.indexes))
        self._prepared = False

    @functools.cached_property
    def indexes(self) -> str:
        """The folder with the indexes of projects; each state of the code has its own.

        "" where the cache is not trusted.
        """
        if not self._is_trusted:
            return ""
        return os.path.join(self.folder, amplint.__version__, f"index-{code_digest()[:16]}")

    def key(self, filename: str, path: str, data: bytes, folder: str = "") -> str:
        """What identifies the result of a file: 64 hexadecimal digits.

        Args:
            filename: as findings print it.
            path: where it lies on disk.
            data: its content.
            folder: the checked folder that holds it, "" if it was named itself.
        """
        digest, checked = hashlib.sha256(data).hexdigest(), folder and os.path.realpath(folder)
        parts = (self._run, filename, os.path.realpath(path), digest, checked)
        return hashlib.sha256(_dumped(parts)).hexdigest()

    @functools.cached_property
    def _run(self) -> str:
        settings = {
            item.name: getattr(self._settings, item.name)
            for item in fields(self._settings)
            if item.name not in _IRRELEVANT
        }
        settings["edits"] = self._settings.wants_edits
        settings["plugins"] = plugins.digest() if self._settings.plugins else ""
        parts = (code_digest(), sys.implementation.cache_tag, os.getcwd(), settings)
        return hashlib.sha256(_dumped(parts)).hexdigest()

    def get(self, key: str, *, plain: bool = False) -> FileResult | None:
        """A result that still holds; None where there is none.

        Args:
            plain: whether the file may be left out if it takes no part; see `Task`.
        """
        if not self._is_trusted:
            return None
        path = self._path(key)
        try:
            if files.is_of_another_user(path):
                return None
            result = decode(files.read(path, files.RESULT))
            if result.screened_out and not plain:
                return None
            if not lookups.still_hold(result.lookups, self._answer):
                return None
            renewed = self._renewed(result)
        except (UnreadableFile, OSError, ValueError, TypeError, LookupError, RecursionError):
            return None
        if renewed != result.lookups:
            self.put(key, replace(result, lookups=renewed))
        else:
            _mark_used(path)
        return result

    def put(self, key: str, result: FileResult) -> None:
        """Keep a result, unless something went wrong in it or with the folder."""
        if self.failure is not None or result.errors:
            return
        self._write(self._path(key), encode(result))

    def keep_searches(self, results: Iterable[FileResult]) -> None:
        """Keep what searches have found, for the next run.

        Nothing is kept of a project in which a file has changed during the run, or may have.
        """
        found: dict[tuple[str, str], dict[index.Search, list[str]]] = {}
        for result in results:
            for (kind, *words), paths in () if result.reused else result.lookups.items():
                if kind not in lookups.SEARCHES or not isinstance(paths, list):
                    continue
                root, *rest = words
                stamp = result.lookups[lookups.FILES, root]
                if isinstance(stamp, str) and stamp:
                    search = (kind, *rest)
                    found.setdefault((root, stamp), {})[search] = paths
        for (root, stamp), searches in found.items():
            known = index.searches_below(root, self.indexes)
            if known.files.stamp == stamp:
                self._keep_index(root, known, searches)

    def _keep_index(
        self, root: str, known: index.Searches, found: Mapping[index.Search, list[str]]
    ) -> None:
        updated = known.updated(found)
        if updated != known.index:
            self._write(index.path_of(root, self.indexes), index.encode(updated, root))

    def _write(self, path: str, data: bytes) -> None:
        if self.failure is not None:
            return
        try:
            if not self._prepared:
                prepare(self.folder)
                self._prepared = True
            write(path, data)
        except OSError as error:
            self.failure = f"cannot write {self.folder}: {error.strerror or error}"

    def _path(self, key: str) -> str:
        return os.path.join(self.folder, amplint.__version__, key[:2], f"{key}.json")

    def _renewed(self, result: FileResult) -> dict[lookups.Question, lookups.Answer]:
        """What was looked up, with the stamps of now: a restored cache has other times."""
        stamps = {
            question: stamp
            for question in result.lookups
            if question[0] == lookups.FILES and (stamp := self._answer(question))
        }
        return {**result.lookups, **stamps}


@functools.cache
def code_digest() -> str:
    """A digest of amplint's own modules.

    A version number does not tell two states of a development checkout apart.
    """
    from amplint import rules

    digest = hashlib.sha256()
    for package in (amplint, rules):
        top = os.path.dirname(str(package.__file__))
        for path in sorted(_modules(top)):
            data = files.read(path, files.INDEX)
            digest.update(b"%s %d\n%s" % (os.fsencode(os.path.relpath(path, top)), len(data), data))
    return digest.hexdigest()


def _modules(top: str) -> Iterator[str]:
    for folder, _, names in os.walk(top):
        yield from (os.path.join(folder, name) for name in names if name.endswith(".py"))


# -- the folder ------------------------------------------------------------------------------


def prepare(folder: str) -> None:
    """Make the folder, or clean up in it once a day.

    Raises:
        OSError: it cannot be written, or it is somebody else's.
    """
    os.makedirs(folder, exist_ok=True)
    names = os.listdir(folder)
    if is_cache(folder):
        _clean_up(folder)
    elif all(name.startswith(_TEMPORARY) for name in names):
        # The tag comes first, so that a folder with anything else in it is ours by its tag.
        write(os.path.join(folder, TAG), TAG_TEXT.encode())
        write(os.path.join(folder, ".gitignore"), b"*\n")
    else:
        raise OSError("the folder holds other things")


def write(path: str, data: bytes) -> None:
    """Write a file that appears whole or not at all, with the folder it lies in.

    Raises:
        OSError: it cannot be written.
    """
    folder = os.path.dirname(path)
    os.makedirs(folder, exist_ok=True)
    temporary = os.path.join(folder, f"{_TEMPORARY}{os.urandom(8).hex()}")
    try:
        with open(temporary, "xb") as stream:
            stream.write(data)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.remove(temporary)
        raise


def _mark_used(path: str) -> None:
    with contextlib.suppress(OSError):
        if _age(path) > DAY:
            os.utime(path)


def _age(path: str) -> float:
    return time.time() - os.stat(path).st_mtime


def _clean_up(folder: str) -> None:
    """Remove what no run has used for long, whichever version wrote it.

    The tag's time is that of the last clean-up.
    """
    tag = os.path.join(folder, TAG)
    if _age(tag) < DAY:
        return
    os.utime(tag)
    for version in os.scandir(folder):
        if version.is_dir(follow_symlinks=False):
            _remove_old(version.path)


def _remove_old(top: str) -> None:
    for folder, _, names in os.walk(top, topdown=False):
        # Another run may be doing the same, or filling a folder that was empty just now.
        with contextlib.suppress(OSError):
            for path in (os.path.join(folder, name) for name in names):
                if _age(path) > MAX_AGE:
                    os.remove(path)
            os.rmdir(folder)


# -- entries -----------------------------------------------------------------------------------


def encode(result: FileResult) -> bytes:
    """An entry: the digest of what follows it, and the result as JSON."""
    body = _dumped(
        {
            "filename": result.filename,
            "findings": [astuple(finding) for finding in result.findings],
            "lookups": list(result.lookups.items()),
            "unfinished": result.unfinished,
            "screened_out": result.screened_out,
        }
    )
    return seal(body)


def decode(data: bytes) -> FileResult:
    """The result of an entry.

    Raises:
        ValueError, TypeError, LookupError, RecursionError: it is no whole entry.
    """
    entry = json.loads(unseal(data).decode("utf-8", "surrogatepass"))
    return FileResult(
        filename=_text(entry["filename"]),
        findings=tuple(map(_finding, _list(entry["findings"]))),
        lookups=dict(map(_lookup, _list(entry["lookups"]))),
        screened_out=bool(entry["screened_out"]),
        unfinished=tuple(map(_text, _list(entry["unfinished"]))),
        reused=True,
    )


def _dumped(value: object) -> bytes:
    # A name or a message may hold half a surrogate pair; as an escape it would be joined
    # with a neighbour.
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain)
    return text.encode("utf-8", "surrogatepass")


def _plain(value: object) -> str:
    if isinstance(value, (Severity, Standing)):
        word: str = value.value
        return word
    if isinstance(value, Event):
        return value.name
    raise TypeError(f"no JSON value: {value!r}")


def _finding(value: Any) -> Finding:
    code, name, severity, message, help_, filename, span, path, *rest = _list(value)
    cell, evidence, fix, fingerprint, links = rest
    return Finding(
        code=_text(code),
        name=_text(name),
        severity=Severity(severity),
        message=_text(message),
        help=_text(help_),
        filename=_text(filename),
        span=_span(span),
        path=tuple(map(_step, _list(path))),
        cell=None if cell is None else _number(cell),
        evidence=_evidence(evidence),
        fix=None if fix is None else _fix(fix),
        fingerprint=_text(fingerprint),
        links=tuple(map(_link, _list(links))),
    )


def _link(value: Any) -> Link:
    kind, standing, subject, claim = _list(value)
    return Link(_text(kind), Standing(standing), _text(subject), _text(claim))


def _span(value: Any) -> Span:
    start, end = _list(value)
    return Span(Position(*map(_number, _list(start))), Position(*map(_number, _list(end))))


def _step(value: Any) -> PathStep:
    filename, row, column, message, state, kind, subject, holds, event, idle, broken = _list(value)
    return PathStep(
        filename=_text(filename),
        row=_number(row),
        column=_number(column),
        message=_text(message),
        state=_text(state),
        kind=_text(kind),
        subject=_text(subject),
        holds=bool(holds),
        event=None if event is None else Event[_text(event)],
        idle=bool(idle),
        broken=_text(broken),
    )


def _evidence(value: Any) -> Evidence:
    status, device, kind, detail, assumptions = _list(value)
    return Evidence(
        status=_text(status),
        device=None if device is None else _text(device),
        kind=None if kind is None else _text(kind),
        detail=None if detail is None else _text(detail),
        assumptions=tuple(map(_text, _list(assumptions))),
    )


def _fix(value: Any) -> Fix:
    applicability, edits = _list(value)
    return Fix(_text(applicability), tuple(map(_edit, _list(edits))))


def _edit(value: Any) -> Edit:
    span, content = _list(value)
    return Edit(_span(span), _text(content))


def _lookup(value: Any) -> tuple[lookups.Question, lookups.Answer]:
    question, answer = _list(value)
    known = tuple(map(_text, _list(question)))
    if isinstance(answer, list):
        return known, list(map(_text, answer))
    return known, answer if isinstance(answer, bool) else _text(answer)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError("no list")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return value


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError("no number")
    return value
