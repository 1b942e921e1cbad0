"""Options and markers of the whole suite."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest

#: Tests run beside each other: a program of one test must not take every processor, and how
#: long an example takes says nothing on a busy machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")
#: Hundreds of tests start processes that import amplint. Without bytecode on disk each of them
#: compiles its sources again, which is half of the time of a check of one file.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
hypothesis.settings.register_profile("amplint", deadline=None)
hypothesis.settings.load_profile("amplint")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write the rendered output of this run into the golden files",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests that need a GPU where torch sees none."""
    marked = [item for item in items if item.get_closest_marker("cuda")]
    if not marked:
        return
    import torch

    if not torch.cuda.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="torch sees no NVIDIA GPU"))


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare text with `golden/NAME` beside the test, or write it with --update-golden."""

    def check(name: str, text: str) -> None:
        path = Path(request.path).parent / "golden" / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
        assert path.exists(), f"{path} is missing; run pytest with --update-golden"
        assert text == path.read_text(encoding="utf-8")

    return check
