"""Edits of a text: whether two collide, applying them, where places lie afterwards."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from amplint.findings import Edit
from amplint.source.positions import LineTable

_NEWLINE = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True, order=True)
class Change:
    """Replace `text[start:end]` by `content`; offsets are 0-based code points."""

    start: int
    end: int
    content: str

    def touches(self, other: Change) -> bool:
        """Whether the two overlap or meet: then their result depends on their order."""
        return self.start <= other.end and other.start <= self.end


def resolve(edits: Iterable[Edit], lines: LineTable, newline: str) -> tuple[Change, ...]:
    """The edits as offsets, sorted.

    Args:
        edits: line ends in their content are "\\n".
        lines: of the text that the edits are for.
        newline: the line end of a text whose edited line has none.
    """
    changes = []
    for edit in edits:
        start, end = lines.offset(edit.span.start), lines.offset(edit.span.end)
        content = edit.content.replace("\n", _line_end(lines.source, start, newline))
        changes.append(Change(start, end, content))
    return tuple(sorted(changes))


def _line_end(text: str, offset: int, default: str) -> str:
    """How the line at an offset ends; files may mix LF, CRLF and CR."""
    match = _NEWLINE.search(text, offset)
    return match.group() if match else default


def collide(changes: Sequence[Change], others: Iterable[Change]) -> bool:
    """Whether a change of one fix touches a change of another."""
    return any(change.touches(other) for other in others for change in changes)


def disjoint(changes: Sequence[Change]) -> bool:
    """Whether the sorted changes of one fix leave each other alone."""
    return all(not first.touches(second) for first, second in pairwise(changes))


def apply(text: str, changes: Iterable[Change]) -> str:
    """The text after disjoint changes."""
    parts = []
    done = 0
    for change in sorted(changes):
        parts += [text[done : change.start], change.content]
        done = change.end
    return "".join([*parts, text[done:]])


def moved(offset: int, changes: Iterable[Change]) -> int:
    """Where the character at an offset lies after the changes.

    What stood in a replaced range moves to the start of what replaces it; what follows an
    insertion moves behind it.
    """
    shift = 0
    for change in sorted(changes):
        if change.end <= offset:
            shift += len(change.content) - (change.end - change.start)
        elif change.start < offset:
            return change.start + shift
    return offset + shift
