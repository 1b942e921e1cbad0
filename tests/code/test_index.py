"""The index of a project: with any state of it, a search finds what a search in the texts finds."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from amplint.code import index
from amplint.code.index import Index, Searches, decode, encode, forget, load, path_of
from amplint.code.texts import Search, Texts, listing
from amplint.source.sealed import seal

OLD = 1_000_000_000  # seconds since 1970
SEARCHES: tuple[Search, ...] = (
    ("mentioning", "Engine"),
    ("mentioning", "Engine", "run"),
    ("importing", "engines", "lib", "run"),
    ("deriving", "Engine"),
)
TEXTS = (
    "from lib.engines import run\nrun(1)\n",
    "from lib import engines\n",
    "class Fast(Engine):\n    def run(self): pass\n",
    "from lib.engines import Engine as E\nclass Slow(E[int], metaclass=M): pass\n",
    "Engine = run\n",
    "",
)


@pytest.fixture(autouse=True)
def a_later_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Times of files that are written now are old enough to tell their content."""
    forget()
    monkeypatch.setattr("amplint.code.texts.time.time_ns", lambda: 2**62)
    yield
    forget()


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (OLD, OLD + len(text)))


def now(root: Path, known: Index) -> Searches:
    forget()
    return Searches(listing(str(root)), known)


def found(searches: Searches) -> dict[Search, list[str]]:
    return {search: searches.find(search) for search in SEARCHES}


def afresh(root: Path) -> dict[Search, list[str]]:
    texts = Texts(sorted(str(path) for path in root.rglob("*.py")))
    return {search: texts.find(search) for search in SEARCHES}


@pytest.mark.parametrize("seed", range(20))
def test_any_history_of_edits_finds_what_the_texts_hold(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    root = tmp_path.resolve()
    known = Index()
    for _ in range(6):
        for _ in range(chance.randrange(4)):
            path = root / f"p{chance.randrange(3)}" / f"m{chance.randrange(3)}.py"
            if path.exists() and chance.random() < 0.3:
                path.unlink()
            else:
                write(path, chance.choice(TEXTS) + "#" * chance.randrange(9))
        searches = now(root, known)
        assert found(searches) == afresh(root)
        some = chance.sample(SEARCHES, 2)
        known = searches.updated({search: searches.find(search) for search in some})
        known = decode(encode(known, str(root)), str(root))


def test_only_files_that_have_changed_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, text in enumerate(TEXTS):
        write(tmp_path / f"m{number}.py", text)
    known = now(tmp_path, Index()).updated(found(now(tmp_path, Index())))
    write(tmp_path / "m4.py", "class Third(Engine): pass\n")
    read: list[str] = []
    head = "amplint.code.texts._head"
    monkeypatch.setattr(head, lambda path: read.append(Path(path).name) or Path(path).read_bytes())
    assert len(now(tmp_path, known).find(("deriving", "Engine"))) == 3
    assert read == ["m4.py"]


def test_a_file_of_this_moment_is_read_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its next change may come within one tick of the file system's clock."""
    write(tmp_path / "a.py", "Engine\n")
    monkeypatch.undo()
    known = now(tmp_path, Index()).updated({("mentioning", "Engine"): []})
    assert not known.states
    assert len(now(tmp_path, known).find(("mentioning", "Engine"))) == 1


def test_a_link_is_the_file_that_it_names(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    write(root / "a.py", "Engine\n")
    (root / "b.py").symlink_to("a.py")
    assert now(root, Index()).find(("mentioning", "Engine")) == [str(root / "a.py")]


# -- on disk -------------------------------------------------------------------------------


@pytest.fixture
def kept(tmp_path: Path) -> tuple[str, str]:
    """A root with one file, and the folder with its index."""
    root, folder = str(tmp_path.resolve() / "root"), str(tmp_path / "indexes")
    write(Path(root) / "a.py", "Engine\n")
    search: Search = ("mentioning", "Engine")
    known = now(Path(root), Index())
    write(Path(path_of(root, folder)), "")
    updated = known.updated({search: known.find(search)})
    Path(path_of(root, folder)).write_bytes(encode(updated, root))
    return root, folder


def test_an_index_comes_back(kept: tuple[str, str]) -> None:
    assert load(*kept).found == {("mentioning", "Engine"): (f"{kept[0]}/a.py",)}


@pytest.mark.parametrize("cut", [0, 1, 40, 70, 71, 100, -1])
def test_a_damaged_index_is_none(cut: int, kept: tuple[str, str]) -> None:
    path = Path(path_of(*kept))
    path.write_bytes(path.read_bytes()[:cut])
    assert load(*kept) == Index()


@pytest.mark.parametrize(
    "entry",
    [
        None,
        [],
        {},
        {"root": "elsewhere", "states": [["a", "1"]], "found": []},
        {"root": "", "states": [["a"]], "found": []},
        {"root": "", "states": [["a", 1]], "found": []},
        {"root": "", "states": [], "found": [[["mentioning", "x"], [0]]]},
        {"root": "", "states": [["a", "1"]], "found": [[["mentioning", 7], [0]]]},
        {"root": "", "states": [["a", "1"]], "found": [[["mentioning", "x"], ["a"]]]},
    ],
)
def test_what_is_no_index_of_the_folder_is_none(entry: object, kept: tuple[str, str]) -> None:
    root, _ = kept
    if isinstance(entry, dict) and entry.get("root") == "":
        entry = {**entry, "root": root}
    Path(path_of(*kept)).write_bytes(seal(json.dumps(entry).encode()))
    assert load(*kept) == Index()


def test_searches_of_long_ago_do_not_pile_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a.py", "Engine\n")
    monkeypatch.setattr(index, "_MOST_SEARCHES", 2)
    known = Index()
    for word in ("a", "b", "c"):
        known = now(tmp_path, known).updated({("mentioning", word): []})
    assert list(known.found) == [("mentioning", "c")]
