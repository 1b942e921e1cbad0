"""Replacing a file: whole or not at all, and nothing else about it changes."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from amplint.fixing.files import Unwritable, encoded, replace_file
from amplint.source.reading import decode


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_bytes(b"old\r\n")
    return path


def only(path: Path) -> bool:
    """Whether nothing was left lying beside the file."""
    return sorted(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o755])
def test_content_is_replaced_and_the_mode_kept(path: Path, mode: int) -> None:
    path.chmod(mode)
    replace_file(str(path), b"new", b"old\r\n")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert only(path)


@pytest.mark.parametrize("name", ["fsync", "chmod", "replace"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_on_the_way_leaves_the_original(
    path: Path, monkeypatch: pytest.MonkeyPatch, name: str, error: BaseException
) -> None:
    def fail(*args: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(os, name, fail)
    expected = Unwritable if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(expected):
        replace_file(str(path), b"new", b"old\r\n")
    monkeypatch.undo()
    assert path.read_bytes() == b"old\r\n"
    assert only(path)


def test_a_link_stays_and_its_file_is_replaced(path: Path, tmp_path: Path) -> None:
    folder = tmp_path / "links"
    folder.mkdir()
    link = folder / "link.py"
    link.symlink_to(path)
    replace_file(str(link), b"new", b"old\r\n")
    assert link.is_symlink()
    assert path.read_bytes() == b"new"
    assert only(link)


def test_a_link_does_not_lead_out_of_the_folder(path: Path, tmp_path: Path) -> None:
    folder = tmp_path / "links"
    folder.mkdir()
    (folder / "link.py").symlink_to(path)
    (folder / "inner.py").write_bytes(b"old\r\n")
    (folder / "near.py").symlink_to("inner.py")
    with pytest.raises(Unwritable, match="leads out of"):
        replace_file(str(folder / "link.py"), b"new", b"old\r\n", str(folder))
    replace_file(str(folder / "near.py"), b"new", b"old\r\n", str(folder))
    assert path.read_bytes() == b"old\r\n"
    assert (folder / "inner.py").read_bytes() == b"new"


def test_a_hard_linked_file_stays(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    os.link(path, other)
    with pytest.raises(Unwritable, match="hard-linked"):
        replace_file(str(path), b"new", b"old\r\n")
    assert path.samefile(other)
    assert path.read_bytes() == b"old\r\n"


_KILLED = """
import os, signal, sys
from amplint.fixing import files
os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)
files.replace_file(sys.argv[1], b"new", b"old\\r\\n")
"""


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="no files without a name here")
def test_a_kill_leaves_nothing_beside_the_file(path: Path) -> None:
    """While it is written: a name exists only between two calls of the system."""
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, str(path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    assert path.read_bytes() == b"old\r\n"
    assert only(path)


def test_a_read_only_file_stays(path: Path) -> None:
    path.chmod(0o444)
    with pytest.raises(Unwritable, match="read-only"):
        replace_file(str(path), b"new", b"old\r\n")
    assert path.read_bytes() == b"old\r\n"


@pytest.mark.parametrize("now", [b"other", b"old\r\nmore", b""])
def test_a_file_that_changed_meanwhile_stays(path: Path, now: bytes) -> None:
    path.write_bytes(now)
    with pytest.raises(Unwritable, match="changed"):
        replace_file(str(path), b"new", b"old\r\n")
    assert path.read_bytes() == now


def test_a_file_that_is_gone_stays_gone(path: Path) -> None:
    path.unlink()
    with pytest.raises(Unwritable):
        replace_file(str(path), b"new", b"old\r\n")
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize(
    "original",
    [
        b"x = 1\n",
        b"\xef\xbb\xbfx = 1\r\n",
        b"# coding: latin-1\nx = '\xe9'\n",
        b"\xef\xbb\xbf# coding: utf-8\r\nx = '\xc3\xa9'",
        "# coding: shift_jis\nx = 'テ'\n".encode("shift_jis"),
    ],
)
def test_encoding_and_byte_order_mark_come_back(original: bytes) -> None:
    source = decode(original, "a.py")
    assert encoded(source, source.text, original) == original
    assert encoded(source, source.text + "y", original) == original + b"y"


def test_an_encoding_that_would_change_the_rest_is_refused() -> None:
    original = b"# coding: utf-7\nx = '+AGE-'\n"  # an "a", written in the long way
    source = decode(original, "a.py")
    with pytest.raises(Unwritable, match="same bytes"):
        encoded(source, source.text, original)


def test_characters_that_the_encoding_lacks_are_refused() -> None:
    original = b"# coding: ascii\nx = 1\n"
    source = decode(original, "a.py")
    with pytest.raises(Unwritable, match="ascii"):
        encoded(source, source.text + "é", original)
