"""One line per finding."""

from __future__ import annotations

from dataclasses import replace

from amplint.report import concise


def test_lines(report, sources, golden) -> None:
    golden("concise.txt", "\n".join(concise.render(report, sources=sources, color=False)) + "\n")


def test_a_newline_in_a_name_or_a_message_stays_on_the_line(clip, make_report, sources) -> None:
    odd = replace(clip, filename="a\nb.py", message="one\r\ntwo")
    lines = list(concise.render(make_report(odd), sources=sources, color=False))
    assert lines == [r"a\nb.py:12:9: error AMP110 one\r\ntwo [" + f"{clip.help}]"]


def test_a_short_help_is_on_the_line(clip, make_report, sources) -> None:
    for help, shown in (
        ("call it", "call it"),
        ("x" * 61, "amplint rule AMP110"),
        ("", "amplint rule AMP110"),
    ):
        (line,) = concise.render(
            make_report(replace(clip, help=help)), sources=sources, color=False
        )
        assert line.endswith(f" [{shown}]")


def test_colour_is_only_there_when_asked_for(report, sources) -> None:
    assert "\x1b" not in "".join(concise.render(report, sources=sources, color=False))
    assert "\x1b[1;31merror" in "".join(concise.render(report, sources=sources, color=True))
