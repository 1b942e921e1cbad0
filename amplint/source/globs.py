"""Patterns as `.gitignore` has them, matched without backtracking.

A pattern comes with the checked project. Translated into a regular expression, `*a*a*a*a*b` takes
time that doubles with each star. Here a star is tried anew only from the last one, so that a match
costs at most the product of the two lengths.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

Item = TypeVar("Item")

#: Characters of a malformed line that a message quotes.
_MOST_QUOTED = 60
_CLASSES = {
    "alpha": str.isalpha,
    "digit": str.isdigit,
    "alnum": str.isalnum,
    "upper": str.isupper,
    "lower": str.islower,
    "space": str.isspace,
    "punct": lambda char: char.isprintable() and not char.isalnum() and not char.isspace(),
    "xdigit": lambda char: char in "0123456789abcdefABCDEF",
}


class Malformed(ValueError):
    """A line that is no pattern; the text says why."""


class _Star:
    """Any number of characters of a name, or of folders of a path."""


_STAR = _Star()
_Test = Callable[[str], bool]
#: Of a name: a character, a test of one, or any number of them.
_Token = str | _Test | _Star


@dataclass(frozen=True, slots=True)
class _Name:
    """A part of a path.

    Args:
        text: all of it, where it has no wildcards.
        ending: what follows its only star, where that stands first: `*.log`.
        tokens: of any other one.
    """

    text: str | None = None
    ending: str | None = None
    tokens: tuple[_Token, ...] = ()

    def matches(self, name: str) -> bool:
        if self.text is not None:
            return name == self.text
        if self.ending is not None:
            return name.endswith(self.ending)
        return _fits(self.tokens, name, _is)


_ANY_NAME = _Name(ending="")


@dataclass(frozen=True, slots=True)
class Glob:
    """One line.

    Args:
        parts: what it says about the path, from its end if it is not anchored.
        anchored: whether the path begins where the patterns lie.
        folders_only: whether files are not meant.
        negated: whether what matches is not ignored after all.
    """

    parts: tuple[_Name | _Star, ...]
    anchored: bool
    folders_only: bool
    negated: bool

    def matches(self, path: Sequence[str], is_folder: bool) -> bool:
        """Whether a path, as its parts from the folder of the patterns on, is meant."""
        if self.folders_only and not is_folder:
            return False
        last = self.parts[-1]
        if isinstance(last, _Name) and not last.matches(path[-1]):
            return False
        return not self.anchored or _fits(self.parts, path, _is_named)


class Globs:
    """Several lines, of which the last that matches decides.

    Args:
        lines: in their order; blank ones and comments have no meaning.
        strict: whether a malformed line is an error; else it matches nothing, as in git.

    Attributes:
        names_only: whether the last part of a path is all that counts.
        malformed: lines that match nothing, each with its number from 1 and the reason.

    Raises:
        Malformed: one of the lines, where `strict`.
    """

    def __init__(self, lines: Iterable[str], *, strict: bool = False) -> None:
        self.malformed: list[tuple[int, str]] = []
        self._globs = list(self._parsed(lines, strict))
        self.names_only = not any(glob.anchored for glob in self._globs)
        #: Where the plain names stand, the last of each: most lines are no more than that.
        self._plain: dict[str, int] = {}
        self._plain_folders: dict[str, int] = {}
        self._others: list[tuple[int, Glob]] = []
        for index, glob in enumerate(self._globs):
            name = _plain_name(glob)
            if name is None:
                self._others.append((index, glob))
            else:
                (self._plain_folders if glob.folders_only else self._plain)[name] = index
        self._others.reverse()

    def decide(self, path: str, *, is_folder: bool) -> bool | None:
        """Whether a path below the folder of the patterns is ignored; None if no line says so."""
        parts = path.split("/")
        best = self._plain.get(parts[-1], -1)
        if is_folder:
            best = max(best, self._plain_folders.get(parts[-1], -1))
        for index, glob in self._others:
            if index < best:
                break
            if glob.matches(parts, is_folder):
                best = index
                break
        return None if best < 0 else not self._globs[best].negated

    def _parsed(self, lines: Iterable[str], strict: bool) -> Iterator[Glob]:
        for number, line in enumerate(lines, start=1):
            try:
                glob = parse(line, strict=strict)
            except Malformed as error:
                if strict:
                    raise Malformed(f"{error} (pattern {number})") from error
                self.malformed.append((number, str(error)))
                continue
            if glob is not None:
                yield glob


def _plain_name(glob: Glob) -> str | None:
    """The only name that a pattern means, wherever it stands; None for any other pattern."""
    first = glob.parts[0]
    return None if glob.anchored or not isinstance(first, _Name) else first.text


def parse(line: str, *, strict: bool = True) -> Glob | None:
    """The pattern of a line; None for a blank line or a comment.

    Args:
        strict: whether any range without members is an error; else it has no members, as in git,
            and is an error where nothing else stands in its brackets.

    Raises:
        Malformed: it is no pattern.
    """
    if line.startswith("#"):
        return None
    text = re.sub(r"(?<!\\) +$", "", line) if len(line) < 1_000 else line
    if not text:
        return None
    negated = text.startswith("!")
    text = text[negated:]
    folders_only = text.endswith("/")
    text = text[: len(text) - folders_only]
    anchored = "/" in text
    text = text.removeprefix("/")
    if not text:
        raise Malformed(f"`{_quoted(line)}` names nothing")
    names = list(_names(text, strict))
    if not anchored:
        return Glob((_name(names[0]),), False, folders_only, negated)
    parts: list[_Name | _Star] = [_STAR if name == "**" else _name(name) for name in names]
    if parts[-1] is _STAR:  # what lies in the folder, but not the folder
        parts.append(_ANY_NAME)
    return Glob(tuple(parts), True, folders_only, negated)


def _names(text: str, strict: bool) -> Iterator[str]:
    """The parts between slashes; one in brackets is a member, an escaped one is a slash."""
    start = position = 0
    while position < len(text):
        following = position + 1
        if text[position] == "[":
            _, following = _class(text, position + 1, strict)
        elif text[position] == "\\" and text[following : following + 1] != "/":
            following += 1
        elif text[position] in "/\\":
            yield text[start:position]
            start = following = following + (text[position] == "\\")
        position = following
    yield text[start:]


def _name(text: str) -> _Name:
    if not re.search(r"[*?\[\\]", text):
        return _Name(text)
    if not re.search(r"[*?\[\\]", text[1:]) and text.startswith("*"):
        return _Name(ending=text[1:])
    tokens: list[_Token] = []
    position = 0
    while position < len(text):
        token, position = _token(text, position)
        if token is not _STAR or tokens[-1:] != [_STAR]:
            tokens.append(token)
    return _Name(tokens=tuple(tokens))


def _token(text: str, position: int) -> tuple[_Token, int]:
    char = text[position]
    if char == "*":
        return _STAR, position + 1
    if char == "?":
        return (lambda _: True), position + 1
    if char == "[":
        return _class(text, position + 1, strict=False)
    if char == "\\":
        if position + 1 == len(text):
            raise Malformed(f"`{_quoted(text)}` ends with a backslash")
        return text[position + 1], position + 2
    return char, position + 1


def _class(text: str, position: int, strict: bool) -> tuple[_Test, int]:
    """The test of `[a-z]`, and where it ends; `position` is behind the bracket."""
    negated = text[position : position + 1] in ("!", "^")
    start = position = position + negated
    tests: list[_Test] = []
    empty = ""
    while text[position : position + 1] != "]" or position == start:
        named = re.compile(r"\[:(\w+):\]").match(text, position)
        if named and named[1] in _CLASSES:
            tests.append(_CLASSES[named[1]])
            position = named.end()
            continue
        low, position = _member(text, position)
        high = low
        if text[position : position + 1] == "-" and text[position + 1 : position + 2] not in "]":
            high, position = _member(text, position + 1)
        if high < low:
            empty = f"{low}-{high}"
        else:
            tests.append(lambda char, low=low, high=high: low <= char <= high)  # type: ignore[misc]
    if empty and (strict or not tests and not negated):
        raise Malformed(f"`{_quoted(text)}` has the empty range {empty}")
    return (lambda char: any(test(char) for test in tests) is not negated), position + 1


def _member(text: str, position: int) -> tuple[str, int]:
    position += text[position : position + 1] == "\\"
    if position >= len(text):
        raise Malformed(f"`{_quoted(text)}` has a bracket that is not closed")
    return text[position], position + 1


def _quoted(text: str) -> str:
    return text if len(text) <= _MOST_QUOTED else f"{text[:_MOST_QUOTED]}…"


def _fits(
    tokens: Sequence[object], items: Sequence[Item], fits: Callable[[object, Item], bool]
) -> bool:
    """Whether tokens, some of them stars, match all items; a star takes as few as it can."""
    token = item = 0
    star = taken = -1
    while item < len(items):
        if token < len(tokens) and tokens[token] is _STAR:
            star, taken = token, item
            token += 1
        elif token < len(tokens) and fits(tokens[token], items[item]):
            token += 1
            item += 1
        elif star >= 0:  # an earlier star need not be tried again: this one may take as much
            taken += 1
            token, item = star + 1, taken
        else:
            return False
    return all(rest is _STAR for rest in tokens[token:])


def _is(token: object, char: str) -> bool:
    return token == char if isinstance(token, str) else bool(token(char))  # type: ignore[operator]


def _is_named(part: object, name: str) -> bool:
    return isinstance(part, _Name) and part.matches(name)
