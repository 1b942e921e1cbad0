"""`scripts/deterministic.py` over amplint itself, and over stand-ins that do not keep their word."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"

# Reports what `TELL` says of the paths and options that it is called with.
STAND_IN = r"""
import json, os, sys
from pathlib import Path

paths = sys.argv[sys.argv.index("--") + 1 :]
cached = "--no-cache" not in sys.argv
cache = Path(os.environ["AMPLINT_CACHE_DIR"])
kept = sorted(path.suffix for path in cache.iterdir())
for name in ("a.json", "b.index") if cached else ():
    (cache / name).touch()
two = "2" in sys.argv
print(json.dumps({{"findings": [{tell}], "summary": {{"seconds": os.getpid()}}}}))
"""

TRAIN = """\
import torch
from steps import finish

scaler = torch.amp.GradScaler()
for batch in loader:
    optimizer.zero_grad()
    with torch.amp.autocast("cuda"):
        loss = model(batch).sum()
    scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    finish(scaler, optimizer)
"""
STEPS = """\
class Base:
    def run(self, scaler, optimizer):
        scaler.step(optimizer)
        scaler.update()


class Other(Base):
    pass


def finish(scaler, optimizer):
    Other().run(scaler, optimizer)
"""


@pytest.fixture
def deterministic(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module("deterministic")


@pytest.fixture
def checkouts(tmp_path: Path) -> tuple[str, str]:
    """The list and the folder of one checkout."""
    folder = tmp_path / "checkouts" / f"a__one@{'1' * 12}"
    for name, text in (("train.py", TRAIN), ("steps.py", STEPS), ("lib/other.py", TRAIN)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    listing = tmp_path / "list.tsv"
    listing.write_text("a/one\t" + "1" * 40 + "\n")
    return str(listing), str(tmp_path / "checkouts")


def test_amplint_says_the_same(
    deterministic: ModuleType, checkouts: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert deterministic.main(checkouts) == 0
    assert capsys.readouterr().out == "a/one: the same\n"


@pytest.mark.parametrize(
    ("tell", "names"),
    [
        ("0", []),
        ("os.getpid()", ["once more", "in two processes", "in another order"]),
        ("list(set('abcdefghijkl'))", ["once more", "in two processes"]),  # as strings are hashed
        ("two", ["in two processes", "in another order, in two processes"]),
        ("cached", ["with an empty cache", "with the project's index"]),
        ("'.json' in kept", ["with a full cache"]),
        ("kept == ['.index']", ["with the project's index", "with that index, in two processes"]),
        ("paths", ["in another order", "in another order, in two processes"]),
    ],
)
def test_what_differs_is_told(
    tell: str,
    names: list[str],
    deterministic: ModuleType,
    tmp_path: Path,
    checkouts: tuple[str, str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "0")  # whatever the environment says
    package = tmp_path / "tree" / "amplint"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(STAND_IN.format(tell=tell))
    tree = ["--tree", str(tmp_path / "tree"), "--seed", "1"]
    assert deterministic.main([*checkouts, *tree]) == int(bool(names))
    told = capsys.readouterr().out.splitlines()
    assert [f"  {name}:" for name in names if f"  {name}:" not in told] == []
    if not names:
        assert told == ["a/one: the same"]


def test_a_missing_checkout_is_no_success(
    deterministic: ModuleType, checkouts: tuple[str, str], tmp_path: Path
) -> None:
    assert deterministic.main([checkouts[0], str(tmp_path)]) == 2


def test_without_a_report(
    deterministic: ModuleType, checkouts: tuple[str, str], tmp_path: Path
) -> None:
    package = tmp_path / "tree" / "amplint"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text("import sys\nsys.exit('it crashed')\n")
    assert deterministic.main([*checkouts, "--tree", str(tmp_path / "tree")]) == 2
