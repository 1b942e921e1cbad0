"""Searches in all texts of a project: what they find, and what tells that they would again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from amplint.code.index import forget
from amplint.code.lookups import FILES, Lookups, still_hold
from amplint.code.texts import Texts, listing

OLD = 1_000_000_000  # seconds since 1970


@pytest.fixture(autouse=True)
def a_new_run() -> Iterator[None]:
    forget()
    yield
    forget()


def write(path: Path, text: str, *, old: bool = False) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    if old:
        os.utime(path, (OLD, OLD))
    return path


def importing(folder: Path, text: str, name: str = "finish") -> bool:
    """Whether a file of the package `jobs` may call `name` of `lib/steps.py`."""
    path = str(write(folder / "jobs" / "caller.py", text))
    return Texts([path]).importing("steps", "lib", name) == [path]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import steps\nsteps.finish(1)\n", True),
        ("from steps import finish\nfinish (1)\n", True),
        ("from lib.steps import finish\nfinish(1)\n", True),
        ("from project.lib.steps import finish\nfinish(1)\n", True),
        ("from lib import (\n    other,\n    steps,\n)\nsteps.finish(1)\n", True),
        ("from ..lib.steps import finish\nfinish(1)\n", True),
        ("from .lib.steps import finish\nfinish(1)\n", True),
        ("if x:\n    from lib import steps as s\ns.finish(1)\n", True),
        ("import lib\nlib.steps.finish(1)\n", True),
        ("import lib\nlib.other.finish(1)\n", False),
        # Its own package is `jobs`: that is another module of the same name.
        ("from .steps import finish\nfinish(1)\n", False),
        ("from other.steps import finish\nfinish(1)\n", False),
        ("from lib.footsteps import finish\nfinish(1)\n", False),
        ("import lib.steps\npartial(\n    lib.steps.finish, 1)(2)\n", True),
        ("from lib.steps import finish\nfunctools.partial(finish)()\n", True),
        ("from lib.steps import finish\npartial(run, finish)(2)\n", False),
        # Imported, but not called.
        ("from lib.steps import finish\nrun(finish)\n", False),
        ("from lib.steps import finish\ndef finish(x): pass\n", False),
        ("from lib.steps import finish\nrefinish(1)\n", False),
        ("from lib.steps import finish\nclass finish(Base): pass\n", False),
        # Called, but imported from nowhere.
        ("steps = finish(1)\n", False),
        ("", False),
    ],
)
def test_who_may_call_a_function(text: str, expected: bool, tmp_path: Path) -> None:
    assert importing(tmp_path, text) is expected


def test_a_relative_import_counts_for_the_folder_that_it_means(tmp_path: Path) -> None:
    inside = write(tmp_path / "lib" / "a.py", "from .steps import finish\nfinish(1)\n")
    below = write(tmp_path / "lib" / "sub" / "b.py", "from ..steps import finish\nfinish(1)\n")
    beside = write(tmp_path / "jobs" / "c.py", "from .steps import finish\nfinish(1)\n")
    paths = [str(path) for path in (inside, below, beside)]
    assert Texts(paths).importing("steps", "lib", "finish") == paths[:2]


def test_more_dots_than_folders() -> None:
    assert Texts(["caller.py"]).importing("steps", "lib", "finish") == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("autocast",), ["a.py", "b.py"]),
        (("autocast", "steps"), ["a.py"]),
        (("cast",), []),  # identifiers are whole words
        (("lass", "Step"), []),
        ((), ["a.py", "b.py"]),
    ],
)
def test_who_mentions_words(words: tuple[str, ...], expected: list[str], tmp_path: Path) -> None:
    paths = [
        str(write(tmp_path / "a.py", "import steps\nautocast()\n")),
        str(write(tmp_path / "b.py", "class Step: pass\nautocast\n")),
    ]
    assert [os.path.basename(path) for path in Texts(paths).holding(words)] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("class A(Step): pass\n", True),
        ("class A(lib.Step, Other): pass\n", True),
        ("class A(\n    Other,  # first\n    Step,\n): pass\n", True),
        ("class A(Generic[Step], metaclass=Meta): pass\n", True),
        ("if x:\n    class A (Step): pass\n", True),
        ("from lib import Step as Base\nclass A(Base): pass\n", True),
        ("from lib import Step as Base\nclass A(Other): pass\n", False),
        ("class Step(Other): pass\n", False),
        ("class A(Footstep, Stepper): pass\n", False),
        ("class A(Other): step = Step()\n", False),
        ("Step\nclass A: pass\n", False),
    ],
)
def test_who_may_derive_from_a_class(text: str, expected: bool, tmp_path: Path) -> None:
    path = str(write(tmp_path / "a.py", text))
    assert Texts([path]).find(("deriving", "Step")) == ([path] if expected else [])


# -- stamps --------------------------------------------------------------------------------


def test_a_file_of_this_moment_has_no_stamp(tmp_path: Path) -> None:
    """Its next change may come within one tick of the file system's clock."""
    write(tmp_path / "a.py", "x = 1\n")
    assert listing(str(tmp_path)).stamp == ""


def stamp(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The stamp as it is ten seconds from now."""
    forget()
    now = os.stat(folder).st_ctime_ns + 10**10
    monkeypatch.setattr("amplint.code.texts.time.time_ns", lambda: now)
    return listing(str(folder)).stamp


def test_each_change_of_a_file_changes_the_stamp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a.py", "x = 1\n", old=True)
    seen = [stamp(tmp_path, monkeypatch)]
    assert seen[0]
    assert stamp(tmp_path, monkeypatch) == seen[0]
    for text in ("x = 22\n", "x = 33\n"):  # another length, then the same
        write(path, text, old=True)
        seen.append(stamp(tmp_path, monkeypatch))
    write(tmp_path / "b.py", "", old=True)
    seen.append(stamp(tmp_path, monkeypatch))
    path.unlink()
    seen.append(stamp(tmp_path, monkeypatch))
    assert len(set(seen)) == len(seen)


def test_an_equal_stamp_saves_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a.py", "autocast\n", old=True)
    assert stamp(tmp_path, monkeypatch)
    lookups = Lookups()
    assert len(lookups.mentioning(str(tmp_path), "autocast")) == 1
    asked: list[str] = []

    def ask(question: tuple[str, ...]) -> object:
        asked.append(question[0])
        return lookups.answers[question]

    assert still_hold(lookups.answers, ask)  # type: ignore[arg-type]
    assert set(asked) == {FILES}


def test_a_search_is_repeated_where_the_stamp_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a.py", "autocast\n", old=True)
    assert stamp(tmp_path, monkeypatch)
    lookups = Lookups()
    lookups.mentioning(str(tmp_path), "autocast")
    write(tmp_path / "b.py", "nothing\n", old=True)
    assert stamp(tmp_path, monkeypatch) != lookups.answers[FILES, str(tmp_path)]
    assert still_hold(lookups.answers)  # the same files mention it
    write(tmp_path / "b.py", "autocast\n", old=True)
    assert stamp(tmp_path, monkeypatch)
    assert not still_hold(lookups.answers)
