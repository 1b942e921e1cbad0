"""Options and markers of the whole suite."""

from __future__ import annotations

import gc
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


#: Where tests take ten seconds and more, the longest first. They begin a run: at its end each
#: process has short tests left, and none waits for another that is still in a long one.
LONG = (
    "tests/probe/test_incidents.py",
    "tests/probe/test_correct_code.py",
    "tests/live/test_fixture_runs.py",
    "tests/live/test_harm.py",
    "tests/test_types.py",
    "tests/test_robustness.py",
    "tests/test_scripts_",
    "tests/code/test_truth.py",
    "tests/probe/",
    "tests/live/",
)


#: More new objects than a test makes, so that the collector does not run inside of one, and other
#: numbers than those of `amplint/collector.py`; after so many of them it runs between two tests.
RARELY, ENOUGH = (3_000_000, 20, 99), 500_000


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Spare the collector what lives as long as the process: torch, and twelve thousand tests.

    It looks through them again and again otherwise, which is a tenth of the time of a run.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*RARELY)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Free what tests have left behind, and do not look again through what is still in use.

    Caches keep the trees of some thousand programs: 100 s of a run went into walking them, and
    another 50 s into walking what is new three times, once in each generation.
    """
    if gc.get_threshold() == RARELY and gc.get_count()[0] >= ENOUGH:
        gc.collect()
        gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long tests come first; those that need a GPU are skipped where torch sees none."""
    items.sort(key=lambda item: [not item.nodeid.startswith(name) for name in LONG])
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
