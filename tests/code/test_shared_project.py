"""The files of a run ask one project: each is told what it would be told alone, and depends on it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from amplint.rules import known

from amplint.code.index import forget
from amplint.code.lookups import FILES, answer
from amplint.code.project import Project
from amplint.findings import Finding, Severity
from amplint.inspection import FileResult, Task, inspect
from amplint.source.reading import SourceFile

LOOP = """
def train(model, optimizer, loader):
    scaler = build()
    for batch in loader:
        loss = model(batch)
        scaler.scale(loss).backward()
        limit(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
"""
BUILD = "from torch.amp import GradScaler\n\ndef build():\n    return GradScaler('cuda')\n"
LIMIT = "from torch.nn.utils import clip_grad_norm_ as limit\n"
#: Projects by what leads from one file to another.
PROJECTS = {
    "imports": {
        "one.py": "from parts import build\nfrom limits import limit\n" + LOOP,
        "two.py": "from parts import build\nfrom limits import limit\n" + LOOP,
        "parts.py": BUILD,
        "limits.py": LIMIT,
    },
    "a package that hands on": {
        "one.py": "from pack import build, limit\n" + LOOP,
        "two.py": "import pack\nbuild, limit = pack.build, pack.limit\n" + LOOP,
        "pack/__init__.py": "from .parts import *\nfrom .limits import limit\n",
        "pack/parts.py": BUILD,
        "pack/limits.py": LIMIT,
    },
    "one file imports the other": {
        "one.py": "from two import train, build\n\ndef run(model, optimizer, loader):\n"
        "    train(model, optimizer, loader)\n    build().update()\n",
        "two.py": "from parts import build\nfrom limits import limit\n" + LOOP,
        "parts.py": BUILD,
        "limits.py": LIMIT,
    },
    "folders on the path": {
        "one.py": "import sys\nsys.path.append('lib')\nfrom parts import build\nfrom limits import limit\n"
        + LOOP,
        "two.py": "from parts import build\nfrom limits import limit\n" + LOOP,
        "lib/parts.py": BUILD,
        "lib/limits.py": LIMIT,
    },
}


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    forget()
    yield
    forget()


def write(folder: Path, texts: dict[str, str]) -> None:
    (folder / "pyproject.toml").touch()
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


def checked(folder: Path, name: str, text: str | None = None) -> FileResult:
    """What is said of a file, or of a text that is not saved there."""
    text = (folder / name).read_text(encoding="utf-8") if text is None else text
    return inspect(Task(SourceFile(name, text), frozenset(known()), path=str(folder / name)))


def told(result: FileResult) -> list[Finding]:
    assert not result.errors
    return [item for item in result.findings if item.severity is not Severity.INFO]


@pytest.mark.parametrize("texts", PROJECTS.values(), ids=PROJECTS)
def test_no_order_of_files_changes_what_one_is_told_or_depends_on(
    texts: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, texts)
    alone = {}
    for name in texts:
        forget()
        alone[name] = checked(tmp_path, name)
    assert any(told(result) for result in alone.values())
    for order in itertools.permutations(texts):
        forget()
        for name in order:
            result = checked(tmp_path, name)
            assert told(result) == told(alone[name])
            # The stamp of a listing says when it was made, if files are that young.
            needed = {key: said for key, said in alone[name].lookups.items() if key[0] != FILES}
            assert {question: result.lookups.get(question) for question in needed} == needed


def test_a_file_is_read_once_in_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, PROJECTS["imports"])
    read: list[str] = []
    load = Project._load

    def noted(self: Project, path: str) -> object:
        read.append(Path(path).name)
        return load(self, path)

    monkeypatch.setattr(Project, "_load", noted)
    for name in ("one.py", "two.py"):
        checked(tmp_path, name)
    assert sorted(read) == sorted(set(read))


def test_an_edit_between_two_runs_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, PROJECTS["imports"])
    assert told(checked(tmp_path, "one.py"))
    (tmp_path / "limits.py").write_text("def limit(*_): pass\n", encoding="utf-8")
    forget()
    assert not told(checked(tmp_path, "one.py"))


def test_a_text_that_is_not_saved_counts_for_its_own_check_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    texts = PROJECTS["one file imports the other"]
    write(tmp_path, texts)
    before = told(checked(tmp_path, "two.py"))
    edited = checked(tmp_path, "two.py", texts["two.py"].replace("limit(model", "print(model"))
    assert before
    assert not told(edited)
    assert told(checked(tmp_path, "two.py")) == before


def test_stars_of_modules_that_are_not_there_are_not_combined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In fairseq's examples a package tries thirteen modules, most of which are private."""
    monkeypatch.chdir(tmp_path)
    missing = "".join(f"    from .part{number} import *\n" for number in range(13))
    initial = f"from .parts import *\ntry:\n{missing}except ImportError:\n    pass\n"
    texts = {
        "one.py": "from pack import build, limit\n" + LOOP,
        "pack/__init__.py": initial,
        "pack/parts.py": BUILD + LIMIT,
    }
    write(tmp_path, texts)
    result = checked(tmp_path, "one.py")
    assert told(result)
    assert len(result.lookups) < 500


def test_a_file_that_is_edited_in_a_run_is_checked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was found out before the edit holds for the run, and no result rests on the edit."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path, PROJECTS["imports"])
    limits = tmp_path / "limits.py"
    first = checked(tmp_path, "one.py").lookups
    limits.write_text("def limit(*_): pass\n", encoding="utf-8")
    second = checked(tmp_path, "two.py").lookups
    question = ("content", str(limits.resolve()))
    assert first[question] == second[question] != answer(question)


def test_folders_that_only_the_edited_text_adds_are_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    texts = PROJECTS["folders on the path"]
    write(tmp_path, texts)
    lost = texts["one.py"].replace("'lib'", "'elsewhere'")
    assert not told(checked(tmp_path, "one.py", lost))
    assert told(checked(tmp_path, "one.py"))
