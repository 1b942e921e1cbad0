"""Runs `main()` of fixture projects, for `test_truth.py` to record: FOLDER ..."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.incidents.projects import open_project

if __name__ == "__main__":
    for folder in sys.argv[1:]:
        with open_project(Path(folder)) as project:
            project.run()
