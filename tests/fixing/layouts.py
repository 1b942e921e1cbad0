"""One program in many layouts: comments, line ends, semicolons, backslashes, parentheses, tabs."""

from __future__ import annotations

import io
import random
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass

_OPEN, _CLOSE = "([{", ")]}"
_WORDS = ("why", "type: ignore", "type: int", "noqa", "größer als 1 😀", "x, (y", "'a'")
_LAYOUT = (tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


@dataclass(frozen=True, slots=True)
class Line:
    """A logical line of a plain program.

    Args:
        depth: how deep it is indented.
        tokens: its tokens, comments left out.
    """

    depth: int
    tokens: tuple[tuple[int, str], ...]

    @property
    def opens(self) -> bool:
        """Whether a block follows."""
        return self.tokens[-1][1] == ":"

    @property
    def is_simple(self) -> bool:
        """Whether it may stand between semicolons."""
        return not self.opens and self.tokens[0][1] not in ("@", "from", "import")


def lines_of(program: str) -> list[Line]:
    """The logical lines of a program that has no comments."""
    found: list[Line] = []
    depth, tokens = 0, []
    for token in tokenize.generate_tokens(io.StringIO(program).readline):
        depth += (token.type == tokenize.INDENT) - (token.type == tokenize.DEDENT)
        if token.type == tokenize.NEWLINE:
            found.append(Line(depth, tuple(tokens)))
            tokens = []
        elif token.type not in _LAYOUT:
            tokens.append((token.type, token.string))
    return found


class Dresser:
    """Writes a program in a layout that a seed chooses."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._indent = self._dice.choice(["    ", "  ", "\t", "   "])
        self._newline = self._dice.choice(["\n", "\n", "\r\n", "\r"])
        self._wild = self._dice.random()
        self._count = 0

    def dress(self, lines: list[Line]) -> str:
        """The program; its tokens and their order stay, but for parentheses around names."""
        parts: list[str] = []
        index = 0
        while index < len(lines):
            text, index = self._row(lines, index)
            parts += [*self._above(lines[index - 1].depth), text + self._beside(lines[index - 1])]
        text = "\n".join(parts) + ("\n" if self._chance(0.9) else "")
        return text.replace("\n", self._newline)

    def _row(self, lines: list[Line], index: int) -> tuple[str, int]:
        """One row, and the index of the line that begins the next one."""
        line = lines[index]
        text = self._indent * line.depth + self._statement(line)
        block = self._inner(lines, index)
        is_short = bool(block) and all(one.is_simple for one in block)
        if is_short and line.tokens[0][1] in ("with", "if", "for") and self._chance(0.3):
            return f"{text} {'; '.join(map(self._statement, block))}", index + 1 + len(block)
        index += 1
        while line.is_simple and index < len(lines) and self._chance(0.15):
            if not lines[index].is_simple or lines[index].depth != line.depth:
                break
            text += f"{self._dice.choice(['; ', ';', ' ;  '])}{self._statement(lines[index])}"
            index += 1
        return text, index

    @staticmethod
    def _inner(lines: list[Line], index: int) -> list[Line]:
        depth = lines[index].depth
        end = index + 1
        while end < len(lines) and lines[end].depth > depth:
            end += 1
        return lines[index + 1 : end]

    def _statement(self, line: Line) -> str:
        text, level, previous = "", 0, ""
        for position, (kind, string) in enumerate(line.tokens):
            level -= string in _CLOSE and kind == tokenize.OP
            text += self._gap(previous, string, level) if position else ""
            text += self._wrapped(line, position) if kind == tokenize.NAME and level else string
            level += string in _OPEN and kind == tokenize.OP
            previous = string
        return text

    def _wrapped(self, line: Line, position: int) -> str:
        """A name that is a whole argument, with parentheses or without."""
        string = line.tokens[position][1]
        before, after = line.tokens[position - 1][1], line.tokens[position + 1][1]
        is_argument = before in "(," and after in ",)" and line.tokens[0][1] not in ("def", "from")
        return f"({string})" if is_argument and self._chance(0.15) else string

    def _gap(self, previous: str, string: str, level: int) -> str:
        """What stands between two tokens."""
        need = " " if previous[-1:].isalnum() and string[:1].isalnum() else ""
        usual = " " if previous in (",", "=", "+", ":") and level == 0 or previous == "," else need
        usual = usual or (" " if string in ("=", "+") and level == 0 else need)
        if not self._chance(0.12 * self._wild):
            return usual
        if level:
            pad = self._dice.choice(["", " ", "      ", "\t"])
            return self._dice.choice(
                [f"\n{pad}", f"  # {self._word()}\n{pad}", "  ", f" \\\n{pad}"]
            )
        return self._dice.choice([usual or need, f" \\\n{self._dice.choice(['  ', '       '])}"])

    def _above(self, depth: int) -> Iterator[str]:
        while self._chance(0.12):
            own = f"{self._indent * depth}# {self._word()}"
            yield self._dice.choice(["", own, own, "\f", self._indent * depth, "        # far"])

    def _beside(self, line: Line) -> str:
        if not self._chance(0.1):
            return ""
        comments = [f"  # {self._word()}", f" #{self._word()}", " "]
        return self._dice.choice([*comments, ";"] if line.is_simple else comments)

    def _word(self) -> str:
        self._count += 1
        return f"{self._dice.choice(_WORDS)} {self._count}"

    def _chance(self, share: float) -> bool:
        return self._dice.random() < share


def comments_of(text: str) -> list[str]:
    """The comments of a program, sorted."""
    stream = io.StringIO(text.replace("\r\n", "\n").replace("\r", "\n"))
    tokens = tokenize.generate_tokens(stream.readline)
    return sorted(token.string.rstrip() for token in tokens if token.type == tokenize.COMMENT)
