"""Text on a terminal: colours, and characters that would disturb it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

from amplint.findings import Evidence, Severity

#: Names of the colours that the renderers use -> SGR parameters.
_SGR = {
    "error": "1;31",
    "warning": "1;33",
    "info": "1;36",
    "gutter": "1;34",
    "help": "1;32",
    "state": "36",
    "bold": "1",
    "dim": "2",
}

#: The severity word of the one-line formats. GitHub's problem matchers know "error",
#: "warning" and "notice" and drop a line with any other word.
SEVERITY_WORD = {
    Severity.ERROR: "error",
    Severity.WARNING: "warning",
    Severity.INFO: "notice",
}


#: How the status of evidence is written for people.
EVIDENCE_WORD = {
    "confirmed": "confirmed",
    "conditional": "conditional",
    "not-reproduced": "not reproduced",
    "not-reached": "not reached",
    "inconclusive": "inconclusive",
    "not-probed": "not probed",
    "observed": "observed",
}


def evidence_notes(evidence: Evidence) -> Iterator[tuple[str, str]]:
    """Kind and words of what an execution showed; nothing for a path of the source."""
    word = EVIDENCE_WORD.get(evidence.status)
    if word is not None:
        yield word, evidence.detail or "executed"
    for assumption in evidence.assumptions:
        yield "assuming", assumption


def paint(text: str, style: str, color: bool) -> str:
    """`text` in the colour of `style`, or unchanged where `color` is false."""
    return f"\x1b[{_SGR[style]}m{text}\x1b[0m" if color and text else text


#: What CI runners obey: a line that begins with "::", and these marks anywhere in one.
_COMMANDS = re.compile(r"^(\s*):(?=:)|#(?=#(?:\[|vso\[))")


def printable(text: str) -> str:
    """`text` on one line, with control characters and commands to CI runners as escapes.

    File names and messages may hold anything; an escape sequence in one of them must not
    reach the terminal, and a newline must not break a one-line format.
    """
    if not text.isprintable():
        text = "".join(_escape(char) if _is_control(char) else char for char in text)
    return _COMMANDS.sub(lambda found: f"{found[1] or ''}{_escape(found[0][-1])}", text)


def printable_source(line: str) -> str:
    """A line of a diff, which `patch` may read: its tabs, form feeds and line end stay."""
    ending = "\r" * line.endswith("\r")
    parts = re.split(r"([\t\f])", line.removesuffix("\r"))
    return "".join(part if part in "\t\f" else printable(part) for part in parts) + ending


def _escape(char: str) -> str:
    escaped = char.encode("unicode_escape").decode("ascii")
    return escaped if escaped != char else f"\\x{ord(char):02x}"


def _is_control(char: str) -> bool:
    # Cc: control; Cs: lone surrogate of an undecodable file name; the rest: line breaks and
    # the bidirectional overrides that make a line read differently from what it says.
    if unicodedata.category(char) in {"Cc", "Cs", "Zl", "Zp"}:
        return True
    return unicodedata.bidirectional(char) in {"LRE", "RLE", "LRO", "RLO", "PDF"} | _ISOLATES


_ISOLATES = {"LRI", "RLI", "FSI", "PDI"}


def char_width(char: str) -> int:
    """Columns of a terminal that one code point takes: 0, 1 or 2."""
    if " " <= char <= "~":
        return 1
    if unicodedata.combining(char) or unicodedata.category(char) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(char) in {"W", "F"} else 1


class Cells(NamedTuple):
    """A source line as a terminal shows it.

    Args:
        chars: what is printed for each code point.
        columns: 0-based terminal column where each code point starts, and the width of the
            whole line as last entry.
    """

    chars: list[str]
    columns: list[int]


def lay_out(line: str, tab: int = 4) -> Cells:
    """Expand tabs, make control characters visible, and measure every code point."""
    chars: list[str] = []
    columns = [0]
    for index, char in enumerate(line):
        column = columns[-1]
        if char == "\t":
            shown, width = " " * (tab - column % tab), tab - column % tab
        elif _is_control(char):
            shown, width = "\N{REPLACEMENT CHARACTER}", 1
        elif char == "#" and line.startswith(("##[", "##vso["), index):
            shown, width = _escape(char), len(_escape(char))
        else:
            shown, width = char, char_width(char)
        chars.append(shown)
        columns.append(column + width)
    return Cells(chars, columns)
