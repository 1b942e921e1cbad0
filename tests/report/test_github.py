"""Workflow commands."""

from __future__ import annotations

from dataclasses import replace

import pytest

from amplint.findings import Severity
from amplint.report import github


def render(report, sources) -> list[str]:
    return list(github.render(report, sources=sources, color=False))


def test_commands(report, sources, golden) -> None:
    golden("github.txt", "\n".join(render(report, sources)) + "\n")


def test_the_worst_come_first(report, sources) -> None:
    levels = [line.split(" ")[0] for line in render(report, sources)]
    assert levels == ["::error", "::error", "::warning", "::notice"]


# The expected texts follow the toolkit's escapeData and escapeProperty.
@pytest.mark.parametrize(
    ("text", "data", "property_value"),
    [
        ("100%", "100%25", "100%25"),
        ("a\r\nb", "a%0D%0Ab", "a%0D%0Ab"),
        ("%0A", "%250A", "%250A"),
        ("C:\\a,b.py", "C:\\a,b.py", "C%3A\\a%2Cb.py"),
        ("::error::x", "::error::x", "%3A%3Aerror%3A%3Ax"),
    ],
)
def test_escapes(text: str, data: str, property_value: str) -> None:
    assert github.escape_data(text) == data
    assert github.escape_property(text) == property_value


def test_a_range_of_several_lines_has_no_columns(clip, make_report, sources) -> None:
    longer = replace(clip, span=replace(clip.span, end=replace(clip.span.end, row=13)))
    (line,) = render(make_report(longer), sources)
    assert "line=12,endLine=13::" in line


def test_truncation_by_github_is_mentioned(clip, make_report, sources) -> None:
    ten = render(make_report(*[clip] * 10), sources)
    eleven = render(make_report(*[clip] * 11), sources)
    assert all(line.startswith("::error ") for line in ten)
    assert eleven[-1].startswith("GitHub shows at most 10 annotations")


def test_no_finding_can_add_a_command(clip, make_report, sources) -> None:
    evil = replace(clip, filename="a\n::stop::b.py", message="x\n::warning::y", help="\n::z::")
    lines = render(make_report(replace(evil, severity=Severity.INFO)), sources)
    assert len(lines) == 1 and "\n" not in lines[0] and lines[0].startswith("::notice ")
