"""A mistake behind something that certainly raises is advice; its twin, which does not, an error."""

from __future__ import annotations

import runpy
import shutil
import sys
from pathlib import Path

import pytest

from amplint.checker import check_paths
from amplint.config import Settings

pytest.importorskip("torch")

TWINS = Path("fixtures/AMP110/bad_raises_nothing")
#: (file of the twins, what of it is changed, into what)
CRASHES = (
    ("something.py", "tuned_well", "tuned"),
    ("something.py", "    print(muse.param_groups)\n", "    choir.warm_up()\n"),
    ("something.py", "    print(muse.param_groups)\n", "    print(Score().key)\n"),
    ("something.py", "in tapes(ShortTape())", "in tapes(Tape())"),
    ("something.py", 'in tapes(ShortTape())["tutti"]', "in len(ShortTape())"),
    ("stored.py", "wish.pace = wish.tempo / 2", "print(wish)"),
    ("words.py", "weight_decay", "decay"),
    ("stage.py", "        super().__init__()\n", ""),
    ("stage.py", "return self.tutti", "self.tutti"),
    ("stage.py", '"""What the rehearsals share."""', "beats = tempo * 4"),
)


@pytest.mark.parametrize(("file", "old", "new"), CRASHES, ids=[f"{r[0]} {r[2]}" for r in CRASHES])
def test_what_no_run_comes_to_is_advice(
    file: str, old: str, new: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(TWINS, tmp_path, dirs_exist_ok=True)
    program = "something.py" if file == "stage.py" else file
    names = "from stage import Choir, Score, ShortTape, Tape, "
    text = (tmp_path / program).read_text().replace("from stage import Choir, ShortTape, ", names)
    (tmp_path / program).write_text(text)
    for other in tmp_path.glob("*.py"):
        if other.name not in (program, "stage.py"):
            other.unlink()
    assert run(tmp_path / program, monkeypatch)
    assert severities(tmp_path) == ["error"]
    before = (tmp_path / file).read_text()
    (tmp_path / file).write_text(before.replace(old, new))
    assert old in before
    assert not run(tmp_path / program, monkeypatch)
    assert severities(tmp_path) == ["info"]


def run(program: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a program comes to its end, with the modules of its folder as they are now."""
    monkeypatch.syspath_prepend(program.parent)
    monkeypatch.setattr(sys, "argv", [str(program)])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a file changes within a second
    try:
        runpy.run_path(str(program), run_name="__main__")
    except Exception:  # noqa: BLE001 -- whatever it raises
        return False
    finally:
        for each in program.parent.glob("*.py"):
            sys.modules.pop(each.stem, None)
    return True


def severities(folder: Path) -> list[str]:
    settings = Settings(jobs=1, cache=False, project_root=str(folder))
    found = check_paths([str(folder)], settings).findings
    return [str(item.severity.value) for item in found if item.code == "AMP110"]
