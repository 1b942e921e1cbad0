"""What calls really run, recorded by Python, against amplint's answers; and the judge itself."""

from __future__ import annotations

import importlib
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path
from types import ModuleType

import click
import pytest

pytestmark = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="code objects say no columns of calls before Python 3.11"
)

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPTS = REPOSITORY / "scripts"
INCIDENTS = REPOSITORY / "fixtures" / "incidents"

PROGRAM = """
    import functools
    from contextlib import contextmanager

    class Base:
        def run(self):
            return self.work()

        def work(self):
            return 0

    class Child(Base):
        def work(self):
            return sorted([2, 1], key=self.rank)

        def rank(self, item):
            return (
                helper(item)
                + str(self).count("x")
            )

        def __str__(self):
            return "x"

    def helper(item):
        return item

    def wrapped(function):
        @functools.wraps(function)
        def inner(*args):
            return function(*args)
        return inner

    @wrapped
    def decorated():
        return 1

    @contextmanager
    def opened():
        yield 1

    Child().run()
    Base().run()
    decorated()
    with opened():
        decorated()
"""


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module("truth_compare")


def record(root: Path, out: Path, *command: str) -> Path:
    recorder = str(SCRIPTS / "truth_recorder.py")
    done = subprocess.run(
        [sys.executable, recorder, str(out), str(root), *command],
        cwd=REPOSITORY,
        env={
            "PYTHONPATH": str(REPOSITORY),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HOME": str(out.parent),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture
def program(tmp_path: Path) -> Path:
    folder = tmp_path / "program"
    folder.mkdir()
    (folder / "program.py").write_text(textwrap.dedent(PROGRAM), encoding="utf-8")
    return record(folder, tmp_path / "program.json", str(folder / "program.py"))


def test_what_ran_is_recorded(scripts: ModuleType, program: Path) -> None:
    sites = scripts.read_recording(program).sites["program.py"]
    lines = textwrap.dedent(PROGRAM).splitlines()
    ran = {
        (lines[site.where[0] - 1].strip(), item.qualname, item.direct)
        for site in sites
        for item in site.ran
    }
    assert ran >= {
        ("return self.work()", "Base.work", True),
        ("return self.work()", "Child.work", True),
        ("return sorted([2, 1], key=self.rank)", "Child.rank", False),
        ("helper(item)", "helper", True),
        ("decorated()", "wrapped.<locals>.inner", True),
        ("return function(*args)", "decorated", True),
    }


@pytest.mark.parametrize(
    ("claimed", "complete", "outcome"),
    [
        (("work", 8), True, "wrong"),  # the override is missing
        (("work", 8), False, "unknown"),
        (("work", 8, 12), True, "contained"),
        (("work", 8, 12), False, "contained"),
        (("work",), False, "unknown"),
    ],
)
def test_an_answer_is_judged(
    scripts: ModuleType,
    program: Path,
    monkeypatch: pytest.MonkeyPatch,
    claimed: tuple[str, ...],
    complete: bool,
    outcome: str,
) -> None:
    """The lines are those of `Base.work` and `Child.work`."""
    name, *lines = claimed
    functions = frozenset(("program.py", line + 1, name) for line in lines)
    answer = scripts.Answer(functions, complete, "" if complete else "why")
    monkeypatch.setattr(scripts.Model, "targets", lambda *_: answer)
    found = scripts.compare(scripts.read_recording(program), own_roots=False)
    judged = {item.text: item for item in found.verdicts}
    verdict = judged["self.work()"]
    assert verdict.outcome == outcome
    assert (verdict.reason == "why") is (outcome == "unknown")
    assert "str(self)" not in judged  # it happens to run `__str__`, but does not name it


def test_fixtures_are_answered_right(scripts: ModuleType, tmp_path: Path) -> None:
    folders = [
        INCIDENTS / "0_leftover_flush" / "after",
        INCIDENTS / "1_flush_guard" / "after",
        INCIDENTS / "3_nan_gradients" / "after",
    ]
    driver = str(REPOSITORY / "tests" / "code" / "truth_driver.py")
    out = record(INCIDENTS, tmp_path / "fixtures.json", driver, *map(str, folders))
    found = scripts.compare(scripts.read_recording(out), own_roots=True)
    counts = Counter(item.outcome for item in found.verdicts)
    assert not [item for item in found.verdicts if item.outcome == scripts.WRONG]
    assert not found.receivers.wrong
    assert counts[scripts.CONTAINED] > 20


def test_click_is_answered_right(scripts: ModuleType, tmp_path: Path) -> None:
    root = Path(click.__file__).parent
    driver = str(REPOSITORY / "tests" / "code" / "click_driver.py")
    out = record(root, tmp_path / "click.json", driver)
    found = scripts.compare(scripts.read_recording(out), own_roots=False)
    counts = Counter(item.outcome for item in found.verdicts)
    assert not [item for item in found.verdicts if item.outcome == scripts.WRONG]
    assert not found.receivers.wrong
    assert counts[scripts.CONTAINED] > 150
