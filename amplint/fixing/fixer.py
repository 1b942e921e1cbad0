"""Fix one text: apply what can be applied together, check the result, take back what is wrong.

A fix counts only if the text after it parses, the findings it is for are gone, and nothing
new is found, by any rule but notices that nobody selected. Each accepted fix leaves fewer findings, so the
repetition ends; what is left then cannot be fixed without doing harm.
"""

from __future__ import annotations

import io
import tokenize
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from amplint.findings import Finding
from amplint.fixing.edits import Change, apply, collide, disjoint, moved, resolve
from amplint.inspection import FileResult, Task, inspect
from amplint.source.positions import LineTable, split_lines

#: Applicabilities that are applied, by whether unsafe fixes are wanted.
APPLIED = {False: frozenset({"safe"}), True: frozenset({"safe", "unsafe"})}

#: Rounds of applying. Every round but the last removes a finding, so this is never reached
#: by a file that a person wrote.
MAX_ROUNDS = 100


@dataclass(frozen=True, slots=True)
class FixTask:
    """One file to fix.

    Args:
        task: the file, and the codes whose findings are to be fixed.
        every_code: the rules that may not find anything new.
        unsafe: whether fixes that change what the program does are applied, too.
        original: the bytes of the file.
    """

    task: Task
    every_code: frozenset[str]
    unsafe: bool
    original: bytes


@dataclass(frozen=True, slots=True)
class Refusal:
    """A fix that was taken back, and why."""

    finding: Finding
    reason: str


@dataclass(frozen=True, slots=True)
class Fixed:
    """What fixing one file gave.

    Args:
        text: after all fixes; the file's own where nothing was fixed.
        fixed: findings whose fixes are in the text; rows are those of the text at that time.
        refused: fixes that would have done harm.
    """

    text: str
    fixed: tuple[Finding, ...] = ()
    refused: tuple[Refusal, ...] = ()


@dataclass(frozen=True, slots=True)
class _Candidate:
    """One fix and the findings that it is for: those of one import share theirs."""

    changes: tuple[Change, ...]
    findings: tuple[Finding, ...]


def fix(work: FixTask) -> Fixed:
    """Apply the fixes of a file until none is left that can be applied."""
    fixer = _Fixer(work)
    text = work.task.source.text
    found = fixer.inspect(text)
    fixed: list[Finding] = []
    refused: list[Refusal] = []
    for _ in range(MAX_ROUNDS):
        refused = []
        step = fixer.advance(text, found, refused)
        if step is None:
            break
        text, found, gone = step
        fixed += gone
    return Fixed(text, tuple(fixed), tuple(refused))


class _Fixer:
    """The fixing of one file.

    Args:
        work: the file.
    """

    def __init__(self, work: FixTask) -> None:
        self._work = work
        self._newline = work.task.source.newline

    def inspect(self, text: str) -> FileResult:
        """What all rules find in a text in the place of the file."""
        task = self._work.task
        source = replace(task.source, text=text)
        return inspect(replace(task, source=source, codes=self._work.every_code, edits=True))

    def advance(
        self, text: str, found: FileResult, refused: list[Refusal]
    ) -> tuple[str, FileResult, Sequence[Finding]] | None:
        """Apply the largest part of the fixes that does no harm; None if each one does."""
        candidates = self._candidates(text, found)
        while candidates:
            group = self._group(candidates)
            step = self._try(text, found, group, refused)
            if step is not None:
                return step
            candidates = [each for each in candidates if each not in group]  # what collided
        return None

    def _try(
        self, text: str, found: FileResult, group: Sequence[_Candidate], refused: list[Refusal]
    ) -> tuple[str, FileResult, Sequence[Finding]] | None:
        changes = [change for candidate in group for change in candidate.changes]
        gone = [finding for candidate in group for finding in candidate.findings]
        after_text = apply(text, changes)
        after = self.inspect(after_text)
        harm = _harm(text, found, after_text, after, changes, gone)
        if harm is None:
            return after_text, after, gone
        if len(group) == 1:
            refused += [Refusal(finding, harm) for finding in gone]
            return None
        half = len(group) // 2
        for part in (group[:half], group[half:]):
            step = self._try(text, found, part, refused)
            if step is not None:
                return step
        return None

    def _candidates(self, text: str, found: FileResult) -> list[_Candidate]:
        """The fixes that are wanted, in the order of their first findings, each one once."""
        applied = APPLIED[self._work.unsafe]
        lines = LineTable(text)
        findings_of: dict[tuple[Change, ...], list[Finding]] = {}
        for finding in found.findings:
            if finding.fix is None or finding.code not in self._work.task.codes:
                continue
            if finding.fix.applicability not in applied:
                continue
            changes = resolve(finding.fix.edits, lines, self._newline)
            if changes and disjoint(changes):
                findings_of.setdefault(changes, []).append(finding)
        return [_Candidate(changes, tuple(each)) for changes, each in findings_of.items()]

    @staticmethod
    def _group(candidates: Collection[_Candidate]) -> list[_Candidate]:
        """As many fixes as leave each other alone, the first ones first."""
        group: list[_Candidate] = []
        taken: list[Change] = []
        for candidate in candidates:
            if not collide(candidate.changes, taken):
                group.append(candidate)
                taken += candidate.changes
        return group


def _comments(text: str) -> Counter[str]:
    """The comments of a text that parses."""
    lines = io.StringIO("\n".join(split_lines(text)))
    found: Counter[str] = Counter()
    with suppress(tokenize.TokenError, SyntaxError):
        for token in tokenize.generate_tokens(lines.readline):
            found[token.string] += token.type == tokenize.COMMENT
    return +found


def _harm(
    before_text: str,
    before: FileResult,
    after_text: str,
    after: FileResult,
    changes: Sequence[Change],
    gone: Collection[Finding],
) -> str | None:
    """Why the result of a fix cannot stay, or None if it can."""
    new_errors = {error.message for error in after.errors} - {e.message for e in before.errors}
    if new_errors:
        return f"afterwards the file {min(new_errors)}"
    lost = _comments(before_text) - _comments(after_text)
    if lost:
        return f"it would lose the comment `{min(lost)}`"
    old, new = LineTable(before_text), LineTable(after_text)

    def row_afterwards(finding: Finding) -> int:
        return new.position_at(moved(old.offset(finding.span.start), changes)).row

    gone_ids = {id(finding) for finding in gone}
    allowed = Counter(
        (row_afterwards(finding), finding.code)
        for finding in before.findings
        if id(finding) not in gone_ids
    )
    kept = {item.fingerprint for item in before.findings if id(item) not in gone_ids}
    # A finding in a statement that moves is known by the text of its line, not by its row.
    fresh = [item for item in after.findings if item.fingerprint not in kept]
    surplus = Counter((item.span.start.row, item.code) for item in fresh) - allowed
    if not surplus:
        return None
    row, code = min(surplus)
    if any(finding.code == code and row_afterwards(finding) == row for finding in gone):
        return f"{code} would still be found"
    return f"it would cause {code} in line {row}"
