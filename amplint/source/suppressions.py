"""Suppression comments: which findings they silence, and which silence nothing.

Read in real comments only, never in strings:

    # noqa                                 every code, on this line
    # noqa: AMP110, AMP101                 these codes; codes of other tools are left alone
    # amplint: ignore[AMP110] the reason   codes, prefixes ("AMP1") or names of rules
    # amplint: ignore-file                 everything, in the whole file
    # amplint: ignore-file[AMP110]         these rules, in the whole file
    # flake8: noqa: AMP110                 the same

A comment belongs to its logical line: to a statement with all the lines it runs over, to
the header of a compound statement with its decorators. Alone on a line it silences nothing.
"""

from __future__ import annotations

import io
import re
import tokenize
from bisect import bisect_right
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter

from amplint.findings import Position, Span
from amplint.selectors import UNUSED_SUPPRESSION, specificity, unknown_selector_hint
from amplint.source.positions import split_lines

_MENTION = re.compile(r"noqa|amplint\s*:", re.IGNORECASE)
_NOQA = re.compile(
    r"""
    \#\s*
    (?P<file>flake8\s*[:=]\s*)?                # of the whole file
    noqa(?![-\w])
    (?:\s*:\s*(?P<codes>
        [A-Z]+[0-9]+(?:[,\s]+[A-Z]+[0-9]+)*    # "AMP101, F401"
    ))?
    """,
    re.VERBOSE | re.IGNORECASE,
)
_DIRECTIVE = re.compile(r"#\s*amplint\s*:\s*(?P<text>[^#]*)", re.IGNORECASE)
_IGNORE = re.compile(
    r"""
    ignore(?P<file>-file)?
    (?![-\w])
    \s*
    (?P<bracket>\[)?
    (?P<rules>(?(bracket)[^\[\]]*))
    (?P<closed>\])?
    """,
    re.VERBOSE | re.IGNORECASE,
)
_OWN_CODE = re.compile(r"AMP\d*", re.IGNORECASE)
_NOT_CODE = frozenset(
    {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
)
_FORM = "write `# amplint: ignore[AMP110] the reason`"


@dataclass(frozen=True, slots=True)
class UnusedSuppression:
    """A comment, or a part of one, that silences nothing.

    Args:
        span: the whole directive, from its "#".
        message: what is wrong; one line.
        help: what to write instead; one line.
    """

    span: Span
    message: str
    help: str


@dataclass(slots=True)
class _Entry:
    """One code, prefix or name of a directive; `codes` is empty if no rule is called so."""

    text: str
    codes: frozenset[str]
    used: bool = False


@dataclass(slots=True)
class _Directive:
    """One suppression.

    Args:
        span: from its "#" on.
        entries: what it names of amplint's.
        shared: it names codes of other tools, too.
        blanket: it silences every code.
        whole_file: it counts for every line.
        alone: it stands on a line without code.
        problem: why it cannot be read; "" if it can.
    """

    span: Span
    entries: tuple[_Entry, ...] = ()
    shared: bool = False
    blanket: bool = False
    whole_file: bool = False
    alone: bool = False
    problem: str = ""


class Suppressions:
    """The suppression comments of one file; remembers which of them were of use.

    Built by `collect`.
    """

    def __init__(self, directives: list[_Directive], lines: list[tuple[int, int]]) -> None:
        self._directives = directives
        self._lines = lines
        #: (first row of a logical line, code) -> entries that silence the code there; the
        #: row is 0 for the whole file.
        self._entries: dict[tuple[int, str], list[_Entry]] = {}
        self._blanket_rows: set[int] = set()
        for directive in directives:
            self._place(directive)

    @property
    def whole_file(self) -> bool:
        """Whether `# amplint: ignore-file` silences every rule."""
        return 0 in self._blanket_rows

    def match(self, code: str, row: int) -> bool:
        """Whether a finding is silenced; every comment that silences it counts as used.

        Args:
            code: of the finding.
            row: 1-based first row of the finding.
        """
        if not self._directives:
            return False
        first = self._first_row(row)
        entries = [*self._entries.get((first, code), ()), *self._entries.get((0, code), ())]
        for entry in entries:
            entry.used = True
        return bool(entries) or first in self._blanket_rows or self.whole_file

    def unused(
        self, codes_that_ran: Collection[str], off_by_default: Collection[str] = ()
    ) -> Iterator[UnusedSuppression]:
        """Comments that silenced nothing, to be called after all `match` calls.

        Args:
            codes_that_ran: a suppression of any other code is not judged.
            off_by_default: codes that a prefix may cover although they did not run.
        """
        ran = frozenset(codes_that_ran)
        judged = ran | frozenset(off_by_default)
        for directive in self._directives:
            if directive.problem:
                yield UnusedSuppression(directive.span, directive.problem, _FORM)
                continue
            yield from _unknown(directive)
            idle = [
                entry.text
                for entry in directive.entries
                if not entry.used
                and entry.codes & ran
                and entry.codes <= judged
                and UNUSED_SUPPRESSION not in entry.codes
            ]
            if idle:
                yield _idle(directive, idle)

    def _place(self, directive: _Directive) -> None:
        if directive.alone:
            return
        first = 0 if directive.whole_file else self._first_row(directive.span.start.row)
        if directive.blanket:
            self._blanket_rows.add(first)
        for entry in directive.entries:
            for code in entry.codes:
                self._entries.setdefault((first, code), []).append(entry)

    def _first_row(self, row: int) -> int:
        """The first row of the logical line that a row belongs to."""
        index = bisect_right(self._lines, row, key=itemgetter(0)) - 1
        if index < 0:
            return row
        first, last = self._lines[index]
        return first if row <= last else row


def _unknown(directive: _Directive) -> Iterator[UnusedSuppression]:
    for entry in directive.entries:
        if not entry.codes:
            hint = unknown_selector_hint(entry.text) or ""
            yield UnusedSuppression(directive.span, f"no rule is called `{entry.text}`", hint)


def _idle(directive: _Directive, idle: list[str]) -> UnusedSuppression:
    what = ", ".join(idle)
    place = "in this file" if directive.whole_file else "here"
    message = f"the suppression of {what} silences nothing {place} and would hide a later mistake"
    if directive.alone:
        advice = "put the comment at the end of a line of the statement, or remove it"
    elif len(idle) == len(directive.entries) and not directive.shared:
        advice = "remove the comment"
    else:
        advice = f"remove {what} from the comment"
    return UnusedSuppression(directive.span, message, advice)


def collect(source: str) -> Suppressions:
    """Read the suppression comments of a file that `ast.parse` accepts.

    Args:
        source: the decoded text.
    """
    if not _MENTION.search(source):
        return Suppressions([], [])
    directives: list[_Directive] = []
    lines: list[tuple[int, int]] = []
    first_row = decorators_row = 0
    decorator = False
    for token in _tokens(source):
        if token.type == tokenize.COMMENT:
            directives.extend(_read_comment(token.string, token.start, alone=not first_row))
        elif token.type == tokenize.NEWLINE and first_row:
            lines.append((decorators_row or first_row, token.start[0]))
            decorators_row = (decorators_row or first_row) if decorator else 0
            first_row = 0
        elif not first_row and token.type not in _NOT_CODE:
            first_row = token.start[0]
            decorator = token.string == "@"
    return Suppressions(directives, _joined(lines))


def _tokens(source: str) -> Iterator[tokenize.TokenInfo]:
    text = io.StringIO("\n".join(split_lines(source)))
    try:
        yield from tokenize.generate_tokens(text.readline)
    except (tokenize.TokenError, SyntaxError):
        # The parser accepts a few texts (an odd last line) that `tokenize` does not.
        return


def _joined(lines: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Logical lines without those that a later one, with its decorators, includes."""
    last_of_first = dict(lines)
    return sorted(last_of_first.items())


def _read_comment(comment: str, start: tuple[int, int], *, alone: bool) -> Iterator[_Directive]:
    row, column0 = start

    def span(match: re.Match[str]) -> Span:
        end = match.start() + len(match.group().rstrip())
        return Span(Position(row, column0 + match.start() + 1), Position(row, column0 + end + 1))

    for match in _NOQA.finditer(comment):
        directive = _read_noqa(match, span(match), alone)
        if directive is not None:
            yield directive
    for match in _DIRECTIVE.finditer(comment):
        yield _read_directive(match.group("text"), span(match), alone)


def _read_noqa(match: re.Match[str], span: Span, alone: bool) -> _Directive | None:
    whole_file = match.group("file") is not None
    codes = match.group("codes")
    if codes is None:
        # A bare "flake8: noqa" speaks of flake8's own codes, as a rule of style.
        return None if whole_file else _Directive(span, blanket=True, alone=alone)
    named = re.split(r"[,\s]+", codes)
    own = [code for code in named if _OWN_CODE.fullmatch(code)]
    if not own:
        return None
    entries = tuple(_Entry(code, codes_of(code)) for code in own)
    return _Directive(
        span,
        entries,
        shared=len(own) < len(named),
        whole_file=whole_file,
        alone=alone and not whole_file,
    )


def _read_directive(text: str, span: Span, alone: bool) -> _Directive:
    match = _IGNORE.match(text)
    if match is None:
        word = text.split(maxsplit=1)[0] if text.strip() else ""
        return _Directive(span, problem=f"`amplint: {word}` is no suppression that amplint knows")
    whole_file = match.group("file") is not None
    if match.group("bracket") is None:
        if whole_file:
            return _Directive(span, blanket=True, whole_file=True)
        return _Directive(span, problem="this suppression names no rule, so it silences nothing")
    names = [name for name in re.split(r"[,\s]+", match.group("rules")) if name]
    if match.group("closed") is None or not names:
        return _Directive(span, problem="this suppression's list of rules is empty or not closed")
    entries = tuple(_Entry(name, codes_of(name)) for name in names)
    return _Directive(span, entries, whole_file=whole_file, alone=alone and not whole_file)


@lru_cache(maxsize=256)
def codes_of(selector: str) -> frozenset[str]:
    """The codes of the rules that a code, a prefix or a name stands for; none for "ALL"."""
    from amplint.rules import known

    return frozenset(code for code in known() if specificity(selector, code) > 0)
