"""Ranks that part are named while the run goes on."""

from __future__ import annotations

import json
from pathlib import Path

from amplint.live.follow import Follower


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
