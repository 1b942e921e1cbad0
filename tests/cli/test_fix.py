"""`--fix`, `--unsafe-fixes`, `--diff`, `--exit-non-zero-on-fix`: what is written, shown, returned."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

#: AMP208 has an unsafe fix: it names the argument.
BEFORE = 'import torch\n\nscaler = torch.amp.GradScaler("cuda", False)  # why\n'
AFTER = 'import torch\n\nscaler = torch.amp.GradScaler("cuda", enabled=False)  # why\n'
UNSAFE = ("--fix", "--unsafe-fixes")


@pytest.fixture
def train(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_bytes(BEFORE.encode())
    return path


def test_nothing_is_written_without_fix(run, train: Path) -> None:
    assert run("check").exit_code == 1
    assert train.read_text() == BEFORE


def test_safe_fixes_alone_leave_an_unsafe_one(run, train: Path) -> None:
    done = run("check", "--fix")
    assert done.exit_code == 1
    assert "1 unsafe fix available with `--fix --unsafe-fixes`." in done.stdout
    assert train.read_text() == BEFORE


def test_the_fix_is_applied_and_counted(run, train: Path) -> None:
    done = run("check", *UNSAFE)
    assert done.exit_code == 0
    assert done.stdout.startswith("Found 1 error (1 fixed, 0 remaining) in 1 file")
    assert train.read_text() == AFTER
    assert run("check").exit_code == 0


def test_a_second_run_changes_nothing(run, train: Path) -> None:
    run("check", *UNSAFE)
    done = run("check", *UNSAFE)
    assert done.exit_code == 0
    assert "fixed" not in done.stdout
    assert train.read_text() == AFTER


def test_json_counts_what_was_fixed(run, train: Path) -> None:
    before = json.loads(run("check", "--output-format", "json").stdout)
    assert before["findings"][0]["fix"]["applicability"] == "unsafe"
    after = json.loads(run("check", *UNSAFE, "--output-format", "json").stdout)
    assert after["summary"]["fixed"] == 1
    assert after["findings"] == []


def test_exit_non_zero_on_fix(run, train: Path) -> None:
    assert run("check", *UNSAFE, "--exit-non-zero-on-fix").exit_code == 1
    assert run("check", *UNSAFE, "--exit-non-zero-on-fix").exit_code == 0


def test_exit_zero_comes_first(run, train: Path) -> None:
    assert run("check", *UNSAFE, "--exit-non-zero-on-fix", "--exit-zero").exit_code == 0


def test_a_diff_is_shown_and_nothing_written(run, train: Path) -> None:
    done = run("check", "--diff", "--unsafe-fixes")
    assert done.exit_code == 1
    assert done.stdout.splitlines() == [
        "--- train.py",
        "+++ train.py",
        "@@ -1,3 +1,3 @@",
        " import torch",
        " ",
        '-scaler = torch.amp.GradScaler("cuda", False)  # why',
        '+scaler = torch.amp.GradScaler("cuda", enabled=False)  # why',
    ]
    assert done.stderr == "Would fix 1 finding.\n"
    assert train.read_text() == BEFORE


def test_an_empty_diff_is_no_failure(run, train: Path) -> None:
    done = run("check", "--diff")
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == "No fixes would be made.\n"


def test_the_diff_of_a_file_without_last_newline(run, train: Path) -> None:
    train.write_text(BEFORE.rstrip("\n"))
    lines = run("check", "--diff", "--unsafe-fixes").stdout.splitlines()
    assert lines.count("\\ No newline at end of file") == 2


def test_standard_input_is_printed_fixed(run) -> None:
    done = run("check", *UNSAFE, "-", input=BEFORE)
    assert done.exit_code == 0
    assert done.stdout == AFTER
    assert "1 fixed, 0 remaining" in done.stderr


def test_standard_input_without_fixes_is_printed_as_it_was(run) -> None:
    done = run("check", "--fix", "-", input=BEFORE)
    assert done.exit_code == 1
    assert done.stdout == BEFORE
    assert "AMP208" in done.stderr


def test_broken_standard_input_is_printed_as_it_was(run) -> None:
    done = run("check", "--fix", "-", input="def f(:\n")
    assert done.exit_code == 2
    assert done.stdout == "def f(:\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (BEFORE.replace("\n", "\r\n").encode(), AFTER.replace("\n", "\r\n").encode()),
        (BEFORE.replace("\n", "\r").encode(), AFTER.replace("\n", "\r").encode()),
        (
            BEFORE.replace("\n", "\r\n", 1).rstrip("\n").encode(),
            AFTER.replace("\n", "\r\n", 1).rstrip("\n").encode(),
        ),
        (b"\xef\xbb\xbf" + BEFORE.encode(), b"\xef\xbb\xbf" + AFTER.encode()),
        (
            f"# coding: latin-1\n# é\n{BEFORE}".encode("latin-1"),
            f"# coding: latin-1\n# é\n{AFTER}".encode("latin-1"),
        ),
    ],
    ids=["CRLF", "CR", "mixed, no last newline", "byte order mark", "latin-1"],
)
def test_bytes_outside_the_edit_stay(run, train: Path, before: bytes, after: bytes) -> None:
    train.write_bytes(before)
    assert run("check", *UNSAFE).exit_code == 0
    assert train.read_bytes() == after
    assert run("check", *UNSAFE, "-", input=before).stdout_bytes == after


def test_the_mode_stays(run, train: Path) -> None:
    train.chmod(0o750)
    run("check", *UNSAFE)
    assert stat.S_IMODE(train.stat().st_mode) == 0o750


def test_a_read_only_file_is_an_error(run, train: Path) -> None:
    other = train.with_name("other.py")
    other.write_text(BEFORE)
    train.chmod(0o444)
    done = run("check", *UNSAFE)
    assert done.exit_code == 2
    assert "error: train.py is not fixed: it is read-only" in done.stderr
    assert train.read_text() == BEFORE
    assert other.read_text() == AFTER


def test_a_linked_file_is_fixed_through_its_link(run, train: Path) -> None:
    link = train.with_name("link.py")
    link.symlink_to(train)
    run("check", *UNSAFE, "link.py")
    assert link.is_symlink()
    assert train.read_text() == AFTER


def test_a_link_out_of_the_checked_folder_is_not_followed(run, train: Path) -> None:
    inside = train.with_name("inside")
    inside.mkdir()
    (inside / "link.py").symlink_to(train)
    done = run("check", *UNSAFE, "inside")
    assert done.exit_code == 2
    assert "inside/link.py is not fixed: " in done.stderr
    assert train.read_text() == BEFORE


def test_a_hard_link_is_not_torn(run, train: Path) -> None:
    other = train.with_name("other")
    other.hardlink_to(train)
    assert run("check", *UNSAFE, "train.py").exit_code == 2
    assert train.samefile(other)
    assert train.read_text() == BEFORE


def test_the_settings_can_ask_for_fixes(run, train: Path) -> None:
    train.with_name("amplint.toml").write_text("fix = true\nunsafe-fixes = true\n")
    assert run("check", "--no-fix").exit_code == 1
    assert train.read_text() == BEFORE
    assert run("check").exit_code == 0
    assert train.read_text() == AFTER


def test_the_cache_does_not_remember_the_old_text(run, train: Path) -> None:
    run("check")
    run("check", *UNSAFE)
    assert run("check").exit_code == 0
    train.write_text(BEFORE)
    assert run("check").exit_code == 1


def test_fixable_findings_are_marked(run, train: Path) -> None:
    assert "[*]" not in run("check").stdout.splitlines()[0]
    done = run("check", "--unsafe-fixes", "--output-format", "concise")
    assert "train.py:3:39: error AMP208 [*] " in done.stdout
    assert "[*] 1 fixable with `--fix`." in done.stdout
    assert "error[AMP208] [*] " in run("check", "--unsafe-fixes", "--output-format", "full").stdout
