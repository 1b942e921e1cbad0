"""Records, ranks and reports without a training."""

from __future__ import annotations

import os
import re
import threading
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from amplint.rules import TABLE
from click.testing import CliRunner

from amplint.cli.main import cli
from amplint.live import curve, report
from amplint.live.catalogue import ENTRIES, words
from amplint.live.merge import Process, Round, Run, Seen, read_run
from amplint.live.page import render
from amplint.live.ranks import disagreements
from amplint.live.record import Recorder


def rounds(*scales: float, skipped: tuple[int, ...] = (), word: int = 7) -> list[Round]:
    return [Round(u, u / 10, s, u in skipped, word) for u, s in enumerate(scales, 1)]


def process(rank: int | None, *scales: float, ended: bool = True, **more: object) -> Process:
    made = Process(rank, 0, "host", 100 + (rank or 0), ended=ended)
    made.rounds[1] = rounds(*scales, **more)  # type: ignore[arg-type]
    return made


def other(rank: int, *scales: float) -> Process:
    made = process(rank, *scales)
    made.pid += 1000
    return made


# -- writing


def test_what_cannot_be_written_is_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    complaints: list[str] = []
    recorder = Recorder(str(tmp_path / "file" / "record"), complaints.append)
    for number in range(3000):
        recorder.write(k="steps", n=number)
    assert recorder.kept is not None
    assert b'"n":2999' in recorder.kept[-1]
    assert len(recorder.kept) == 2000
    assert len(complaints) == 1
    recorder.close()


def test_a_disk_that_fills_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that was cut off does not spoil what is written when there is room again."""
    recorder = Recorder(str(tmp_path), lambda _words: None)
    recorder.write(k="steps", n=1)
    plain, is_full = os.write, True

    def write(file: int, data: bytes) -> int:
        return plain(file, data[:5]) if is_full else plain(file, data)

    monkeypatch.setattr(os, "write", write)
    recorder.write(k="steps", n=2)
    recorder.write(k="steps", n=3)
    is_full = False
    recorder.close()
    (found,) = read_run(str(tmp_path)).processes
    assert (found.steps, found.unread) == (3, 1)


def test_two_threads_that_write_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that comes while another thread makes the file waits for it, behind the first one."""
    recorder = Recorder(str(tmp_path), lambda _words: None)
    plain, is_opening, may_open = os.open, threading.Event(), threading.Event()

    def slow(*given: Any) -> int:
        is_opening.set()
        may_open.wait(60)
        return plain(*given)

    monkeypatch.setattr(os, "open", slow)
    writers = [
        threading.Thread(target=recorder.write, kwargs={"k": "at", "file": "train.py", "row": row})
        for row in (1, 2)
    ]
    writers[0].start()
    assert is_opening.wait(60)
    writers[1].start()
    writers[1].join(0.05)
    may_open.set()
    for writer in writers:
        writer.join()
    monkeypatch.undo()
    recorder.close()
    (found,) = read_run(str(tmp_path)).processes
    assert found.places == {("train.py", 1), ("train.py", 2)}


def test_a_process_that_does_nothing_leaves_nothing(tmp_path: Path) -> None:
    Recorder(str(tmp_path / "record"), lambda _words: None).close()
    assert not (tmp_path / "record").exists()


# -- ranks


@pytest.mark.parametrize(
    ("ranks", "found"),
    [
        ([process(0, 8.0, 8.0), process(1, 8.0, 8.0)], []),
        ([process(0, 8.0, 8.0), process(1, 8.0, 4.0)], [("loss scale", 2)]),
        ([process(0, 8.0), process(1, 8.0, skipped=(1,))], [("skipped steps", 1)]),
        ([process(0, 8.0), process(1, 8.0, word=8)], [("order of calls", 1)]),
        ([process(0, 8.0, 8.0), process(1, 8.0)], [("number of updates", 2)]),
        # Killed: nobody knows what it would have done.
        ([process(0, 8.0, 8.0), process(1, 8.0, ended=False)], []),
        # A rank twice: nobody knows which of the two it is.
        ([process(0, 8.0), process(1, 8.0), other(1, 4.0, 4.0)], []),
        # No rank, no job: these are two programs.
        ([process(None, 8.0), process(None, 4.0)], []),
    ],
)
def test_ranks_are_lined_up_by_update(ranks: list[Process], found: list) -> None:
    assert [(each.what, each.update) for each in disagreements(ranks)] == found


def test_the_words_name_every_rank() -> None:
    (found,) = disagreements([process(0, 8.0, 8.0), process(1, 8.0, 4.0)])
    assert found.level == "error"
    told = "ranks disagree about the loss scale from update 2 on (rank 0: 8, rank 1: 4)"
    assert found.words() == told


# -- words and reports


def test_every_entry_has_a_rule_and_words() -> None:
    for slug, entry in ENTRIES.items():
        assert entry.code == "" or entry.code in TABLE, slug
        assert "{" not in words(slug, {"scale": 2.0, "bound": 1.0, "was": 4.0})
        assert words(slug, {})


def seen(slug: str = "clip-of-scaled", first: int = 3) -> Seen:
    facts = {"scale": 1024.0, "bound": 1.0}
    entry = ENTRIES[slug]
    return Seen(
        *(slug, entry.code, entry.level, "train<b>.py", 12, ("", 0), words(slug, facts)),
        *(("rank 0",), 2, first, first + 1, facts, (("scale", "train.py", 11),), 0.5),
    )


def run(*processes: Process, findings: tuple[Seen, ...] = ()) -> Run:
    return Run("record", processes, findings, {"command": ["python", "train.py"]})


def test_the_text() -> None:
    headline, *lines = report.text(run(process(0, 8.0, 4.0, skipped=(2,)), findings=(seen(),)))
    assert headline.startswith("train<b>.py:12: error: AMP110 clip-without-unscale: gradients")
    assert headline.endswith("(1024): the threshold of 1 acts as 0.000976562")
    assert lines == [
        "    seen 2 times, after update 3 to 4",
        "rank 0: scaler 1: 2 updates, 1 skip, loss scale 4 to 8, 4 at the end",
        "amplint watched this run: 1 error.",
    ]


def test_two_runs_beside_each_other() -> None:
    first = run(process(0, 8.0, 8.0, 8.0), findings=(seen(),))
    second = run(process(0, 8.0, 4.0, 4.0, skipped=(2,)))
    lines = list(report.comparison(first, second))
    assert lines[0].startswith("only in record: train<b>.py:12: AMP110")
    assert lines[1:] == [
        "rank 0, scaler 1: differ from update 2 on: scale 8, step taken, and scale 4, step skipped"
    ]


def test_what_only_one_of_two_runs_has_is_said_of_either() -> None:
    alike, plain_one = process(0, 8.0), process(1)
    plain_one.rounds.clear()
    plain_one.steps = 5
    first, second = run(alike, plain_one), run(alike, plain_one, process(2, 8.0))
    common = [
        "no finding is in one of the two alone",
        "rank 0, scaler 1: alike in all 1 update",
        "rank 1: 5 steps without a scaler, and 5",
    ]
    assert list(report.comparison(first, first)) == common
    only = "rank 2, scaler 1: only in record"
    assert list(report.comparison(first, second)) == [*common, only]
    assert list(report.comparison(second, first)) == [*common, only]


def test_options_that_a_comparison_does_not_have(tmp_path: Path) -> None:
    """They are refused, not passed over."""
    told = CliRunner().invoke(cli, ["report", str(tmp_path), str(tmp_path), "--json"])
    assert told.exit_code == 2
    assert "compared as text alone" in told.output


def test_a_long_curve_keeps_its_spikes() -> None:
    scales = [1024.0] * 50_000
    scales[31_337] = 2.0
    kept = curve.thinned([curve.Point(*each) for each in enumerate(scales, 1)])
    assert len(kept) <= 2000
    assert min(each.value for each in kept) == 2.0
    assert kept == sorted(kept)


class _Page(HTMLParser):
    """What a page is made of."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.links: list[str] = []
        self.seen: list[str] = []
        self.headings: list[int] = []

    _VOID = ("meta", "line", "path", "polyline", "br", "th", "td", "li")

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.seen.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href")]
        if re.fullmatch(r"h\d", tag):
            self.headings.append(int(tag[1]))
        if tag not in self._VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._VOID:
            return
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


SAMPLES = (
    {
        "k": "kinds",
        "m": {"a<b>": ["Linear", "torch.float32", "torch.float16", "", "", "bf16_compress_hook"]},
        "compiled": 0,
    },
    {"k": "sample", "s": 1, "u": 2, "n": [80.0, 10.0], "m": {"a<b>": [100, 5, 60, 0, 64.0, 10, 9]}},
    {"k": "sample", "s": 1, "u": 3, "n": [None, None], "m": {"a<b>": [100, 0, 0, 7, None, 0, 0]}},
    {
        "k": "origin",
        "u": 3,
        "way": "output of",
        "module": "a<b>",
        "kind": "Linear",
        "file": "",
        "row": 0,
    },
)


def test_samples_in_words() -> None:
    made = process(0, 8.0)
    for line in SAMPLES:
        made.samples.take(line)
    assert list(made.samples.lines()) == [
        "2 samples: gradients smaller than float16 can hold exactly: 60% of a<b>",
        "weights in half precision that a step did not move: 90% of a<b>",
        "the first inf or NaN, before update 3: output of a<b> (Linear)",
    ]
    layer = made.samples.as_json()["modules"]["a<b>"]
    assert (layer["bad"], layer["values"], layer["ran"]) == (7, 100, "torch.float16")
    assert round(layer["headroom"], 3) == 9.999


def test_the_page_is_whole_loads_nothing_and_can_be_read_aloud() -> None:
    made = run(process(0, 8.0, 4.0, 4.0, skipped=(2,)), process(1, 8.0), findings=(seen(),))
    for line in SAMPLES:
        made.processes[0].samples.take(line)
    text = "\n".join(render(made))
    page = _Page()
    page.feed(text)
    assert (page.wrong, page.links) == ([], [])
    assert "script" not in page.seen
    assert "url(" not in text
    assert "train&lt;b&gt;.py" in text and "<b>" not in text
    assert page.seen.count("svg") == 4
    assert text.count('role="img"') == 3
    assert text.count("<desc ") == text.count("aria-labelledby") == 3
    assert "<td>Linear<td>float32<td>float16<td><td><td>bf16_compress_hook</tr>" in text
    assert 'lang="en"' in text and "width=device-width" in text
    assert page.headings[0] == 1
    assert all(b - a <= 1 for a, b in zip(page.headings, page.headings[1:]))


def test_an_empty_run_has_a_page(tmp_path: Path) -> None:
    assert "No gradient scaler was at work" in "".join(render(read_run(str(tmp_path))))
