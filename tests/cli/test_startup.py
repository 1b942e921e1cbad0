"""Starting must stay cheap: every run of a pre-commit hook pays for it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import amplint

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {"ast", "importlib.metadata", "libcst", "packaging", "rich", "torch"}

PROGRAM = """
import sys
sys.path.insert(0, {root!r})
from amplint.cli.main import main
try:
    main()
finally:
    print(*sorted(sys.modules), file=sys.stderr)
"""


def modules_after(*args: str) -> tuple[str, set[str]]:
    """stdout of a run of amplint, and the modules it imported."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(root=str(ROOT)), *args],
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    return done.stdout, set(done.stderr.split())


@pytest.mark.parametrize("args", [("--version",), ("--help",), ("check", "--help")])
def test_nothing_heavy_is_imported(args) -> None:
    before = subprocess.run(
        [sys.executable, "-c", "import sys, click; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    _, modules = modules_after(*args)
    assert "click" in modules
    added = modules - set(before.stdout.split())
    assert not added & HEAVY
    assert not modules & {"libcst", "torch", "rich", "importlib.metadata"}
    assert not {name for name in modules if name.startswith(("amplint.rules", "amplint.flow"))}


def test_version() -> None:
    stdout, _ = modules_after("--version")
    assert stdout == f"amplint {amplint.__version__}\n"
    assert re.fullmatch(r"amplint \d+\.\d+\.\d+\n", stdout)


def test_checking_a_file_imports_neither_torch_nor_libcst(tmp_path) -> None:
    path = tmp_path / "train.py"
    path.write_text("from torch.amp import GradScaler\nscaler = GradScaler('cuda')\n")
    _, modules = modules_after("check", "--isolated", str(path))
    assert "amplint.checker" in modules
    assert not modules & {"libcst", "torch", "rich"}


def test_python_dash_m(start) -> None:
    done = start("--version")
    assert (done.returncode, done.stdout) == (0, f"amplint {amplint.__version__}\n")
