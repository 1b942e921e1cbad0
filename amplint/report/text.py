"""Text on a terminal: colours, and characters that would disturb it."""

from __future__ import annotations

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


def printable(text: str) -> str:
    """`text` on one line, with control characters written as escapes.

    File names and messages may hold anything; an escape sequence in one of them must not
    reach the terminal, and a newline must not break a one-line format.
    """
    if text.isprintable():
        return text
    return "".join(
        char.encode("unicode_escape").decode("ascii") if _is_control(char) else char
        for char in text
    )


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
    for char in line:
        column = columns[-1]
        if char == "\t":
            shown, width = " " * (tab - column % tab), tab - column % tab
        elif _is_control(char):
            shown, width = "\N{REPLACEMENT CHARACTER}", 1
        else:
            shown, width = char, char_width(char)
        chars.append(shown)
        columns.append(column + width)
    return Cells(chars, columns)
