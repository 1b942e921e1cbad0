"""Discovery: which files of a tree are checked, under which name, in which order."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from amplint.config import Settings
from amplint.errors import ConfigError
from amplint.findings import FileError, Remark
from amplint.source import discovery
from amplint.source.discovery import discover


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(*names: str) -> None:
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text("x = 1\n")


def found(*paths: str, **settings: object) -> list[str]:
    """Names of the files; fails on errors."""
    items = list(discover(paths or ["."], Settings(**settings)))  # type: ignore[arg-type]
    assert not [item for item in items if isinstance(item, FileError)]
    return [item.filename for item in items if not isinstance(item, Remark)]


def errors(*paths: str, **settings: object) -> list[tuple[str, str]]:
    items = discover(paths, Settings(**settings))  # type: ignore[arg-type]
    return [(item.filename, item.message) for item in items if isinstance(item, FileError)]


def test_a_folder_is_walked_in_order() -> None:
    write("b.py", "a/z.py", "a/b/c.py", "a/a.pyi", "c.txt", "d.ipynb", "e.pyc", "a-b.py", "B.py")
    assert found() == ["B.py", "a/a.pyi", "a/b/c.py", "a/z.py", "a-b.py", "b.py"]


def test_arguments_keep_their_order() -> None:
    write("a.py", "b/c.py", "d.py")
    assert found("d.py", "b", "a.py") == ["d.py", "b/c.py", "a.py"]


@pytest.mark.parametrize("path", ["sub", "./sub", "sub/", "../here/sub", "sub/../sub"])
def test_names_are_relative_to_the_working_directory(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    write("sub/a.py")
    assert found(path) == ["sub/a.py"]
    assert found(str(tmp_path / "here" / "sub" / "a.py")) == ["sub/a.py"]


def test_names_outside_the_working_directory() -> None:
    write("a.py", "sub/b.py")
    os.chdir("sub")
    assert found("../a.py") == ["../a.py"]


def test_an_explicit_file_needs_no_suffix() -> None:
    write("train", "setup.cfg")
    items = list(discover(["train", "setup.cfg"], Settings()))
    assert [(item.filename, item.explicit) for item in items] == [
        ("train", True),
        ("setup.cfg", True),
    ]


def test_a_file_of_a_folder_is_not_explicit() -> None:
    write("a.py")
    assert [item.explicit for item in discover(["."], Settings())] == [False]


def test_stdin() -> None:
    write("a.py")
    assert found("-", "a.py") == ["<stdin>", "a.py"]
    assert found("-", stdin_filename=os.path.abspath("src/new.py")) == ["src/new.py"]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("gone.py", "does not exist"),
        ("gone/", "does not exist"),
        ("a.py/b.py", "cannot be read: Not a directory"),
        ("n.ipynb", "notebooks are not supported yet"),
        ("null\0.py", "cannot be read: "),
        ("", "does not exist"),
    ],
)
def test_a_path_that_cannot_be_checked(path: str, message: str) -> None:
    write("a.py", "n.ipynb")
    [(filename, found_message)] = errors(path)
    assert filename == path.rstrip("/")
    assert found_message.startswith(message)


# -- exclude ---------------------------------------------------------------------------


def test_environments_and_caches_are_passed_over() -> None:
    write(
        "a.py", ".venv/b.py", "x/node_modules/c.py", "build/d.py", "__pycache__/e.py", "dist/f.py"
    )
    write("lib/site-packages/g.py", ".git/h.py", "builder/i.py", "venv.py")
    assert found() == ["a.py", "builder/i.py", "venv.py"]


@pytest.mark.parametrize(
    ("pattern", "left"),
    [
        ("b.py", ["a.py", "s/a.py", "s/t/a.py"]),
        ("s", ["a.py", "b.py"]),
        ("s/", ["a.py", "b.py"]),
        ("./s", ["a.py", "b.py"]),
        ("/s", ["a.py", "b.py"]),
        ("t", ["a.py", "b.py", "s/a.py", "s/b.py"]),
        ("s/t", ["a.py", "b.py", "s/a.py", "s/b.py"]),
        ("s/*.py", ["a.py", "b.py", "s/t/a.py", "s/t/b.py"]),
        ("**/t/a.py", ["a.py", "b.py", "s/a.py", "s/b.py", "s/t/b.py"]),
        ("[a]*", ["b.py", "s/b.py", "s/t/b.py"]),
        ("a.py/", ["a.py", "b.py", "s/a.py", "s/b.py", "s/t/a.py", "s/t/b.py"]),
    ],
)
@pytest.mark.parametrize("key", ["exclude", "extend_exclude"])
def test_exclude(pattern: str, left: list[str], key: str) -> None:
    write("a.py", "b.py", "s/a.py", "s/b.py", "s/t/a.py", "s/t/b.py")
    assert sorted(found(**{key: (pattern,)})) == left


def test_patterns_are_relative_to_the_root(tmp_path: Path) -> None:
    write("s/a.py", "s/t/a.py")
    os.chdir("s")
    assert found(extend_exclude=("/s/t",), root=str(tmp_path)) == ["a.py"]
    assert found(extend_exclude=("/t",), root=str(tmp_path)) == ["a.py", "t/a.py"]


def test_folders_above_the_root_do_not_count(tmp_path: Path) -> None:
    write("build/project/a.py", "build/project/build/b.py")
    os.chdir("build/project")
    assert found() == ["a.py"]
    assert found("a.py", force_exclude=True) == ["a.py"]


def test_explicit_paths_are_checked_even_if_excluded() -> None:
    write(".venv/a.py", "build/b.py", "build/lib/c.py", "gen_pb2.py")
    names = [".venv/a.py", "build", "gen_pb2.py"]
    expected = [".venv/a.py", "build/b.py", "build/lib/c.py", "gen_pb2.py"]
    assert found(*names, extend_exclude=("*_pb2.py",)) == expected


def test_a_named_folder_keeps_the_other_patterns() -> None:
    write("vendored/a.py", "vendored/a_pb2.py", "vendored/s/vendored/b.py")
    assert found("vendored", extend_exclude=("/vendored", "*_pb2.py")) == [
        "vendored/a.py",
        "vendored/s/vendored/b.py",
    ]


@pytest.mark.parametrize("path", [".venv/a.py", "build/lib/b.py", "build", "gen_pb2.py", "s/t"])
def test_force_exclude(path: str) -> None:
    write(".venv/a.py", "build/lib/b.py", "gen_pb2.py", "s/t/c.py", "kept.py")
    patterns = ("*_pb2.py", "s/t")
    assert found(path, "kept.py", force_exclude=True, extend_exclude=patterns) == ["kept.py"]


def test_a_malformed_pattern() -> None:
    write("a.py")
    with pytest.raises(ConfigError, match="malformed pattern"):
        found(extend_exclude=("!",))


# -- .gitignore ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ignore_files", "left"),
    [
        ({".gitignore": "s/\n"}, ["a.py"]),
        ({".gitignore": "s\n"}, ["a.py"]),
        ({".gitignore": "a.py\n"}, ["s/b.py", "s/t/b.py"]),
        ({".gitignore": "/a.py\n"}, ["s/a.py", "s/b.py", "s/t/a.py", "s/t/b.py"]),
        ({".gitignore": "# s\n\n*.txt\n"}, ["a.py", "s/a.py", "s/b.py", "s/t/a.py", "s/t/b.py"]),
        ({".gitignore": "*\n!s\n!s/b.py\n"}, ["s/b.py"]),
        ({".gitignore": "*\n!*/\n!b.py\n"}, ["s/b.py", "s/t/b.py"]),
        ({".gitignore": "s/\n!s/b.py\n"}, ["a.py"]),  # git does not enter an ignored folder
        ({"s/.gitignore": "a.py\n"}, ["a.py", "s/b.py", "s/t/b.py"]),
        ({"s/.gitignore": "/a.py\n"}, ["a.py", "s/b.py", "s/t/a.py", "s/t/b.py"]),
        (
            {".gitignore": "b.py\n", "s/.gitignore": "!b.py\n"},
            ["a.py", "s/a.py", "s/b.py", "s/t/a.py", "s/t/b.py"],
        ),
        ({".gitignore": "!\nb.py\n"}, ["a.py", "s/a.py", "s/t/a.py"]),
        ({".gitignore": "\ufeffa.py\r\n"}, ["s/b.py", "s/t/b.py"]),
    ],
)
def test_gitignore_as_git_does(ignore_files: dict[str, str], left: list[str]) -> None:
    write("a.py", "s/a.py", "s/b.py", "s/t/a.py", "s/t/b.py")
    for name, text in ignore_files.items():
        Path(name).write_text(text, encoding="utf-8", newline="")
    assert found() == left
    assert _known_to_git() == left


def test_malformed_lines_of_ignore_files_are_told() -> None:
    """The asked folder is named in its parent's file: rows stay those of the file."""
    write("s/a.py")
    Path(".git").mkdir()
    Path(".gitignore").write_text("s\n[b-a]\n[\n")
    Path("s/.gitignore").write_text("x\\\n")
    remarks = [item for item in discover(["s"], Settings()) if isinstance(item, Remark)]
    start = "malformed pattern, this line is ignored: "
    assert remarks == [
        Remark(".gitignore", 2, f"{start}`[b-a]` has the empty range b-a (and 1 more)"),
        Remark("s/.gitignore", 1, f"{start}`x\\` ends with a backslash"),
    ]


def _known_to_git() -> list[str]:
    """What git itself would add; the ground truth."""
    subprocess.run(["git", "init", "-q"], check=True)
    command = ["git", "ls-files", "--others", "--exclude-standard", "*.py"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True)
    return sorted(listed.stdout.split())


def test_ignore_files_of_the_repository_above_count() -> None:
    write("r/.git/config", "r/s/t/a.py", "r/s/t/b.py", "r/s/t/c.py")
    Path(".gitignore").write_text("c.py\n")  # outside of the repository
    Path("r/.gitignore").write_text("a.py\n")
    Path("r/s/.gitignore").write_text("t/b.py\n")
    assert found("r/s/t") == ["r/s/t/c.py"]


def test_a_named_folder_is_checked_even_if_ignored() -> None:
    write(".git/config", "out/a.py", "out/gen.py", "out/s/b.py")
    Path(".gitignore").write_text("out/\ngen.py\n")
    assert found("out") == ["out/a.py", "out/s/b.py"]
    assert found("out/gen.py") == ["out/gen.py"]
    assert found() == []


def test_gitignore_can_be_left_aside() -> None:
    write("a.py")
    Path(".gitignore").write_text("*\n")
    assert found(respect_gitignore=False) == ["a.py"]


def test_an_ignore_file_of_odd_bytes_or_kind() -> None:
    write("a.py", "b/c.py")
    Path(".gitignore").write_bytes(b"\xff\xfe\nb\n")
    Path("b/.gitignore").mkdir(parents=True)
    assert found() == ["a.py"]


# -- links and odd files ---------------------------------------------------------------


def test_each_file_once() -> None:
    write("a.py", "s/b.py")
    os.symlink("../a.py", "s/c.py")
    assert found("a.py", "./a.py", os.path.abspath("a.py"), ".", "s") == ["a.py", "s/b.py"]


def test_links_to_folders_are_not_followed() -> None:
    write("s/a.py")
    os.symlink(".", "s/loop")
    os.symlink("..", "s/up")
    os.symlink("s", "t")
    assert found() == ["s/a.py"]
    assert found("t") == ["t/a.py"]


def test_a_dangling_link() -> None:
    os.symlink("nowhere", "a.py")
    os.symlink("user@host.1", ".#lock.py")
    os.symlink("b.py", "b.py")
    assert errors(".") == [
        ("a.py", "cannot be read: No such file or directory"),
        ("b.py", "cannot be read: Too many levels of symbolic links"),
    ]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in the file system here")
def test_a_pipe_in_a_folder_is_no_file() -> None:
    write("a.py")
    os.mkfifo("pipe.py")
    assert found() == ["a.py"]


def test_a_folder_that_cannot_be_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    write("a.py", "s/b.py")
    scandir = os.scandir

    def refuse(path: str) -> object:
        if path.endswith("s"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(discovery.os, "scandir", refuse)
    assert errors(".") == [("s", "cannot be listed: Permission denied")]
    assert "a.py" in [item.filename for item in discover(["."], Settings())]


@pytest.mark.skipif(sys.platform != "linux", reason="file names are text elsewhere")
def test_a_name_that_is_no_utf_8() -> None:
    name = os.fsdecode(b"caf\xe9.py")
    write(name)
    [item] = discover(["."], Settings())
    assert item.filename == "caf\ufffd.py"
    assert os.path.exists(item.path)


def test_very_deep_folders() -> None:
    for _ in range(300):
        os.mkdir("d")
        os.chdir("d")
    write("a.py")
    os.chdir("../" * 300)
    assert found() == ["d/" * 300 + "a.py"]
