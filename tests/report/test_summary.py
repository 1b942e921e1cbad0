"""The last line, and the statistics."""

from __future__ import annotations

from dataclasses import replace

import pytest

from amplint.checker import Report
from amplint.findings import FileError, Incomplete, Severity
from amplint.report.summary import statistics, summarise

MISSING = FileError("gone.py", "does not exist")
SECOND = FileError("gone.py", "and again", 2, 1)


@pytest.mark.parametrize(
    ("errors", "warnings", "failed", "files", "screened", "expected"),
    [
        (0, 0, (), 0, 0, "No Python files to check."),
        (0, 0, (), 1, 0, "No AMP misuse found in 1 file."),
        (0, 0, (), 12, 9, "No AMP misuse found in 12 files."),
        (1, 0, (), 12, 9, "Found 1 error in 1 file (12 files checked)."),
        (3, 1, (), 12, 9, "Found 3 errors, 1 warning in 1 file (12 files checked)."),
        (
            1,
            0,
            (MISSING,),
            3,
            0,
            "Found 1 error in 1 file; " + "1 file could not be analysed (3 files checked).",
        ),
        (
            0,
            0,
            (MISSING, SECOND),
            3,
            0,
            "No findings, but 1 file could not be analysed (3 files checked).",
        ),
    ],
)
def test_summary(clip, errors, warnings, failed, files, screened, expected) -> None:
    warning = replace(clip, severity=Severity.WARNING)
    findings = (clip,) * errors + (warning,) * warnings
    assert summarise(Report(findings, failed, files, screened)) == expected


PARTS = [Incomplete("a.py", ("fit",)), Incomplete("b.py", ("Trainer.fit", "c.py:run"))]


@pytest.mark.parametrize(
    ("errors", "parts", "expected"),
    [
        (0, 1, "No AMP misuse found in 9 files (1 file followed in part)."),
        (0, 2, "No AMP misuse found in 9 files (2 files followed in part)."),
        (
            1,
            2,
            "Found 1 error in 1 file " + "(9 files checked, 2 files followed in part).",
        ),
    ],
)
def test_summary_tells_what_was_followed_in_part(clip, errors, parts, expected) -> None:
    report = Report((clip,) * errors, (), 9, 3, incomplete=tuple(PARTS[:parts]))
    assert summarise(report) == expected


def test_statistics_count_codes_and_unreadable_files(clip) -> None:
    other = replace(clip, code="AMP101", name="step-without-scaled-backward")
    report = Report((clip, other, *[clip] * 9), (MISSING,), files=2)
    assert list(statistics(report)) == [
        "10  AMP110  clip-without-unscale",
        " 1  AMP000  unreadable-file",
        " 1  AMP101  step-without-scaled-backward",
    ]


def test_statistics_of_nothing_is_nothing() -> None:
    assert list(statistics(Report())) == []
