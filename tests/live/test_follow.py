"""Ranks that part are named while the run goes on."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from amplint.live.follow import Follower, Following


def write(folder: Path, rank: int, *lines: dict, cut: int = 0) -> None:
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    with (folder / f"{rank}.0.host.{rank}.jsonl").open("a", encoding="utf-8") as file:
        file.write(text[: len(text) - cut])


def head(rank: int) -> dict:
    return {"k": "head", "rank": rank, "local": rank, "restart": 0, "host": "host", "pid": rank}


def update(number: int, scale: float) -> dict:
    return {"k": "r", "s": 1, "u": number, "t": 0.1, "v": scale, "x": 0, "w": 7}


def test_the_rank_that_differs_is_named_once_all_have_come(tmp_path: Path) -> None:
    follower = Follower(str(tmp_path))
    for rank in (0, 1, 2):
        write(tmp_path, rank, head(rank), update(1, 8.0))
    assert list(follower.look()) == []
    for rank in (0, 1):
        write(tmp_path, rank, update(2, 8.0))
    assert list(follower.look()) == []
    write(tmp_path, 2, update(2, 4.0))
    told = "loss scale from update 2 on (rank 2: 4, the other 2: 8)"
    assert list(follower.look()) == [f"error: ranks disagree about the {told}"]
    assert list(follower.look()) == []


def test_a_line_that_is_being_written_waits(tmp_path: Path) -> None:
    follower = Follower(str(tmp_path))
    write(tmp_path, 0, head(0), update(1, 8.0))
    write(tmp_path, 1, head(1), update(1, 4.0), cut=3)
    assert list(follower.look()) == []
    with (tmp_path / "1.0.host.1.jsonl").open("a", encoding="utf-8") as file:
        file.write("7}\n")
    assert len(list(follower.look())) == 1


def test_what_the_first_rank_tells_itself_is_not_told_again(tmp_path: Path) -> None:
    follower = Follower(str(tmp_path))
    found = {"k": "finding", "slug": "clip-of-scaled", "file": "a.py", "facts": {"scale": 8.0}}
    write(tmp_path, 0, head(0), {**found, "row": 3})
    write(tmp_path, 1, head(1), {**found, "row": 3}, {**found, "row": 4})
    assert list(follower.look()) == []
    (told,) = follower.look()
    assert told.startswith("rank 1: a.py:4: error: AMP110 clip-without-unscale")


def test_lines_of_the_writer_itself_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from amplint.live.watching import Journal, Options

    follower = Follower(str(tmp_path))
    for rank, scale in ((0, 8.0), (1, 4.0)):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setattr("os.getpid", lambda rank=rank: 100 + rank)
        journal = Journal(Options(str(tmp_path)))
        journal.round(SimpleNamespace(number=1, updates=1, scale=scale, word=7), False)  # type: ignore[arg-type]
        journal.recorder.close()
    assert len(list(follower.look())) == 1


def test_records_of_an_earlier_run_and_what_is_no_record_are_passed_over(tmp_path: Path) -> None:
    write(tmp_path, 0, head(0), update(1, 4.0))
    follower = Follower(str(tmp_path))
    (tmp_path / "0.jsonl").mkdir()
    write(tmp_path, 1, {"k": "r"}, head(1), update(1, 8.0))
    write(tmp_path, 2, head(2), update(1, 8.0))
    (tmp_path / "3.jsonl").write_text("[]\n\n7\n", "utf-8")
    assert list(follower.look()) == []
    write(tmp_path, 1, update(2, 8.0))
    write(tmp_path, 2, update(2, 4.0))
    assert len(list(follower.look())) == 1
    (tmp_path / "1.0.host.1.jsonl").unlink()
    assert list(follower.look()) == []


def test_a_rank_that_two_processes_have_is_left_out(tmp_path: Path) -> None:
    follower = Follower(str(tmp_path))
    for rank in (0, 1):
        write(tmp_path, rank, head(rank), update(1, 8.0))
    write(tmp_path, 7, {**head(7), "rank": 1}, update(1, 4.0))
    assert list(follower.look()) == []


def test_a_terminal_that_was_closed_ends_nothing(tmp_path: Path) -> None:
    has_failed = threading.Event()

    def tell(_words: str) -> None:
        has_failed.set()
        raise OSError("closed")

    with Following(str(tmp_path), tell, every=0.01):
        for rank in (0, 1):
            write(tmp_path, rank, head(rank), update(1, 8.0 / (rank + 1)))
        assert has_failed.wait(20)
