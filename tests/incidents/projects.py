"""Runs the fixture projects: real files, real torch, no amplint.

Every fixture project is a folder with its own `main.py`, `config.py`, `trainer.py`. They
share module names, so a project is imported under a private path and forgotten afterwards.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
INCIDENTS = FIXTURES / "incidents"
SILENT = FIXTURES / "silent"


class Project:
    """A folder of modules that import each other by their bare names."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def module(self, name: str) -> ModuleType:
        """Import one of the project's modules."""
        return importlib.import_module(name)

    def run(self, *arguments: object, **keywords: object) -> object:
        """Call `main()` of the project's `main.py`."""
        return self.module("main").main(*arguments, **keywords)

    def failing_line(self, error: BaseException) -> tuple[str, int, str]:
        """File, 1-based row and text of the project's innermost line in a traceback."""
        for frame in reversed(traceback.extract_tb(error.__traceback__)):
            path = Path(frame.filename)
            if self.folder in path.parents:
                return path.relative_to(self.folder).as_posix(), frame.lineno or 0, frame.line or ""
        raise LookupError(f"no line of {self.folder} in the traceback") from error


@contextlib.contextmanager
def open_project(folder: Path) -> Iterator[Project]:
    """Make the modules of `folder` importable for the time of a `with` block."""
    folder = folder.resolve()
    known = set(sys.modules)
    bytecode = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield Project(folder)
    finally:
        sys.path.remove(str(folder))
        sys.dont_write_bytecode = bytecode
        for name in set(sys.modules) - known:
            if _is_inside(sys.modules[name], folder):
                del sys.modules[name]


def _is_inside(module: ModuleType, folder: Path) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and folder in Path(file).resolve().parents
