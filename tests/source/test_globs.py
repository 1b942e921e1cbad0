"""Patterns mean what they mean to git."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from amplint.source.globs import Globs, Malformed, parse

NAMES = ("a", "b", "ab", "aab", "a.py", "b.py", ".a", "a b", "[a]", "a*b", "é.py", "A")
PIECES = (
    *("a", "b", "ab", "a.py", "*", "*.py", "?", "??", "[ab]", "[!a]*", "[^b]?", "[a-c]*", "**"),
    *("a*", "*b", "a**b", "[]a]", "[[:alpha:]]", "[[:upper:]]", "\\[a\\]", "a\\*b", "[a", "[z-a]"),
    *("*a*b*", "a ", "a\\ b", "#a", "\\#a", "*.*", "[a\\]b]", "[--a]", "é*", "a\\"),
)


def _pattern(chance: random.Random) -> str:
    pieces = [chance.choice(PIECES) for _ in range(chance.choice((1, 1, 2, 3)))]
    text = "/".join(pieces)
    text = chance.choice(("", "", "", "/", "**/", "!")) + text
    return text + chance.choice(("", "", "", "/", "/**", "/*"))


@pytest.mark.parametrize("seed", range(60))
def test_as_git_does(tmp_path: Path, seed: int) -> None:
    """Paths of one to three parts; git is asked without anything of it on disk."""
    chance = random.Random(seed)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    paths = ["/".join(chance.choices(NAMES, k=chance.randint(1, 3))) for _ in range(40)]
    for _ in range(15):
        lines = [_pattern(chance) for _ in range(chance.randint(1, 4))]
        (tmp_path / ".gitignore").write_text("\n".join(lines) + "\n")
        done = subprocess.run(
            ["git", "-c", "core.quotepath=off", "check-ignore", "--no-index", "--stdin", "-z"],
            input="\0".join(paths),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        ignored = set(done.stdout.split("\0")) - {""}
        assert {path for path in paths if _is_ignored(path, Globs(lines))} == ignored, lines


def _is_ignored(path: str, globs: Globs) -> bool:
    """A file, by its own path unless a folder above it is ignored."""
    parts = path.split("/")
    folders = ("/".join(parts[:end]) for end in range(1, len(parts)))
    return any(globs.decide(folder, is_folder=True) for folder in folders) or bool(
        globs.decide(path, is_folder=False)
    )


@pytest.mark.parametrize("line", ["!", "/", "a\\", "[", "[a", "[z-a]", "[!]"])
def test_what_is_no_pattern(line: str) -> None:
    with pytest.raises(Malformed):
        parse(line)
    globs = Globs([line, "x"])
    assert globs.decide("x", is_folder=False)
    assert [number for number, _ in globs.malformed] == [1]
    with pytest.raises(Malformed, match="pattern 2"):
        Globs(["x", line], strict=True)


@pytest.mark.parametrize("line", ["", "   ", "# a", "#"])
def test_what_says_nothing(line: str) -> None:
    assert parse(line) is None


@pytest.mark.parametrize("line", ["[z-ab]", "[!z-a]", "[[:alpha:]z-a]"])
def test_a_range_without_members_among_others(line: str) -> None:
    """Git matches the rest of it, so that the line is not without effect."""
    globs = Globs([line])
    assert (globs.decide("b", is_folder=False), globs.malformed) == (True, [])
    with pytest.raises(Malformed, match="empty range z-a"):
        Globs([line], strict=True)
