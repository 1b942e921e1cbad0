"""The nouns of a report: findings, their places, their path and their evidence.

Rows and columns are 1-based, columns count code points, ends are exclusive.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from amplint.protocol import Event

#: Longest condition that a message quotes, in characters.
LONGEST_CONDITION = 40


def shorten(text: str, longest: int = LONGEST_CONDITION) -> str:
    """Code on one line: of what is longer than so many characters, whole words and " …"."""
    line = " ".join(text.split())
    if len(line) <= longest:
        return line
    kept = line[: longest - 1]
    return f"{kept.rpartition(' ')[0] or kept[:-1]} …"


class Severity(enum.Enum):
    """How bad a finding is; the order is ERROR > WARNING > INFO."""

    ERROR = "error"  # crashes, or trains wrongly
    WARNING = "warning"  # wrong under some configuration, or loses accuracy
    INFO = "info"  # advice; off unless selected

    @property
    def rank(self) -> int:
        """2 for errors, 1 for warnings, 0 for infos."""
        return {"error": 2, "warning": 1, "info": 0}[self.value]


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in a file: 1-based row, 1-based column in code points."""

    row: int
    column: int


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A half-open range of source text; `end` is exclusive."""

    start: Position
    end: Position


@dataclass(frozen=True, slots=True)
class PathStep:
    """One step of a witness path: what was assumed or happened at a line.

    A rule says in its own words what its steps are. Those of the flow analysis are data;
    `amplint.report.steps` finds the words.

    Args:
        filename: the file of the step, relative like the finding's own.
        row: 1-based line.
        column: 1-based column in code points.
        message: the words of a rule; "" for a step of any other kind than "said".
        state: the scaler's state after such a step, in words; empty if unchanged.
        kind: "said", "event" (of the protocol), "assume" (a test goes one way), "call" (of a
            function that is followed), "loop" (it goes round), "leave" (it ends), "again" (a
            function is called for the next batch), or "raise" (an exception, which a handler takes).
        subject: the test that is assumed, as source text on one line; the name of the function
            that is called; the class of the exception; "" for the others.
        holds: whether the assumed test is true.
        event: what happened, for "event".
        idle: the event found no gradient to work on.
        broken: slug of the misuse that the event certainly is; "" for none.
    """

    filename: str
    row: int
    column: int
    message: str = ""
    state: str = ""
    kind: str = "said"
    subject: str = ""
    holds: bool = False
    event: Event | None = None
    idle: bool = False
    broken: str = ""


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace the text of `span` by `content`."""

    span: Span
    content: str


@dataclass(frozen=True, slots=True)
class Fix:
    """A change that removes the finding.

    Args:
        applicability: "safe", "unsafe" or "display" (shown, never applied).
        edits: non-overlapping edits of the finding's own file; none where nobody asked for them.
    """

    applicability: str
    edits: tuple[Edit, ...]


@dataclass(frozen=True, slots=True)
class Evidence:
    """How amplint knows: a path of the source, an execution, a live run."""

    status: str = "static"
    device: str | None = None
    kind: str | None = None
    detail: str | None = None
    assumptions: tuple[str, ...] = ()


class Standing(enum.Enum):
    """How it is known that a link holds; `amplint.levels` says what that lets a finding be."""

    CODE = "code"  # code in sight makes it so
    LIBRARY = "library"  # a row about a library says so
    USE = "use"  # the way it is used leaves nothing else
    OPTION = "option"  # where an option of the user is not left at its default
    OPEN = "open"  # unless code out of sight, which is given the object, does otherwise
    HARMLESS = "harmless"  # it costs time or clarity; training comes out the same
    GUESS = "guess"  # a name, an annotation, or nothing in sight


#: What a link can be about: that a value is the scaler, the optimizer, the trained model
#: ("object"); that two places hold one object or fact ("identity"); that somebody builds, calls
#: or takes this path ("reach"); that autocast or a grad mode is on here ("region"); what a
#: switch, a dtype or a number is ("value"); what a call did ("effect"); what torch then does
#: to training ("damage").
LINK_KINDS = ("object", "identity", "reach", "region", "value", "effect", "damage")


@dataclass(frozen=True, slots=True, order=True)
class Link:
    """One of the statements that a finding is a conclusion from.

    Args:
        kind: one of `LINK_KINDS`.
        subject: what it is about, as the code writes it ("scaler", "args.clip").
        claim: what is said of it, in words ("is the gradient scaler").
    """

    kind: str
    standing: Standing
    subject: str
    claim: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One misuse at one place.

    Args:
        code: "AMP101".
        name: the rule's name, "step-without-scaled-backward".
        severity: of this finding: its rule's, or what its links let it be.
        message: what is wrong and what it does to training; one line.
        help: the edit to make; one line.
        filename: path relative to the working directory, forward slashes.
        span: the offending expression.
        path: the witness, in order of execution; empty for shape rules.
        links: what it rests on, sorted; empty where the text alone decides.
    """

    code: str
    name: str
    severity: Severity
    message: str
    help: str
    filename: str
    span: Span
    path: tuple[PathStep, ...] = ()
    cell: int | None = None
    evidence: Evidence = field(default_factory=Evidence)
    fix: Fix | None = None
    fingerprint: str = ""
    links: tuple[Link, ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class Incomplete:
    """A file that was followed in part: some of what it runs has too many paths.

    Args:
        filename: as findings print it.
        functions: what was not followed to its end, by qualified name, sorted; functions of
            other files after their file's name and a colon.
    """

    filename: str
    functions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Remark:
    """What the person who started a run should know of a file, and no error.

    Args:
        row: from 1.
    """

    filename: str
    row: int
    message: str


@dataclass(frozen=True, slots=True)
class FileError:
    """A file that could not be analysed (AMP000): it makes the run exit with 2."""

    filename: str
    message: str
    row: int = 1
    column: int = 1
    code: str = "AMP000"
