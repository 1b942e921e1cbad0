"""Errors that a user can cause. Each one knows its exit status and the next step."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class AmplintError(Exception):
    """A problem the user can act on; printed as one message, never as a traceback.

    Args:
        message: what is wrong, with file and line where there is one.
        hint: what to do next, or None.
    """

    exit_status = 2

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message


class UsageError(AmplintError):
    """An unknown code, option or path on the command line."""


class ConfigError(AmplintError):
    """A configuration file that cannot be read or holds an unknown key."""


class UnreadableFile(AmplintError):
    """A file that cannot be analysed; becomes AMP000 in the report.

    Args:
        message: what is wrong with the file.
        row: 1-based line of the problem, 1 where the whole file is meant.
        column: 1-based column in code points, 1 where the whole line is meant.
    """

    def __init__(self, message: str, row: int = 1, column: int = 1) -> None:
        super().__init__(message)
        self.args = (message, row, column)  # picklable across worker processes
        self.row = row
        self.column = column


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """A hint with the known word that is closest to a misspelt one, or None."""
    close = difflib.get_close_matches(word, sorted(known), n=1, cutoff=0.6)
    return f"did you mean `{close[0]}`?" if close else None
