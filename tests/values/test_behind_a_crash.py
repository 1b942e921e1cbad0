"""A mistake behind something that certainly raises is advice; its twin, which does not, an error."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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
def test_what_no_run_comes_to_is_advice(file: str, old: str, new: str, tmp_path: Path) -> None:
    shutil.copytree(TWINS, tmp_path, dirs_exist_ok=True)
    program = "something.py" if file == "stage.py" else file
    names = "from stage import Choir, Score, ShortTape, Tape, "
    text = (tmp_path / program).read_text().replace("from stage import Choir, ShortTape, ", names)
    (tmp_path / program).write_text(text)
    for other in tmp_path.glob("*.py"):
        if other.name not in (program, "stage.py"):
            other.unlink()
    assert run(tmp_path / program) == 0
    assert severities(tmp_path) == ["error"]
    before = (tmp_path / file).read_text()
    (tmp_path / file).write_text(before.replace(old, new))
    assert old in before
    assert run(tmp_path / program) == 1
    assert severities(tmp_path) == ["info"]


def run(program: Path) -> int:
    done = subprocess.run([sys.executable, program], capture_output=True, check=False)
    return done.returncode


def severities(folder: Path) -> list[str]:
    command = [sys.executable, "-m", "amplint", "check", "--isolated", "--no-cache"]
    command += ["--output-format", "json", "--project-root", str(folder), str(folder)]
    told = json.loads(subprocess.run(command, capture_output=True, check=False).stdout)
    return [item["severity"] for item in told["findings"] if item["code"] == "AMP110"]
