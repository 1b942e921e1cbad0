"""The format for people."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from amplint.findings import PathStep, Position, Span
from amplint.report import full

ANSI = re.compile(r"\x1b\[[0-9;]*m")


def test_every_kind_of_block(report, sources, golden) -> None:
    golden("full.txt", "\n".join(full.render(report, sources=sources, color=False)) + "\n")


def test_colours_change_nothing_but_colour(report, sources) -> None:
    plain = list(full.render(report, sources=sources, color=False))
    colored = list(full.render(report, sources=sources, color=True))
    assert [ANSI.sub("", line) for line in colored] == plain
    assert not any("\x1b" in line for line in plain)
    assert any(line.startswith("\x1b[1;31merror[AMP110]") for line in colored)


def test_carets_lie_under_the_call_after_tab_and_wide_characters(report, sources) -> None:
    lines = list(full.render(report, sources=sources, color=False))
    row = next(index for index, line in enumerate(lines) if "模型" in line)
    # A terminal draws each of the three wide characters over two columns.
    drawn = re.sub("[模型😀]", "WW", lines[row])
    assert drawn.index("scaler.step") == lines[row + 1].index("^")
    assert lines[row + 1].count("^") == len("scaler.step(optimizer)")


def test_steps_on_one_line_share_its_source(clip, make_report, sources) -> None:
    text = list(full.render(make_report(clip), sources=sources, color=False))
    assert sum("scaler.scale(loss).backward()" in line for line in text) == 1
    row = next(index for index, line in enumerate(text) if "11 |" in line)
    assert text[row + 1].endswith("> `loss` is multiplied by the loss scale")
    assert text[row + 2].endswith("> backward adds to the gradients [gradients: scaled]")


def test_a_long_path_loses_its_middle_but_keeps_the_last_change(clip, make_report, sources) -> None:
    steps = [PathStep("train.py", 1 + index % 13, 1, f"step {index}") for index in range(60)]
    steps[30] = replace(steps[30], state="gradients: scaled")
    text = "\n".join(
        full.render(make_report(replace(clip, path=tuple(steps))), sources=sources, color=False)
    )
    shown = [int(number) for number in re.findall(r"> step (\d+)", text)]
    assert shown == [0, 1, 2, 3, 30, 54, 55, 56, 57, 58, 59]
    assert "(26 lines of the path not shown)" in text
    assert "(23 lines of the path not shown)" in text


def test_a_path_through_another_file_names_it(clip, make_report, sources) -> None:
    path = (*clip.path, PathStep("pkg/odd names.py", 1, 5, "is called"))
    text = list(full.render(make_report(replace(clip, path=path)), sources=sources, color=False))
    assert "  ::: pkg/odd names.py:1:5" in text


def test_a_file_that_is_gone_still_gets_place_and_help(clip, make_report) -> None:
    text = list(full.render(make_report(clip), sources=lambda name: None, color=False))
    assert text[0].startswith("error[AMP110] clip-without-unscale: ")
    assert "--> train.py:12:9" in text[1]
    assert any("help: call `scaler.unscale_(optimizer)`" in line for line in text)


@pytest.mark.parametrize(
    ("row", "column", "end_row", "end_column"),
    [(99, 1, 99, 2), (12, 900, 12, 901), (15, 1, 15, 1), (14, 1, 99, 1), (12, 9, 13, 1)],
)
def test_a_span_outside_the_file_does_no_harm(
    clip, make_report, sources, row, column, end_row, end_column
) -> None:
    place = Span(Position(row, column), Position(end_row, end_column))
    text = list(full.render(make_report(replace(clip, span=place)), sources=sources, color=False))
    assert f"--> train.py:{row}:{column}" in text[1]


def test_no_escape_of_a_name_or_a_message_reaches_the_terminal(clip, make_report, sources) -> None:
    evil = replace(clip, filename="a\x1b[31m\nb.py", message="m\x1b]0;title\x07\n::error::x")
    text = "\n".join(full.render(make_report(evil), sources=sources, color=False))
    assert "\x1b" not in text and "\x07" not in text
    assert r"a\x1b[31m\nb.py:12:9" in text


def test_what_a_finding_rests_on_is_said_when_asked(clip, make_report, sources) -> None:
    report = make_report(clip)
    plain = list(full.render(report, sources=sources, color=False))
    told = list(full.render(replace(report, explain=True), sources=sources, color=False))
    assert [line.strip() for line in told if line not in plain] == [
        "= rests on: `scaler` is the gradient scaler (how it is used)",
        "= rests on: `args.clip` is set, which is not its default (an option)",
    ]
