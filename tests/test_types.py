"""Whether the annotations hold: amplint ships `py.typed`, so others' checkers believe them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_mypy_finds_no_error() -> None:
    """By the configuration of pyproject.toml; a comment that silences nothing is an error, too."""
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "amplint", "rules"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
